"""What models write for arguments, and what they mean by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.tools.arguments import MisfitError, arguments_in, taken
from mlgym_core.tools.builtin import BASH, TOOLS

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "note": {"type": "string"},
        "file": {"type": "string", "minLength": 1},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "all": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "integer"}},
        "point": {"type": "object", "properties": {"x": {"type": "number"}, "label": {"type": "string"}}},
        "maybe": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "any": {},
    },
    "required": ["text"],
}
ABSENT = object()


def meant(name: str, value: Any) -> Any:
    return taken(SCHEMA, {"text": "t", name: value}).get(name, ABSENT)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("count", "60", 60),
        ("count", " 60\n", 60),
        ("count", "-3", -3),
        ("count", "+3", 3),
        ("count", "3.0", 3),
        ("count", 3.0, 3),
        ("count", "1e3", 1000),
        ("share", "60", 60),
        ("share", "0.25", 0.25),
        ("share", ".5", 0.5),
        ("share", "-1E-4", -0.0001),
        ("all", "true", True),
        ("all", "False", False),
        ("all", " TRUE ", True),
        ("names", "[1, 2]", [1, 2]),
        ("names", ["1", 2.0], [1, 2]),
        ("point", '{"x": "1.5"}', {"x": 1.5}),
        ("point", {"x": "2", "label": "3", "more": None}, {"x": 2, "label": "3", "more": None}),
        ("point", {"x": None, "label": None}, {}),
        ("either", "true", True),
        ("either", "7", 7),
        ("maybe", None, None),
        ("maybe", "null", None),
        ("maybe", "5", 5),
        ("any", None, None),
        ("any", "5", "5"),
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("note", "", ""),
    ],
)
def test_values_are_taken_as_they_are_meant(name: str, given: Any, expected: Any) -> None:
    found = meant(name, given)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("name", ["note", "file", "mode", "count", "share", "all", "names", "point"])
def test_null_for_an_optional_argument_is_its_absence(name: str) -> None:
    assert meant(name, None) is ABSENT


@pytest.mark.parametrize("given", ["", "  ", "null", "None"])
@pytest.mark.parametrize("name", ["count", "share", "all", "names", "point"])
def test_a_text_that_says_nothing_is_absence_where_no_text_may_be(name: str, given: str) -> None:
    assert meant(name, given) is ABSENT


@pytest.mark.parametrize("name", ["file", "mode"])
def test_an_empty_text_is_absence_where_it_may_not_be(name: str) -> None:
    assert meant(name, "") is ABSENT


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("count", "sixty", "an integer"),
        ("count", "60 s", "an integer"),
        ("count", "1_000", "an integer"),
        ("count", "1,000", "an integer"),
        ("count", "010", "an integer"),
        ("count", "0x10", "an integer"),
        ("count", "\u0661\u0662", "an integer"),
        ("count", "1.5", "an integer"),
        ("count", 1e300, "an integer"),
        ("count", True, "an integer"),
        ("count", "9" * 5000, "an integer"),
        ("share", "NaN", "a number"),
        ("share", "1e999", "a number"),
        ("share", float("inf"), "a number"),
        ("share", [1], "a number"),
        ("all", "yes please", "a boolean"),
        ("all", 1, "a boolean"),
        ("names", "1, 2", "an array"),
        ("names", '{"a": 1}', "an array"),
        ("point", "[1]", "an object"),
        ("text", 5, "a string"),
        ("text", None, "a string"),
        ("text", ["ls", "-l"], "a string"),
        ("either", "1.5", "an integer or a boolean"),
        ("maybe", "x", "an integer or null"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_type_that_is_wanted(name: str, given: Any, wanted: str) -> None:
    with pytest.raises(MisfitError, match=f"'{name}' must be {wanted}, got"):
        meant(name, given)


def test_a_misfit_within_is_named_by_its_place() -> None:
    with pytest.raises(MisfitError, match=r"'names\[1\]' must be an integer"):
        meant("names", [1, "x"])
    with pytest.raises(MisfitError, match=r"'point.x' must be a number"):
        meant("point", {"x": "far"})


def test_the_advice_to_leave_it_out_is_given_for_optional_ones_alone() -> None:
    with pytest.raises(MisfitError, match="leave it out"):
        taken(BASH.parameters, {"command": "ls", "timeout": "soon"})
    with pytest.raises(MisfitError) as caught:
        taken(BASH.parameters, {"command": 3})
    assert "leave it out" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('"null"', {}),
        ('""', {}),
        ("{}", {}),
        ({"a": None}, {"a": None}),
        ('{"a": 1}', {"a": 1}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        (json.dumps(json.dumps({"a": "x"})), {"a": "x"}),
        ('{"command": "one\ntwo"}', {"command": "one\ntwo"}),
        ("[]", None),
        ("7", None),
        ('"ls"', None),
        ("ls", None),
        ('{"a": 1} {"b": 2}', None),
        ('{"a": NaN}', None),
        ([], None),
    ],
)
def test_an_object_of_arguments_is_found_in_whatever_holds_one(given: Any, expected: Any) -> None:
    assert arguments_in(given) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_anything_at_all_is_taken_or_refused(value: Any) -> None:
    for tool in TOOLS:
        for name in tool.parameters["properties"]:
            try:
                found = taken(tool.parameters, {name: value})
            except MisfitError as error:
                assert str(error)
            else:
                json.dumps(found, allow_nan=False)


@given(st.dictionaries(st.sampled_from(["text", "count", "share", "all"]), st.integers(-(2**53), 2**53)))
def test_what_is_right_stays_as_it_is(numbers: dict[str, int]) -> None:
    right: dict[str, Any] = {"text": "x", **{name: numbers[name] for name in ("count", "share") if name in numbers}}
    assert taken(SCHEMA, right) == right
    assert taken(SCHEMA, {name: str(value) for name, value in right.items()}) == right
