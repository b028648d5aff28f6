"""Files that people write: JSON as it stands, YAML by the core schema of 1.2, what is ambiguous refused by line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from mlgym_core.errors import UsageError
from mlgym_core.task.plainfile import PlainError, parse, parse_json, parse_yaml, read_plain

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN, st.booleans(), st.sampled_from([None, 2, "\t"]))
@example(["\U0001f600", "\x7f", "a\x85b", "a \u2028 b", 1e2, "\ufeff"], True, "\t")
def test_json_is_read_as_it_stands_under_any_name(value: Any, ascii_only: bool, indent: Any) -> None:
    text = json.dumps([value], ensure_ascii=ascii_only, indent=indent)
    assert parse(text) == parse_json(text) == json.loads(text)


@given(PLAIN)
def test_yaml_written_by_others_means_what_they_wrote(value: Any) -> None:
    text = yaml.safe_dump({"value": value}, allow_unicode=False)
    try:
        found = parse_yaml(text)
    except PlainError as error:
        # PyYAML's writer leaves plain what only YAML 1.2 reads as a number, and never what 1.1 does.
        pytest.fail(f"{error} in {text!r}")
    assert _same(found["value"], value)


def _same(found: Any, wanted: Any) -> bool:
    """Equal, but for texts such as ``1e5``, which the writer of YAML 1.1 takes for text and 1.2 for a number."""
    if isinstance(wanted, dict):
        return {*found} == {*wanted} and all(_same(found[key], one) for key, one in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(wanted, str) and not isinstance(found, str):
        return float(wanted) == found or wanted.startswith("0o")
    return bool(found == wanted) and type(found) is type(wanted)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("1e2", 100.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-12", -12),
        ("+12", 12),
        ("0", 0),
        ("0o17", 15),
        ("0xff", 255),
        ("01.5", 1.5),
        ("~", None),
        ("", None),
        ("Null", None),
        ("TRUE", True),
        ("false", False),
        ("2026-12-01", "2026-12-01"),
        ("1.2.3", "1.2.3"),
        ("12:30:45 local", "12:30:45 local"),
        ("<<", "<<"),
        ("=", "="),
        ("nULL", "nULL"),
        ("y", "y"),
        ("1e", "1e"),
        ("'010'", "010"),
        ('"yes"', "yes"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_scalars_of_the_core_schema(text: str, value: Any) -> None:
    found = parse_yaml(f"- {text}\n")[0]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("010", "write 10 for the number, or '010'"),
        ("-007", "write -7 "),
        ("12:30:45", "write 45045 "),
        ("1:30:00", "write 5400 "),
        ("1:30.5", "write 90.5 "),
        ("1_000", "write 1000 "),
        ("1_000.5", "write 1000.5 "),
        ("0b101", "write 5 "),
        ("0x_ff", "write 255 "),
        ("-0x10", "write -16 "),
        ("yes", "write true, or 'yes' in quotes"),
        ("Off", "write false, or 'Off' in quotes"),
    ],
)
def test_what_two_versions_of_yaml_read_differently_is_refused_with_line_and_spelling(text: str, write: str) -> None:
    with pytest.raises(PlainError) as caught:
        parse_yaml(f"a: 1\nb:\n  c: {text}\n")
    assert caught.value.line == 3
    assert write in caught.value.what


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("a.yaml", "a: 1\nb: 2\na: 3\n", 3, "occurs twice"),
        ("a.yaml", "a: [1, 2\n", 2, "not YAML"),
        ("a.yaml", "- a\u2028b\n", 1, "\\u2028"),
        ("a.yaml", "- a\n- b\x85c\n", 2, "\\u0085"),
        ("a.yaml", "- a\n- \x01\n", 2, "U+0001"),
        ("a.yaml", "a: .inf\n", None, "finite"),
        ("a.yaml", "? [1]\n: 2\n", 1, "a key must be text"),
        ("a.yaml", '- "\\ud83d"\n', None, "half a character"),
        ("a.yaml", "- !!timestamp 2026-12-01\n", None, "text, finite numbers"),
        ("a.yaml", "--- 1\n--- 2\n", 2, "not YAML"),
        ("a.yaml", f"- {'9' * 5000}\n", 1, "5000 digits"),
        ("a.yaml", "- !!python/name:os.system\n", 1, "not YAML"),
        ("a.yaml", "&a [*a]", None, "more than"),
        ("a.json", "[1,\n 2,\n]", 3, "not JSON"),
        ("a.json", "[NaN]", None, "NaN"),
        ("a.json", '{"a": 1, "a": 2}', None, "'a' occurs twice"),
        ("a.json", f"[{'9' * 5000}]", None, "5000 digits"),
        ("a.json", "[" * 100_000, None, "too deeply"),
        ("a.json", "- a", 1, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(
    tmp_path: Path, name: str, text: str, line: int | None, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError) as caught:
        read_plain(path, UsageError)
    assert str(caught.value).startswith(f"{path}, line {line}: " if line else f"{path}: ")
    assert said in str(caught.value)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert read_plain(path, UsageError) == [1]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_plain(path, UsageError)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    for read in (parse, parse_yaml, parse_json):
        try:
            value = read(text)
        except PlainError as error:
            assert error.what
        else:
            assert _finite(value)


def _finite(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
