"""From replies to actions, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.agent.formats import FORMATS, Fenced, Json, MalformedReplyError, NativeCalls, Xml
from mlgym_core.episode.episode import Action
from mlgym_core.models.base import Reply, ToolCall
from mlgym_core.tools.base import Tool, ToolArgumentError, ToolOutput
from mlgym_core.tools.builtin import BASH, SUBMIT, VALIDATE

EDIT = Tool(
    name="edit",
    description="Change lines.",
    parameters={
        "type": "object",
        "properties": {
            "first": {"type": "integer"},
            "text": {"type": "string"},
            "check": {"type": "boolean"},
            "share": {"type": "number"},
        },
        "required": ["first", "text"],
    },
    run=lambda context, arguments: ToolOutput("done"),
)
TOOLS = (BASH, VALIDATE, SUBMIT, EDIT)
NAMES = [pytest.param(each, id=name) for name, each in FORMATS.items()]
TEXTUAL = [pytest.param(each, id=each.name) for each in (Fenced(), Xml(), Json())]

texts = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\r"))
lines = texts.filter(lambda text: "```" not in text and "<action" not in text and "</" not in text)
actions = st.one_of(
    st.builds(lambda: Action("submit")),
    lines.filter(lambda text: text.strip() and not text.endswith("\n") and text.strip() not in ("validate", "submit"))
    .filter(lambda text: not text.strip().startswith(("edit", "submit", "validate")))
    .map(lambda text: Action("bash", {"command": text})),
    st.builds(
        lambda first, text, check: Action("edit", {"first": first, "text": text, "check": check}),
        st.integers(),
        lines,
        st.booleans(),
    ),
)


def parsed(form: Any, text: str) -> Action:
    ((_, action),) = form.parse(Reply(text), TOOLS)
    return action


@pytest.mark.parametrize("form", NAMES)
@given(thought=lines.filter(lambda text: "{" not in text), action=actions)
def test_what_a_format_renders_it_reads_back(form: Any, thought: str, action: Action) -> None:
    message = form.render(thought, action, "id-1")
    ((call_id, found),) = form.parse(Reply(message.content, message.tool_calls), TOOLS)
    assert (found.tool, dict(found.arguments)) == (action.tool, dict(action.arguments))
    assert call_id == ("id-1" if form.native else None)


@pytest.mark.parametrize("form", TEXTUAL)
@given(text=texts)
def test_any_text_is_an_action_or_malformed(form: Any, text: str) -> None:
    try:
        found = parsed(form, text)
    except MalformedReplyError as error:
        assert str(error)
    else:
        assert found.tool in [tool.name for tool in TOOLS]


@pytest.mark.parametrize("word", ["validate", "submit"])
def test_a_tool_word_alone_in_the_fence_is_the_tool(word: str) -> None:
    assert parsed(Fenced(), f"```\n  {word}\n```").tool == word
    assert parsed(Fenced(), f"```\ncat {word}\n```").tool == "bash"
    assert parsed(Fenced(), f"```\necho {word}; {word}\n```").tool == "bash"
    assert parsed(Fenced(), "```\nedit\n```") == Action("bash", {"command": "edit"})


DEEP = "[" * 20_000 + "]" * 20_000


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Fenced(), "```bash\n" * 25_000),
        (Fenced(), "```bash\nls" + " " * 20_000 + "x y\n```"),
        (Fenced(), f'```\nedit {{"first": {DEEP}}}\n```'),
        (Xml(), f'<action tool="edit"><first>{DEEP}</first><text>x</text></action>'),
        (Xml(), '<action tool="bash">' + "<command>" * 50_000),
        (Json(), '{"tool": "' * 90_000),
        (Json(), '{"a":' * 90_000),
        (Json(), "{" * 900_000),
        (Json(), "x" * 1_000_001),
        (Fenced(), "x" * 1_000_001),
    ],
    ids=range(10),
)
def test_degenerate_replies_are_read_or_refused_at_once(form: Any, text: str) -> None:
    try:
        assert parsed(form, text).tool in ("bash", "edit")
    except MalformedReplyError as error:
        assert len(str(error)) < 2_000


def test_a_file_that_speaks_of_actions_can_be_written_in_xml() -> None:
    text = '<action tool="bash"><command>echo \'<action tool="bash">\' > notes</command></action>'
    assert parsed(Xml(), text).arguments == {"command": "echo '<action tool=\"bash\">' > notes"}


def test_a_tool_with_arguments_in_the_fence_is_called() -> None:
    action = parsed(Fenced(), 'I edit.\n```bash\nedit {"first": 3, "text": "a\\nb"}\n```')
    assert action == Action("edit", {"first": 3, "text": "a\nb"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I shall now submit.", "no fenced block"),
        ("", "no fenced block"),
        ("```bash\nls\n```\nand\n```bash\npwd\n```", "2 fenced blocks"),
        ("```bash\n\n```", "empty"),
        ("```python\nprint(1)\n```", "no fenced block"),
        ("```bash\nls", "no fenced block"),
    ],
)
def test_a_malformed_fence_says_what_was_wrong(text: str, message: str) -> None:
    with pytest.raises(MalformedReplyError, match=message):
        parsed(Fenced(), text)


def test_xml_arguments_are_taken_as_they_stand_and_typed_by_the_schema() -> None:
    text = (
        'Why.\n<action tool="edit">\n<first>7</first>\n<text>\nif a < b && c > d:\n    print("</p>")\n</text>\n'
        "<check>true</check><share>0.5</share>\n</action>\nDone."
    )
    action = parsed(Xml(), text)
    assert action.arguments == {
        "first": 7,
        "text": 'if a < b && c > d:\n    print("</p>")',
        "check": True,
        "share": 0.5,
    }
    assert parsed(Xml(), '<action tool="submit"/>') == Action("submit")
    assert parsed(Xml(), '<action tool="submit"></action>') == Action("submit")


def test_an_xml_argument_may_hold_its_own_closing_tag() -> None:
    text = '<action tool="bash"><command>echo "</command>" > x</command></action>'
    assert parsed(Xml(), text).arguments == {"command": 'echo "</command>" > x'}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ls", "no <action"),
        ('<action tool="bash"><command>ls</command>', "not closed"),
        ('<action tool="bash"><command>ls</action>', "<command> was not closed"),
        ('<action tool="bash">ls</action>', "outside one"),
        ('<action tool="shell"><command>ls</command></action>', "no tool 'shell'"),
        ('<action tool="submit"/><action tool="submit"/>', "more than one"),
        ('<action tool="submit"></action> or <action tool="validate"></action>', "more than one"),
    ],
)
def test_malformed_xml_says_what_was_wrong(text: str, message: str) -> None:
    with pytest.raises(MalformedReplyError, match=message):
        parsed(Xml(), text)


@pytest.mark.parametrize(
    "text",
    [
        '{"thought": "x", "tool": "bash", "arguments": {"command": "ls"}}',
        'Sure {as you like}:\n```json\n{"tool": "bash", "arguments": {"command": "ls"}}\n```',
        'a set {1, 2} first, then {"tool": "bash", "arguments": {"command": "ls"}} and {"other": 1}',
    ],
)
def test_json_may_be_bare_fenced_or_among_text(text: str) -> None:
    assert parsed(Json(), text) == Action("bash", {"command": "ls"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prose", "no JSON object"),
        ('{"command": "ls"}', "no JSON object"),
        ('{"tool": "submit"} {"tool": "submit"}', "2 such"),
        ('{"tool": 3}', "must be text"),
        ('{"tool": "bash", "arguments": "ls"}', "an object"),
        ('{"tool": "shell"}', "no tool 'shell'"),
        ('{"tool": "bash", "arguments": {"command": "ls"', "no JSON object"),
        ("{" * 5000, "no JSON object"),
    ],
)
def test_malformed_json_says_what_was_wrong(text: str, message: str) -> None:
    with pytest.raises(MalformedReplyError, match=message):
        parsed(Json(), text)


def test_tool_calls_become_actions_in_order_in_every_format() -> None:
    calls = (ToolCall("1", "bash", {"command": "ls"}), ToolCall("2", "submit", {}))
    for form in FORMATS.values():
        assert [(i, a.tool) for i, a in form.parse(Reply("", calls), TOOLS)] == [("1", "bash"), ("2", "submit")]


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ((), "called no tool"),
        ((ToolCall("1", "shell", {}),), "no tool 'shell'"),
        ((ToolCall("1", "bash", None),), "not a JSON object"),
    ],
)
def test_malformed_tool_calls_say_what_was_wrong(calls: tuple[ToolCall, ...], message: str) -> None:
    with pytest.raises(MalformedReplyError, match=message):
        NativeCalls().parse(Reply("", calls), TOOLS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "'command' is missing"),
        ({"command": 3}, "must be a string"),
        ({"command": "ls", "timeout": "long"}, "must be a number"),
        ({"command": "ls", "timeout": True}, "must be a number"),
        ({"command": "ls", "timeout": float("nan")}, "must be a number"),
        ({"command": "ls", "cwd": "/"}, "unknown argument 'cwd'"),
    ],
)
def test_tool_arguments_are_checked(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ToolArgumentError, match=message):
        BASH.check(arguments)


def test_a_value_of_the_wrong_type_is_left_for_the_schema_to_refuse() -> None:
    action = parsed(Xml(), '<action tool="edit"><first>three</first><text>x</text></action>')
    with pytest.raises(ToolArgumentError, match="'first' must be an integer"):
        EDIT.check(action.arguments)
    assert json.loads(Json().written(action))["arguments"] == {"first": "three", "text": "x"}
