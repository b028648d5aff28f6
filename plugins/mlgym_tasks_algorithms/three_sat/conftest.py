"""What the tests of three-sat share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest

from mlgym_core.errors import BackendUnavailableError
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.inside import mlgym_peer
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.task.task import Baseline, Size, Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.testing import grade_files

PACKAGE = Path(__file__).parent / "src" / "mlgym_task_three_sat"
GROUPS = (
    {"variables": 9, "ratio": 4.26, "count": 8, "batch": 4},
    {"variables": 12, "ratio": 3.0, "count": 3, "batch": 3},
)


def with_groups(task: Task, *groups: Any) -> Task:
    """The task with other instances, in every size, and without a known score."""
    sizes = {name: Size(parameters={"seconds": 60, "groups": list(groups)}) for name in task.sizes}
    return attrs.evolve(task, sizes=sizes, baseline=Baseline(task.baseline.command))


@pytest.fixture(scope="session")
def whole() -> Task:
    """The task as it is in this folder."""
    return load_task_folder(PACKAGE)


@pytest.fixture(scope="session")
def task(whole: Task) -> Task:
    """The task with a few small instances."""
    return with_groups(whole, *GROUPS)


@pytest.fixture(scope="session")
def task_with(whole: Task) -> Callable[..., Task]:
    """The task with other instances: ``task_with({"variables": 9, "ratio": 3.0, "count": 8, "batch": 4})``."""
    return lambda *groups: with_groups(whole, *groups)


@pytest.fixture
def grade_heuristic(task: Task) -> Callable[..., Grade]:
    """Grades the text of a ``heuristic.py``, or else the baseline: ``grade_heuristic(text, split="dev")``."""

    def grade(text: str | None = None, task: Task = task, **options: Any) -> Grade:
        baseline = (PACKAGE / "public" / "heuristic.py").read_text()
        return grade_files(task, {"heuristic.py": baseline if text is None else text}, size="tiny", **options)

    return grade


@pytest.fixture(scope="session")
def parts() -> Iterator[SimpleNamespace]:
    """The solver and the grader's programs as modules, beside the ``mlgym_peer`` that boxes have."""
    names: Sequence[str] = ("public/solver", "private/instances", "private/pristine", "private/passes", "private/grade")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mlgym_peer", mlgym_peer)
        loaded = {}
        for name in names:
            path = PACKAGE / f"{name}.py"
            loaded[path.stem] = module = ModuleType(path.stem)
            patch.setitem(sys.modules, path.stem, module)
            exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
        yield SimpleNamespace(**loaded)


@pytest.fixture(scope="session")
def engine() -> str:
    """The name of the backend of containers, where an engine answers."""
    try:
        return choose(Registry(), "docker").backend.name
    except BackendUnavailableError as error:
        pytest.skip(str(error))
