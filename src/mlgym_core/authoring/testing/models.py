"""The promises of a model as tests. Needs pytest."""

# ruff: noqa: D102 - the names of the tests say what they promise

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pytest

from mlgym_core.errors import ModelError
from mlgym_core.models.base import (
    BudgetExhaustedError,
    ContextOverflowError,
    Message,
    Model,
    ModelStopped,
    Reply,
    ToolCall,
)
from mlgym_core.tools.base import Tool
from mlgym_core.tools.builtin import TOOLS

DOCUMENTED = (ModelError, ContextOverflowError, ModelStopped, BudgetExhaustedError)
OPENING = (Message("system", "You act through tools."), Message("user", "List the files of your workspace."))


class ModelContract:
    """The promises of a model; a subclass provides the fixture ``model``, which must be able to answer twice.

    Every test gets a model of its own.
    """

    @pytest.fixture
    def model(self) -> Model:
        """The model under test."""
        raise NotImplementedError("provide a fixture named model")

    @pytest.fixture
    def tools(self) -> Sequence[Tool]:
        """The tools that are offered."""
        return TOOLS

    def test_it_has_a_name(self, model: Model) -> None:
        assert isinstance(model.name, str)
        assert model.name.strip()

    def test_it_answers_with_tools_and_without(self, model: Model, tools: Sequence[Tool]) -> None:
        check_reply(model.complete(OPENING, tools))
        plain = model.complete(OPENING, ())
        check_reply(plain)
        assert plain.text or plain.tool_calls, "without tools the answer is text, or calls, which every format takes"

    def test_it_goes_on_after_a_tool_has_answered(self, model: Model, tools: Sequence[Tool]) -> None:
        first = model.complete(OPENING, tools)
        calls = first.tool_calls or (ToolCall("call-0", "bash", {"command": "ls"}),)
        answers = [Message("tool", "strategy.py", tool_call_id=call.id) for call in calls]
        check_reply(model.complete([*OPENING, Message("assistant", first.text, calls), *answers], tools))

    def test_it_leaves_the_conversation_as_it_is(self, model: Model, tools: Sequence[Tool]) -> None:
        messages = list(OPENING)
        model.complete(messages, tools)
        assert messages == list(OPENING)

    @pytest.mark.parametrize("text", ["", "\ud800 \x00", "x" * 2_000_000], ids=["empty", "odd", "long"])
    def test_it_raises_documented_errors_only(self, model: Model, tools: Sequence[Tool], text: str) -> None:
        try:
            reply = model.complete([Message("system", "s"), Message("user", text)], tools)
        except DOCUMENTED as error:
            assert str(error), "an error must say what happened"
        else:
            check_reply(reply)


def check_reply(reply: Reply) -> None:
    """See to it that a reply is one, and its usage makes sense."""
    assert isinstance(reply, Reply)
    assert isinstance(reply.text, str)
    ids = [call.id for call in reply.tool_calls]
    assert all(ids), "a tool call needs an id, which pairs it with its answer"
    assert len(set(ids)) == len(ids), "tool calls of one reply need different ids"
    for call in reply.tool_calls:
        assert call.name, "a tool call needs a name"
        assert call.arguments is None or isinstance(call.arguments, Mapping)
    usage = reply.usage
    assert usage.prompt_tokens >= 0
    assert usage.completion_tokens >= 0
    assert usage.cost_usd is None or (math.isfinite(usage.cost_usd) and usage.cost_usd >= 0)
    assert usage.cached_tokens is None or 0 <= usage.cached_tokens <= usage.prompt_tokens
    assert usage.reasoning_tokens is None or 0 <= usage.reasoning_tokens <= usage.completion_tokens
    json.dumps(dict(reply.raw), default=str)
