"""``task.yaml``: every mistake is an error that names file, key and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support import TASK_YAML

from mlgym_core.errors import TaskSpecError
from mlgym_core.task.task import Include
from mlgym_core.task.taskfile import load_task_folder

Maker = Callable[..., Path]


def with_change(change: Callable[[dict], None]) -> str:
    raw = yaml.safe_load(TASK_YAML.format(id="sample"))
    change(raw)
    return yaml.safe_dump(raw).replace("{", "{{").replace("}", "}}")


def test_a_task_loads_with_defaults(task_folder: Maker) -> None:
    folder = task_folder()
    task = load_task_folder(folder)
    assert task.primary.name == "Score"
    assert task.limits.steps == 50
    assert task.submission.paths == ("answer.csv",)
    assert task.folder == folder
    assert task.image.folder == folder / "image"
    assert task.description().startswith("Do {this}")
    assert set(task.private_files()) == {"grade.py"}
    assert task.public_files() == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(metrcis=[]), "unknown key 'metrcis'; did you mean 'metrics'"),
        (lambda t: t.update(limits={"stpes": 3}), r"unknown key 'limits.stpes'; did you mean 'steps'"),
        (lambda t: t["metrics"][0].update(colour="red"), r"unknown key 'metrics\[0\].colour'; valid keys: name"),
        (lambda t: t["sizes"]["full"].update(paramters={}), r"unknown key 'sizes.full.paramters'; did you mean"),
        (lambda t: t.update(folder="/etc"), "unknown key 'folder'"),
        (lambda t: t.pop("title"), "missing key 'title'"),
        (lambda t: t["submission"].pop("kind"), "missing key 'submission.kind'"),
        (lambda t: t.update(schema=2), "reads schema: 1"),
        (lambda t: t.update(id="Bad_Id"), "lower-case words"),
        (lambda t: t.update(metrics=[]), "at least one"),
        (lambda t: t.update(metrics="Score"), "expected a list"),
        (lambda t: t["metrics"][0].update(direction="sideways"), "choose from up, down"),
        (lambda t: t.update(limits={"steps": "many"}), "expected int, got 'many'"),
        (lambda t: t.update(limits={"steps": True}), "expected int, got True"),
        (lambda t: t.update(limits={"steps": 0}), "limits.steps: 0 must be positive"),
        (lambda t: t.update(limits={"cost_usd": float("inf")}), "finite numbers"),
        (lambda t: t["submission"].update(max_files=0), "submission.max_files: 0 must be positive"),
        (lambda t: t["sizes"]["full"].update(parameters={"key": b"\0"}), "text, finite numbers"),
        (lambda t: t.update(resources={"required": ["gpuu"]}), "gpuu"),
        (lambda t: t.update(include={"private": ["no_such_package:a.py"]}), "'no_such_package' is not installed"),
        (lambda t: t.update(include={"private": ["mlgym_core:absent.py"]}), "has no file absent.py"),
        (lambda t: t.update(include={"private": ["errors.py"]}), "package:path/inside/it"),
        (lambda t: t.update(resources={"memory_mb": -1}), "resources.memory_mb"),
        (lambda t: t.update(sizes={"tiny": {}}), "'full' is required"),
        (lambda t: t["submission"].update(paths=["../x"]), "inside the workspace"),
        (lambda t: t["submission"].update(paths=["/x"]), "inside the workspace"),
        (lambda t: t["submission"].update(paths=[]), "at least one"),
        (lambda t: t["submission"].update(withheld=["other"]), "'other' is not among submission.paths"),
        (lambda t: t["submission"].update(kind="code"), "name the public file that runs it"),
        (lambda t: t["submission"].update(kind="code", player="absent.py"), "not among the public files"),
        (lambda t: t["baseline"].update(scores={"huge": {}}), "unknown size 'huge'"),
        (lambda t: t["baseline"].update(commands={"huge": "true"}), "unknown size 'huge'"),
        (
            lambda t: t["baseline"].update(scores={"full": {"F1": {"value": 1.0, "source": "measured"}}}),
            "unknown metric 'F1'",
        ),
    ],
)
def test_a_mistake_is_named_with_its_remedy(task_folder: Maker, change: Callable[[dict], None], message: str) -> None:
    folder = task_folder(yaml=with_change(change))
    with pytest.raises(TaskSpecError, match=message) as caught:
        load_task_folder(folder)
    assert str(folder / "task.yaml") in str(caught.value)


@pytest.mark.parametrize("name", ["task.yaml", "description.md", "private/grade.py"])
def test_a_missing_file_is_named(task_folder: Maker, name: str) -> None:
    folder = task_folder()
    (folder / name).unlink()
    with pytest.raises(TaskSpecError, match=name):
        load_task_folder(folder)


@pytest.mark.parametrize(
    "text",
    ["- a list\n", "{unclosed\n", "\x00", "schema: 1\nid: a\nid: b\n", "[" * 5000, "a: &a [*a]", "a: " + "9" * 5000],
)
def test_what_is_no_mapping_is_refused(task_folder: Maker, text: str) -> None:
    folder = task_folder()
    (folder / "task.yaml").write_text(text)
    with pytest.raises(TaskSpecError, match=r"task\.yaml"):
        load_task_folder(folder)


def test_shared_files_of_a_domain_join_the_tasks_own(task_folder: Maker) -> None:
    from attrs import evolve

    task = evolve(load_task_folder(task_folder()), include=Include(private=("mlgym_core:errors.py",)))
    assert set(task.private_files()) == {"grade.py", "errors.py"}


def test_requirements_are_read_without_comments(task_folder: Maker) -> None:
    folder = task_folder()
    (folder / "image" / "requirements.txt").write_text("# why\nnumpy>=2  # arrays\n\nscipy\n")
    assert load_task_folder(folder).image.requirement_lines() == ["numpy>=2", "scipy"]
