"""The one way to a task: by name, by path, or handed over."""

from __future__ import annotations

from pathlib import Path

from mlgym_core.errors import UsageError
from mlgym_core.plugins.loading import load_installed
from mlgym_core.task.paths import is_path, load_task_path
from mlgym_core.task.task import Task


def load_task(name: str) -> Task:
    """The task of a name or path.

    Args:
        name: task id, published alias, ``distribution:id``, or a path (with a slash, or ending in ``.py``) of a
            one-file task or a task's folder.

    Raises:
        UnknownTaskError: nothing installed has this name; the message gives the nearest ones.
        PluginError: two packages claim it, it needs another mlgym-core, or its plugin is broken (with the plugin's
            own error as cause).
        TaskSpecError: the task at a path breaks the contract.
    """
    return load_task_path(Path(name)) if is_path(name) else load_installed(name)


def find_task(task: str | Path | Task, size: str | None = None) -> Task:
    """The task of a name or path, or the one handed over, which must have this size if one is given.

    Raises:
        UsageError: it does not exist or has no such size.
    """
    if task == "":
        raise UsageError("no task is named; see what is installed with: mlgym tasks")
    if isinstance(task, Path):
        task = load_task_path(task)
    found = load_task(task) if isinstance(task, str) else task
    if size is not None:
        found.need_size(size)
    return found
