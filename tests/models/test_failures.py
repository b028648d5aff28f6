"""The real litellm client against a service that fails, in every way that services do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from models.meters import HELLO, KEY, Meter, kinds
from models.server import Answer, ModelServer, empty, fails, hangs_up, says, usage

from mlgym_core.errors import ModelError, UsageError
from mlgym_core.models.base import BudgetExhaustedError, ContextOverflowError, ModelSettings, Price
from mlgym_core.models.litellm.client import LiteLLMModel
from mlgym_core.models.litellm.keys import names_of
from mlgym_core.tools.builtin import TOOLS


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "86400"}, 300.0),
        ({"retry-after": "soon"}, 1.0),
        ({}, 1.0),
    ],
)
def test_a_rate_limit_is_waited_out_as_told_within_a_cap(
    server: ModelServer,
    make: Callable[..., LiteLLMModel],
    meter: Meter,
    slept: list[float],
    headers: dict[str, str],
    waited: float,
) -> None:
    server.script(fails(429, "slow down", headers=headers), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    assert slept == [waited]
    (attempt,) = meter.attempts
    assert (attempt.kind, attempt.status, attempt.message, attempt.wait) == ("rate_limit", 429, "slow down", waited)


def test_a_date_to_wait_for_is_understood(
    server: ModelServer, make: Callable[..., LiteLLMModel], slept: list[float]
) -> None:
    server.script(
        fails(429, "slow down", retry_in=60),
        fails(503, "later", headers={"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}),
        says("Hi."),
    )
    make().complete(HELLO, ())
    assert 30 < slept[0] <= 60
    assert slept[1] == 0.0


def test_passing_failures_are_outlasted_with_growing_waits(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, slept: list[float]
) -> None:
    server.script(fails(500, "boom"), fails(529, "overloaded"), hangs_up(), fails(504, "gateway"), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    assert slept == [1.0, 2.0, 4.0, 8.0]
    assert kinds(meter) == [("server", 500), ("server", 529), ("connection", None), ("timeout", 504)]


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro", "openrouter/some/model"])
def test_the_other_providers_failures_are_told_apart_alike(
    server: ModelServer,
    make: Callable[..., LiteLLMModel],
    meter: Meter,
    slept: list[float],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
) -> None:
    monkeypatch.setenv(f"{model.split('/', maxsplit=1)[0].upper()}_API_KEY", KEY)
    server.script(
        fails(429, "slow down", headers={"retry-after": "3"}),
        fails(529, "overloaded"),
        hangs_up(),
        fails(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        fails(401, "bad key"),
    )
    asked = make(model)
    with pytest.raises(ContextOverflowError):
        asked.complete(HELLO, TOOLS)
    assert kinds(meter) == [("rate_limit", 429), ("server", 529), ("connection", None), ("context", 400)]
    assert slept == [3.0, 2.0, 4.0]
    with pytest.raises(ModelError, match="authentication error 401: bad key"):
        asked.complete(HELLO, TOOLS)


def test_a_service_that_keeps_failing_is_given_up(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(then=fails(500, "boom"))
    with pytest.raises(ModelError, match=r"server error 500 after 3 attempts.*boom"):
        make(attempts=3).complete(HELLO, ())
    assert len(server.requests) == 3
    assert [attempt.wait for attempt in meter.attempts] == [1.0, 2.0, None]


def test_nothing_listening_is_a_connection_error(
    make: Callable[..., LiteLLMModel], meter: Meter, server: ModelServer
) -> None:
    with pytest.raises(ModelError, match="check the network and the base URL"):
        make(attempts=2, base_url="http://127.0.0.1:1/v1").complete(HELLO, ())
    assert kinds(meter) == [("connection", None)] * 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fails(401, "Incorrect API key"), r"authentication error 401: Incorrect API key; set the provider's key"),
        (fails(402, "no credit"), r"payment error 402: no credit"),
        (fails(403, "not for you"), r"permission error 403: not for you; .*ask for access"),
        (fails(404, "no such model"), r"not found error 404: no such model; check the model's name"),
        (fails(400, "temperature is odd"), r"bad request error 400: temperature is odd"),
        (fails(422, "what is this"), r"bad request error 422: what is this"),
        (fails(429, "no quota", code="insufficient_quota"), r"payment error 429: no quota"),
    ],
)
def test_permanent_failures_end_at_once_with_advice(
    server: ModelServer, make: Callable[..., LiteLLMModel], slept: list[float], answer: Answer, message: str
) -> None:
    server.script(then=answer)
    with pytest.raises(ModelError, match=message):
        make().complete(HELLO, ())
    assert (len(server.requests), slept) == (1, [])


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("groq/some-model", "GROQ_API_KEY"),
        ("together_ai/some/model", "TOGETHER_API_KEY"),
    ],
)
def test_a_missing_key_is_refused_before_the_run_and_its_variable_named(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    for name in names_of(model.split("/", maxsplit=1)[0]):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=f"set {variable}.*export {variable}=.*\\.env"):
        LiteLLMModel(model, ModelSettings())
    monkeypatch.setenv(variable, KEY)
    LiteLLMModel(model, ModelSettings())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (f"{KEY}\n", "line end"),
        (f"sk\r\n{KEY}", "line end"),
        (f"{KEY} ", "blank"),
        (f"{KEY}\u200b", "U\\+200B"),
        (f"\u201c{KEY}\u201d", "typographic quotes"),
        (f"{KEY}\u00e9", "U\\+00E9"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_before_the_run_and_not_told(
    monkeypatch: pytest.MonkeyPatch, server: ModelServer, value: str, problem: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(UsageError, match=f"value of OPENAI_API_KEY cannot be sent.*{problem}") as caught:
        LiteLLMModel("openai/gpt-4o", ModelSettings(base_url=server.url))
    assert KEY not in str(caught.value)


def test_a_service_of_ones_own_needs_no_key(
    monkeypatch: pytest.MonkeyPatch, server: ModelServer, make: Callable[..., LiteLLMModel]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.script(says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        (400, "The input token count (1050000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "Please reduce the length of the messages or completion."),
        (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
        (400, "Input is too long for requested model."),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."),
        (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
        (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081"),
        (500, "Requested tokens (5000) exceed context window of 4096"),
        (413, "Request Entity Too Large"),
    ],
)
def test_too_long_a_conversation_is_recognised_in_many_words(
    server: ModelServer, make: Callable[..., LiteLLMModel], slept: list[float], status: int, message: str
) -> None:
    server.script(then=fails(status, message))
    with pytest.raises(ContextOverflowError):
        make().complete(HELLO, ())
    assert (len(server.requests), slept) == (1, [])


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "Invalid 'user': string too long. Expected a string with maximum length 64.",
        "The context of this request is not permitted.",
    ],
)
def test_other_bad_requests_are_not_mistaken_for_it(
    server: ModelServer, make: Callable[..., LiteLLMModel], message: str
) -> None:
    server.script(fails(400, message))
    with pytest.raises(ModelError, match="bad request"):
        make().complete(HELLO, ())


def test_a_rate_limit_on_tokens_is_not_mistaken_for_it(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(fails(429, "Request too large: too many tokens per minute for your context window"), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    assert kinds(meter) == [("rate_limit", 429)]


@pytest.mark.parametrize("figures", [None, usage(0, 0), usage(100, 0)])
def test_an_empty_reply_is_a_failure_and_charged_for_what_it_used(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, figures: dict[str, Any] | None
) -> None:
    server.script(empty(figures), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    (attempt,) = meter.attempts
    assert (attempt.kind, attempt.status) == ("empty", 200)
    assert attempt.usage.prompt_tokens == (figures or {}).get("prompt_tokens", 0)
    assert attempt.raw["id"] == "cmpl-7"


@pytest.mark.parametrize("figures", [usage(100, 30, reasoning=30), usage(100, 0, cost=1.0)])
def test_an_empty_reply_that_was_paid_for_is_not_asked_for_again(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, figures: dict[str, Any]
) -> None:
    server.script(empty(figures))
    reply = make().complete(HELLO, ())
    assert (reply.text, reply.tool_calls, reply.usage.prompt_tokens) == ("", (), 100)
    assert (len(server.requests), meter.attempts) == (1, [])


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", {"choices": []}, {"error": {"message": "upstream"}}])
def test_a_200_that_holds_no_reply_is_a_failure(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, body: Any
) -> None:
    server.script(Answer(body), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    (attempt,) = meter.attempts
    if isinstance(body, dict) and "error" in body:
        assert attempt.message == "upstream"


def _message(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi.", **fields}}
    return {**says("Hi.").body, "choices": [choice]}


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("openai/test-model", _message(content={"a": 1})),
        ("openai/test-model", _message(tool_calls=[None])),
        ("openai/test-model", {**says("Hi.").body, "usage": "many"}),
        ("openai/test-model", [1]),
        ("anthropic/claude-sonnet-4-5", [1]),
        ("anthropic/claude-sonnet-4-5", b"[" * 100_000),
    ],
)
def test_a_200_that_cannot_be_read_is_asked_for_once_more_and_may_have_cost_something(
    server: ModelServer,
    make: Callable[..., LiteLLMModel],
    meter: Meter,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    body: Any,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.script(then=Answer(body))
    with pytest.raises(ModelError, match="unreadable error after 2 attempts") as caught:
        make(model).complete(HELLO, ())
    assert len(server.requests) == 2
    assert kinds(meter) == [("unreadable", None)] * 2
    assert all(attempt.usage.cost_usd is None for attempt in meter.attempts)
    assert "Traceback" not in str(caught.value)


def test_a_reply_that_cannot_be_taken_apart_is_such_a_failure(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    deep: Any = "end"
    for _ in range(600):
        deep = {"x": deep}
    server.script(Answer({**says("Hi.").body, "usage": {**usage(1, 1), "odd": deep}}), says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    assert kinds(meter) == [("unreadable", None)]
    assert meter.attempts[0].usage.cost_usd is None


def test_a_key_is_taken_out_of_a_message_before_it_is_shortened(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(fails(500, "x" * 1990 + KEY), says("Hi."))
    make().complete(HELLO, ())
    assert meter.attempts[0].message == "x" * 1990 + "[redacted]"


def test_a_refusal_inside_a_200_is_final(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(Answer({"error": {"message": "no access", "code": 401}}))
    with pytest.raises(ModelError, match="authentication error 401: no access"):
        make().complete(HELLO, ())


def test_failed_attempts_are_charged_for_what_they_used(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(
        fails(500, "boom", usage(50, 5, cost=0.5)), fails(500, "boom", usage(1000, 0)), fails(500, "boom"), says("Hi.")
    )
    make(price=Price(1.0, 1.0)).complete(HELLO, ())
    assert [attempt.usage.cost_usd for attempt in meter.attempts] == pytest.approx([0.5, 0.001, 0.0])
    assert [attempt.usage.prompt_tokens for attempt in meter.attempts] == [50, 1000, 0]


def test_a_limit_that_a_failed_attempt_reaches_ends_the_retries(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(then=fails(500, "boom"))
    meter.stop = "cost"
    with pytest.raises(BudgetExhaustedError, match="cost") as caught:
        make().complete(HELLO, ())
    assert caught.value.reason == "cost"
    assert len(server.requests) == 1


def test_no_wait_outlasts_the_run(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, slept: list[float]
) -> None:
    server.script(then=fails(429, "slow down", headers={"retry-after": "30"}))
    meter.left = 20.0
    with pytest.raises(BudgetExhaustedError, match="time"):
        make().complete(HELLO, ())
    assert (len(server.requests), slept) == (1, [])


@pytest.mark.parametrize("answer", [says("Hi.", delay=60), says("Hi.", trickle=0.05)], ids=["silent", "trickling"])
def test_no_request_outlasts_the_run_nor_its_timeout(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, answer: Answer
) -> None:
    server.script(then=answer)
    meter.left = 0.5
    with pytest.raises(BudgetExhaustedError, match="time"):
        make().complete(HELLO, ())
    meter.left = None
    with pytest.raises(ModelError, match=r"timeout error after 2 attempts"):
        make(attempts=2, timeout=0.5).complete(HELLO, ())
    assert [attempt.kind for attempt in meter.attempts] == ["timeout"] * 3
    assert all(attempt.usage.cost_usd is None for attempt in meter.attempts)
