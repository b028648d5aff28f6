"""What the tests of the three games share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mlgym_core.grading.grade import Grade
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.testing import grade_files
from mlgym_tasks_gametheory.lockstep import Stream

HERE = Path(__file__).parent
GradeStrategy = Callable[..., Grade]


@pytest.fixture
def grade_strategy() -> GradeStrategy:
    """Grades the text of a ``strategy.py``, or else the baseline: ``grade_strategy(task, text, size)``."""

    def grade(task: Task, text: str | None = None, size: str = "full", secret: bytes = b"0123456789abcdef") -> Grade:
        baseline = (task.folder / "public" / "strategy.py").read_text()
        return grade_files(task, {"strategy.py": baseline if text is None else text}, size=size, secret=secret)

    return grade


@pytest.fixture(scope="session")
def games() -> dict[str, Task]:
    """All three, by package folder."""
    names = ("battle_of_sexes", "prisoners_dilemma", "blotto")
    return {name: load_task_folder(HERE / name / "src" / f"mlgym_task_{name}") for name in names}


@pytest.fixture(scope="session")
def load_file() -> Callable[[Path], ModuleType]:
    """Loads a file that is no part of a package (an opponent, a starter) as a module of its own."""

    def load(path: Path) -> ModuleType:
        module = ModuleType(path.stem)
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        return module

    return load


@pytest.fixture
def stream() -> Callable[[int], Stream]:
    """Randomness of a round under a fixed seed."""
    return lambda number: Stream("000102030405060708090a0b0c0d0e0f", number)
