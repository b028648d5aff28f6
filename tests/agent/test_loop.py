"""The loop around a model: what a reply leads to, and what ends the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from support import run_task

from mlgym_core import Episode
from mlgym_core.agent.budget import Budget, TotalBudget
from mlgym_core.errors import ModelError
from mlgym_core.models.base import (
    BudgetExhaustedError,
    ContextOverflowError,
    FailedAttempt,
    Message,
    Reply,
    ToolCall,
    Usage,
)
from mlgym_core.record.events import Grade, MalformedReply, ModelRequest
from mlgym_core.record.reader import events_of
from mlgym_core.runner.document import RunResult
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.base import Tool

DOLLAR = Usage(10, 5, 1.0)
SUBMIT = ("submit", {})
WRITE = ("bash", {"command": "echo 1 > answer.csv"})


def calls(*asked: tuple[str, dict[str, Any]], usage: Usage | None = None) -> Reply:
    made = tuple(ToolCall(f"call-{i}", name, arguments) for i, (name, arguments) in enumerate(asked))
    return Reply("", made, usage or Usage())


class Scripted:
    """Answers or raises in turn, the last one for ever; remembers what it was sent."""

    name = "scripted-replies"

    def __init__(self, *replies: Reply | BaseException, seconds: float = 0.0) -> None:
        self._replies = list(replies)
        self._seconds = seconds
        self.seen: list[list[Message]] = []

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        del tools
        self.seen.append(list(messages))
        threading.Event().wait(self._seconds)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply


@pytest.fixture
def task(task_folder: Callable[..., Path]) -> Task:
    return load_task_folder(task_folder())


@pytest.fixture
def play(task: Task) -> Callable[..., RunResult]:
    def go(model: Scripted, **options: Any) -> RunResult:
        return run_task(task, model=model, backend="local", allow_unsafe=True, **options)

    return go


def test_parallel_calls_are_carried_out_and_answered_in_order(play: Callable[..., RunResult]) -> None:
    both = calls(("bash", {"command": "echo first"}), ("bash", {"command": "echo second"}))
    model = Scripted(both, calls(WRITE, SUBMIT))
    result = play(model)
    assert (result.status, result.document["steps"]) == ("scored", 4)
    told = model.seen[1][-2:]
    assert [message.tool_call_id for message in told] == ["call-0", "call-1"]
    assert [message.content.split("\n")[0] for message in told] == ["first", "second"]


@pytest.mark.parametrize(
    ("agent", "odd"),
    [
        ("default", Reply("I shall think about it.")),
        ("default", Reply("")),
        ("default", calls(("teleport", {}))),
        ("text", Reply("prose")),
        ("text", Reply("```bash\nls\n```\n```bash\nls\n```")),
        ("json", Reply('{"tool": "submit"} {"tool": "submit"}')),
        ("xml", Reply("")),
    ],
)
def test_malformed_replies_are_corrected_cost_no_step_and_end_the_run_when_they_go_on(
    play: Callable[..., RunResult], agent: str, odd: Reply
) -> None:
    model = Scripted(Reply(odd.text, odd.tool_calls, DOLLAR))
    result = play(model, agent=agent, limits={"cost_usd": 100.0})
    document = result.document
    assert (document["status"], document["reason"], document["steps"]) == ("no_submission", "format", 0)
    assert (len(model.seen), document["cost"]["usd"]) == (4, 4.0)
    assert result.exit_code == 1
    last = model.seen[-1][-1].content
    assert "Nothing was done" in last
    assert "until the run ends: 1." in last


def test_a_good_reply_after_malformed_ones_starts_the_count_anew(play: Callable[..., RunResult]) -> None:
    bad, good = Reply("hm"), calls(WRITE)
    result = play(Scripted(bad, bad, bad, good, bad, bad, bad, calls(SUBMIT)))
    assert (result.status, result.document["steps"]) == ("scored", 2)


def test_the_same_failing_action_is_pointed_out_and_ends_the_run_when_it_goes_on(
    play: Callable[..., RunResult],
) -> None:
    model = Scripted(calls(("bash", {"command": "cat nothing"})))
    document = play(model).document
    assert (document["status"], document["reason"], document["steps"]) == ("no_submission", "format", 10)
    assert "do something else" not in model.seen[2][-1].content
    assert "failed in the same way 3 times" in model.seen[3][-1].content


def test_failures_that_differ_or_are_interrupted_by_a_success_are_no_repetition(play: Callable[..., RunResult]) -> None:
    fail = calls(("bash", {"command": "cat nothing"}))
    other = calls(("bash", {"command": "cat nothing else"}))
    result = play(Scripted(*[fail] * 9, other, *[fail] * 9, calls(WRITE), *[fail] * 9, calls(SUBMIT)))
    assert (result.status, result.document["steps"]) == ("scored", 30)


def test_a_conversation_that_is_too_long_is_shortened_once(play: Callable[..., RunResult]) -> None:
    long = calls(("bash", {"command": "seq 3000"}))
    model = Scripted(long, calls(WRITE), ContextOverflowError("too long"), calls(SUBMIT))
    result = play(model)
    assert (result.status, result.document["reason"]) == ("scored", "submitted")
    size = [sum(len(message.content) for message in seen) for seen in model.seen]
    assert size[3] < size[2] / 2
    assert "was left out" in model.seen[3][3].content
    assert [event.left_out != {} for event in events_of(result.folder, ModelRequest)] == [False, False, False, True]


def test_a_conversation_that_stays_too_long_ends_the_run_and_is_graded(play: Callable[..., RunResult]) -> None:
    model = Scripted(calls(WRITE), ContextOverflowError("too long"))
    document = play(model).document
    assert (document["status"], document["reason"], len(model.seen)) == ("scored", "context", 3)


def test_a_limit_on_model_calls_ends_the_run(play: Callable[..., RunResult]) -> None:
    document = play(Scripted(calls(WRITE)), limits={"model_calls": 3}).document
    assert (document["status"], document["reason"], document["model_calls"]) == ("scored", "calls", 3)


def test_a_limit_reached_between_parallel_calls_stops_there(play: Callable[..., RunResult]) -> None:
    document = play(Scripted(calls(WRITE, WRITE, WRITE)), limits={"steps": 2}).document
    assert (document["reason"], document["steps"]) == ("steps", 2)


class Unreachable:
    """A service that cannot be reached, for a model that is patient until the limit on time."""

    name = "unreachable"

    def __init__(self, *before: Reply) -> None:
        self._replies = list(before)
        self._meter: Any = None

    def attach(self, meter: Any) -> None:
        self._meter = meter

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        del messages, tools
        if self._replies:
            return self._replies.pop(0)
        self._meter.failed(FailedAttempt("connection", "nobody listens"))
        raise BudgetExhaustedError("time")


def test_a_service_that_never_replied_is_an_error_of_the_model_and_not_a_reached_limit(
    play: Callable[..., RunResult],
) -> None:
    never: Any = Unreachable()
    result = play(never)
    assert (result.document["reason"], result.exit_code) == ("model_error", 3)
    assert (result.status, result.document["scores"]["test"], result.document["improvement"]) == (
        "infra_error",
        {},
        None,
    )
    assert "never replied before the limit on time: nobody listens" in result.document["message"]
    later: Any = Unreachable(calls(WRITE))
    assert play(later).document["reason"] == "time"


@pytest.mark.parametrize("error", [ModelError("401"), ContextOverflowError("too long"), RuntimeError("bug")])
def test_a_model_that_never_answered_leaves_no_score_and_one_that_did_is_graded(
    play: Callable[..., RunResult], error: Exception
) -> None:
    never = play(Scripted(error))
    assert (never.status, never.document["reason"], never.exit_code) == ("infra_error", "model_error", 3)
    assert (never.document["scores"]["test"], never.document["improvement"]) == ({}, None)
    assert not list(events_of(never.folder, Grade))
    assert play(Scripted(calls(WRITE), error)).status == "scored"


@pytest.mark.parametrize("agent", ["default", "text"])
def test_nothing_in_a_reply_that_was_cut_is_done(play: Callable[..., RunResult], agent: str) -> None:
    cut = attrs.evolve(calls(("bash", {"command": "echo half > answer.csv"})), cut=True)
    model = Scripted(cut, attrs.evolve(cut, text="```bash\nls\n```", tool_calls=()), calls(SUBMIT))
    result = play(model, agent=agent, limits={"steps": 1})
    assert (result.status != "scored", result.document["steps"]) == (True, 1)
    assert [event.message[:18] for event in events_of(result.folder, MalformedReply)] == ["Your reply was cut"] * 2
    assert "Write less" in model.seen[1][-1].content


def test_a_run_in_which_nothing_was_done_says_so(play: Callable[..., RunResult]) -> None:
    assert "no action was done" in play(Scripted(Reply("prose"))).document["message"]
    assert play(Scripted(calls(WRITE), calls(SUBMIT))).document["message"] == ""


def test_working_time_leaves_out_waiting_for_the_model(play: Callable[..., RunResult]) -> None:
    slow = Scripted(calls(WRITE), calls(WRITE), calls(SUBMIT), seconds=0.4)
    document = play(slow, limits={"working_seconds": 1.0}).document
    assert (document["status"], document["reason"]) == ("scored", "submitted")
    assert document["waited_s"] >= 1.2
    busy = Scripted(calls(("bash", {"command": "echo 1 > answer.csv; sleep 60"})))
    document = play(busy, limits={"working_seconds": 0.6}).document
    assert (document["status"], document["reason"]) == ("scored", "time")


def test_an_action_may_choose_its_own_deadline_within_the_tasks(play: Callable[..., RunResult]) -> None:
    quick = ("bash", {"command": "sleep 30; echo late", "timeout": 0.3})
    long = ("bash", {"command": "sleep 30; echo late", "timeout": 1000})
    model = Scripted(calls(quick, long), calls(SUBMIT))
    started = time.monotonic()
    play(model, limits={"action_seconds": 1.0, "steps": 4})
    assert time.monotonic() - started < 25
    assert all("time limit" in message.content for message in model.seen[1][-2:])


def test_an_agent_that_fails_while_others_use_up_the_total_has_failed(task: Task) -> None:
    total = TotalBudget(cost_usd=1.0)

    class Failing:
        name = "failing"

        def run(self, episode: Episode, budget: Budget) -> str:
            total.charge(DOLLAR)  # another run, meanwhile
            raise RuntimeError("bug")

    config = {"task": task, "agent": Failing(), "backend": "local", "total": total, "allow_unsafe": True}
    assert run_task(**config).document["reason"] == "model_error"


def test_every_charge_counts_towards_the_total_and_the_rest_is_not_started(task: Task) -> None:
    """Run cap 3, total cap 10, 8 workers, 20 runs; every second reply is malformed, and all are charged."""
    total = TotalBudget(cost_usd=10.0)

    class Paid:
        name = "paid"

        def __init__(self) -> None:
            self._calls = 0

        def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
            del messages, tools
            self._calls += 1
            return calls(WRITE, usage=DOLLAR) if self._calls % 2 else Reply("prose", usage=DOLLAR)

    def one(_: int) -> RunResult:
        limits = {"cost_usd": 3.0}
        return run_task(task, model=Paid(), backend="local", limits=limits, total=total, allow_unsafe=True)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(20)))
    spent = sum(result.document["cost"]["usd"] for result in results)
    assert spent == total.cost_usd
    assert 10.0 <= spent <= 10.0 + 8
    states = [result.document["status"] for result in results]
    assert set(states) == {"scored", "not_started"}
    for result in results:
        document = result.document
        assert document["reason"] == "cost"
        assert (document["status"] == "not_started") == (document["cost"]["usd"] == 0)
        assert document["cost"]["usd"] <= 3.0
    left = next(result for result in results if result.status == "not_started")
    assert (left.exit_code, left.document["scores"]["test"]) == (3, {})
    assert "total limit on cost" in left.document["message"]
