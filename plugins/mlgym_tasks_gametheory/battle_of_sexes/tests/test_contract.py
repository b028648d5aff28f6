"""The contract of a task, and the whole red team on a submission of code."""

from __future__ import annotations

from pathlib import Path

from mlgym_core.testing import TaskContract


class TestTask(TaskContract):
    task = Path(__file__).parents[1] / "src" / "mlgym_task_battle_of_sexes"
