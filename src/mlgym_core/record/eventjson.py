"""Events as JSON objects, and JSON objects as events."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import fields
from cattrs import BaseValidationError, Converter

from mlgym_core.record.events import KINDS, OMITTED, Event, UnknownEvent
from mlgym_core.record.strictjson import plain

T = TypeVar("T", bound=Event)

#: The fields of each kind without those of all events.
_OWN = {
    form: tuple(one for one in fields(form) if one.name not in ("t", "kind", "extra"))
    for form in (*KINDS.values(), UnknownEvent)
}


def to_json(event: Event, redact: Callable[[str], str] = str) -> dict[str, Any]:
    """The object that stands for an event: ``t``, ``kind``, its fields, then what is extra.

    Args:
        event: any; an unknown one becomes what it was.
        redact: applied to every text but the vocabulary's own names.
    """
    content: dict[str, Any] = {"t": plain(event.t), "kind": plain(event.kind)}
    for one in _OWN[type(event)]:
        value = getattr(event, one.name)
        if one.metadata != OMITTED or value != one.default:
            content[one.name] = plain(value, redact)
    if event.extra:
        content |= plain(event.extra, redact)
    return content


def from_json(raw: object) -> Event:
    """The event that an object stands for. Fields that its class does not have are kept in ``extra``.

    An event of a kind that is not known, or whose fields are not what its class says (another version's, or damaged),
    is an :class:`~mlgym_core.record.events.UnknownEvent` and loses nothing.

    Raises:
        ValueError: it is no object with a kind and a time.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("kind"), str):
        raise ValueError("it is no object with a kind")
    if isinstance(raw.get("t", 0.0), bool) or not isinstance(raw.get("t", 0.0), (int, float)):
        raise ValueError(f"its time is {raw['t']!r:.80}, not a number")
    form = KINDS.get(raw["kind"], UnknownEvent)
    try:
        event: Event = _structure(raw, form)
    except BaseValidationError:
        event = _structure(raw, UnknownEvent)
    return event


def _structure(raw: Mapping[str, Any], form: type[T]) -> T:
    names = {"t", "kind", *(one.name for one in _OWN[form])}
    known = {name: value for name, value in raw.items() if name in names}
    extra = {name: value for name, value in raw.items() if name not in names}
    return _CONVERTER.structure({**known, "extra": extra}, form)


def _converter() -> Converter:
    """Takes values as they are or refuses them: nothing is turned into something else."""
    converter = Converter()

    def primitive(value: Any, wanted: type) -> Any:
        accepted = (int, float) if wanted is float else wanted
        if not isinstance(value, accepted) or (isinstance(value, bool) and wanted is not bool):
            raise ValueError(f"{value!r:.80} is not {wanted.__name__}")
        return value

    def sequence(value: Any, wanted: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{value!r:.80} is no list")
        return tuple(converter.structure(item, typing.get_args(wanted)[0]) for item in value)

    def mapping(value: Any, wanted: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r:.80} is no object")
        return {name: converter.structure(item, typing.get_args(wanted)[1]) for name, item in value.items()}

    for form in (str, int, float, bool):
        converter.register_structure_hook(form, primitive)
    converter.register_structure_hook_func(lambda wanted: getattr(wanted, "__origin__", None) is tuple, sequence)
    converter.register_structure_hook_func(lambda wanted: getattr(wanted, "__origin__", None) is Mapping, mapping)
    return converter


_CONVERTER = _converter()
