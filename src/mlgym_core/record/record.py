"""One folder a run: manifest, append-only events, outputs, submissions, result. Strict JSON throughout."""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from mlgym_core.errors import RecordError, UsageError
from mlgym_core.settings import PREFIX, read_dotenv

SCHEMA = 1
MANIFEST = "run.json"
EVENTS = "events.jsonl"
RESULT = "result.json"

#: Why an agent's work ended. ``stopped``: it left without submitting.
REASONS = (
    "submitted",
    "steps",
    "cost",
    "tokens",
    "calls",
    "time",
    "context",
    "format",
    "model_error",
    "sandbox_lost",
    "stopped",
)
_MAX_DEPTH = 40
_LARGEST = 2**63
_LONGEST_REPR = 1000
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_SHORTEST_SECRET = 8

Listener = Callable[[Mapping[str, Any]], None]


class Watcher:
    """Tells a listener of events. Watching never changes a run: one that raises is left out from then on.

    Args:
        listener: told of every event; ``None`` for nobody.
    """

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def __call__(self, event: Mapping[str, Any]) -> str:
        """Tell of one event; returns what is to be noted of a listener that has just failed."""
        if self._listener is None:
            return ""
        try:
            self._listener(event)
        except (Exception, SystemExit) as error:
            self._listener = None
            failure = f"the listener raised {error!r:.200}; it is told nothing more, the run goes on"
            logging.getLogger(__name__).warning(failure)
            return failure
        return ""


class Redactor:
    """Replaces secrets in everything that is written."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: list[str] = []
        for value in values:
            self.add(value)

    @classmethod
    def from_environment(cls) -> Redactor:
        """Hides the values of variables whose names say that they are secrets, here and in ``.env``.

        Values of fewer than 8 characters stay: they could be anything, and so do settings of MLGYM.
        """
        variables = list(os.environ.items())
        with contextlib.suppress(UsageError):  # whoever needs what stands there says that it cannot be read
            variables += read_dotenv().items()
        return cls({value for name, value in variables if len(value) >= _SHORTEST_SECRET and _is_secret(name)})

    def add(self, value: str) -> None:
        """Hide this value from now on."""
        self._values.append(value)
        self._values.sort(key=len, reverse=True)  # a secret within a longer one must not spoil the longer one

    def __call__(self, text: str) -> str:
        """The text without the secrets."""
        for value in self._values:
            if value in text:
                text = text.replace(value, "[redacted]")
        return text


def _is_secret(name: str) -> bool:
    return not name.startswith(PREFIX) and any(mark in name.upper() for mark in _SECRETS)


class RunRecord:
    """Writes one run's folder.

    Args:
        folder: created; must not hold a run yet.
        run_id: see :func:`new_run_id`.
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
            for name in ("output", "submissions"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._events = (folder / EVENTS).open("ab", buffering=0)

    def manifest(self, content: Mapping[str, Any]) -> None:
        """Write ``run.json``, replacing an earlier version of it."""
        self._write(MANIFEST, {"schema": SCHEMA, "run_id": self.run_id, **content})

    def event(self, kind: str, **content: Any) -> None:
        """Append one event; it is on its way to the disk when this returns."""
        event = plain({"t": round(time.monotonic() - self._started, 6), "kind": kind, **content}, self.redact)
        line = memoryview((encode(event) + "\n").encode())
        with _explained(self.folder):
            while line:
                line = line[self._events.write(line) :]
        failure = self._watcher(event)
        if failure:
            self.event("notice", text=failure)

    def output_stem(self, step: int) -> Path:
        """Where a step's output goes when it outgrows memory."""
        return self.folder / "output" / f"{step:04d}"

    @property
    def submissions(self) -> Path:
        """Where frozen submissions are kept, by content hash."""
        return self.folder / "submissions"

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


def new_run_id(task: str) -> str:
    """A sortable, unique name: task, UTC time, random."""
    return f"{task}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def encode(content: Any, indent: int | None = None) -> str:
    """Strict JSON of plain values; NaN and infinities are refused.

    Raises:
        ValueError: a number is not finite.
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=indent, separators=separators)


def plain(value: Any, redact: Callable[[str], str] = str, depth: int = _MAX_DEPTH) -> Any:
    """A value as strict JSON has it; whatever came from outside can be recorded.

    attrs classes and mappings become objects, paths text, sets sorted lists, enumerations their values, numbers that
    are not finite ``null``, and anything else (or nested too deeply) a shortened ``repr``.

    Args:
        value: what is to be recorded.
        redact: applied to every text, names in objects included. Lone surrogates become question marks.
        depth: levels of nesting that are kept.
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return redact(str(value).encode("utf-8", "replace").decode())
    if isinstance(value, int):
        return int(value) if abs(value) < _LARGEST else redact(f"{value:.6e}" if abs(value) < 10**300 else "huge")
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth == 0:
        return redact(repr(type(value)))
    if isinstance(value, Mapping):
        return {plain(str(name), redact): plain(item, redact, depth - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, redact, depth - 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item, redact, depth - 1) for item in value), key=repr)
    if attrs.has(type(value)):
        return {a.name: plain(getattr(value, a.name), redact, depth - 1) for a in attrs.fields(type(value))}
    return redact(str(value)) if isinstance(value, os.PathLike) else redact(repr(value))[:_LONGEST_REPR]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of a run; a torn last line is left out.

    Raises:
        RecordError: there is no event file, or a line before the last one is damaged.
    """
    path = folder / EVENTS
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}; is {folder} a run folder?") from error
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                return
            raise RecordError(f"{path}, line {number} is not JSON: {error}") from error
        yield event


def read_result(folder: Path | str) -> dict[str, Any]:
    """The result of a run.

    Raises:
        RecordError: the folder holds no readable ``result.json``.
    """
    path = Path(folder) / RESULT
    try:
        result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RecordError(
            f"{path} cannot be read: {error.strerror}; is {folder} the folder of a finished run?"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}") from error
    return result


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
