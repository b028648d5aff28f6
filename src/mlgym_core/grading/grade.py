"""What a grading comes to, and the one way a grader's ``result.json`` becomes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import attrs
from attrs import field, frozen

from mlgym_core.grading.inside import mlgym_peer
from mlgym_core.task.task import Task

Outcome = Literal["scored", "invalid_submission", "grader_error"]
_KEYS = {"schema", "outcome", "metrics", "standard_error", "message", "details"}


class BadResultError(Exception):
    """``result.json`` breaks grader protocol 1; the message says how."""


@frozen
class Grade:
    """The end of one grading.

    Attributes:
        outcome: ``scored``, ``invalid_submission`` (``message`` is for the agent) or ``grader_error`` (``message``
            is for people, and the score is unknown).
        metrics: by name; empty unless scored.
        standard_error: of some or all metrics, in their units.
        message: why there is no score.
        details: whatever else the grader reports.
        seconds: wall-clock time of the grading, boxes included.
        log: end of what the grader printed; may hold secrets of the grading.
        player_log: end of what the last player box printed.
    """

    outcome: Outcome
    metrics: Mapping[str, float] = field(factory=dict)
    standard_error: Mapping[str, float] = field(factory=dict)
    message: str = ""
    details: Mapping[str, Any] = field(factory=dict)
    seconds: float = 0.0
    log: str = ""
    player_log: str = ""

    def to_json(self) -> dict[str, Any]:
        """A plain mapping for the record."""
        return attrs.asdict(self, recurse=False)

    def summary(self) -> dict[str, Any]:
        """A plain mapping without what was printed, for the result."""
        return {name: value for name, value in self.to_json().items() if name not in ("log", "player_log")}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Grade:
        """The inverse of :meth:`to_json`; unknown keys are ignored."""
        known = {one.name for one in attrs.fields(cls)}
        return cls(**{key: value for key, value in raw.items() if key in known})


def read_result(content: bytes, task: Task) -> Grade:
    """Check the text of a ``result.json``.

    Raises:
        BadResultError: it is not one strict JSON document, or not a result of protocol 1 with the primary metric.
    """
    raw = _parse(content)
    unknown = sorted(set(raw) - _KEYS)
    if unknown:
        raise BadResultError(f"unknown key {unknown[0]!r}; keys: {', '.join(sorted(_KEYS))}")
    if raw.get("schema") != mlgym_peer.PROTOCOL or isinstance(raw.get("schema"), bool):
        raise BadResultError(f"schema is {raw.get('schema')!r}; this version reads schema {mlgym_peer.PROTOCOL}")
    message, details = raw.get("message", ""), raw.get("details", {})
    if not isinstance(message, str) or not isinstance(details, dict):
        raise BadResultError("message must be text and details an object")
    if raw.get("outcome") == "invalid_submission":
        return Grade("invalid_submission", message=clean(message) or "the submission is invalid", details=details)
    if raw.get("outcome") != "scored":
        raise BadResultError(f"outcome is {raw.get('outcome')!r}; a grader writes scored or invalid_submission")
    metrics = _numbers(raw.get("metrics"), "metrics")
    error = _numbers(raw.get("standard_error", {}), "standard_error")
    if task.primary.name not in metrics:
        raise BadResultError(f"metrics lack {task.primary.name!r}, the primary metric")
    for name, value in error.items():
        if name not in metrics or value < 0:
            raise BadResultError(f"standard_error[{name!r}] is {value}; it must be positive and of a metric")
    return Grade("scored", metrics, error, clean(message), details)


def clean(message: str) -> str:
    """A message from a box, bounded and fit for UTF-8."""
    return message[: mlgym_peer.MAX_MESSAGE].encode("utf-8", "replace").decode("utf-8")


def _parse(content: bytes) -> dict[str, Any]:
    if len(content) > mlgym_peer.MAX_RESULT:
        raise BadResultError(f"it is larger than {mlgym_peer.MAX_RESULT} bytes")
    try:
        raw = json.loads(content.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
        # Text that graders quote may hold lone surrogates, which no UTF-8 record can keep.
        raw = json.loads(json.dumps(raw, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadResultError(f"it is not one strict JSON document: {error}") from error
    if not isinstance(raw, dict):
        raise BadResultError(f"it must be an object, not {type(raw).__name__}")
    return raw


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _numbers(raw: object, where: str) -> dict[str, float]:
    if not isinstance(raw, dict):
        raise BadResultError(f"{where} must be an object of numbers")
    return {name: _number(value, f"{where}[{name!r}]") for name, value in raw.items()}


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadResultError(f"{where} is {value!r}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadResultError(f"{where} is not finite")
    return number
