"""The real litellm client, in one piece and as a stream, with OpenAI's interface and with Anthropic's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from models.meters import HELLO, KEY, Meter, kinds
from models.server import Answer, ModelServer, bash, calls, empty, fails, hangs_up, says, thinks, usage

from mlgym_core.errors import ModelError
from mlgym_core.models.base import ContextOverflowError, Message, Price, ToolCall
from mlgym_core.models.litellm.client import LiteLLMModel
from mlgym_core.tools.builtin import TOOLS

OPENAI, CLAUDE = "openai/test-model", "anthropic/claude-sonnet-4-5"
LONG = "prompt is too long: 210000 tokens > 200000 maximum"

Make = Callable[..., LiteLLMModel]


@pytest.fixture(params=[OPENAI, CLAUDE], ids=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def ask(request: pytest.FixtureRequest, model: str, make: Make) -> Make:
    def build(**options: Any) -> LiteLLMModel:
        return make(**{"model": model, "stream": request.param, **options})

    return build


# Replies


def test_text_and_several_calls_arrive_as_they_were_sent(server: ModelServer, ask: Make, model: str) -> None:
    server.script(calls(("bash", {"command": "ls é"}), ("bash", {"command": "pwd"}), ("submit", {}), text="Now."))
    reply = ask().complete(HELLO, TOOLS)
    assert reply.text == "Now."
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [
        ("bash", {"command": "ls é"}),
        ("bash", {"command": "pwd"}),
        ("submit", {}),
    ]
    assert [c.id for c in reply.tool_calls] == ["call_0_bash", "call_1_bash", "call_2_submit"]
    assert (reply.raw["model"], reply.raw["finish_reason"]) == ("served-1", "tool_calls")
    path = server.requests[0].path
    assert path.endswith("/v1/messages" if model == CLAUDE else "/v1/chat/completions")


def test_the_prompt_is_counted_whole_and_cached_tokens_told_apart(server: ModelServer, ask: Make) -> None:
    server.script(says("Hi.", usage(100, 20, cached=60, written=30)))
    figures = ask(price=Price(10.0, 100.0)).complete(HELLO, ()).usage
    assert (figures.prompt_tokens, figures.completion_tokens, figures.cached_tokens) == (100, 20, 60)
    assert figures.cost_usd == pytest.approx(1e-6 * (10 * 100 + 100 * 20)), "the given price comes before the table's"


def test_the_table_knows_what_cached_tokens_cost(
    server: ModelServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for stream in (False, True):
        server.script(says("Hi.", usage(1000, 100, cached=600, written=300)))
        figures = make(CLAUDE, stream=stream).complete(HELLO, ()).usage
        # 3 dollars in and 15 out for a million; read from the cache a tenth of that, written to it a quarter more.
        assert figures.cost_usd == pytest.approx(1e-6 * (3 * 100 + 0.3 * 600 + 3.75 * 300 + 15 * 100))


@pytest.mark.parametrize("stream", [False, True])
def test_the_services_own_cost_comes_first(server: ModelServer, make: Make, stream: bool) -> None:
    server.script(says("Hi.", usage(1000, 100, cost=0.25)))
    assert make("openai/gpt-4o", stream=stream, price=Price(1.0, 1.0)).complete(HELLO, ()).usage.cost_usd == 0.25


def test_reasoning_tokens_are_the_services_own_or_none(server: ModelServer, make: Make) -> None:
    for stream in (False, True):
        told, untold = usage(100, 30, reasoning=25), usage(100, 30)
        server.script(thinks(says("Hi.", told), "Let me see.", "s"), thinks(says("Hi.", untold), "Let me see.", "s"))
        asked = make(stream=stream)
        assert [asked.complete(HELLO, ()).usage.reasoning_tokens for _ in range(2)] == [25, None]


def test_a_guess_at_reasoning_tokens_is_not_taken(server: ModelServer, ask: Make) -> None:
    server.script(thinks(says("Hi.", usage(100, 30)), "Let me see.", "s"))
    reply = ask().complete(HELLO, ())
    assert reply.raw["reasoning"] == "Let me see."
    assert reply.usage.reasoning_tokens is None


def test_usage_that_the_service_does_not_report_is_not_made_up(server: ModelServer, make: Make) -> None:
    for stream in (False, True):
        server.script(says("A long answer.", None))
        figures = make("openai/gpt-4o", stream=stream).complete(HELLO, ()).usage
        assert (figures.prompt_tokens, figures.completion_tokens, figures.cost_usd) == (0, 0, None)


def test_signed_reasoning_goes_back_with_the_answers_of_its_calls(
    server: ModelServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for stream in (False, True):
        server.script(thinks(bash("ls"), "I look around.", "signed-1"), says("Fine."))
        asked = make(CLAUDE, stream=stream, reasoning_effort="low")
        reply = asked.complete(HELLO, TOOLS)
        asked.complete([*HELLO, reply.message(), Message("tool", "out", tool_call_id="call_0_bash")], TOOLS)
        _, assistant, answer = server.requests[-1].messages
        thought, call = assistant["content"]
        assert thought == {"type": "thinking", "thinking": "I look around.", "signature": "signed-1"}
        assert (call["type"], call["id"]) == ("tool_use", "call_0_bash")
        assert answer["content"][0]["tool_use_id"] == "call_0_bash"


# Settings


def test_streams_are_asked_for_with_their_usage(server: ModelServer, make: Make) -> None:
    server.script(says("Hi."))
    make(stream=True).complete(HELLO, ())
    body = server.requests[0].body
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_reasoning_effort_reaches_the_service(
    server: ModelServer, make: Make, meter: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.script(then=says("Hi."))
    make(reasoning_effort="high").complete(HELLO, ())
    assert server.requests[-1].body["reasoning_effort"] == "high"
    make(CLAUDE, reasoning_effort="high").complete(HELLO, ())
    body = server.requests[-1].body
    assert body["thinking"]["type"] == "enabled"
    assert not {"temperature", "top_p"} & set(body), "they are refused beside reasoning"
    assert "temperature, top_p; left out" in meter.notices[-1]


@pytest.mark.parametrize(
    ("model", "settings", "left_out"),
    [
        ("openai/o3", {}, {"temperature", "top_p"}),
        ("openai/gpt-5", {}, {"temperature", "top_p"}),
        ("openai/gpt-5.2", {"reasoning_effort": "high"}, {"temperature", "top_p"}),
        ("openai/gpt-4o", {}, set()),
        (CLAUDE, {}, {"top_p"}),
        (CLAUDE, {"temperature": None}, set()),
        (CLAUDE, {"seed": 1, "top_p": None}, {"seed"}),
    ],
)
def test_what_a_model_refuses_is_left_out_and_said(
    server: ModelServer,
    make: Make,
    meter: Meter,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    settings: dict[str, Any],
    left_out: set[str],
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.script(says("Hi."))
    make(model, **settings).complete(HELLO, ())
    wanted = {"temperature": 0, "top_p": 0.95, **settings}
    for name in ("temperature", "top_p", "seed"):
        sent = name in server.requests[0].body
        assert sent == (wanted.get(name) is not None and name not in left_out), name
    said = [notice for notice in meter.notices if "left out" in notice]
    assert len(said) == (1 if left_out else 0)
    assert all(name in said[0] for name in left_out)


def test_the_prompt_is_marked_for_a_cache_that_must_be_asked_for(
    server: ModelServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.script(then=says("Hi."))
    call = ToolCall("1", "bash", {"command": "ls"})
    talk = [*HELLO, Message("assistant", "", (call,)), Message("tool", "out", tool_call_id="1")]
    make(CLAUDE).complete(talk, TOOLS)
    marked = server.requests[-1]
    assert "cache_control" in marked.body["system"][0]
    first, _, last = marked.messages
    assert "cache_control" in last["content"][0]
    assert "cache_control" not in first["content"][0]
    make(CLAUDE, cache=False).complete(talk, TOOLS)
    make(OPENAI).complete(talk, TOOLS)
    assert all("cache_control" not in str(request.body) for request in server.requests[1:])


# Failures


def test_failures_are_outlasted_or_final_alike(
    server: ModelServer, ask: Make, meter: Meter, slept: list[float]
) -> None:
    server.script(
        fails(429, "slow down", headers={"retry-after": "3"}),
        fails(500, "boom"),
        fails(500, "boom"),
        hangs_up(),
        says("Hi."),
        fails(401, "bad key"),
    )
    asked = ask()
    assert asked.complete(HELLO, ()).text == "Hi."
    assert kinds(meter) == [("rate_limit", 429), ("server", 500), ("server", 500), ("connection", None)]
    assert slept == [3.0, 2.0, 4.0, 8.0]
    with pytest.raises(ModelError, match="authentication error 401: bad key"):
        asked.complete(HELLO, ())
    assert len(server.requests) == 6


def test_an_empty_reply_is_asked_for_again(server: ModelServer, ask: Make, meter: Meter) -> None:
    server.script(empty(usage(0, 0)), says("Hi."))
    assert ask().complete(HELLO, ()).text == "Hi."
    assert [attempt.kind for attempt in meter.attempts] == ["empty"]


def test_a_body_that_is_none_is_a_failure(server: ModelServer, ask: Make, meter: Meter) -> None:
    server.script(Answer(b"<html>busy</html>"), says("Hi."))
    assert ask().complete(HELLO, ()).text == "Hi."
    assert len(meter.attempts) == 1


@pytest.mark.parametrize("status", [400, 413])
def test_too_long_a_conversation_is_recognised(server: ModelServer, ask: Make, status: int) -> None:
    server.script(fails(status, LONG))
    with pytest.raises(ContextOverflowError, match="too long"):
        ask().complete(HELLO, ())


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize("cut_by", ["reset", "end", "overloaded"])
def test_a_stream_that_breaks_off_is_no_reply_and_may_have_cost_something(
    server: ModelServer, make: Make, meter: Meter, model: str, cut: int, cut_by: str
) -> None:
    server.script(says("A reply in several pieces.", cut=cut, cut_by=cut_by), says("Whole."))
    assert make(model, stream=True).complete(HELLO, ()).text == "Whole."
    (attempt,) = meter.attempts
    assert attempt.kind in ("connection", "server")
    assert attempt.usage.cost_usd is None
    assert cut_by != "overloaded" or "overloaded" in attempt.message


def test_an_overflow_in_the_middle_of_a_stream_is_one(server: ModelServer, make: Make, model: str) -> None:
    server.script(says("A reply in several pieces.", cut=2, cut_by=LONG))
    with pytest.raises(ContextOverflowError):
        make(model, stream=True).complete(HELLO, ())


def test_calls_of_a_broken_stream_are_never_carried_out(server: ModelServer, make: Make, model: str) -> None:
    server.script(then=evolve(bash("rm -rf ."), cut=4, cut_by="end"))
    with pytest.raises(ModelError, match="after 2 attempts"):
        make(model, stream=True, attempts=2).complete(HELLO, TOOLS)


@pytest.mark.parametrize("answer", [says("Hi.", delay=60), says("Hi.", trickle=0.05, cut=1)], ids=["silent", "endless"])
def test_no_stream_outlasts_its_timeout(
    server: ModelServer, make: Make, meter: Meter, model: str, answer: Answer
) -> None:
    server.script(then=answer)
    with pytest.raises(ModelError, match="timeout error"):
        make(model, stream=True, attempts=1, timeout=0.5).complete(HELLO, ())
    assert meter.attempts[0].usage.cost_usd is None
