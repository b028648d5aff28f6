"""The data room: what is prepared once, what makes it be prepared anew, and what a failure leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from support import TASK_YAML, write_task

from mlgym_core import data
from mlgym_core.errors import InfrastructureError, TaskSpecError, UsageError
from mlgym_core.task.task import Data, Task
from mlgym_core.task.taskfile import load_task_folder

MODULE = """
EXPECTS = "a folder with table.csv"

def prepare(source, size, seed, out):
    text = (source.path / "table.csv").read_text() if source.path else source.kind
    out.progress(f"writing {size}")
    (out.public / "sub").mkdir()
    (out.public / "sub" / "x.csv").write_text(f"{text} {size} {seed} {dict(out.parameters)}")
    (out.private / "labels.csv").write_text("secret")
"""
YAML = TASK_YAML.replace("{{full: {{}}}}", "{{full: {{}}, tiny: {{parameters: {{rows: 3}}}}}}") + (
    "data: {{sources: [hub, local, synthetic]}}\n"
)
MakeTask = Callable[..., Task]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    def make(module: str = MODULE, task_id: str = "sample") -> Task:
        folder = tmp_path / "tasks" / task_id
        write_task(folder, task_id, yaml=YAML)
        (folder / "data.py").write_text(textwrap.dedent(module))
        return load_task_folder(folder)

    return make


def prepare(
    task: Task, source: str | None = None, size: str = "full", seed: int = 0
) -> tuple[data.Prepared, list[str]]:
    told: list[str] = []
    return data.prepare(task, source, size, seed, told.append), told


def left(cache: Path) -> list[str]:
    """Everything in the cache but locks."""
    return sorted(p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_prepares_once_and_says_what_it_does(make_task: MakeTask) -> None:
    task = make_task()
    first, told = prepare(task, size="tiny", seed=7)
    assert first.public is not None
    assert first.private is not None
    assert (first.public / "sub" / "x.csv").read_text() == "hub tiny 7 {'rows': 3}"
    assert (first.private / "labels.csv").read_text() == "secret"
    assert first.source == "hub"
    assert set(first.checksums) == {"public/sub/x.csv", "private/labels.csv"}
    assert "writing tiny" in told
    (task.folder / "description.md").write_text("other words")
    assert prepare(task, size="tiny", seed=7) == (first, [])


def test_a_part_without_files_is_no_part(make_task: MakeTask) -> None:
    found, _ = prepare(make_task("def prepare(source, size, seed, out):\n    (out.public / 'x').touch()\n"))
    assert (found.public is not None, found.private) == (True, None)


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_others_can_read_and_not_write(make_task: MakeTask, umask: int) -> None:
    before = os.umask(umask)
    try:
        found, _ = prepare(make_task())
    finally:
        os.umask(before)
    assert found.public is not None
    assert found.private is not None
    entry = found.public.parent
    for path in (entry, *found.public.rglob("*"), *found.private.rglob("*"), found.public, found.private):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_everything_that_makes_other_data_makes_another_entry(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task()
    local = tmp_path / "mine"
    local.mkdir()
    (local / "table.csv").write_text("one")
    source = f"local:{local}"
    seen = [prepare(task)[0], prepare(task, "synthetic")[0], prepare(task, source)[0]]
    seen += [prepare(task, size="tiny")[0], prepare(task, seed=1)[0]]
    seen.append(prepare(attrs.evolve(task, version="2"))[0])
    (local / "table.csv").write_text("two")
    seen.append(prepare(task, source)[0])
    (local / "more.csv").write_text("")
    seen.append(prepare(task, source)[0])
    (task.folder / "data_ids.txt").write_text("1")
    seen.append(prepare(task)[0])
    (task.folder / "data.py").write_text(MODULE + "# changed\n")
    seen.append(prepare(task)[0])
    assert len({found.public for found in seen}) == len(seen)
    assert len(data.list_entries("sample")) == len(seen)


def test_a_local_source_is_known_by_its_content(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "table.csv").write_text("same")
    first, _ = prepare(task, f"local:{tmp_path / 'here'}")
    second, told = prepare(task, f"local:{tmp_path / 'there'}")
    assert (first, told) == (second, [])
    assert first.source.startswith("local:")
    assert "here" not in first.source


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nowhere", "choose from: hub, local:<folder or file>, synthetic"),
        ("", "source local needs a place"),
        ("local", "source local needs a place: --source local:<folder or file>"),
        ("local:", "source local needs a place"),
        ("local:{}/absent", "does not exist; name a folder with table.csv"),
        ("hub:{}", "source hub takes no path"),
    ],
)
def test_sources_that_are_refused(make_task: MakeTask, tmp_path: Path, cache: Path, source: str, reason: str) -> None:
    task = make_task()
    if not source:
        task = attrs.evolve(task, data=Data(sources=("local",)))
    with pytest.raises(UsageError, match=reason):
        prepare(task, source.format(tmp_path) or None)
    assert left(cache) == []


def test_a_task_must_declare_a_source(make_task: MakeTask) -> None:
    with pytest.raises(TaskSpecError, match="name at least one kind of source"):
        prepare(attrs.evolve(make_task(), data=Data(sources=())))


def test_the_code_that_the_key_names_is_the_code_that_runs(make_task: MakeTask) -> None:
    seen = []
    for word in ("one", "two"):
        task = make_task(f"def prepare(source, size, seed, out):\n    (out.public / 'x').write_text('{word}')\n")
        os.utime(task.folder / "data.py", (1, 1))  # as two edits within a second
        found = prepare(task)[0]
        assert found.public is not None
        seen.append((found.public / "x").read_text())
    assert seen == ["one", "two"]


def test_a_task_without_data_takes_no_source(make_task: MakeTask) -> None:
    task = attrs.evolve(make_task(), data=None)
    assert prepare(task) == (data.Prepared(), [])
    with pytest.raises(UsageError, match="has no data"):
        prepare(task, "hub")


def test_an_unknown_size_is_refused(make_task: MakeTask) -> None:
    with pytest.raises(UsageError, match="choose from: full, tiny"):
        prepare(make_task(), size="huge")


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        (
            "raise RuntimeError('boom')",
            InfrastructureError,
            "from hub failed: RuntimeError: boom; other sources: local",
        ),
        ("raise UsageError('do this')", UsageError, "^do this$"),
        ("import os; os.symlink('/etc/passwd', out.public / 'y')", InfrastructureError, "public/y, which is a link"),
        ("import os; os.mkfifo(out.private / 'y')", InfrastructureError, "private/y, which is a link or a device"),
        ("raise OSError(28, 'No space left on device')", InfrastructureError, "no space is left"),
        ("raise KeyboardInterrupt('stop')", KeyboardInterrupt, "stop"),
    ],
)
def test_a_failure_leaves_nothing(
    make_task: MakeTask, cache: Path, body: str, error: type[BaseException], reason: str
) -> None:
    head = "from mlgym_core.errors import UsageError\ndef prepare(source, size, seed, out):\n"
    task = make_task(f"{head}    (out.public / 'x').write_text('half')\n    {body}\n")
    with pytest.raises(error, match=reason):
        prepare(task)
    assert left(cache) == []
    assert data.list_entries() == []
    (task.folder / "data.py").write_text(MODULE)
    assert prepare(task)[0].public is not None


@pytest.mark.parametrize("body", ["open(source.path / 'table.csv')", "int('x')", "{}['column']"])
def test_a_local_source_that_does_not_fit_is_the_users(make_task: MakeTask, tmp_path: Path, body: str) -> None:
    task = make_task(f"EXPECTS = 'a folder with table.csv'\ndef prepare(source, size, seed, out):\n    {body}\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty does not fit: .*; name a folder with table\.csv"):
        prepare(task, f"local:{tmp_path / 'empty'}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"), ("x = 1", "lacks a function prepare")],
)
def test_a_broken_module_is_the_tasks(make_task: MakeTask, text: str, reason: str) -> None:
    with pytest.raises(TaskSpecError, match=reason):
        prepare(make_task(text))


def test_modules_of_two_tasks_never_meet(make_task: MakeTask) -> None:
    text = """
        from dataclasses import dataclass
        state = []
        @dataclass
        class Row:
            x: "int"
        def prepare(source, size, seed, out):
            state.append(seed)
            (out.public / "x").write_text(f"{NAME} {Row(seed)} {state}")
    """
    before = dict(sys.modules)
    texts = []
    for seed in (1, 2):
        for name in ("one", "two"):
            task = make_task(text.replace("{NAME}", name), task_id=name)
            found = prepare(task, seed=seed)[0]
            assert found.public is not None
            texts.append((found.public / "x").read_text())
    assert texts == [f"{name} Row(x={seed}) [{seed}]" for seed in (1, 2) for name in ("one", "two")]
    assert not [name for name in sys.modules if name not in before and "data" in name]


# --- damage ----------------------------------------------------------------------------------------------------------


def spoil_size(entry: Path) -> None:
    (entry / "public" / "sub" / "x.csv").write_text("longer than it was, by far, whatever it was")


def spoil_removed(entry: Path) -> None:
    (entry / "private" / "labels.csv").unlink()


def spoil_added(entry: Path) -> None:
    (entry / "public" / "new").touch()


def spoil_part(entry: Path) -> None:
    shutil.rmtree(entry / "private")


def spoil_same_size(entry: Path) -> None:
    (entry / "private" / "labels.csv").write_text("SECRET")
    os.utime(entry / "private" / "labels.csv", ns=(1, 1))


def spoil_manifest(entry: Path) -> None:
    (entry / "entry.json").write_text('{"schema": 1')


@pytest.mark.parametrize("spoil", [spoil_size, spoil_removed, spoil_added, spoil_part, spoil_same_size, spoil_manifest])
def test_damage_is_found_at_the_next_use_and_mended(make_task: MakeTask, spoil: Callable[[Path], None]) -> None:
    task = make_task()
    found, _ = prepare(task)
    assert found.public is not None
    spoil(found.public.parent)
    again, told = prepare(task)
    assert again == found
    assert any("is damaged" in text for text in told) == (spoil is not spoil_manifest)
    assert data.verify() == []
    assert (found.public / "sub" / "x.csv").read_text() == "hub full 0 {}"


def test_a_copied_cache_whose_times_have_changed_is_not_damaged(make_task: MakeTask) -> None:
    task = make_task()
    found, _ = prepare(task)
    assert found.private is not None
    os.utime(found.private / "labels.csv", ns=(1, 1))
    assert prepare(task) == (found, [])


def test_verify_reads_everything_and_removes_what_is_damaged(make_task: MakeTask) -> None:
    one, two = make_task(task_id="one"), make_task(task_id="two")
    first, second = prepare(one)[0], prepare(two)[0]
    assert first.private is not None
    assert second.public is not None
    labels = first.private / "labels.csv"
    stat = labels.stat()
    labels.write_text("SECRET")
    os.utime(labels, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert prepare(one)[1] == []  # neither size nor time tells
    assert data.verify("two") == []
    (damage,) = data.verify()
    assert (damage.task, damage.problems) == ("one", ("private/labels.csv has changed",))
    assert [entry.task for entry in data.list_entries()] == ["two"]
    assert prepare(one)[0] == first
    assert labels.read_text() == "secret"


# --- list and remove -------------------------------------------------------------------------------------------------


def test_list_and_remove(make_task: MakeTask, cache: Path) -> None:
    one, two = make_task(task_id="one"), make_task(task_id="two")
    for task, seed in ((one, 1), (one, 2), (two, 3)):
        prepare(task, seed=seed)
    entries = data.list_entries()
    assert [(e.task, e.seed, e.size, e.source) for e in entries] == [
        ("one", 1, "full", "hub"), ("one", 2, "full", "hub"), ("two", 3, "full", "hub")
    ]  # fmt: skip
    assert all(0 <= entry.age < 600 and entry.bytes > 10 for entry in entries)
    assert [entry.seed for entry in data.remove("one")] == [1, 2]
    assert [entry.task for entry in data.list_entries()] == ["two"]
    assert [entry.task for entry in data.remove()] == ["two"]
    assert data.remove() == []
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["..", "../..", "a/b", "/etc", ""])
def test_only_names_of_tasks_are_removed(name: str) -> None:
    with pytest.raises(UsageError, match="is no task's id"):
        data.remove(name)


def test_a_foreign_file_in_the_cache_disturbs_nothing(make_task: MakeTask, cache: Path) -> None:
    prepare(make_task())
    (cache / "data" / "stray").write_text("x")
    assert len(data.list_entries()) == 1
    assert data.verify() == []


# --- several at once, killed, no space -------------------------------------------------------------------------------

SLOW = """
import os
from pathlib import Path
def prepare(source, size, seed, out):
    with open({log!r}, "a") as log:
        log.write("prepared\\n")
    (out.public / "half").write_text("half")
    out.progress("begun")
    if Path({gate!r}).exists():
        Path({gate!r}).read_text()
    (out.public / "rest").write_text("rest")
"""
CHILD = """
import sys
from pathlib import Path
from mlgym_core import data
from mlgym_core.task.taskfile import load_task_folder
found = data.prepare(load_task_folder(Path(sys.argv[1])), None, "full", 0, lambda text: print(text, flush=True))
print(sorted(found.checksums), flush=True)
"""


class Children:
    """Preparers in processes of their own; a named pipe holds each up in the middle until somebody opens it."""

    def __init__(self, folder: Path, make_task: MakeTask) -> None:
        self.gate, self.log = folder / "gate", folder / "log"
        os.mkfifo(self.gate)
        self.task = make_task(SLOW.format(log=str(self.log), gate=str(self.gate)))
        self.running: list[subprocess.Popen[str]] = []

    def start(self, until: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.task.folder)], stdout=subprocess.PIPE, text=True
        )
        self.running.append(child)
        assert child.stdout is not None
        for line in child.stdout:
            if until in line:
                return child
        raise AssertionError(f"the child never said {until!r}")

    def open_gate(self) -> None:
        self.gate.write_text("go")

    def close(self) -> None:
        for child in self.running:
            child.kill()
            child.communicate()


@pytest.fixture
def children(tmp_path: Path, make_task: MakeTask) -> Iterator[Children]:
    found = Children(tmp_path, make_task)
    yield found
    found.close()


def test_two_at_once_prepare_once(children: Children) -> None:
    first = children.start("begun")
    second = children.start("waiting: another process is preparing")
    children.open_gate()
    for child in (first, second):
        output, _ = child.communicate(timeout=60)
        assert "['public/half', 'public/rest']" in output
        assert child.returncode == 0
    assert children.log.read_text() == "prepared\n"


def test_a_preparer_killed_in_the_middle_leaves_nothing_half_made(children: Children, cache: Path) -> None:
    child = children.start("begun")
    assert data.list_entries() == []
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    assert data.list_entries() == []
    children.gate.unlink()
    found, told = prepare(children.task)
    assert not any("waiting" in text for text in told)
    assert set(found.checksums) == {"public/half", "public/rest"}
    assert sorted(Path(name).name for name in left(cache)) == ["entry.json", "half", "rest"]


def test_remove_clears_what_a_killed_preparer_left(children: Children, cache: Path) -> None:
    child = children.start("begun")
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    assert [Path(name).name for name in left(cache)] == ["half"]
    assert data.remove() == []
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_remove_waits_for_a_preparer_at_work(children: Children, cache: Path) -> None:
    child = children.start("begun")
    removed: list[data.Entry] = []
    thread = threading.Thread(target=lambda: removed.extend(data.remove()))
    thread.start()
    children.open_gate()
    thread.join(60)
    output, _ = child.communicate(timeout=60)
    assert "['public/half', 'public/rest']" in output
    assert [entry.task for entry in removed] == ["sample"]
    assert left(cache) == []


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    monkeypatch.setenv("MLGYM_CACHE", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting needs root")
def test_a_full_disk_is_said_and_leaves_nothing(make_task: MakeTask, small_disk: Path) -> None:
    task = make_task(
        "def prepare(source, size, seed, out):\n    (out.public / 'x').write_bytes(bytes(400_000 if seed else 10))\n"
    )
    with pytest.raises(InfrastructureError, match=r"no space is left in .*; free some .* or set MLGYM_CACHE"):
        prepare(task, seed=1)
    assert left(small_disk) == []
    assert prepare(task, seed=0)[0].public is not None


def test_a_cache_that_cannot_be_made_is_said(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(InfrastructureError, match="set MLGYM_CACHE to a folder you can write"):
        prepare(make_task())
