"""Sale prices of houses in Ames, Iowa, from 79 features."""

from __future__ import annotations

from pathlib import Path

from mlgym_core import Task, hookimpl
from mlgym_core.task.taskfile import load_task_folder


@hookimpl
def mlgym_register_tasks() -> list[Task]:
    """The task in this package's folder."""
    return [load_task_folder(Path(__file__).parent)]
