"""JSON without the json module, which takes longer to import than a tool to do its work."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Context:
    """What the interpreter's scanner asks its caller for."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def loads(text: str) -> Any:
    """The value that a JSON text stands for.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        from _json import make_scanner

        text = text.strip()
        value, end = make_scanner(_Context)(text, 0)  # type: ignore[arg-type,unused-ignore]
        if end == len(text):
            return value
    except (ImportError, StopIteration, SystemError, ValueError, RecursionError):
        pass  # the module itself says best what is wrong
    import json

    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def dumps(value: Any) -> str:
    """ASCII JSON of texts, whole numbers, booleans, ``None``, and dictionaries of them by texts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(int(value))


def _quoted(text: str) -> str:
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        import json

        return json.dumps(text)
    return encode_basestring_ascii(text)
