"""Reads a YAML file into an attrs class, strictly: an unknown key is named with its place and the nearest valid one."""

from __future__ import annotations

import difflib
import enum
import functools
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import attrs
from cattrs import Converter

from mlgym_core.errors import UsageError
from mlgym_core.storage import expanded
from mlgym_core.task.plainfile import read_plain

SCHEMA = 1
T = TypeVar("T")


def load(path: Path, kind: type[T], error: type[UsageError], hidden: frozenset[str] = frozenset()) -> T:
    """Read ``path``, which must say ``schema: 1``, and return it as a ``kind``.

    Args:
        path: of the file.
        kind: attrs class.
        error: raised for everything that is wrong with the file; its text names the file and the key.
        hidden: fields that the file may not set.
    """
    raw = _read(path, error)
    if raw.get("schema") != SCHEMA:
        raise error(f"{path}: schema is {raw.get('schema')!r}; this version of mlgym-core reads schema: {SCHEMA}")
    return structure(raw, kind, error, str(path), hidden)


def structure(
    raw: object, kind: type[T], error: type[UsageError], where: str, hidden: frozenset[str] = frozenset()
) -> T:
    """A ``kind`` from plain values.

    Args:
        raw: mappings, lists, text, numbers.
        kind: attrs class.
        error: raised for everything that is wrong; its text names ``where`` and the key.
        where: what the values stand in.
        hidden: fields that it may not set.
    """
    if not isinstance(raw, dict):
        raise error(f"{where} must be a mapping of keys to values, not {type(raw).__name__}")
    try:
        _check_keys(raw, kind, hidden)
    except ValueError as problem:
        raise error(f"{where}: {problem}") from None
    try:
        return _converter().structure(raw, kind)
    except UsageError as problem:
        raise error(f"{where}: {problem}") from problem
    except Exception as problem:
        raise error(f"{where}: {_explain(problem)}") from problem


def _read(path: Path, error: type[UsageError]) -> dict[str, Any]:
    raw = read_plain(path, error)
    if not isinstance(raw, dict):
        raise error(f"{path} must be a mapping of keys to values, not {type(raw).__name__}")
    return raw


def _check_keys(raw: object, wanted: Any, hidden: frozenset[str], where: str = "") -> None:
    """Walk mapping and type side by side."""

    def inner(value: object, kind: Any, place: str) -> None:
        _check_keys(value, kind, hidden, place)

    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        for option in arguments:
            if attrs.has(option):
                inner(raw, option, where)
    elif attrs.has(wanted) and isinstance(raw, dict):
        hints = typing.get_type_hints(wanted)
        fields = [a.name for a in attrs.fields(wanted) if a.name not in hidden]
        required = [a.name for a in attrs.fields(wanted) if a.default is attrs.NOTHING]
        for key in raw:
            if key not in fields:
                near = difflib.get_close_matches(str(key), fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(fields)}"
                raise ValueError(f"unknown key {_join(where, key)!r}; {hint}")
        missing = [name for name in required if name not in raw]
        if missing:
            raise ValueError(f"missing key {_join(where, missing[0])!r}")
        for key, value in raw.items():
            inner(value, hints[key], _join(where, key))
    elif origin is tuple and isinstance(raw, list):
        for index, value in enumerate(raw):
            inner(value, arguments[0], f"{where}[{index}]")
    elif isinstance(raw, dict) and len(arguments) == 2:
        for key, value in raw.items():
            inner(value, arguments[1], _join(where, key))


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


@functools.cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True)

    def strict(kind: type, accepted: tuple[type, ...]) -> None:
        def structure(value: Any, _: type) -> Any:
            if isinstance(value, bool) or not isinstance(value, accepted):
                raise ValueError(f"expected {kind.__name__}, got {value!r}{_spelling(kind, value)}")
            return kind(value)

        converter.register_structure_hook(kind, structure)

    def structure_enum(value: Any, kind: type[enum.StrEnum]) -> Any:
        if value not in list(kind):
            raise ValueError(f"{value!r} is no {kind.__name__.lower()}; choose from {', '.join(kind)}")
        return kind(value)

    def structure_bool(value: Any, _: type) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {value!r}")
        return value

    strict(str, (str,))
    converter.register_structure_hook(enum.StrEnum, structure_enum)
    converter.register_structure_hook(bool, structure_bool)
    converter.register_structure_hook(Path, lambda value, _: expanded(converter.structure(value, str)))
    strict(int, (int,))
    strict(float, (int, float))

    def structure_list(value: Any, kind: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {value!r}")
        inner = typing.get_args(kind)[0]
        return tuple(converter.structure(item, inner) for item in value)

    def is_tuple(kind: Any) -> bool:
        return typing.get_origin(kind) is tuple

    converter.register_structure_hook_func(is_tuple, structure_list)
    return converter


def _spelling(kind: type, value: object) -> str:
    """What to write instead, where it is clear."""
    if kind is str and isinstance(value, (int, float)):
        return "; put text in quotes"
    if kind is int and isinstance(value, float) and value.is_integer():
        return f"; write {value:.0f}"
    if kind in (int, float) and isinstance(value, str):
        return "; write a number without quotes, underscores, colons or units"
    return ""


def _explain(error: Exception) -> str:
    from cattrs import transform_error
    from cattrs.v import format_exception

    def words(error: BaseException, kind: type | None) -> str:
        if type(error) is ValueError:
            return str(error)
        choices = typing.get_args(kind) if kind is not None else ()
        if choices and all(isinstance(choice, str) for choice in choices):
            return f"choose from {', '.join(choices)}"
        return format_exception(error, kind)

    lines = transform_error(error, path="file", format_exception=words)
    return "; ".join(
        f"{place.removeprefix('file.')}: {what}" for what, _, place in (x.rpartition(" @ ") for x in lines)
    )
