"""Prepares a task's public and private data once, in a cache keyed by what it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from mlgym_core.errors import UsageError
from mlgym_core.task import Task


@frozen
class Prepared:
    """A task's data, ready to be mounted.

    Attributes:
        public: folder shown to agent and player; ``None`` when the task has no data.
        private: folder shown to the grader only.
        source: what it was made from.
        checksums: file -> SHA-256, for the record.
    """

    public: Path | None = None
    private: Path | None = None
    source: str = ""
    checksums: Mapping[str, str] = field(factory=dict)


def prepare(task: Task, source: str | None, size: str, seed: int) -> Prepared:
    """The task's data for one source, size and seed.

    Raises:
        UsageError: the task has no data but a source was asked for.
    """
    del size, seed
    if task.data is None:
        if source:
            raise UsageError(f"task {task.id} has no data, so --source {source} means nothing; leave it out")
        return Prepared()
    raise UsageError(f"task {task.id} needs prepared data, which this version of mlgym-core cannot make; update it")
