"""``mlgym new`` writes packages that work at once."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support import PluginFolder, run_task

from mlgym_core import grade_folder, load_task
from mlgym_core.authoring.scaffold.packages import TASK_KINDS, new_plugin, new_task
from mlgym_core.authoring.scaffold.templates import render
from mlgym_core.cli import app
from mlgym_core.errors import UsageError
from mlgym_core.task.task import Task

PLUGINS = ("backend", "tool", "model")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a package's own tests, with warnings as errors, and the package importable."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def code_lines(path: Path) -> int:
    """Lines with Python on them: neither blank, nor comment, nor docstring."""
    text = path.read_text("utf-8")
    doc: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            doc.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and not line.strip().startswith("#") and number not in doc)


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_a_new_task_has_everything_and_its_baseline_is_scored_as_stated(kind: str, tmp_path: Path) -> None:
    made = new_task("first-try", kind, tmp_path)
    assert (made.folder, made.distribution) == (tmp_path / "first-try", "mlgym-task-first-try")
    names = {path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file()}
    assert names >= {"LICENSE", "README.md", "pyproject.toml", "tests/test_mlgym_task_first_try.py"}
    project = tomllib.loads((made.folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["mlgym.tasks"] == {"first-try": "mlgym_task_first_try"}
    task = load_task(str(made.folder))
    assert (task.id, task.title, task.submission.kind) == ("first-try", "First try", kind)
    result = run_task(task=task, size="tiny", backend="local", out=tmp_path / "runs")
    assert result.status == "scored", result.document["message"]
    known = task.baseline_score("tiny", task.primary.name)
    assert known is not None
    assert result.score == pytest.approx(known.value, rel=0.2 if kind in ("code", "policy") else 1e-3)


@pytest.mark.slow
@pytest.mark.isolation
@pytest.mark.parametrize("kind", TASK_KINDS)
def test_a_new_tasks_own_tests_pass(kind: str, tmp_path: Path) -> None:
    done = pytest_in(new_task("first-try", kind, tmp_path).folder)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("kind", ["tool", "model"])
def test_a_new_plugins_own_tests_pass(kind: Any, tmp_path: Path) -> None:
    made = new_plugin("first-try", kind, tmp_path)
    assert made.distribution == f"mlgym-{kind}-first-try"
    done = pytest_in(made.folder)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.isolation
def test_a_new_backend_keeps_the_contract(tmp_path: Path) -> None:
    # The local backend has the whole contract in its own tests; here it matters that everything is handed on.
    chosen = "describes or streams or persist or peer or files or registered"
    done = pytest_in(new_plugin("first-try", "backend", tmp_path).folder, "-k", chosen)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_new_plugin_is_found_by_its_entry_point(kind: Any, tmp_path: Path, plugins: PluginFolder) -> None:
    made = new_plugin("first-try", kind, tmp_path)
    points = tomllib.loads((made.folder / "pyproject.toml").read_text())["project"]["entry-points"]["mlgym"]
    (module,) = points.values()
    plugins.add("plug_announces", "", {"mlgym": points})
    rows = json.loads(plugins.run("plugins", "--json", PYTHONPATH=f"{plugins.folder}:{made.folder / 'src'}").stdout)
    assert [(row["module"], row["broken"]) for row in rows if row["name"] == "first-try"] == [(module, None)]


def test_a_code_task_is_short(tmp_path: Path) -> None:
    folder = new_task("first-try", "code", tmp_path).folder / "src"
    assert sum(map(code_lines, folder.rglob("*.py"))) <= 40


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_what_the_templates_hold_is_tidy(kind: str, tmp_path: Path) -> None:
    folder = new_task("first-try", kind, tmp_path).folder
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "E,F,W,I,B,UP",
         "--line-length", "120", "--ignore", "B905,E402", "--target-version", "py311", str(folder)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for path in folder.rglob("*"):
        assert "$" not in (path.read_text("utf-8") if path.is_file() and path.name != "Dockerfile" else "")
        assert "MODULE" not in str(path)


BETTER = {
    "code": {
        "solution.py": "def split(numbers):\n"
        "    order, sums, side = sorted(range(len(numbers)), key=lambda i: -numbers[i]), [0, 0], {}\n"
        "    for i in order:\n"
        "        side[i] = sums[1] <= sums[0]\n"
        "        sums[side[i]] += numbers[i]\n"
        "    return [side[i] for i in range(len(numbers))]\n"
    },
    "policy": {
        "policy.py": "def act(observation):\n"
        "    aim = -observation[0] - 1.2 * observation[1]\n"
        "    return (aim > 0.05) - (aim < -0.05)\n"
    },
}


def graded(task: Task, files: dict[str, str], folder: Path) -> Any:
    for name, text in files.items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return grade_folder(task, folder, size="tiny", backend="local", secret=bytes(16))


@pytest.mark.parametrize("kind", BETTER)
def test_a_better_answer_gets_a_better_score(kind: str, tmp_path: Path) -> None:
    task = load_task(str(new_task("first-try", kind, tmp_path).folder))
    starter = {name: (task.folder / "public" / name).read_text() for name in BETTER[kind]}
    plain = graded(task, starter, tmp_path / "plain").metrics[task.primary.name]
    better = graded(task, BETTER[kind], tmp_path / "better").metrics[task.primary.name]
    assert (better - plain) * task.primary.sign > abs(plain) * 0.3


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("csv", {"submission.csv": "id,y\n1,2\n"}),
        ("code", {"solution.py": "def split(numbers):\n    return [True]\n"}),
        ("code", {"solution.py": "def split(numbers):\n    return [1] * len(numbers)\n"}),
        ("policy", {"policy.py": "def act(observation):\n    return 2\n"}),
        ("policy", {"policy.py": "def act(observation):\n    return float('nan')\n"}),
        ("model", {"model.py": "def predict(points):\n    return [2] * len(points)\n", "weights.json": "{}"}),
        ("model", {"model.py": "def predict(points):\n    return [0]\n", "weights.json": "{}"}),
    ],
)
def test_a_wrong_answer_is_invalid_with_a_reason(kind: str, files: dict[str, str], tmp_path: Path) -> None:
    task = load_task(str(new_task("first-try", kind, tmp_path).folder))
    grade = graded(task, files, tmp_path / "wrong")
    assert grade.outcome == "invalid_submission"
    assert grade.message


def test_data_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    from mlgym_core import data

    for kind in ("csv", "model"):
        task = load_task(str(new_task("first-try", kind, tmp_path / kind).folder))
        first = data.prepare(task, None, "tiny", 1).checksums
        data.remove(task.id)
        assert data.prepare(task, None, "tiny", 1).checksums == first
        assert data.prepare(task, None, "tiny", 2).checksums != first


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MyTask", "my-task"),
        ("my_task", "my-task"),
        ("my--task", "my-task"),
        ("-x", "'x'"),
        ("../up", "'up'"),
        ("a" * 61, "a" * 60),
        ("", "joined by hyphens"),
        ("9lives", "joined by hyphens"),
        ("é", "joined by hyphens"),
    ],
)
def test_names_are_checked_with_a_hint(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lower-case words") as refused:
        new_task(name, "code", tmp_path)
    assert hint in str(refused.value)
    with pytest.raises(UsageError):
        new_plugin(name, "tool", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("mine", "file"):
        with pytest.raises(UsageError, match="left alone"):
            new_task(name, "code", tmp_path)
    assert list((tmp_path / "mine").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        new_task("mine", "code", tmp_path / "file")


def test_unknown_kinds_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="csv, code, policy, model"):
        new_task("mine", "image", tmp_path)


def test_templates_are_rendered_strictly() -> None:
    with pytest.raises(KeyError):
        render("tasks/common", values={"module": "m"})


def test_the_command_prints_the_next_three_commands(plugins: PluginFolder, tmp_path: Path) -> None:
    done = plugins.run("new", "task", "mine", "--kind", "code", "--out", str(tmp_path / "a b"))
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    *install, place = shlex.split(first)
    assert install == ["pip", "install", "-e"]
    assert Path(place).resolve() == tmp_path / "a b" / "mine"
    assert second == "mlgym baseline mine"
    assert third == "mlgym check mine"
    again = plugins.run("new", "task", "mine", "--kind", "code", "--out", str(tmp_path / "a b"))
    assert again.returncode == 2
    assert "left alone" in again.stderr


def test_the_command_warns_of_an_installed_task_of_that_name(plugins: PluginFolder, tmp_path: Path) -> None:
    plugins.add_task("mine")
    done = plugins.run("new", "task", "mine", "--out", str(tmp_path), "--json")
    assert done.returncode == 0
    assert "plug-mine is installed" in done.stderr
    assert "mlgym-task-mine:mine" in done.stderr
    document = json.loads(done.stdout)
    assert document["folder"] == str(tmp_path / "mine")
    assert len(document["next"]) == 3


def test_there_is_a_command_for_each_kind() -> None:
    (group,) = (group for group in app.registered_groups if group.name == "new")
    assert group.typer_instance is not None
    assert {command.name for command in group.typer_instance.registered_commands} == {"task", "agent", *PLUGINS}
