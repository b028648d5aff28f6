"""The examples of ``docs/data.md`` work as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support import TASK_YAML, write_task

from mlgym_core import data, grade_folder
from mlgym_core.errors import UsageError
from mlgym_core.task.taskfile import load_task_folder

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")


def block(language: str, mark: str) -> str:
    (found,) = (b for b in re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if mark in b)
    return str(found)


def test_the_task_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    section = block("yaml", "data:")
    assert yaml.safe_load(section)["data"]["sources"] == ["hub", "local"]
    text = TASK_YAML.replace("answer.csv]", "submission.csv]").replace(
        "name: Score, direction: up", "name: Error, direction: down"
    )
    folder = write_task(tmp_path / "task", grade=block("python", "# private/grade.py"), yaml=text + section)
    (folder / "data.py").write_text(block("python", "# data.py"))
    task = load_task_folder(folder)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"name a folder with table\.csv: id,x,y"):
        data.prepare(task, f"local:{tmp_path / 'mine'}", "full", 0)
    (tmp_path / "mine" / "table.csv").write_text("id,x,y\na,1,2\nb,3,4\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "submission.csv").write_text("id,y\nb,5\na,2\n")
    grade = grade_folder(task, tmp_path / "work", backend="local", source=f"local:{tmp_path / 'mine'}")
    assert grade.metrics == {"Error": 0.5}, grade.message
