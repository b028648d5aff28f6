"""``scripted:<file>`` plays a list of actions; ``baseline`` plays the task's shipped baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlgym_core.errors import UsageError
from mlgym_core.models.base import Message, ModelContext, ModelStopped, Reply, ToolCall
from mlgym_core.storage import expanded
from mlgym_core.task.plainfile import read_plain
from mlgym_core.tools.arguments import arguments_in
from mlgym_core.tools.base import Tool, ToolArgumentError


class ScriptedModel:
    """Answers with a fixed list of actions, one a call, as tool calls, which agents of every format take.

    Args:
        name: as recorded.
        actions: each a shell command, ``{"tool": name, "arguments": {...}}``, or ``{"text": reply}``,
            which is sent as it is.
    """

    def __init__(self, name: str, actions: Iterable[str | Mapping[str, Any]]) -> None:
        self.name = name
        self._actions = list(actions)
        self._next = 0

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        """The next action.

        Raises:
            ModelStopped: the script is at its end and the episode is not.
        """
        del messages, tools
        if self._next == len(self._actions):
            raise ModelStopped(f"{self.name} ended after {self._next} actions, and no submission had been accepted")
        action = self._actions[self._next]
        self._next += 1
        if isinstance(action, Mapping) and "text" in action:
            return Reply(str(action["text"]))
        tool, arguments = ("bash", {"command": action}) if isinstance(action, str) else _call(action)
        return Reply("", (ToolCall(f"call-{self._next}", tool, arguments),))


def _call(action: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    return action["tool"], arguments_in(action.get("arguments")) or {}


def baseline(argument: str, context: ModelContext) -> ScriptedModel:
    """The shipped baseline: run it, validate, submit."""
    if argument:
        raise UsageError(f"the model 'baseline' takes no argument, got {argument!r}; use --model baseline")
    command = context.task.baseline.command_for(context.size)
    return ScriptedModel("baseline", [command, {"tool": "validate"}, {"tool": "submit"}])


def scripted(argument: str, context: ModelContext) -> ScriptedModel:
    """A script from a YAML or JSON file holding a list of actions.

    Raises:
        UsageError: the file is missing or is not such a list; the message shows the form.
    """
    form = 'a YAML or JSON list of shell commands (text) and {"tool": "validate"} or {"tool": "submit"}'
    if not argument:
        raise UsageError(f"--model scripted:<file> needs a file: {form}")
    try:
        path = expanded(argument)
        path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"--model scripted:<file> needs a file, not {argument!r:.80}") from error
    actions = read_plain(path, UsageError)
    if not isinstance(actions, list):
        raise UsageError(f"the script {path} must be {form}")
    for number, action in enumerate(actions, 1):
        problem = _problem(action, context.tools)
        if problem:
            raise UsageError(f"the script {path}, action {number}: {problem}; it must be {form}")
    return ScriptedModel(f"scripted:{path.name}", actions)


def _problem(action: object, tools: Sequence[Tool]) -> str | None:
    known = {tool.name: tool for tool in tools}
    if isinstance(action, str):
        word = action.strip()
        tool_word = word in known and word != "bash"
        return f"{word!r:.80} alone would be a shell command; write {{tool: {word}}}" if tool_word else None
    if not isinstance(action, Mapping):
        return f"{action!r:.80} is neither text nor a mapping"
    unknown = set(action) - {"tool", "arguments", "text"}
    if unknown:
        return f"unknown key {sorted(map(str, unknown))[0]!r:.80}"
    if not isinstance(action.get("text", ""), str):
        return "text must be text"
    if not isinstance(action.get("tool", "" if "text" in action else None), str):
        return "names no tool"
    if arguments_in(action.get("arguments")) is None:
        return "arguments is not a mapping"
    if "tool" in action and known:
        if action["tool"] not in known:
            return f"there is no tool {action['tool']!r:.80}; the tools are {', '.join(known)}"
        try:
            known[action["tool"]].check(action.get("arguments", {}))
        except ToolArgumentError as error:
            return str(error)
    return None
