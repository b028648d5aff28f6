"""One-file tasks: read, explained, unpacked, run and packed."""

from __future__ import annotations

import json
import shlex
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import PluginFolder, run_task, write_task

from mlgym_core import grade_folder, load_task
from mlgym_core.authoring.scaffold.packages import pack
from mlgym_core.errors import InfrastructureError, TaskSpecError, UnknownTaskError, UsageError
from mlgym_core.task.onefile import load_one_file, read_one_file
from mlgym_core.task.paths import is_path, load_task_path

BLOCK = """\
# /// mlgym-task
# schema: 1
# id: echo
# title: Echo
# metrics:
#   - {name: Score, direction: up}
# submission: {kind: csv, paths: [answer.csv]}
# baseline: {command: python3 baseline.py}
# sizes: {full: {}}
# ///
"""
BODY = '''\
"""
    # Echo

    Write 1 to answer.csv.
"""

# %% public/baseline.py
from pathlib import Path

Path("answer.csv").write_text("1")

# %% public/notes/read.me
# Two lines,
#
# one of them with {braces} and $1.

# %% private/grade.py
import mlgym_peer as peer

text = (peer.job().paths["submission"] / "answer.csv").read_text()
peer.scored({"Score": float(text)})
'''
TASK = BLOCK + BODY


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder: Path, text: str = TASK, name: str = "echo_task.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def line_of(text: str, piece: str) -> int:
    return text[: text.index(piece)].count("\n") + 1


def test_it_is_a_task_folder_in_one_file(tmp_path: Path) -> None:
    task = load_task(str(write(tmp_path)))
    assert (task.id, task.distribution) == ("echo", "")
    assert task.description() == "# Echo\n\nWrite 1 to answer.csv.\n"
    assert set(task.public_files()) == {"baseline.py", "notes/read.me"}
    assert task.public_files()["notes/read.me"].read_text() == "Two lines,\n\none of them with {braces} and $1.\n"
    assert task.public_files()["baseline.py"].read_text().startswith("from pathlib")
    assert set(task.private_files()) == {"grade.py"}
    assert task.image.requirement_lines() == []
    assert (task.image.folder / "Dockerfile").is_file()


def test_it_runs_from_the_library_and_is_graded(tmp_path: Path) -> None:
    path = write(tmp_path)
    result = run_task(task=str(path), backend="local", out=tmp_path / "runs")
    assert (result.status, result.score) == ("scored", 1.0)
    (tmp_path / "answer").mkdir()
    (tmp_path / "answer" / "answer.csv").write_text("2.5")
    assert grade_folder(str(path), tmp_path / "answer", backend="local").metrics == {"Score": 2.5}


def test_every_command_takes_a_path(plugins: PluginFolder, tmp_path: Path) -> None:
    path = str(write(tmp_path))
    shown = plugins.run("tasks", "show", path)
    assert f"echo ({path})" in shown.stdout
    for command in (("run", path), ("baseline", path)):
        done = plugins.run(*command, "--backend", "local", "--json")
        assert json.loads(done.stdout)["scores"]["test"] == {"Score": 1.0}, done.stderr
    (tmp_path / "answer.csv").write_text("3")
    done = plugins.run("grade", path, str(tmp_path), "--backend", "local", "--json")
    assert json.loads(done.stdout)["scores"]["test"] == {"Score": 3.0}
    broken = plugins.run("run", str(write(tmp_path, TASK.replace("title:", "titel:"), "broken.py")))
    assert broken.returncode == 2
    assert "Traceback" not in broken.stderr


def test_a_traceback_of_the_grader_has_the_lines_of_the_one_file(tmp_path: Path) -> None:
    text = TASK.replace("peer.scored", "peer.scord")
    (tmp_path / "answer.csv").write_text("3")
    grade = grade_folder(str(write(tmp_path, text)), tmp_path, backend="local")
    assert grade.outcome == "grader_error"
    assert f"line {line_of(text, 'peer.scord')}" in grade.message


def test_requirements_of_the_block_become_the_environments(tmp_path: Path) -> None:
    block = BLOCK.replace("# title", "# requirements:\n#   - numpy>=1.26\n#   - attrs\n# title")
    task = load_task_path(write(tmp_path, block + BODY))
    assert task.image.requirement_lines() == ["numpy>=1.26", "attrs"]
    assert "requirements" not in (task.folder / "task.yaml").read_text()
    one_line = BLOCK.replace("# title", "# requirements: [numpy]\n# title")
    task = load_task_path(write(tmp_path, one_line + BODY))
    assert (task.title, task.image.requirement_lines()) == ("Echo", ["numpy"])


def test_files_may_have_carriage_returns_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "echo_task.py"
    path.write_bytes(b"\xef\xbb\xbf" + TASK.replace("\n", "\r\n").encode())
    plain = write(tmp_path, name="other.py")
    assert read_one_file(path).files() == read_one_file(plain).files()


def test_data_modules_and_other_files_have_their_place(tmp_path: Path) -> None:
    data = textwrap.dedent("""
        # %% data.py
        def prepare(source, size, seed, out):
            (out.public / "seed").write_text(str(seed))

        # %% data_words.txt
        # one
        # %% image/Dockerfile
        # FROM scratch
        """)
    block = BLOCK.replace("# title", "# data: {sources: [synthetic]}\n# title")
    task = load_task_path(write(tmp_path, block + BODY + data))
    assert task.data is not None
    assert (task.folder / "data_words.txt").read_text() == "one\n"
    assert (task.folder / "image" / "Dockerfile").read_text() == "FROM scratch\n"
    result = run_task(task=task, backend="local", out=tmp_path / "runs")
    assert result.status == "scored"


MISTAKES = {
    "no block": (lambda t: t.replace("# /// mlgym-task", "# /// script"), "/// mlgym-task", None),
    "block twice": (lambda t: t + BLOCK, "second block", "# /// mlgym-task"),
    "no end": (lambda t: t.replace("# ///\n", "", 1), "ends with a line", '"""'),
    "gap in the block": (lambda t: t.replace("# title: Echo", "title: Echo"), "begins with '# '", "title: Echo"),
    "not yaml": (lambda t: t.replace("{name: Score", "{name: : Score"), "not YAML", "{name: : Score"),
    "unknown key": (lambda t: t.replace("# title", "# titel"), "did you mean 'title'", "# titel"),
    "deep key": (lambda t: t.replace("direction: up", "direktion: up"), "did you mean 'direction'", "direktion"),
    "wrong value": (lambda t: t.replace("kind: csv", "kind: cvs"), "choose from csv", "kind: cvs"),
    "bad id": (lambda t: t.replace("id: echo", "id: Echo!"), "joined by hyphens", None),
    "twice a key": (lambda t: t.replace("# title: Echo", "# title: Echo\n# title: E"), "occurs twice", None),
    "requirements": (lambda t: t.replace("# title", "# requirements: x\n# title"), "list of texts", "# requirem"),
    "no grader": (lambda t: t[: t.index("# %% private")], "# %% private/grade.py", None),
    "no description": (lambda t: t.replace('"""', "#").replace("    ", "# "), "docstring", None),
    "stray code": (lambda t: t.replace("\n# %% public/baseline.py", "\nx = 1\n# %% b.py"), "no file", "x = 1"),
    "no path": (lambda t: t.replace("# %% public/baseline.py", "# %%"), "must be followed", "# %%\n"),
    "up": (lambda t: t.replace("public/baseline.py", "public/../../x.py"), "must be followed", "# %% public/.."),
    "absolute": (lambda t: t.replace("public/baseline.py", "/etc/x.py"), "must be followed", "# %% /etc"),
    "no place": (lambda t: t.replace("public/baseline.py", "pubilc/x.py"), "has no place", "# %% pubilc"),
    "yaml twice": (lambda t: t.replace("public/baseline.py", "task.yaml"), "has no place", "# %% task.yaml"),
    "file twice": (lambda t: t.replace("public/notes/read.me", "public/baseline.py"), "clashes", "# %% public/base"),
    "file in a file": (lambda t: t.replace("public/notes", "public/baseline.py"), "clashes", "baseline.py/"),
    "no python": (lambda t: t.replace("import mlgym_peer", "improt mlgym_peer"), "no Python", "improt"),
    "no comment": (lambda t: t.replace("# Two", "Two"), "begins with '# '", "Two lines"),
    "no module": (lambda t: t.replace("# title", "# data: {}\n# title"), "# %% data.py", None),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_file_and_line(name: str, tmp_path: Path) -> None:
    change, words, at = MISTAKES[name]
    text = change(TASK)
    assert text != TASK
    path = write(tmp_path, text)
    with pytest.raises(TaskSpecError) as refused:
        load_task(str(path))
    message = str(refused.value)
    assert message.startswith(f"{path}, line ")
    assert words in message
    assert str(tmp_path / "cache") not in message
    assert "\n" not in message
    if at is not None:
        where = text.rindex(at) if name in ("block twice", "file twice") else text.index(at)
        assert f", line {text[:where].count(chr(10)) + 1}: " in message


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(b"# /// mlgym-task\n\xff")
    with pytest.raises(TaskSpecError, match=r"x\.py cannot be read"):
        load_one_file(path)


@given(st.text(alphabet="#%/ \n\"'ab:{}[]-.\\pubgrade", max_size=200), st.integers(0, len(TASK)))
def test_whatever_the_text_it_loads_or_is_explained(piece: str, at: int) -> None:
    import tempfile
    import warnings

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own, about escapes in the text
        path = write(Path(folder), TASK[:at] + piece + TASK[at:])
        try:
            one = read_one_file(path)
        except TaskSpecError as error:
            assert str(path) in str(error)
        else:
            for name in one.files():
                assert not name.startswith("/")
                assert ".." not in name.split("/")


def test_the_same_content_is_unpacked_once_and_other_content_elsewhere(tmp_path: Path, own_cache: Path) -> None:
    first = load_task_path(write(tmp_path)).folder
    assert load_task_path(write(tmp_path)).folder == first
    other = load_task_path(write(tmp_path, TASK.replace("float(text)", "1.0"))).folder
    assert other != first
    assert {path for path in (own_cache / "tasks").iterdir() if path.is_dir()} == {first, other}


@pytest.mark.parametrize("harm", ["change", "add", "remove"])
def test_a_damaged_folder_is_unpacked_anew(harm: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    folder = load_task_path(path).folder
    before = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    if harm == "remove":
        (folder / "private" / "grade.py").unlink()
    else:
        (folder / "private" / ("grade.py" if harm == "change" else "added.py")).write_text("1")
    assert load_task_path(path).folder == folder
    assert {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_many_may_unpack_at_once(tmp_path: Path, own_cache: Path) -> None:
    path = write(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: load_task_path(path).folder, range(24)))
    (folder,) = folders
    assert [path for path in (own_cache / "tasks").iterdir() if path.is_dir()] == [folder]


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="MLGYM_CACHE"):
        load_task_path(write(tmp_path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.py", True),
        ("./a", True),
        ("a/b", True),
        (".", True),
        ("blotto", False),
        ("dist:blotto", False),
        ("a.b", False),
    ],
)
def test_what_is_a_path(name: str, expected: bool) -> None:
    assert is_path(name) is expected


def test_folders_are_tasks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_task(tmp_path / "sample")
    for place in (str(folder), str(folder / "task.yaml")):
        assert load_task(place).id == "sample"
    monkeypatch.chdir(tmp_path)
    assert load_task("./sample").folder == folder
    monkeypatch.chdir(folder)
    assert load_task(".").id == "sample"
    package = write_task(tmp_path / "package" / "src" / "one").parents[1]
    assert load_task(str(package)).id == "sample"
    write_task(package / "src" / "two")
    with pytest.raises(TaskSpecError, match="holds 2 tasks; say which"):
        load_task(str(package))


@pytest.mark.parametrize("name", ["./nowhere", "nowhere.py", "./empty", "./text.txt"])
def test_what_is_no_task_is_said_to_be_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(UnknownTaskError, match="task"):
        load_task(name)


def test_pack_makes_a_package_that_is_the_same_task(tmp_path: Path) -> None:
    text = BLOCK.replace("# title: Echo", '# title: An "echo", é\n# aliases: [echoAsPublished]') + BODY
    path = write(tmp_path, text)
    made = pack(path, tmp_path / "out")
    assert (made.folder, made.distribution) == (tmp_path / "out" / "echo", "mlgym-task-echo")
    project = tomllib.loads((made.folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["description"] == 'An "echo", é (MLGym task).'
    assert project["entry-points"] == {
        "mlgym.tasks": {"echo": "mlgym_task_echo"},
        "mlgym.task_aliases": {"echoAsPublished": "mlgym_task_echo"},
    }
    packed, loose = load_task(str(made.folder)), load_task(str(path))
    assert packed.folder == made.folder / "src" / "mlgym_task_echo"
    assert set(packed.public_files()) == set(loose.public_files())
    assert (packed.folder / "private" / "grade.py").read_text().startswith("import mlgym_peer")
    assert "Echo" in packed.description()
    (tmp_path / "answer.csv").write_text("4")
    assert grade_folder(packed, tmp_path, backend="local").metrics == {"Score": 4.0}


def test_pack_takes_folders_and_leaves_out_what_is_no_part_of_the_task(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "sample")
    (folder / "__init__.py").write_text("raise RuntimeError")
    (folder / "runs").mkdir()
    (folder / "runs" / "old").write_text("")
    (folder / "public" / "pkg").mkdir()
    (folder / "public" / "pkg" / "__init__.py").write_text("")
    made = pack(folder, tmp_path / "out")
    inside = made.folder / "src" / "mlgym_task_sample"
    assert "hookimpl" in (inside / "__init__.py").read_text()
    assert (inside / "public" / "pkg" / "__init__.py").is_file()
    assert not (inside / "runs").exists()


def test_pack_overwrites_nothing_and_refuses_what_is_no_task(tmp_path: Path) -> None:
    path = write(tmp_path)
    pack(path, tmp_path)
    with pytest.raises(UsageError, match="left alone"):
        pack(path, tmp_path)
    with pytest.raises(UnknownTaskError):
        pack(tmp_path / "nowhere.py", tmp_path)


def test_the_pack_command_prints_the_next_commands(plugins: PluginFolder, tmp_path: Path) -> None:
    done = plugins.run("pack", str(write(tmp_path)), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert Path(shlex.split(first)[-1]).resolve() == tmp_path / "out" / "echo"
    assert rest == ["mlgym baseline echo", "mlgym check echo"]
