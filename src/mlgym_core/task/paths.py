"""Tasks that are named by a path: a folder with a ``task.yaml``, a package's folder, or a one-file task."""

from __future__ import annotations

import os
from pathlib import Path

from mlgym_core import storage
from mlgym_core.errors import TaskSpecError, UnknownTaskError
from mlgym_core.task.onefile import load_one_file
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder


def is_path(name: str) -> bool:
    """Whether a task is named by a path: a slash in it, or the ending ``.py``."""
    return "/" in name or os.sep in name or name.endswith(".py") or name in (".", "..")


def load_task_path(path: Path) -> Task:
    """The task at a path.

    Args:
        path: a one-file task, a folder with a ``task.yaml``, or a package's folder with one below ``src/``.

    Raises:
        UnknownTaskError: there is nothing, or nothing that could be a task.
        TaskSpecError: what is there breaks the contract.
        InfrastructureError: a one-file task cannot be unpacked into the cache.
    """
    path = storage.expanded(path)
    if path.is_dir():
        return load_task_folder(_task_folder(path))
    if path.name == "task.yaml":
        return load_task_folder(path.parent)
    if not path.exists():
        raise UnknownTaskError(f"{path} does not exist; name a one-file task, or a folder with a task.yaml")
    if path.suffix != ".py" or not path.is_file():
        raise UnknownTaskError(f"{path} is no task; name a one-file task (.py), or a folder with a task.yaml")
    return load_one_file(path)


def _task_folder(path: Path) -> Path:
    if (path / "task.yaml").is_file():
        return path
    below = sorted(file.parent for file in path.glob("src/*/task.yaml"))
    if len(below) > 1:
        raise TaskSpecError(f"{path} holds {len(below)} tasks; say which: {' or '.join(map(str, below))}")
    if not below:
        raise UnknownTaskError(f"{path} holds no task.yaml, nor does a package below its src/; name a task's folder")
    return below[0]
