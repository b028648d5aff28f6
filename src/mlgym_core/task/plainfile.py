"""Reads files that people write: JSON as ``json.loads`` does, YAML by the core schema of YAML 1.2 (section 10.3.2).

PyYAML alone reads YAML 1.1, where ``1e-4`` is text, ``010`` is eight, ``12:30:45`` is a number and ``yes`` is true.
What the two versions read differently, and people could mean either way, is refused with its line and what to write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from mlgym_core.errors import UsageError

MOST_VALUES = 100_000
MOST_DIGITS = 400  #: of a whole number: more than the largest finite float has


class PlainError(ValueError):
    """A text cannot be read.

    Attributes:
        line: where, counted from 1; ``None`` when it concerns the whole.
        what: the reason alone.
    """

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what if line is None else f"line {line}: {what}")
        self.line = line
        self.what = what


def read_plain(path: Path, error: type[UsageError]) -> Any:
    """What a YAML or JSON file holds: text, finite numbers, truth values, ``None``, lists, and mappings with text keys.

    A file that ends in ``.json``, or whose content is JSON under any name, is read as JSON.

    Args:
        path: of the file.
        error: raised for everything that is wrong with the file; its text names file and line.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (ValueError, OSError) as problem:  # the former where the path holds a NUL character, or the file no text
        raise error(f"{path} cannot be read: {problem}") from problem
    try:
        return parse_json(text) if path.suffix == ".json" else parse(text)
    except PlainError as problem:
        place = f"{path}, line {problem.line}" if problem.line else f"{path}"
        raise error(f"{place}: {problem.what}") from problem


def parse(text: str) -> Any:
    """A text as JSON if it is that, else as YAML.

    Raises:
        PlainError: it is neither, or holds something else than plain values.
    """
    if text.lstrip().startswith(("[", "{", '"')):
        try:
            value = _loads(text)
        except (ValueError, RecursionError):
            pass  # flow style of YAML begins alike; its reader tells what is wrong
        else:
            return _checked(value)
    return parse_yaml(text)


def parse_json(text: str) -> Any:
    """A JSON text (RFC 8259) with distinct keys and finite numbers.

    Raises:
        PlainError: it is not that.
    """
    try:
        value = _loads(text)
    except json.JSONDecodeError as problem:
        raise PlainError(f"it is not JSON: {problem.msg} (column {problem.colno})", problem.lineno) from None
    except ValueError as problem:
        raise PlainError(str(problem)) from None
    except RecursionError:
        raise PlainError("it nests too deeply") from None
    return _checked(value)


def parse_yaml(text: str) -> Any:
    """A YAML 1.2 text of one document, core schema, with distinct keys and finite numbers.

    Raises:
        PlainError: it is not that, or says something that YAML 1.1 and 1.2 read differently.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if odd := _ODD.search(line):
            code = f"{ord(odd[0]):04x}"
            raise PlainError(f'it holds the character U+{code.upper()}; write "\\u{code}" in double quotes', number)
    try:
        value = yaml.load(text, _CoreLoader)
    except _RefusedError as problem:
        raise PlainError(problem.what, problem.line) from None
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise PlainError(f"it is not YAML: {problem.problem or problem}", mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError) as problem:  # the latter from values with explicit tags
        raise PlainError(f"it is not YAML: {problem}") from None
    except RecursionError:
        raise PlainError("it nests too deeply") from None
    return _checked(value)


# What no YAML text holds unescaped; and where YAML 1.1 breaks lines and 1.2 does not: a blank would stand there.
_ODD = re.compile("[^\t\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_int=_whole, object_pairs_hook=_distinct)


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON; it may hold finite numbers only")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; {MOST_DIGITS} are read")
    return int(text)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r:.80} occurs twice")
    return found


def _checked(value: Any) -> Any:
    """The value, if it is plain and of a size that can be meant."""
    try:
        if _written_out(value, {}) <= MOST_VALUES:
            json.dumps(value, allow_nan=False)
            return _paired(value, {})
    except RecursionError:
        raise PlainError("it nests too deeply") from None
    except PlainError:
        raise
    except (TypeError, ValueError) as problem:
        raise PlainError(f"it may hold text, finite numbers, lists and mappings only: {problem}") from None
    raise PlainError(f"it holds more than {MOST_VALUES} values")


def _written_out(value: object, known: dict[int, int]) -> int:
    """How many values it is with all aliases written out; a few of them can stand for very many."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES + 1  # of a value that holds itself
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_written_out(one, known) for one in inside)
    return known[id(value)]


def _paired(value: Any, known: dict[int, Any]) -> Any:
    """The value with surrogate pairs, as escapes of JSON in a YAML text leave them, made into their characters."""
    if isinstance(value, str):
        return _whole_text(value)
    if isinstance(value, (dict, list)):
        if id(value) not in known:
            if isinstance(value, dict):
                known[id(value)] = {_whole_text(str(key)): _paired(one, known) for key, one in value.items()}
            else:
                known[id(value)] = [_paired(one, known) for one in value]
        return known[id(value)]
    return value


def _whole_text(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PlainError(f"{text!r:.80} holds half a character (a lone surrogate)") from None


class _RefusedError(yaml.MarkedYAMLError):
    """It is YAML, and not taken."""

    def __init__(self, what: str, node: yaml.Node) -> None:
        super().__init__(problem=what, problem_mark=node.start_mark)
        self.what = what
        self.line = node.start_mark.line + 1


class _CoreLoader(yaml.SafeLoader):
    """PyYAML with the core schema in place of the types of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses a key that occurs twice or is no text."""
        found: dict[Any, Any] = {}
        for key, value in node.value:
            name = self.construct_scalar(key) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                raise _RefusedError("a key must be text", key)
            if name in found:
                raise _RefusedError(f"the key {name!r} occurs twice", key)
            found[name] = self.construct_object(value, deep=deep)
        return found

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge keys are of YAML 1.1 only."""


def _number(convert: Callable[[str], Any]) -> Callable[[Any, Any], Any]:
    def construct(loader: Any, node: Any) -> Any:
        text = loader.construct_scalar(node)
        if len(text) > MOST_DIGITS:
            raise _RefusedError(f"a number has {len(text)} digits; {MOST_DIGITS} are read", node)
        return convert(text)

    return construct


def _ambiguous(loader: Any, node: Any) -> Any:
    text = loader.construct_scalar(node)
    raise _RefusedError(f"{text!r:.80} means different things to readers of YAML; write {_meant(text)}", node)


def _meant(text: str) -> str:
    """What to write instead of a plain scalar that YAML 1.1 and 1.2 read differently."""
    word = text.lower()
    if word in _WORDS:
        return f"{str(_WORDS[word]).lower()}, or '{text}' in quotes for the text"
    sign = text[0] if text[0] in "+-" else ""
    digits = text.lstrip("+-").replace("_", "")
    number = digits
    if ":" in digits:
        seconds = 0.0
        for part in digits.split(":"):
            seconds = seconds * 60 + float(part)
        number = f"{seconds:.15g}"
    elif digits[:2] in ("0b", "0B"):
        number = str(int(digits[2:] or "0", 2))
    elif digits[:2] in ("0x", "0X"):
        number = str(int(digits[2:] or "0", 16))
    elif digits.isdigit():
        number = digits.lstrip("0") or "0"
    return f"{sign}{number} for the number, or '{text}' in quotes for the text"


_WORDS: Mapping[str, bool] = {"yes": True, "no": False, "on": True, "off": False}

# Core schema of YAML 1.2.2, section 10.3.2, after what YAML 1.1 reads as something else than 1.2 does.
_RESOLVERS: tuple[tuple[str, str, Callable[[Any, Any], Any]], ...] = (
    ("!null", r"~|null|Null|NULL|", lambda *_: None),
    (
        "!bool",
        r"true|True|TRUE|false|False|FALSE",
        lambda loader, node: loader.construct_scalar(node).lower() == "true",
    ),
    (
        "!ambiguous",
        r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"
        r"|[-+]?0[0-9_]+|[-+]?0b[01_]+|[-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*"
        r"|[-+]?[0-9]+_[0-9_]*(?:\.[0-9_]*)?|[-+]?[0-9]+\.[0-9]*_[0-9_]*"
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
        _ambiguous,
    ),
    ("!int", r"[-+]?[0-9]+", _number(int)),
    ("!octal", r"0o[0-7]+", _number(lambda text: int(text[2:], 8))),
    ("!hex", r"0x[0-9a-fA-F]+", _number(lambda text: int(text[2:], 16))),
    ("!float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", _number(float)),
    ("!inf", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", _number(lambda text: float(text.replace(".", "")))),
)

for _tag, _pattern, _construct in _RESOLVERS:
    _CoreLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), None)
    _CoreLoader.add_constructor(_tag, _construct)
