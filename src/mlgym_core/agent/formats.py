"""How a model says what to do: native tool calls, a fenced block, an XML tag or a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from mlgym_core.episode.episode import Action
from mlgym_core.models.base import Message, Reply, ToolCall
from mlgym_core.tools.arguments import arguments_in
from mlgym_core.tools.base import Tool

Actions = list[tuple[str | None, Action]]
MOST_CHARACTERS = 1_000_000  #: of a reply in a textual format
_MOST_BRACES = 1_000  #: that are tried for the beginning of a JSON object


class MalformedReplyError(ValueError):
    """The reply holds no usable action; the text is the corrective message."""


class Format(Protocol):
    """One way to put actions into replies.

    Attributes:
        name: as configurations name it; ``templates/format_<name>.txt`` tells the model about it.
        native: tools are offered to the service; otherwise the prompt describes them.
    """

    name: str
    native: bool

    def parse(self, reply: Reply, tools: Sequence[Tool]) -> Actions:
        """The reply's actions in order, with the ids of the calls that are to be answered, if it has such.

        Raises:
            MalformedReplyError: there is no action that can be carried out.
        """

    def render(self, thought: str, action: Action, call_id: str) -> Message:
        """The reply of a model that does this; for demonstrations."""


class NativeCalls:
    """The service's own tool calls, several a reply if the model likes."""

    name = "tools"
    native = True

    def parse(self, reply: Reply, tools: Sequence[Tool]) -> Actions:
        """See :class:`Format`; a damaged call refuses the whole reply, so that all are sent again."""
        if not reply.tool_calls:
            raise MalformedReplyError(f"Your reply called no tool. Call one of: {_names(tools)}.")
        actions: Actions = []
        for call in reply.tool_calls:
            if call.arguments is None:
                raise MalformedReplyError(f"The arguments of {call.name} were not a JSON object. Send them again.")
            actions.append((call.id, _offered(Action(call.name, call.arguments), tools)))
        return actions

    def render(self, thought: str, action: Action, call_id: str) -> Message:
        """See :class:`Format`."""
        return Message("assistant", thought, (ToolCall(call_id, action.tool, action.arguments),))


class _Textual:
    """What the formats in text share: one action a reply; calls that a service makes all the same are taken."""

    name: str
    native = False

    def parse(self, reply: Reply, tools: Sequence[Tool]) -> Actions:
        """See :class:`Format`."""
        if reply.tool_calls:
            return NativeCalls().parse(reply, tools)
        if len(reply.text) > MOST_CHARACTERS:
            raise MalformedReplyError(
                f"Your reply had {len(reply.text)} characters; at most {MOST_CHARACTERS} are read. Be brief."
            )
        return [(None, _offered(self.action(reply.text, tools), tools))]

    def action(self, text: str, tools: Sequence[Tool]) -> Action:
        """The one action in the text.

        Raises:
            MalformedReplyError: there is none, or more than one.
        """
        raise NotImplementedError

    def written(self, action: Action) -> str:
        """The action as the format writes it."""
        raise NotImplementedError

    def render(self, thought: str, action: Action, call_id: str) -> Message:
        """See :class:`Format`."""
        del call_id
        return Message("assistant", f"{thought}\n\n{self.written(action)}".strip())


class Fenced(_Textual):
    """One fenced block with a shell command. A tool's name alone in it, or before a JSON object, calls that tool."""

    name = "fenced"
    _fence = re.compile(r"```[ \t]*([\w+-]*)[ \t]*")
    _tags = frozenset({"", "bash", "sh", "shell"})
    _call = re.compile(r"([\w-]+)\s*(\{.*\})?", re.DOTALL)

    def action(self, text: str, tools: Sequence[Tool]) -> Action:
        """See :class:`_Textual`."""
        blocks = [body for tag, body in self._blocks(text) if tag.lower() in self._tags]
        if len(blocks) != 1:
            found = "no fenced block" if not blocks else f"{len(blocks)} fenced blocks"
            raise MalformedReplyError(
                f"Your reply held {found}. Give exactly one action, between a line ```bash and a line ```."
            )
        command = blocks[0].rstrip("\n")
        if not command.strip():
            raise MalformedReplyError(
                "The fenced block was empty. Put one shell command or the name of a tool into it."
            )
        return self._tool(command, tools) or Action("bash", {"command": command})

    def written(self, action: Action) -> str:
        """See :class:`_Textual`."""
        if action.tool == "bash":
            body = str(action.arguments["command"])
        else:
            body = f"{action.tool} {json.dumps(dict(action.arguments), ensure_ascii=False)}"
        return f"```bash\n{body}\n```"

    def _blocks(self, text: str) -> Iterator[tuple[str, str]]:
        """Tag and content of every fenced block that is closed."""
        opened: tuple[str, int] | None = None
        lines = text.split("\n")
        for number, line in enumerate(lines):
            match = self._fence.fullmatch(line)
            if match is None:
                continue
            if opened is None:
                opened = match[1], number
            elif not match[1]:
                yield opened[0], "\n".join(lines[opened[1] + 1 : number])
                opened = None

    def _tool(self, command: str, tools: Sequence[Tool]) -> Action | None:
        match = self._call.fullmatch(command.strip())
        tool = next((t for t in tools if match and t.name == match[1] and t.name != "bash"), None)
        if match is None or tool is None:
            return None
        if match[2] is None:
            return None if tool.parameters.get("required") else Action(tool.name)
        try:
            arguments = json.loads(match[2])
        except (ValueError, RecursionError):
            return None
        return Action(tool.name, arguments)


class Xml(_Textual):
    """``<action tool="name">`` with one tag an argument. Values are taken as they stand: nothing is escaped."""

    name = "xml"
    _open = re.compile(r"<action\s+tool=[\"']([\w-]+)[\"']\s*(/?)>")

    def action(self, text: str, tools: Sequence[Tool]) -> Action:
        """See :class:`_Textual`."""
        match = self._open.search(text)
        if match is None:
            raise MalformedReplyError(f'Your reply held no <action tool="...">. The tools are: {_names(tools)}.')
        rest = text[match.end() :]
        ended = 0 if match[2] else rest.find("</action>")
        if ended >= 0 and self._open.search(rest, ended):
            raise MalformedReplyError("Your reply held more than one <action>. Give exactly one.")
        if match[2]:
            return Action(match[1])
        body, closed, _ = rest.rpartition("</action>")
        if not closed:
            raise MalformedReplyError("The <action> was not closed. End it with </action>.")
        schema: Mapping[str, Mapping[str, Any]] = next(
            (t.parameters.get("properties", {}) for t in tools if t.name == match[1]), {}
        )
        return Action(match[1], dict(self._arguments(body, schema)))

    def written(self, action: Action) -> str:
        """See :class:`_Textual`."""
        values = ((k, v if isinstance(v, str) else json.dumps(v)) for k, v in action.arguments.items())
        inside = "".join(f"<{name}>\n{value}\n</{name}>\n" for name, value in values)
        return f'<action tool="{action.tool}">\n{inside}</action>'

    def _arguments(self, body: str, schema: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
        """An argument ends at the last closing tag of its name that another argument or nothing follows."""
        seen = set()
        while body.strip():
            start = re.match(r"\s*<([\w-]+)>", body)
            if start is None:
                raise MalformedReplyError(
                    f"Inside <action>, put each argument into a tag of its name; this stands outside one: "
                    f"{body.strip()[:80]!r}."
                )
            name = start[1]
            others = "|".join(re.escape(other) for other in schema if other != name and other not in seen)
            follows = rf"(?=\s*(?:<(?:{others})>|$))" if others else r"(?=\s*$)"
            end = re.search(rf"</{re.escape(name)}>{follows}", body[start.end() :])
            if end is None:
                raise MalformedReplyError(f"The argument <{name}> was not closed. End it with </{name}>.")
            value = body[start.end() : start.end() + end.start()]
            body = body[start.end() + end.end() :]
            seen.add(name)
            yield name, _typed(_unpadded(value), schema.get(name, {}).get("type"))


class Json(_Textual):
    """One JSON object ``{"thought": ..., "tool": ..., "arguments": {...}}``, bare, fenced or with text around it."""

    name = "json"

    def action(self, text: str, tools: Sequence[Tool]) -> Action:
        """See :class:`_Textual`."""
        found = [value for value in _objects(text) if "tool" in value]
        if len(found) != 1:
            held = 'no JSON object with a key "tool"' if not found else f"{len(found)} such JSON objects"
            raise MalformedReplyError(
                f'Your reply held {held}. Give exactly one: {{"thought": "...", "tool": "...", "arguments": {{...}}}}. '
                f"The tools are: {_names(tools)}."
            )
        tool, arguments = found[0]["tool"], arguments_in(found[0].get("arguments"))
        if not isinstance(tool, str) or arguments is None:
            raise MalformedReplyError('"tool" must be text and "arguments" an object. Send them again.')
        return Action(tool, arguments)

    def written(self, action: Action) -> str:
        """See :class:`_Textual`."""
        return json.dumps({"tool": action.tool, "arguments": dict(action.arguments)}, ensure_ascii=False)

    def render(self, thought: str, action: Action, call_id: str) -> Message:
        """See :class:`Format`; the thought is in the object."""
        del call_id
        whole = {"thought": thought, "tool": action.tool, "arguments": dict(action.arguments)}
        return Message("assistant", json.dumps(whole, ensure_ascii=False))


FORMATS: Mapping[str, Format] = {each.name: each for each in (NativeCalls(), Fenced(), Xml(), Json())}


def _offered(action: Action, tools: Sequence[Tool]) -> Action:
    if action.tool not in [tool.name for tool in tools]:
        raise MalformedReplyError(f"There is no tool {action.tool!r}. Call one of: {_names(tools)}.")
    return action


def _names(tools: Sequence[Tool]) -> str:
    return ", ".join(tool.name for tool in tools)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in a text."""
    decoder = json.JSONDecoder(strict=False)
    at, tried = text.find("{"), 0
    while at >= 0 and tried < _MOST_BRACES:
        tried += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def _unpadded(value: str) -> str:
    """Without the line breaks that set a value apart from its tags."""
    return value.removeprefix("\n").removesuffix("\n")


def _typed(text: str, kind: object) -> Any:
    """The text as the schema's type; left as it is where it does not fit, for the schema's own check to refuse."""
    if kind not in ("integer", "number", "boolean", "array", "object"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
