"""Asks a service until it answers: waits as told or ever longer, within attempts, time and the run's budget."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from mlgym_core.errors import ModelError
from mlgym_core.models.base import (
    BudgetExhaustedError,
    ContextOverflowError,
    FailedAttempt,
    Meter,
    Reply,
    Usage,
)


@frozen
class Failure:
    """Why a request brought no usable reply.

    Attributes:
        kind: as in :class:`~mlgym_core.models.base.FailedAttempt`; ``context`` when the conversation is too long.
        message: the provider's own words.
        status: of HTTP, if there was an answer.
        again: whether asking again may help.
        most: requests for one reply that may fail in this way; ``None`` leaves it to the patience.
        told: seconds the provider asked to wait.
        advice: what the user can do about it.
        usage: what the request was charged.
        raw: the provider's own fields.
    """

    kind: str
    message: str
    status: int | None = None
    again: bool = False
    most: int | None = None
    told: float | None = None
    advice: str = ""
    usage: Usage = field(factory=Usage)
    raw: Mapping[str, Any] = field(factory=dict)


@frozen
class Patience:
    """How long to go on asking.

    Attributes:
        attempts: requests for one reply, at most.
        seconds: no request for the same reply begins later than this after the first one.
        first_wait, longest_wait: seconds; waits double in between, less a random part of up to a half.
        longest_told: seconds a provider's own request to wait is obeyed for, at most.
        sleep, clock, jitter: replaced in tests; ``jitter`` gives numbers from 0 to 1.
    """

    attempts: int = 10
    seconds: float = 900.0
    first_wait: float = 1.0
    longest_wait: float = 60.0
    longest_told: float = 300.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random

    def wait(self, attempt: int, told: float | None) -> float:
        """Seconds to wait after this failed attempt (the first is 1)."""
        if told is not None:
            return min(max(told, 0.0), self.longest_told)
        longest = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 32))
        return longest * (1.0 - 0.5 * self.jitter())


def persist(name: str, ask: Callable[[], Reply | Failure], meter: Meter, patience: Patience) -> Reply:
    """Ask until there is a reply. A reply is returned as it is: nothing that was paid for is asked for again.

    Args:
        name: of the model, for messages.
        ask: sends one request.
        meter: is charged for every failed attempt, and asked before every other one.
        patience: how long to go on.

    Raises:
        ModelError: asking again would not help, or patience is at its end.
        ContextOverflowError: the conversation is too long for the model.
        BudgetExhaustedError: a limit of the run was reached, or would be while waiting.
    """
    started = patience.clock()
    attempt = 0
    seen: Counter[str] = Counter()
    while True:
        attempt += 1
        outcome = ask()
        if isinstance(outcome, Reply):
            return outcome
        wait = patience.wait(attempt, outcome.told)
        elapsed = patience.clock() - started
        patient = attempt < patience.attempts and elapsed + wait <= patience.seconds
        seen[outcome.kind] += 1
        worthwhile = outcome.most is None or seen[outcome.kind] < outcome.most
        again = outcome.again and patient and worthwhile
        meter.failed(_attempt(outcome, wait if again else None))
        if outcome.kind == "context":
            raise ContextOverflowError(outcome.message)
        reason = meter.exhausted()
        if reason:
            raise BudgetExhaustedError(reason)
        if not again:
            raise ModelError(_explain(name, outcome, attempt, elapsed))
        left = meter.seconds_left()
        if left is not None and wait >= left:
            raise BudgetExhaustedError("time")
        patience.sleep(wait)


def _attempt(failure: Failure, wait: float | None) -> FailedAttempt:
    return FailedAttempt(failure.kind, failure.message, failure.status, failure.usage, wait, failure.raw)


def _explain(name: str, failure: Failure, attempts: int, elapsed: float) -> str:
    status = f" {failure.status}" if failure.status else ""
    tries = f" after {attempts} attempts in {elapsed:.0f} s" if failure.again else ""
    advice = f"; {failure.advice}" if failure.advice else ""
    return f"{name}: {failure.kind.replace('_', ' ')} error{status}{tries}: {failure.message}{advice}"
