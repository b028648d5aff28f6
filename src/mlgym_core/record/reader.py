"""Reads a run's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from mlgym_core.errors import RecordError
from mlgym_core.record.eventjson import from_json
from mlgym_core.record.events import Event
from mlgym_core.record.folder import EVENTS, RESULT

T = TypeVar("T", bound=Event)


def read_events(folder: Path) -> Iterator[Event]:
    """The events of a run; a torn last line is left out.

    Raises:
        RecordError: there is no event file, or a line before the last one is damaged, or one is no event.
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
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                return
            raise RecordError(f"{path}, line {number} is not JSON: {error}") from error
        try:
            yield from_json(raw)
        except ValueError as error:
            raise RecordError(f"{path}, line {number} cannot be read as an event: {error}") from error


def events_of(folder: Path, form: type[T]) -> Iterator[T]:
    """The events of one kind, by its class.

    Raises:
        RecordError: as :func:`read_events`.
    """
    return (event for event in read_events(folder) if isinstance(event, form))


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
