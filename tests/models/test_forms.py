"""Parsing what services send, whatever it is. No client and no service needed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.errors import ModelError
from mlgym_core.models.base import FailedAttempt, Message, Reply, ToolCall, Usage
from mlgym_core.models.litellm.failures import MESSAGE_LIMIT, failure, overflows, retry_after
from mlgym_core.models.litellm.openai_form import clean, messages_out, plain, reply_in
from mlgym_core.models.litellm.retry import Failure, Patience, persist
from mlgym_core.record.redact import Redactor
from mlgym_core.record.strictjson import encode
from mlgym_core.tools.arguments import arguments_in

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.text(alphabet=st.characters()))
def test_whatever_stands_in_arguments_is_an_object_or_nothing(text: str) -> None:
    value = arguments_in(text)
    assert value is None or isinstance(value, dict)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_arguments_that_are_taken_can_be_recorded(value: dict[str, Any]) -> None:
    taken = arguments_in(json.dumps(value))
    if taken is None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode(value)
    else:
        assert taken == value
        encode(taken)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, '{"a": ' + "9" * 10_000 + "}"])
def test_absurd_arguments_do_no_harm(text: str) -> None:
    assert arguments_in(text) is None


@given(st.text(alphabet=st.characters(categories=["L", "Cs"])))
def test_cleaned_text_can_be_sent_and_the_rest_stays(text: str) -> None:
    sent = clean(text)
    sent.encode("utf-8")
    assert len(sent) == len(text)
    assert all(new in (old, "?") for new, old in zip(sent, text, strict=True))


@given(JSON)
def test_a_providers_data_can_always_be_recorded(value: Any) -> None:
    encode(plain(value))
    encode(plain({"x": {1: value, "y": object()}}))


@given(st.integers(0, 10**6))
def test_seconds_and_dates_mean_the_same(seconds: int) -> None:
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert retry_after({"retry-after": str(seconds)}, NOW) == seconds
    assert retry_after({"retry-after": date}, NOW) == seconds


@given(st.text())
def test_any_other_wait_is_none_or_a_number_of_seconds(text: str) -> None:
    told = retry_after({"retry-after": text}, NOW)
    assert told is None or told >= 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": None, "tool_calls": None}}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": ""}]}}], "usage": None},
    ],
)
def test_a_completion_without_content_is_an_empty_reply(body: dict[str, Any]) -> None:
    reply = reply_in(body, Usage(), 1)
    assert (reply.text, reply.tool_calls) == ("", ())


def test_text_in_parts_and_refusals_are_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert reply_in({"choices": [{"message": {"content": parts}}]}, Usage(), 1).text == "ab"
    assert reply_in({"choices": [{"message": {"content": None, "refusal": "No."}}]}, Usage(), 1).text == "No."


def test_errors_of_the_client_itself_are_final() -> None:
    for error in (TypeError("no such argument"), KeyError("x"), RuntimeError("")):
        found = failure(error)
        assert (found.kind, found.again) == ("client", False)
        assert found.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("boom " + "-" * 10**6 + " x", "boom " + "-" * (MESSAGE_LIMIT - 5)),
        ("boom" + " .-" * 5000 + "Received Model Group=x", "boom"),
        ("cannot read 'it' \nTraceback (most recent call last):\n  File ...", "cannot read 'it'"),
    ],
)
def test_absurdly_long_messages_are_read_as_far_as_they_are_shown(text: str, message: str) -> None:
    assert failure(Exception(text)).message == message


@given(st.integers(0, MESSAGE_LIMIT + 50))
def test_a_secret_never_outlives_the_shortening_of_a_message(before: int) -> None:
    secret = "sk-loopback-0123456789"
    found = failure(Exception("." * before + secret + " is not valid " * 200), redact=Redactor([secret]))
    assert len(found.message) <= MESSAGE_LIMIT
    assert "sk-" not in found.message


@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters()))
def test_whatever_a_model_called_a_tool_is_sent_back_as_a_name(name: str, key: str) -> None:
    call = {"id": key, "function": {"name": name, "arguments": "{}"}}
    thoughts = {"thinking_blocks": [{"thinking": key, name: key}]}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call, call], **thoughts}}]}
    reply = reply_in(body, Usage(), 1, ["thinking_blocks"])
    answers = [Message("tool", "x", tool_call_id=one.id) for one in reply.tool_calls]
    asked, *answered = messages_out([reply.message(), *answers])
    assert len({one["id"] for one in asked["tool_calls"]}) == 2
    assert [one["id"] for one in asked["tool_calls"]] == [one["tool_call_id"] for one in answered]
    for one in asked["tool_calls"]:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one["function"]["name"])
    json.dumps([asked, *answered], ensure_ascii=False).encode("utf-8")


def test_names_and_ids_that_others_made_are_sent_as_what_they_can_be() -> None:
    talk = [Message("assistant", "", (ToolCall("\ud800", "bash<|channel|>json", {}), ToolCall("b", "", {})))]
    (sent,) = messages_out(talk)
    named = [(call["id"], call["function"]["name"]) for call in sent["tool_calls"]]
    assert named == [("?", "bash__channel__json"), ("b", "unknown")]


def sent_ids(talk: list[Message]) -> list[list[str]]:
    """The ids of each message as it is sent, of calls or of the call that is answered."""
    return [
        [call["id"] for call in one["tool_calls"]] if "tool_calls" in one else [one["tool_call_id"]]
        for one in messages_out(talk)
    ]


def test_equal_ids_of_two_turns_are_told_apart_with_their_answers() -> None:
    turn = [
        Message("assistant", "", (ToolCall("call_0", "bash", {}), ToolCall("call_1", "bash", {}))),
        Message("tool", "a", tool_call_id="call_0"),
        Message("tool", "b", tool_call_id="call_1"),
    ]
    once = [["call_0", "call_1"], ["call_0"], ["call_1"]]
    again = [["again2-call_0", "again2-call_1"], ["again2-call_0"], ["again2-call_1"]]
    assert sent_ids(turn + turn) == once + again
    assert sent_ids(turn + turn + turn)[: len(once + again)] == once + again, "what was sent before stays as it was"


@given(st.lists(st.lists(st.sampled_from(["a", "b", "again2-a", "\ud800", "?"]), min_size=1, max_size=3), max_size=6))
def test_every_call_has_an_id_of_its_own_and_its_answer_the_same(turns: list[list[str]]) -> None:
    talk = []
    for ids in turns:
        talk.append(Message("assistant", "", tuple(ToolCall(one, "bash", {}) for one in ids)))
        talk += [Message("tool", "x", tool_call_id=one) for one in ids]
    sent = iter(sent_ids(talk))
    asked = []
    for ids in turns:
        calls = next(sent)
        assert calls == [next(sent)[0] for _ in ids]
        asked += calls
    assert len(set(asked)) == len(asked)


def test_overflow_is_not_seen_where_there_is_none() -> None:
    for text in ("", "internal error", "the context is fine", "invalid max_tokens", "rate limit exceeded"):
        assert not overflows(text)


class Still:
    """A meter without limits."""

    def __init__(self) -> None:
        self.attempts: list[FailedAttempt] = []

    def seconds_left(self) -> float | None:
        return None

    def exhausted(self) -> str | None:
        return None

    def failed(self, attempt: FailedAttempt) -> None:
        self.attempts.append(attempt)

    def notice(self, text: str) -> None:
        raise AssertionError(text)


@given(st.integers(1, 12), st.floats(0, 1), st.none() | st.floats(0, 1e6))
def test_waits_are_bounded(attempt: int, jitter: float, told: float | None) -> None:
    patience = Patience(first_wait=1.0, longest_wait=60.0, longest_told=300.0, jitter=lambda: jitter)
    wait = patience.wait(attempt, told)
    assert 0 <= wait <= (60.0 if told is None else 300.0)
    if told is None:
        assert wait >= min(60.0, 2.0 ** (attempt - 1)) / 2


def test_time_ends_patience_before_the_attempts_do() -> None:
    time = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time[0] += seconds

    meter = Still()
    patience = Patience(attempts=100, seconds=50.0, sleep=sleep, clock=lambda: time[0], jitter=lambda: 0.0)
    with pytest.raises(ModelError, match="after 6 attempts in 31 s"):
        persist("m", lambda: Failure("server", "boom", 500, again=True), meter, patience)
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert meter.attempts[-1].wait is None


def test_a_way_to_fail_may_have_a_limit_of_its_own() -> None:
    outcomes = [Failure("odd", "", again=True, most=2), Failure("server", "", again=True)] * 2
    meter = Still()
    with pytest.raises(ModelError, match="odd error after 3 attempts"):
        persist("m", iter(outcomes).__next__, meter, Patience(sleep=lambda _: None))
    assert [attempt.wait is None for attempt in meter.attempts] == [False, False, True]


def test_a_reply_is_returned_as_it_is_and_asked_for_once() -> None:
    asked: list[int] = []

    def ask() -> Reply:
        asked.append(1)
        return Reply("")

    assert persist("m", ask, Still(), Patience()) == Reply("")
    assert len(asked) == 1
