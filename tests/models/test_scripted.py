"""From replies to actions; prompts; budgets; scripts. No sandbox needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.agent.base import Budget
from mlgym_core.agent.parsing import MalformedReplyError, fenced_action, tool_actions
from mlgym_core.agent.prompts import render
from mlgym_core.errors import UsageError
from mlgym_core.models.base import ModelContext, ModelStopped, Reply, ToolCall, Usage
from mlgym_core.models.scripted import ScriptedModel, baseline, scripted
from mlgym_core.task import Limits
from mlgym_core.taskfile import load_task_folder
from mlgym_core.tools.base import ToolArgumentError
from mlgym_core.tools.builtin import BASH, TOOLS


@pytest.fixture
def context(task_folder: Callable[..., Path]) -> ModelContext:
    return ModelContext(load_task_folder(task_folder()), "full", 0)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="`\r"), min_size=1))
def test_a_fenced_command_arrives_as_it_was_written(command: str) -> None:
    body = command.rstrip("\n")
    if not body.strip() or body.strip() in ("validate", "submit"):
        return
    action = fenced_action(Reply(f"I think.\n```bash\n{body}\n```\nDone."))
    assert (action.tool, action.arguments) == ("bash", {"command": body})


@pytest.mark.parametrize("word", ["validate", "submit"])
def test_a_tool_word_alone_in_the_fence_is_the_tool(word: str) -> None:
    assert fenced_action(Reply(f"```\n  {word}\n```")).tool == word
    assert fenced_action(Reply(f"```\ncat {word}\n```")).tool == "bash"
    assert fenced_action(Reply(f"```\necho {word}; {word}\n```")).tool == "bash"


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
def test_a_malformed_text_reply_says_what_was_wrong(text: str, message: str) -> None:
    with pytest.raises(MalformedReplyError, match=message):
        fenced_action(Reply(text))


def test_tool_calls_become_actions_in_order() -> None:
    calls = (ToolCall("1", "bash", {"command": "ls"}), ToolCall("2", "submit", {}))
    assert [(i, a.tool) for i, a in tool_actions(Reply("", calls), TOOLS)] == [("1", "bash"), ("2", "submit")]


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
        tool_actions(Reply("", calls), TOOLS)


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


def test_prompts_are_strict_about_placeholders_and_easy_about_braces() -> None:
    values = dict.fromkeys(["title", "workdir", "files", "submission", "baseline", "limits"], "x")
    assert "{a} $b ${c}" in render("task", {**values, "description": "{a} $b ${c}"})
    with pytest.raises(UsageError, match="description"):
        render("task", values)


def test_budgets_name_the_limit_that_was_reached() -> None:
    budget = Budget(Limits(cost_usd=1.0, tokens=100, wall_seconds=None))
    assert budget.exhausted() is None
    budget.charge(Usage(30, 10, 0.4))
    assert budget.exhausted() is None
    budget.charge(Usage(50, 10, None))
    assert (budget.exhausted(), budget.cost_known) == ("tokens", False)
    budget.charge(Usage(0, 0, 0.6))
    assert budget.exhausted() == "cost"
    assert Budget(Limits(cost_usd=None)).exhausted() is None


def test_scripts_hold_commands_tool_calls_and_raw_replies(tmp_path: Path, context: ModelContext) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(
        "- ls\n- {tool: validate}\n- {text: prose}\n- {tool: bash, arguments: {command: pwd, timeout: 3}}\n"
    )
    model = scripted(str(path), context)
    replies = [model.complete([], TOOLS) for _ in range(4)]
    assert [c.name for r in replies for c in r.tool_calls] == ["bash", "validate", "bash"]
    assert replies[2].text == "prose"
    with pytest.raises(ModelStopped, match="ended after 4 actions"):
        model.complete([], TOOLS)


def test_a_script_is_played_as_text_where_no_tools_are_offered() -> None:
    model = ScriptedModel("s", ["ls", {"tool": "submit"}])
    assert fenced_action(model.complete([], ())).arguments == {"command": "ls"}
    assert fenced_action(model.complete([], ())).tool == "submit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not: a list", "must be a YAML or JSON list"),
        ("- 3", "action 1: 3 is neither"),
        ("- {tol: validate}", "unknown key 'tol'"),
        ("- {arguments: {}}", "names no tool"),
        ("- {tool: bash, arguments: ls}", "not a mapping"),
        ("- [", "is not YAML"),
    ],
)
def test_a_bad_script_says_what_it_should_be(tmp_path: Path, context: ModelContext, text: str, message: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        scripted(str(path), context)


def test_model_arguments_that_make_no_sense_are_refused(tmp_path: Path, context: ModelContext) -> None:
    with pytest.raises(UsageError, match="needs a file"):
        scripted("", context)
    with pytest.raises(UsageError, match="cannot be read"):
        scripted(str(tmp_path / "absent"), context)
    with pytest.raises(UsageError, match="takes no argument"):
        baseline("x", context)
