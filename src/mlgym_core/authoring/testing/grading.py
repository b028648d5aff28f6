"""Grades a few lines of text as a run would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from mlgym_core.errors import InvalidSubmissionError
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import GradingData
from mlgym_core.runner.execution import grade_folder
from mlgym_core.sandbox.base import Backend
from mlgym_core.task.task import DEFAULT_SIZE, Split, Task

SECRET = bytes(range(16))  #: a fixed one, so that tests repeat


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
    with tempfile.TemporaryDirectory(prefix="mlgym-test-") as scratch:
        for name, content in files.items():
            path = Path(scratch) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            return grade_folder(
                task,
                Path(scratch),
                backend=backend,
                size=size,
                split=split,
                source=source,
                seed=seed,
                secret=secret,
                prepared=prepared,
            )
        except InvalidSubmissionError as error:
            return Grade("invalid_submission", message=str(error))
