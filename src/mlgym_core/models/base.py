"""What a model is: messages and tool schemas in, text and tool calls out, with usage."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

from attrs import field, frozen

from mlgym_core.errors import UsageError
from mlgym_core.task.task import Limits, Task
from mlgym_core.tools.base import Tool


@frozen
class ToolCall:
    """A call the model asks for.

    Attributes:
        id: pairs the call with its answer.
        arguments: parsed; ``None`` when the model's JSON did not parse.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None


@frozen
class Message:
    """One message of the conversation.

    Attributes:
        provider: what the model backend that made it wants to see again, such as signed reasoning; opaque to all
            others.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    provider: Mapping[str, Any] = field(factory=dict)


@frozen
class Usage:
    """What one call used, by the provider's own figures.

    Attributes:
        prompt_tokens: all of the prompt, cached or not.
        completion_tokens: all that was generated, reasoning included.
        cost_usd: price in US dollars; ``None`` when it is not known.
        cached_tokens: those of the prompt that came from the provider's cache; ``None`` when it does not say.
        reasoning_tokens: those of the completion that were reasoning; ``None`` when it does not say.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@frozen
class Reply:
    """What the model answered.

    Attributes:
        raw: the provider's own fields, for the record only (id, model, finish reason, usage as it was reported).
        provider: goes back to the model backend with the next request, see :class:`Message`.
        cut: the reply ended at its token limit, or was ended before it was whole; nothing in it is done.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(factory=Usage)
    raw: Mapping[str, Any] = field(factory=dict)
    provider: Mapping[str, Any] = field(factory=dict)
    cut: bool = False

    def message(self) -> Message:
        """The reply as a message of the conversation."""
        return Message("assistant", self.text, self.tool_calls, provider=self.provider)


@frozen
class Price:
    """What a model costs, in US dollars for a million tokens."""

    prompt: float
    completion: float

    def __attrs_post_init__(self) -> None:
        if not (0 <= self.prompt < float("inf") and 0 <= self.completion < float("inf")):
            raise UsageError("a price is two numbers of at least 0: dollars for a million tokens in, and out")


# Looked for in names as words with _ between them.
_SECRETS = re.compile(
    r"api_?key|access_key|authorization|passw|passphrase|secret|credential|cookie|bearer|(^|_)(key|token|auth|jwt)$"
)
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_NO_SECRETS = {"prompt_cache_key"}
_BEARER = re.compile(r"\s*(authorization:\s*)?(bearer|basic)\s+\S+\s*", re.IGNORECASE)


@frozen
class ModelSettings:
    """How a remote model is to be asked. The defaults are those of the published protocol.

    Attributes:
        temperature, top_p: ``None`` leaves them to the provider.
        max_tokens: most tokens of one reply; the provider's own limit when ``None``.
        reasoning_effort: ``low``, ``medium``, ``high`` or what else the provider knows; its own default when ``None``.
        seed: sent to the provider, where it takes one.
        stop: texts that end a reply.
        stream: have replies sent in pieces; what the agent gets is the same.
        cache: mark the prompt for the provider's cache, where that has to be asked for (Anthropic).
        base_url: of the service; the provider's own when ``None``.
        price: overrides the price table; the provider's own figures still come first.
        timeout: seconds for one request.
        extra: further arguments of the request, passed on as they are.

    Raises:
        UsageError: a value makes no sense, or a key or password stands where it would be recorded.
    """

    temperature: float | None = 0.0
    top_p: float | None = 0.95
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    cache: bool = True
    base_url: str | None = None
    price: Price | None = None
    timeout: float = 600.0
    extra: Mapping[str, Any] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise UsageError(f"the temperature must lie between 0 and 2, not {self.temperature}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must lie above 0 and at most at 1, not {self.top_p}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"max_tokens must be positive, not {self.max_tokens}")
        if self.reasoning_effort is not None and not re.fullmatch(r"[a-z]+", self.reasoning_effort):
            raise UsageError(f"the reasoning effort is one word, such as low or high, not {self.reasoning_effort!r}")
        if "" in self.stop:
            raise UsageError("a stop text must not be empty")
        if not 0 < self.timeout < float("inf"):
            raise UsageError(f"the timeout must be positive and finite, not {self.timeout}")
        if self.base_url is not None:
            _check_url(self.base_url)
        try:
            json.dumps(dict(self.extra), allow_nan=False)
            _check_extra(self.extra)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the extra arguments must be plain JSON: {error}") from error


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        odd = parts.scheme not in ("http", "https") or not parts.hostname
    except ValueError:
        odd = True
    if odd:
        raise UsageError("the base URL must begin with http:// or https:// and name a host")
    if parts.username or parts.password or parts.query:
        raise UsageError("the base URL is recorded, so it must hold no user, password or query; use the environment")


def _check_extra(value: object) -> None:
    """Refuse what cannot or must not be recorded."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            words = _BETWEEN_WORDS.sub("_", str(name)).strip("_").lower()
            if words not in _NO_SECRETS and _SECRETS.search(words):
                raise UsageError(
                    f"{name} must not be among the extra arguments, which are recorded; use the environment"
                )
            _check_extra(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_extra(inner)
    elif isinstance(value, str) and _BEARER.fullmatch(value):
        raise UsageError("a key must not be among the extra arguments, which are recorded; use the environment")


def since_last_reply(messages: Sequence[Message]) -> list[Message]:
    """What the model has been told since it last replied: the user's messages and the tools' answers."""
    last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [message for message in messages[last + 1 :] if message.role in ("user", "tool")]


@frozen
class ModelContext:
    """What a model backend may know of the run when it is created.

    Attributes:
        limits: of the run; a model that cannot tell its price refuses a limit on cost.
        settings: how to ask, for models that are a service.
        tools: that will be offered.
    """

    task: Task
    size: str
    seed: int
    limits: Limits = field(factory=lambda: Limits(cost_usd=None))
    settings: ModelSettings = field(factory=ModelSettings)
    tools: tuple[Tool, ...] = ()


class Model(Protocol):
    """A model backend, created for one run."""

    name: str  #: as recorded, for instance ``litellm:openai/gpt-4o``

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        """Answer the conversation.

        Args:
            messages: from the system message on.
            tools: offered as native tool calls; empty in a text-action mode.

        Raises:
            ModelError: the service failed for good.
            ContextOverflowError: the conversation is too long for the model.
            ModelStopped: it has nothing more to do.
        """


class ModelStopped(Exception):  # noqa: N818 - an event, not an error of anybody
    """The model has nothing more to do; a person quit, a script is at its end."""


class ContextOverflowError(Exception):
    """The conversation no longer fits the model's context."""


class BudgetExhaustedError(Exception):
    """A limit of the run was reached between two attempts to get a reply.

    Attributes:
        reason: ``cost``, ``tokens`` or ``time``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the limit on {reason} was reached before the model answered")
        self.reason = reason


@frozen
class FailedAttempt:
    """One request that brought no usable reply.

    Attributes:
        kind: ``rate_limit``, ``server``, ``timeout``, ``connection``, ``empty``, ``authentication``, ...
        status: of HTTP, if there was an answer.
        message: the provider's.
        usage: what it was charged, if anything is known to have been.
        wait: seconds until the next attempt; ``None`` when there is none.
        raw: the provider's own fields.
    """

    kind: str
    message: str
    status: int | None = None
    usage: Usage = field(factory=Usage)
    wait: float | None = None
    raw: Mapping[str, Any] = field(factory=dict)


class Meter(Protocol):
    """The run, as a model sees it that waits, retries and pays for what fails."""

    def seconds_left(self) -> float | None:
        """Until the run's wall-clock limit; ``None`` without one."""

    def exhausted(self) -> str | None:
        """The limit that has been reached, if any."""

    def failed(self, attempt: FailedAttempt) -> None:
        """Charge and record an attempt that failed."""

    def notice(self, text: str) -> None:
        """Tell whoever started the run, and the record."""


@runtime_checkable
class Metered(Protocol):
    """A model that wants a :class:`Meter`; the agent attaches one before the first call."""

    def attach(self, meter: Meter) -> None:
        """Use this meter from now on."""
