"""Arguments of a tool call, taken as they are meant where their meaning is clear, and else refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NoReturn

_MOST_LEVELS = 3  #: of JSON within JSON
_LONGEST_NUMBER = 40  #: characters of a number that is written as a text
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST = 2**53  #: up to here every whole number is a number of its own
_BOOLEANS = {"true": True, "false": False}
_NOTHING = {"", "null", "none"}
_SHOWN = 80
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "array": (list, tuple),
    "object": Mapping,
    "null": NoneType,
}


class MisfitError(ValueError):
    """The arguments do not fit the schema; the text says which, and what is wanted."""


def arguments_in(given: object) -> Mapping[str, Any] | None:
    """A call's arguments as a model or a service wrote them.

    Args:
        given: an object, or a text of JSON that holds one; a text within the text is read too. Nothing, a blank text
            and null are an empty object.

    Returns:
        The object; ``None`` when there is none, or numbers in it are not finite.
    """
    for _ in range(_MOST_LEVELS):
        if isinstance(given, Mapping):
            return given
        if given is None or (isinstance(given, str) and not given.strip()):
            return {}
        if not isinstance(given, str):
            return None
        try:
            given = _loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, Mapping) else None


def taken(schema: Mapping[str, Any], arguments: object) -> dict[str, Any]:
    """The arguments as the schema wants them.

    Numbers, booleans, lists and objects may be written as texts; null, or a text that is empty where none may be, is
    the absence of an optional argument. What is in lists and objects is treated alike.

    Args:
        schema: of an object.
        arguments: as they were given.

    Raises:
        MisfitError: one is missing, unknown, or not what is wanted.
    """
    found = arguments_in(arguments)
    if found is None:
        raise MisfitError(f"the arguments must be a JSON object, got {_shown(arguments)}")
    properties: Mapping[str, Any] = schema.get("properties", {})
    usage = f"; the arguments are: {', '.join(properties) or 'none'}"
    for name in schema.get("required", ()):
        if name not in found:
            raise MisfitError(f"argument {name!r} is missing{usage}")
    for name in found:
        if name not in properties:
            raise MisfitError(f"unknown argument {name!r:.80}{usage}")
    return dict(_fields(schema, found, ""))


def _fields(schema: Mapping[str, Any], given: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """The fields of an object that are there."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    for name, value in given.items():
        field = properties.get(name)
        if not isinstance(field, Mapping):
            yield name, value
        elif name in required or not _is_absent(field, value):
            advice = "" if name in required else "; leave it out if you do not need it"
            yield name, _value(field, value, f"{above}{name}", advice)


def _is_absent(schema: Mapping[str, Any], value: object) -> bool:
    """Whether the value of an optional argument is a way to say that there is none."""
    kinds = _kinds(schema)
    if not kinds:
        return False
    if value is None:
        return "null" not in kinds
    if not isinstance(value, str):
        return False
    if "string" not in kinds:
        return "null" not in kinds and value.strip().lower() in _NOTHING
    choices = schema.get("enum")
    return value == "" and (schema.get("minLength", 0) > 0 or (choices is not None and "" not in choices))


def _value(schema: Mapping[str, Any], value: Any, place: str, advice: str = "") -> Any:
    """One value as the schema wants it."""
    kinds = _kinds(schema)
    if not kinds:
        return value
    if isinstance(value, str) and "string" not in kinds:
        value = _meant(value, kinds)
    fitting = next((kind for kind in kinds if _fits(value, kind)), None)
    if fitting is None:
        raise MisfitError(f"argument {place!r} must be {_wanted(kinds)}, got {_shown(value)}{advice}")
    if fitting == "integer":
        return int(value)
    if fitting == "object":
        return dict(_fields(schema, value, f"{place}."))
    items = schema.get("items")
    if fitting == "array" and isinstance(items, Mapping):
        return [_value(items, item, f"{place}[{number}]") for number, item in enumerate(value)]
    return value


def _kinds(schema: Mapping[str, Any]) -> Sequence[str]:
    """The types that a value may have; none where the schema does not say."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind, "null"] if schema.get("nullable") else [kind]
    if isinstance(kind, (list, tuple)):
        return list(kind)
    choices = [_kinds(one) for one in schema.get("anyOf") or schema.get("oneOf") or () if isinstance(one, Mapping)]
    return [kind for kinds in choices for kind in kinds] if all(choices) else []


def _meant(text: str, kinds: Sequence[str]) -> Any:
    """What a text stands for that is no text; itself where that is not clear."""
    bare = text.strip()
    if "boolean" in kinds and bare.lower() in _BOOLEANS:
        return _BOOLEANS[bare.lower()]
    if not {"number", "integer"}.isdisjoint(kinds) and len(bare) <= _LONGEST_NUMBER and _NUMBER.fullmatch(bare):
        return int(bare) if bare.lstrip("+-").isdigit() else float(bare)
    if "null" in kinds and bare.lower() in _NOTHING:
        return None
    if not {"array", "object"}.isdisjoint(kinds) and bare[:1] in ("[", "{"):
        try:
            return _loads(bare)
        except (ValueError, RecursionError):
            return text
    return text


def _fits(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        if isinstance(value, float):
            return math.isfinite(value) and (kind == "number" or (value.is_integer() and abs(value) <= _LARGEST))
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, _TYPES.get(kind, object))


def _wanted(kinds: Sequence[str]) -> str:
    return " or ".join(kind if kind == "null" else f"{'an' if kind[0] in 'aeio' else 'a'} {kind}" for kind in kinds)


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _loads(text: str) -> Any:
    """Strict JSON, but for line ends and the like within texts, which models write as they are."""
    return json.loads(text, strict=False, parse_constant=_refuse, parse_float=_float)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
