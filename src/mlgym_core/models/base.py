"""What a model is: messages and tool schemas in, text and tool calls out, with usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from attrs import field, frozen

from mlgym_core.task import Task
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
    """One message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@frozen
class Usage:
    """What one call used, by the provider's own figures.

    Attributes:
        cost_usd: price in US dollars; ``None`` when it is not known.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0


@frozen
class Reply:
    """What the model answered."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(factory=Usage)


@frozen
class ModelContext:
    """What a model backend may know of the run when it is created."""

    task: Task
    size: str
    seed: int


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
        """


class ContextOverflowError(Exception):
    """The conversation no longer fits the model's context."""
