"""Messages and tools in the form of OpenAI's chat completions, and replies out of it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from mlgym_core.models.base import Message, Reply, ToolCall, Usage
from mlgym_core.tools.arguments import arguments_in
from mlgym_core.tools.base import Tool

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_CUT = {"length", "max_tokens", "max_output_tokens", "max_length", "max_new_tokens", "model_length", "content_filter"}


def messages_out(messages: Sequence[Message], cache: bool = False) -> list[dict[str, Any]]:
    """The conversation. Replies that held nothing are left out: services refuse them.

    Args:
        messages: from the system message on.
        cache: mark the system message and the last one for the provider's cache: all that comes before a mark is
            kept, so that the next request finds all but its end there.
    """
    sent = _told_apart([m for m in messages if m.role != "assistant" or m.content.strip() or m.tool_calls])
    out = [_message(m) for m in sent]
    if cache:
        for message in [m for m in out[:1] if m["role"] == "system"] + out[-1:]:
            _mark(message)
    return out


def tools_out(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The tools on offer."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def reply_in(body: Mapping[str, Any], usage: Usage, number: int, carried: Sequence[str] = ()) -> Reply:
    """The first choice of a completion.

    Args:
        body: the completion as plain data.
        usage: goes into the reply.
        number: of the call; names tool calls that came without an id of their own.
        carried: fields of the message that the provider wants to see again.
    """
    choices = body.get("choices") or [{}]
    message = choices[0].get("message") or {}
    calls: list[ToolCall] = []
    damaged = {}
    for index, asked in enumerate(message.get("tool_calls") or ()):
        function = asked.get("function") or {}
        name, text = str(function.get("name") or ""), function.get("arguments")
        key = clean(str(asked.get("id") or ""))
        if not key or any(call.id == key for call in calls):
            key = f"call-{number}-{index + 1}"
        arguments = arguments_in(text)
        if arguments is None:
            damaged[key] = clean(str(text))
        calls.append(ToolCall(key, clean(name), arguments))
    raw = {
        "id": body.get("id"),
        "model": body.get("model"),
        "finish_reason": choices[0].get("finish_reason"),
        "usage": plain(body.get("usage")),
    }
    if message.get("reasoning_content"):
        raw["reasoning"] = clean(str(message["reasoning_content"]))
    if damaged:
        raw["damaged_arguments"] = damaged
    again = {name: plain(message[name]) for name in carried if message.get(name)}
    return Reply(_text(message), tuple(calls), usage, raw, again, _is_cut(choices[0]))


def _is_cut(choice: Mapping[str, Any]) -> bool:
    """Whether a reply ended before it was whole, by the client's word for the reason or the service's own."""
    own = (choice.get("provider_specific_fields") or {}).get("native_finish_reason")
    return any(str(reason).lower() in _CUT for reason in (choice.get("finish_reason"), own))


def clean(text: str) -> str:
    """The text without lone surrogates, which cannot be sent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(value: Any) -> Any:
    """A provider's data as strict JSON can hold it: other numbers and objects become text, which can be sent."""
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int) else clean(str(value))


def _message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {**plain(message.provider), "role": message.role, "content": clean(message.content)}
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def _told_apart(messages: Sequence[Message]) -> list[Message]:
    """The same with an id of its own for every call; some services number the calls of each reply anew."""
    names = _Names({clean(call.id) for message in messages for call in message.tool_calls})
    named: dict[str, list[str]] = {}
    out = []
    for message in messages:
        named_anew = message
        if message.tool_calls:
            calls = [(clean(call.id), evolve(call, id=names.fresh(clean(call.id)))) for call in message.tool_calls]
            named = {old: [call.id for key, call in calls if key == old] for old, _ in calls}
            named_anew = evolve(message, tool_calls=tuple(call for _, call in calls))
        elif message.tool_call_id is not None:
            keys = named.get(clean(message.tool_call_id)) or [clean(message.tool_call_id)]
            named_anew = evolve(message, tool_call_id=keys.pop(0) if len(keys) > 1 else keys[0])
        out.append(named_anew)
    return out


class _Names:
    """Gives every name out once.

    Args:
        taken: that a made-up name must not be.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._times: Counter[str] = Counter()

    def fresh(self, name: str) -> str:
        """The name when it is asked for the first time, then others that nobody has."""
        self._times[name] += 1
        made = name
        while self._times[name] > 1 and made in self._taken:
            made = f"again{self._times[name]}-{name}"
            self._times[name] += made in self._taken
        self._taken.add(made)
        return made


def _mark(message: dict[str, Any]) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    if message["role"] == "tool":
        message.update(mark)
    elif message["content"]:
        message["content"] = [{"type": "text", "text": message["content"], **mark}]


def _call(call: ToolCall) -> dict[str, Any]:
    # Some providers parse the arguments of the past again, so what did not parse is not sent back.
    arguments = clean(json.dumps(dict(call.arguments or {}), ensure_ascii=False))
    # Models make names up; services refuse a conversation that holds one no tool could have.
    name = _NO_NAME.sub("_", call.name)[:_LONGEST_NAME] or "unknown"
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return clean(str(content))
