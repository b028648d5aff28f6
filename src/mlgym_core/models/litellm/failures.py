"""Tells the errors of model services apart, whatever provider they come from and however it words them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mlgym_core.models.base import Usage
from mlgym_core.models.litellm.retry import Failure

MESSAGE_LIMIT = 2000

# How services say that the conversation is too long, in lower case.
_WINDOW = r"(context|prompt|input|sequence|conversation)[ _-](length|window|size|limit)"
_OVERFLOW = re.compile(
    rf"{_WINDOW}[^.]{{0,80}}(exceed|too (long|large|small)|overflow)"
    rf"|(exceed|longer than|larger than|too (long|large|big) for|(does not|doesn't) fit)[^.]{{0,80}}{_WINDOW}"
    r"|exceeds? (the )?(available )?context"
    r"|maximum (context|input|prompt|sequence) (length|size|window|limit)"
    r"|(prompt|input|request|conversation|messages?) ?(is|are|was|were)? ?too (long|large)\b"
    r"|too many (input |total |prompt )?tokens"
    r"|reduce the length of (the|your) (messages|prompt|input|conversation)"
    r"|(input|prompt)( token)?( count| tokens?| length)?( \(\d+\))? exceeds? the (maximum|configured|model)"
    r"|`?inputs`? tokens \+ `?max_new_tokens`? must be"
    r"|exceeds the maximum number of tokens"
    r"|current length is \d+ while limit is"
)
_NO_KEY = re.compile(r"missing credentials|missing \S* ?api[ _]key|no api[ _]?key|api_key client option must be set")
_RETRY_DELAY = re.compile(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
_PREFIX = re.compile(r"^(?:litellm\.)?(?:[A-Za-z]+(?:Error|Timeout|Exception)|Timeout)(?: Error)?\s*[:-]\s*(?:-\s*)?")
_SUFFIX = re.compile(
    r"Original exception:|Handle with `litellm|Received Model Group=|Traceback \(most recent call last\)"
)
_JOINTS = " \t\r\n.,;:|-"  # what clients put between a message and their hints
_LONGEST_READ = 20_000  # characters of an error that are looked at; some services send the whole request back
_CONNECTION = {"APIConnectionError", "TransportError", "ConnectError", "ConnectionError"}
_TIMEOUT = {"APITimeoutError", "TimeoutException", "TimeoutError", "Timeout"}
_TRANSPORT = {"TransportError", "OSError"}
# What comes of taking an answer apart that is not what it should be. Clients call it a status 500 or a lost connection.
_MISREAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_MISREAD_WORDS = re.compile(r"invalid response (object|from llm)|provider returned 'choices'")

_PERMANENT = {
    401: ("authentication", "set the provider's key in the environment or in .env, and check that it is valid"),
    402: ("payment", "the provider's account has no credit left"),
    403: ("permission", "the key may not use this model; ask for access or use another model"),
    404: ("not_found", "check the model's name and the base URL"),
}
_REFUSED = "the provider refuses these settings or this conversation; '--top-p default' and the like leave one out"
_PASSING = {408: "timeout", 409: "server", 425: "server", 429: "rate_limit"}


def failure(error: Exception, now: datetime | None = None, redact: Callable[[str], str] = str) -> Failure:
    """What went wrong, from the exception a client raised.

    Args:
        error: of litellm, or anything else that came out of a call.
        now: for ``retry-after`` dates; the present when ``None``.
        redact: takes secrets out of a text, before it is shortened: half a secret would not be found.
    """
    response = _response(error)
    status = _status(error, response)
    text = redact(_body(response))
    message = _message(error, text, redact)
    if _is_overflow(error, status, f"{message} {text[:_LONGEST_READ]}"):
        return Failure("context", message, status)
    told = _told(response, text, now or datetime.now(UTC))
    if response is None and (status is None or status >= 500 or status == 422):
        return _without_answer(error, message, status)
    raw = _raw(text)
    code = raw.get("code")
    if code == "insufficient_quota":
        return Failure("payment", message, status, advice=_PERMANENT[402][1], raw=raw)
    if status in _PASSING or status is None or status >= 500:
        kind = _PASSING.get(status or 500, "timeout" if status == 504 else "server")
        return Failure(kind, message, status, again=True, told=told, advice="try again later", raw=raw)
    kind, advice = _PERMANENT.get(status, ("bad_request", _REFUSED))
    return Failure(kind, message, status, advice=advice, raw=raw)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that ``retry-after-ms`` or ``retry-after`` (seconds or an HTTP date, RFC 9110) asks for, if any."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name, "")).strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) * unit
    try:
        when = parsedate_to_datetime(str(headers.get("retry-after", "")))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def overflows(text: str) -> bool:
    """Whether an error message says that the conversation is too long for the model."""
    return _OVERFLOW.search(text.lower()) is not None


def unreadable(message: str) -> Failure:
    """The service answered, perhaps for money, but in a form that nobody can read; once more may be worth it."""
    advice = "the service's answer is not in the form it should have; check the model's name and the base URL"
    return Failure("unreadable", message, again=True, most=2, advice=advice, usage=Usage(cost_usd=None))


def _without_answer(error: Exception, message: str, status: int | None) -> Failure:
    """The service sent nothing, or nothing that could be read; clients disguise this as a status 500."""
    names = {kind.__name__ for link in _chain(error) for kind in type(link).__mro__}
    if _NO_KEY.search(message.lower()):
        return Failure("authentication", message, advice=_PERMANENT[401][1])
    if names & _TIMEOUT:
        return Failure("timeout", message, again=True, advice="the service did not answer in time; try again later")
    if status is not None and not names & _TRANSPORT and _is_misread(error, message):
        return unreadable(message)
    if names & _CONNECTION or "connection error" in message.lower():
        return Failure("connection", message, again=True, advice="check the network and the base URL")
    # 422 is what becomes of an error inside a 200 that says nothing about its kind.
    if status is not None:
        return Failure("server", message, status, again=True, advice="try again later")
    return Failure("client", message, advice="check the model's name and the settings")


def _is_misread(error: Exception, message: str) -> bool:
    return _MISREAD_WORDS.search(message.lower()) is not None or any(
        isinstance(link, _MISREAD) for link in _chain(error)
    )


def _is_overflow(error: Exception, status: int | None, text: str) -> bool:
    if type(error).__name__ == "ContextWindowExceededError" or status == 413:
        return True
    if status in (401, 402, 403, 404, 408, 429):
        return False
    return overflows(text)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and all it was made from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__ or getattr(link, "original_exception", None)


def _response(error: Exception) -> Any:
    """The service's HTTP answer; clients make one up, without headers, when there was none or they hide it."""
    responses = (getattr(link, "response", None) for link in _chain(error))
    return next((response for response in responses if getattr(response, "headers", None)), None)


def _status(error: Exception, response: Any) -> int | None:
    for source in (response, error):
        value = getattr(source, "status_code", None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _body(response: Any) -> str:
    content = getattr(response, "content", b"")
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else ""


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(body, list) and body:
        body = body[0]
    return body if isinstance(body, Mapping) else {}


def _message(error: Exception, text: str, redact: Callable[[str], str]) -> str:
    body = _parsed(text)
    told = body.get("error", body)
    message = told.get("message") if isinstance(told, Mapping) else told
    candidates = [message] if isinstance(message, str) else []
    for link in _chain(error):
        candidates += [str(link), str(getattr(link, "message", ""))]
    words = (" ".join(_bare(redact(candidate)[:_LONGEST_READ]).split()) for candidate in candidates)
    return next(filter(None, words), type(error).__name__)[:MESSAGE_LIMIT]


def _bare(message: str) -> str:
    """The message without the class names that clients put before it, and their hints after it."""
    while _PREFIX.match(message):
        message = _PREFIX.sub("", message, count=1)
    hint = _SUFFIX.search(message)
    return message if hint is None else message[: hint.start()].rstrip(_JOINTS)


def _told(response: Any, text: str, now: datetime) -> float | None:
    told = retry_after(getattr(response, "headers", {}), now)
    found = _RETRY_DELAY.search(text)
    return float(found.group(1)) if told is None and found else told


def _raw(text: str) -> dict[str, Any]:
    """The provider's code, type and usage, as far as they are what they should be."""
    body = _parsed(text)
    inner = body.get("error")
    error = inner if isinstance(inner, Mapping) else {}
    usage = body.get("usage") or error.get("usage")
    found = {name: error[name] for name in ("code", "type") if isinstance(error.get(name), (str, int))}
    return {**found, "usage": dict(usage)} if isinstance(usage, Mapping) else found
