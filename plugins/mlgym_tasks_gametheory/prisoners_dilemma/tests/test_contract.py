"""The contract of a task; the attacks on any submission of code are tried on the battle of the sexes."""

from __future__ import annotations

from pathlib import Path

from mlgym_core.testing import TaskContract


class TestTask(TaskContract):
    task = Path(__file__).parents[1] / "src" / "mlgym_task_prisoners_dilemma"
    attacks = "specific"
