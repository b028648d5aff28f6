"""``human``: a person at the terminal reads what the agent would read and types what it would do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from mlgym_core.errors import UsageError
from mlgym_core.models.base import Message, ModelContext, ModelStopped, Reply, ToolCall, since_last_reply
from mlgym_core.models.human.terminal import InputEnded, Terminal, Unfinished
from mlgym_core.tools.base import Tool, ToolArgumentError

HELP = """\
  any shell command        runs; it goes on in the next line after a backslash, in an open quote or here-document
  \"\"\"                      begins and ends a block of several lines
  validate, submit         those tools; so does any other tool that needs no arguments
  :call NAME {"a": "b"}    calls a tool with arguments
  :tools                   lists the tools
  :help                    shows this
  :quit, or Ctrl-D         leaves; what lies in the workspace is graded
"""
_BLOCK = '"""'


class HumanModel:
    """Asks a person for every action. Actions are tool calls, which agents of every format take.

    Args:
        tools: that the episode has.
        terminal: where the person is.
        thoughts: ask for a thought before each action; it becomes the reply's text.

    Attributes:
        name: as recorded.
    """

    def __init__(self, tools: Sequence[Tool], terminal: Terminal, thoughts: bool = False) -> None:
        self.name = "human:thoughts" if thoughts else "human"
        self._tools = {tool.name: tool for tool in tools}
        self._terminal = terminal
        self._thoughts = thoughts
        self._shown = 0
        self._calls = 0

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        """Show what is new and take the person's action.

        Raises:
            ModelStopped: the person quit.
        """
        self._tools |= {tool.name: tool for tool in tools}
        self._show(messages)
        try:
            thought = self._entry("thought> ") if self._thoughts else ""
            call = None
            while call is None:
                call = self._action(self._entry("> "))
        except InputEnded as ended:
            raise ModelStopped(f"the person left: {ended}") from None
        return Reply(thought, (call,))

    def _show(self, messages: Sequence[Message]) -> None:
        """What came since the person was last asked: all of it at first, later what followed the last reply."""
        for message in since_last_reply(messages) if self._shown else messages[1:]:
            calls = "".join(f"\n> {call.name} {json.dumps(dict(call.arguments or {}))}" for call in message.tool_calls)
            self._terminal.show(message.content + calls)
        if not self._shown:
            self._terminal.show("Type a shell command, validate or submit; :help says what else.")
        self._shown += 1

    def _entry(self, prompt: str) -> str:
        """One entry, which may have several lines; empty ones are asked for again.

        Raises:
            InputEnded: there is no more input, or the person said ``:quit``.
        """
        while True:
            text = self._lines(prompt)
            if text.strip() == ":quit":
                raise InputEnded(":quit")
            if text.strip():
                return text

    def _lines(self, prompt: str) -> str:
        text = self._terminal.ask(prompt)
        block = text.strip() == _BLOCK
        lines = [] if block else [text]
        command = Unfinished()
        try:
            while block or command.goes_on(lines[-1]):
                line = self._terminal.ask("... ")
                if block and line.strip() == _BLOCK:
                    break
                lines.append(line)
        except InputEnded:
            if not self._terminal.interactive:
                raise InputEnded("the input ended in the middle of a command") from None
            self._terminal.show("The unfinished command was dropped.")
            return ""
        self._terminal.remember()
        return "\n".join(lines)

    def _action(self, entry: str) -> ToolCall | None:
        """What the entry means; ``None`` when it only asked for something, or cannot be done."""
        text = entry.strip()
        if text == ":help":
            self._terminal.show(HELP.rstrip())
        elif text == ":tools":
            self._terminal.show("\n".join(f"{tool.name}: {tool.description}" for tool in self._tools.values()))
        elif text.split(maxsplit=1)[0] == ":call":
            return self._call(text)
        elif text.startswith(":") and text[1:2].isalpha():
            self._terminal.show(f"There is no command {text.split()[0]}; :help lists them.")
        elif self._needs_nothing(text):
            return self._asked(text, {})
        else:
            return self._asked("bash", {"command": entry})
        return None

    def _call(self, text: str) -> ToolCall | None:
        _, name, arguments, *_ = [*text.split(maxsplit=2), "", ""]
        tool = self._tools.get(name)
        if tool is None:
            self._terminal.show(f"There is no tool {name!r}; the tools are {', '.join(self._tools)}.")
            return None
        try:
            given = tool.check(arguments)
        except ToolArgumentError as error:
            self._terminal.show(f"{error}; the form is :call {name} {{...}}")
            return None
        return self._asked(name, given)

    def _needs_nothing(self, name: str) -> bool:
        tool = self._tools.get(name)
        return tool is not None and name != "bash" and not tool.parameters.get("required")

    def _asked(self, name: str, arguments: dict[str, object]) -> ToolCall:
        self._calls += 1
        return ToolCall(f"human-{self._calls}", name, arguments)


def create(argument: str, context: ModelContext) -> HumanModel:
    """The model ``human``, or ``human:thoughts``.

    Raises:
        UsageError: another argument.
    """
    if argument not in ("", "thoughts"):
        raise UsageError(
            f"the model 'human' takes no argument but 'thoughts', not {argument!r}: --model human:thoughts"
        )
    return HumanModel(context.tools, Terminal(sys.stdin, sys.stderr), thoughts=argument == "thoughts")
