"""Any value as strict JSON has it."""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import attrs

_MAX_DEPTH = 40
_LARGEST = 2**63
_LONGEST_REPR = 1000


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
