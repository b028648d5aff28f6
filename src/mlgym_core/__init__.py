"""MLGym: real machine-learning tasks for AI research agents, with fast steps and sealed scores.

The names below are the library's public surface; each is imported when first used, so that
``import mlgym_core`` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgym_core.episode.episode import Action, Episode, StepResult
    from mlgym_core.errors import MLGymError
    from mlgym_core.models.base import ModelSettings, Price
    from mlgym_core.plugins.hookspecs import hookimpl
    from mlgym_core.plugins.loading import list_tasks
    from mlgym_core.record.reader import read_result
    from mlgym_core.runner.config import RunConfig
    from mlgym_core.runner.execution import grade_folder, open_episode, run, run_together
    from mlgym_core.runner.tasks import load_task
    from mlgym_core.task.task import Task
    from mlgym_core.task.taskfile import load_task_folder

_HOMES = {
    "Action": "episode.episode",
    "Episode": "episode.episode",
    "MLGymError": "errors",
    "ModelSettings": "models.base",
    "Price": "models.base",
    "RunConfig": "runner.config",
    "StepResult": "episode.episode",
    "Task": "task.task",
    "grade_folder": "runner.execution",
    "hookimpl": "plugins.hookspecs",
    "list_tasks": "plugins.loading",
    "load_task": "runner.tasks",
    "load_task_folder": "task.taskfile",
    "open_episode": "runner.execution",
    "read_result": "record.reader",
    "run": "runner.execution",
    "run_together": "runner.execution",
}

__all__ = [
    "Action",
    "Episode",
    "MLGymError",
    "ModelSettings",
    "Price",
    "RunConfig",
    "StepResult",
    "Task",
    "grade_folder",
    "hookimpl",
    "list_tasks",
    "load_task",
    "load_task_folder",
    "open_episode",
    "read_result",
    "run",
    "run_together",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mlgym_core' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mlgym_core.{home}"), name)


def __dir__() -> list[str]:
    return __all__
