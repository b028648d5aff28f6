"""Completions in OpenAI's form as the other forms that services send: chunks, and Anthropic's messages and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_FINISH = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_ERRORS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large"}
_ERRORS |= {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}


def event(data: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def halves(text: str) -> list[str]:
    """A text in two pieces."""
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


def openai_stream(body: Mapping[str, Any]) -> Iterator[bytes]:
    """The completion in chunks: the text and each call's arguments in two pieces, then the end, then the usage."""
    head = {"id": body["id"], "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    choice = body["choices"][0]
    message = choice["message"]
    yield chunk({"role": "assistant", "content": ""})
    for piece in halves(message.get("reasoning_content") or ""):
        yield chunk({"reasoning_content": piece})
    for piece in halves(message.get("content") or ""):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in halves(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if "usage" in body:
        yield event({**head, "choices": [], "usage": body["usage"]})
    yield event("[DONE]")


def anthropic_error(status: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """An error in Anthropic's form."""
    kind = _ERRORS.get(status, "api_error")
    return {**body, "type": "error", "error": {"type": kind, "message": body["error"]["message"]}}


def anthropic_message(body: Mapping[str, Any]) -> dict[str, Any]:
    """The completion as one of Anthropic's messages."""
    choice = body["choices"][0]
    message = choice["message"]
    blocks: list[dict[str, Any]] = list(message.get("thinking_blocks") or ())
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"] or "{}")
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return {
        "id": body["id"],
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": _FINISH[choice["finish_reason"]],
        "stop_sequence": None,
        "usage": anthropic_usage(body.get("usage") or {}),
    }


def anthropic_usage(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as Anthropic reports them: what the cache held or took in is no part of ``input_tokens``."""
    details = figures.get("prompt_tokens_details", {})
    read, written = details.get("cached_tokens", 0), details.get("cache_creation_tokens", 0)
    return {
        "input_tokens": figures.get("prompt_tokens", 0) - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": figures.get("completion_tokens", 0),
    }


def anthropic_stream(body: Mapping[str, Any]) -> Iterator[bytes]:
    """The message in Anthropic's events, each block's content in two pieces."""
    message = anthropic_message(body)
    usage = message["usage"]
    start = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])},
    }
    yield _typed({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        empty, deltas = _block(block)
        yield _typed({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _typed({"type": "content_block_delta", "index": index, "delta": delta})
        yield _typed({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _typed({"type": "message_delta", "delta": end, "usage": {"output_tokens": usage["output_tokens"]}})
    yield _typed({"type": "message_stop"})


def _block(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A content block as it starts, and the pieces that fill it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in halves(block["text"])]
    if block["type"] == "thinking":
        pieces = [{"type": "thinking_delta", "thinking": text} for text in halves(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*pieces, signed]
    pieces = [{"type": "input_json_delta", "partial_json": text} for text in halves(json.dumps(block["input"]))]
    return {**block, "input": {}}, pieces


def _typed(data: Mapping[str, Any]) -> bytes:
    return event(data, data["type"])
