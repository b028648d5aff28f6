"""A reply that is sent in pieces, put together again; nothing partial is ever a reply."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any


class CutError(Exception):
    """The stream ended before the reply did; its cause, where there is one, is the client's error."""


def whole(litellm: Any, request: Mapping[str, Any], seconds: float) -> Any:
    """Ask for a stream and return what an answer in one piece would have been.

    Args:
        litellm: the module.
        request: arguments of a completion, ``stream`` among them.
        seconds: after which the stream is closed, so that nobody reads an endless one for ever.

    Raises:
        TimeoutError: it was not over in time.
        CutError: it broke off after the service had agreed to answer.
        Exception: whatever the client raises before.
    """
    deadline = time.monotonic() + seconds
    stream = litellm.completion(**request)
    pieces: list[Any] = []
    try:
        for piece in stream:
            pieces.append(piece)
            if time.monotonic() > deadline:
                break
    except Exception as error:
        raise CutError(str(error)) from error
    finally:
        _close(stream)
    if time.monotonic() > deadline:
        raise TimeoutError
    if not _finished(stream):
        raise CutError("the stream ended before the reply did")
    response = litellm.stream_chunk_builder(pieces)
    if response is None:
        raise CutError("the stream held no reply")
    _keep_reported(litellm, response, [usage for chunk in stream.chunks if (usage := getattr(chunk, "usage", None))])
    return response


def _close(stream: Any) -> None:
    """Older clients close what they wrap only."""
    close = getattr(stream, "close", None) or getattr(getattr(stream, "completion_stream", None), "close", None)
    if close is not None:
        close()


def _finished(stream: Any) -> bool:
    """Whether the service said that the reply was over; the client makes an end up where there was none."""
    return bool(stream.received_finish_reason or stream.intermittent_finish_reason)


def _keep_reported(litellm: Any, response: Any, reports: Sequence[Any]) -> None:
    """Drop what the client worked out itself where the service said nothing: tokens, reasoning tokens, cost.

    Args:
        litellm: the module.
        response: put together; changed in place.
        reports: the service's own figures, in order.
    """
    if not reports:
        response.usage = litellm.Usage()
        return
    details = [getattr(report, "completion_tokens_details", None) for report in reports]
    if all(getattr(detail, "reasoning_tokens", None) is None for detail in details):
        response.usage.completion_tokens_details = None
    costs = [cost for report in reports if (cost := getattr(report, "cost", None)) is not None]
    response.usage.cost = costs[-1] if costs else None
