"""The contract of a task, on a few small instances: what it costs at full size is no part of it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from mlgym_core.task.task import Baseline, Size
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.testing import TaskContract

WHOLE = load_task_folder(Path(__file__).parents[1] / "src" / "mlgym_task_three_sat")
GROUPS = [{"variables": 16, "ratio": 4.26, "count": 12, "batch": 4}]
# Milliseconds, on a machine that does other things: what a cheat gains is tested in test_grading.py.
METRICS = tuple(attrs.evolve(one, tolerance=one.tolerance and 0.95) for one in WHOLE.metrics)
SMALL = attrs.evolve(
    WHOLE,
    metrics=METRICS,
    sizes={name: Size(parameters={"seconds": 60, "groups": GROUPS}) for name in WHOLE.sizes},
    baseline=Baseline(WHOLE.baseline.command),
)


class TestTask(TaskContract):
    task = SMALL
    attacks = "specific"


@pytest.mark.engine
@pytest.mark.usefixtures("engine")
class TestTaskInContainers(TaskContract):
    task = SMALL
    backend = "docker"
    attacks = "none"
