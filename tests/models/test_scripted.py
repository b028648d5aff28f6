"""Scripts and the baseline as models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from mlgym_core.errors import UsageError
from mlgym_core.models.base import ModelContext, ModelStopped
from mlgym_core.models.scripted import ScriptedModel, baseline, scripted
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS


@pytest.fixture
def context(task_folder: Callable[..., Path]) -> ModelContext:
    return ModelContext(load_task_folder(task_folder()), "full", 0, tools=TOOLS)


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


def test_a_script_answers_with_tool_calls_also_where_no_tools_are_offered() -> None:
    model = ScriptedModel("s", ["ls", {"tool": "submit"}])
    calls = [call for _ in range(2) for call in model.complete([], ()).tool_calls]
    assert [(c.name, c.arguments) for c in calls] == [("bash", {"command": "ls"}), ("submit", {})]


def test_the_baseline_of_a_size_may_be_another_command(context: ModelContext) -> None:
    task = attrs.evolve(context.task, baseline=attrs.evolve(context.task.baseline, commands={"tiny": "echo 2"}))
    for size, command in (("tiny", "echo 2"), ("full", context.task.baseline.command)):
        reply = baseline("", ModelContext(task, size, 0)).complete([], ())
        assert reply.tool_calls[0].arguments == {"command": command}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not: a list", "must be a YAML or JSON list"),
        ("- 3", "action 1: 3 is neither"),
        ("- {tol: validate}", "unknown key 'tol'"),
        ("- {arguments: {}}", "names no tool"),
        ("- {tool: bash, arguments: ls}", "not a mapping"),
        ("- [", "line 1: it is not YAML"),
        ("- {text: hi, tool: [a]}", "names no tool"),
        ("- {text: [hi]}", "text must be text"),
        ("- {tool: " + "a" * 5000 + "}", "action 1: there is no tool 'a{79}; the tools"),
        ("[" * 2_000, "nests too deeply"),
        ("\n".join(f"- &a{n} [{'ls' if n == 0 else ', '.join([f'*a{n - 1}'] * 9)}]" for n in range(12)), "more than"),
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
    for absurd in ("x" * 5000, "~no-such-user-here/script", "a\0b"):
        with pytest.raises(UsageError):
            scripted(absurd, context)
    with pytest.raises(UsageError, match="takes no argument"):
        baseline("x", context)
