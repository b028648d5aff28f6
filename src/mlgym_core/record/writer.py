"""Writes a run's folder: manifest, append-only events, outputs, submissions, result."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import evolve

from mlgym_core.errors import RecordError
from mlgym_core.record.eventjson import to_json
from mlgym_core.record.events import Event, Notice
from mlgym_core.record.folder import EVENTS, MANIFEST, OUTPUT, RESULT, SCHEMA, SUBMISSIONS
from mlgym_core.record.redact import Redactor
from mlgym_core.record.strictjson import encode, plain
from mlgym_core.record.watcher import Listener, Watcher
from mlgym_core.storage import write_atomically


class RunRecord:
    """Writes one run's folder.

    Args:
        folder: created; must not hold a run yet.
        run_id: see :func:`~mlgym_core.record.folder.new_run_id`.
        redact: applied to every line.
        listener: sees every event after it is written.

    Raises:
        RecordError: the folder holds a run already or cannot be written.
    """

    def __init__(self, folder: Path, run_id: str, redact: Redactor | None = None, listener: Listener | None = None):
        self.folder = folder
        self.run_id = run_id
        self.redact = redact or Redactor()
        self._watcher = Watcher(listener)
        self._started = time.monotonic()
        with _explained(folder):
            if (folder / MANIFEST).exists():
                raise RecordError(f"{folder} already holds a run; choose another folder with --out")
            for name in (OUTPUT, SUBMISSIONS):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._events = (folder / EVENTS).open("ab", buffering=0)

    def manifest(self, content: Mapping[str, Any]) -> None:
        """Write ``run.json``, replacing an earlier version of it."""
        self._write(MANIFEST, {"schema": SCHEMA, "run_id": self.run_id, **content})

    def event(self, event: Event) -> None:
        """Append an event, with its time; it is on its way to the disk when this returns."""
        written = to_json(evolve(event, t=round(time.monotonic() - self._started, 6)), self.redact)
        line = memoryview((encode(written) + "\n").encode())
        with _explained(self.folder):
            while line:
                line = line[self._events.write(line) :]
        failure = self._watcher(written)
        if failure:
            self.event(Notice(failure))

    def output_stem(self, step: int) -> Path:
        """Where a step's output goes when it outgrows memory."""
        return self.folder / OUTPUT / f"{step:04d}"

    @property
    def submissions(self) -> Path:
        """Where frozen submissions are kept, by content hash."""
        return self.folder / SUBMISSIONS

    def result(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``result.json`` and return what was written."""
        return self._write(RESULT, {"schema": SCHEMA, "run_id": self.run_id, **content})

    def close(self) -> None:
        """Close the event file; harmless when repeated."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write(self, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
        written: dict[str, Any] = plain(content, self.redact)
        with _explained(self.folder):
            write_atomically(self.folder / name, (encode(written, indent=2) + "\n").encode())
        return written


class _explained:  # noqa: N801 - reads as a statement
    """Turns an OSError into a RecordError that names the folder and the remedy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not isinstance(error, OSError):
            return
        remedy = "choose another folder with --out"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space or choose another folder with --out"
        raise RecordError(f"cannot write the record in {self._folder}: {error.strerror}; {remedy}") from error
