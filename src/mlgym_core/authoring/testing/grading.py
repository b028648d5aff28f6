"""Grades a few lines of text as a run would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from mlgym_core import data
from mlgym_core.errors import InvalidSubmissionError
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import Grader, GradingData
from mlgym_core.plugins.loading import Registry, load_task
from mlgym_core.record.record import new_run_id
from mlgym_core.runner import backends
from mlgym_core.sandbox.base import Backend
from mlgym_core.task.task import DEFAULT_SIZE, Split, Task

SECRET = bytes(range(16))  #: a fixed one, so that tests repeat


def find(task: str | Path | Task) -> Task:
    """The task that is installed under a name, lies in a folder, or is one already.

    Raises:
        UnknownTaskError, TaskSpecError: there is none.
    """
    return task if isinstance(task, Task) else load_task(f"{task.absolute()}" if isinstance(task, Path) else task)


def grade_files(
    task: str | Path | Task,
    files: Mapping[str, str | bytes],
    *,
    size: str = DEFAULT_SIZE,
    split: Split = "test",
    secret: bytes = SECRET,
    source: str | None = None,
    seed: int = 0,
    prepared: GradingData | None = None,
    backend: str | Backend = "local",
) -> Grade:
    """Freeze the files and grade them in fresh boxes.

    Args:
        task: installed name, folder or loaded task.
        files: path in the workspace -> content.
        size, source, seed: of the data.
        split: ``dev`` or ``test``.
        secret: 16 bytes from which the grading seed is derived; the same one unless a test says otherwise.
        prepared: the data itself, in the place of ``source`` and ``seed``.
        backend: opens the boxes.

    Returns:
        The grade; what cannot even be frozen is ``invalid_submission`` too.
    """
    found = find(task)
    chosen = backends.choose(Registry(), backend).backend
    known = data.prepare(found, source, size, seed) if prepared is None else prepared
    with tempfile.TemporaryDirectory(prefix="mlgym-test-") as scratch:
        workspace = Path(scratch) / "workspace"
        workspace.mkdir()
        for name, content in files.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            archive = freeze_folder(workspace, found.submission, Path(scratch) / "archives")
        except InvalidSubmissionError as error:
            return Grade("invalid_submission", message=str(error))
        grader = Grader(found, chosen, new_run_id(found.id), size, secret, known)
        return grader.grade(archive, split)
