"""What of the conversation the model is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.agent.history import Conversation, Entry, HistoryRule, character_window, last_observations
from mlgym_core.models.base import Message, Reply, ToolCall, Usage
from mlgym_core.record import events
from mlgym_core.record.events import Event

T = TypeVar("T", bound=Event)


class Log:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, form: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, form)]


def talk(turns: Sequence[str], *rules: HistoryRule, log: Log | None = None) -> Conversation:
    conversation = Conversation(log or Log(), rules)
    conversation.fix(Message("system", "be good"), Message("user", "the task"))
    for number, text in enumerate(turns):
        conversation.reply(Reply(f"reply {number}", (ToolCall(f"c{number}", "bash", {"command": "ls"}),)))
        conversation.observe(Message("tool", text, tool_call_id=f"c{number}"), observation=text)
    return conversation


def contents(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


def test_everything_is_shown_unless_a_rule_says_otherwise() -> None:
    assert contents(talk(["a", "b", "c"]).request([])) == ["a", "b", "c"]
    assert contents(talk(["a", "b", "c"], HistoryRule("all")).request([])) == ["a", "b", "c"]


def test_the_last_observations_are_kept_and_calls_still_pair_up() -> None:
    shown = talk(["a\nb", "c", "d"], HistoryRule("last_observations", count=1)).request([])
    assert contents(shown) == [
        "[an older observation of 2 lines was left out]",
        "[an older observation of 1 line was left out]",
        "d",
    ]
    assert [m.tool_call_id for m in shown if m.role == "tool"] == ["c0", "c1", "c2"]


def test_of_each_file_the_newest_window_is_kept() -> None:
    first, second, other = (
        f"[File: {name} ({lines} lines total)]\n1:x"
        for name, lines in (("/w/a b.py", 3), ("/w/a b.py", 4), ("/w/c", 1))
    )
    mixed = f"epoch 9: loss 0.1\n{first}"
    shown = talk([first, other, mixed, second], HistoryRule("newest_windows")).request([])
    assert contents(shown) == ["[an older view of /w/a b.py was left out]", other, mixed, second]


def test_a_token_window_leaves_out_old_observations_first_and_then_whole_turns() -> None:
    long = "x" * 4000
    shown = talk([long, long, "new"], HistoryRule("token_window", tokens=100)).request([])
    assert contents(shown)[-1] == "new"
    assert "left out" in contents(shown)[0]
    assert [message.role for message in shown][:2] == ["system", "user"]
    tight = talk(["a" * 40] * 9 + ["new"], HistoryRule("token_window", tokens=10)).request([])
    assert contents(tight) == ["new"]
    assert [message.role for message in tight] == ["system", "user", "assistant", "tool"]


@given(
    st.lists(st.text(max_size=300), min_size=1, max_size=12),
    st.integers(1, 2000),
    st.integers(1, 5),
)
def test_whatever_is_left_out_every_call_shown_is_answered_and_the_newest_turn_stays(
    turns: list[str], tokens: int, count: int
) -> None:
    rules = (HistoryRule("last_observations", count=count), HistoryRule("token_window", tokens=tokens))
    shown = talk(turns, *rules).request([])
    asked = [call.id for message in shown for call in message.tool_calls]
    assert asked == [message.tool_call_id for message in shown if message.role == "tool"]
    assert contents(shown)[-1] == turns[-1] or "characters were left out" in contents(shown)[-1]
    assert [message.content for message in shown[:2]] == ["be good", "the task"]


@given(st.lists(st.integers(0, 500), min_size=2, max_size=12), st.integers(0, 6000))
def test_a_window_is_kept_to_as_far_as_fixed_messages_and_the_newest_turn_allow(sizes: list[int], limit: int) -> None:
    entries = [Entry(0, Message("user", "task"), "fixed")]
    for number, size in enumerate(sizes):
        entries.append(Entry(2 * number + 1, Message("assistant", "r"), "reply"))
        entries.append(Entry(2 * number + 2, Message("user", "o" * size), "observation"))
    kept = character_window(entries, limit)
    least = 4 + 1 + min(sizes[-1], 120)
    assert sum(entry.characters for entry in kept) <= max(limit, least)


def test_a_new_observation_that_alone_is_too_long_loses_its_middle() -> None:
    text = "begin " + "x" * 10_000 + " end"
    (shown,) = contents(talk([text], HistoryRule("token_window", tokens=250)).request([]))
    assert shown.startswith("begin x")
    assert shown.endswith("x end")
    assert "characters were left out" in shown
    assert len(shown) < 1000


def test_the_estimate_of_tokens_follows_the_service() -> None:
    conversation = talk(["a" * 800, "b" * 800], HistoryRule("token_window", tokens=1000))
    assert contents(conversation.request([]))[0] == "a" * 800
    conversation.reply(Reply("r", (ToolCall("c", "bash", {}),), Usage(prompt_tokens=1600)))
    conversation.observe(Message("tool", "new", tool_call_id="c"))
    assert "left out" in contents(conversation.request([]))[0]


def test_trimming_halves_what_is_sent_and_stays() -> None:
    log = Log()
    conversation = talk(["a" * 2000, "b" * 2000, "c" * 20], log=log)
    before = sum(len(message.content) for message in conversation.request([]))
    conversation.trim()
    after = sum(len(message.content) for message in conversation.request([]))
    assert after <= before / 2 + 50
    assert contents(conversation.request([]))[-1] == "c" * 20
    assert "too long" in log.of(events.Notice)[0].text


def test_a_request_can_be_rebuilt_from_the_record() -> None:
    log = Log()
    conversation = talk(["a", "b"], HistoryRule("last_observations", count=1), log=log)
    sent = conversation.request(["bash"])
    request = log.of(events.ModelRequest)[0]
    known = {event.id: event.content for event in log.of(events.Message)}
    known |= {2: "reply 0", 4: "reply 1"}  # recorded by model_reply
    rebuilt = [request.left_out.get(str(each), known[each]) for each in request.messages]
    assert rebuilt == [message.content for message in sent]


@pytest.mark.parametrize(
    ("keep", "numbers", "message"),
    [
        ("last_observations", {}, "needs count"),
        ("last_observations", {"count": -1}, "needs count"),
        ("token_window", {"count": 3, "tokens": 5}, "takes no count"),
        ("token_window", {"tokens": 10**399}, "needs tokens"),
        ("all", {"tokens": 5}, "takes no tokens"),
        ("some", {}, "must be one of all"),
    ],
)
def test_rules_that_make_no_sense_are_refused(keep: Any, numbers: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HistoryRule(keep, **numbers)


def test_leaving_out_observations_twice_changes_nothing_more() -> None:
    entries = [Entry(i, Message("user", f"o{i}"), "observation") for i in range(4)]
    once = last_observations(entries, 2)
    assert last_observations(once, 2) == once
