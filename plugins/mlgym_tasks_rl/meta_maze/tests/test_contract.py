"""The contract of a task; what all three tasks share is attacked in mountain-car."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgym_core.testing import TaskContract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # builds the tasks' environment if it is the first to need it


class TestTask(TaskContract):
    task = Path(__file__).parents[1] / "src" / "mlgym_task_meta_maze"
    attacks = "none"
    skip = ("empty", "garbage", "deterministic", "canary")
