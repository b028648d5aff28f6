"""Messages and tools in the form of OpenAI's chat completions, and replies out of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from mlgym_core.models.base import Message, Reply, ToolCall, Usage
from mlgym_core.tools.base import Tool

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def messages_out(messages: Sequence[Message], cache: bool = False) -> list[dict[str, Any]]:
    """The conversation. Replies that held nothing are left out: services refuse them.

    Args:
        messages: from the system message on.
        cache: mark the system message and the last one for the provider's cache: all that comes before a mark is
            kept, so that the next request finds all but its end there.
    """
    out = [_message(m) for m in messages if m.role != "assistant" or m.content.strip() or m.tool_calls]
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
    return Reply(_text(message), tuple(calls), usage, raw, again)


def arguments_in(text: object) -> Mapping[str, Any] | None:
    """A call's arguments; ``None`` unless they are an object of strict JSON (no text at all is an empty one)."""
    if isinstance(text, Mapping):
        return text
    if text is None or text == "":
        return {}
    try:
        value = json.loads(str(text), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


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
        out["tool_call_id"] = clean(message.tool_call_id)
    return out


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
    return {"id": clean(call.id), "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return clean(str(content))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
