"""What a run, and several runs together, may use of the model."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from mlgym_core.errors import UsageError
from mlgym_core.task.task import Limits

if TYPE_CHECKING:
    from mlgym_core.models.base import Usage


_LARGEST = 10**12  #: tokens of one call; beyond it a count makes no sense


class TotalBudget:
    """What several runs may use together. One object may be shared by runs in several threads.

    It is asked before every model call, so the overshoot is at most the calls that are in flight.

    Args:
        cost_usd: US dollars; ``None`` means no limit.
        tokens: prompt and completion tokens.
        model_calls: requests, failed ones included.

    Raises:
        UsageError: a limit is negative or no number.
    """

    def __init__(
        self, cost_usd: float | None = None, tokens: int | None = None, model_calls: int | None = None
    ) -> None:
        for name, value in (("cost_usd", cost_usd), ("tokens", tokens), ("model_calls", model_calls)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{name} of a total budget must be a finite number of at least 0, not {value!r}")
        self._limits = {"cost": cost_usd, "tokens": tokens, "calls": model_calls}
        self._used = {"cost": 0.0, "tokens": 0.0, "calls": 0.0}
        self._lock = threading.Lock()

    @property
    def cost_usd(self) -> float:
        """US dollars so far, of all runs; only what is known."""
        return self._used["cost"]

    def charge(self, usage: Usage) -> None:
        """Count one model call of any run."""
        cost, tokens = known_cost(usage), prompt_tokens(usage) + completion_tokens(usage)
        with self._lock:
            for name, value in (("cost", cost or 0.0), ("tokens", tokens), ("calls", 1)):
                self._used[name] += value

    def exhausted(self) -> str | None:
        """``cost``, ``tokens`` or ``calls`` when that limit is reached, else ``None``."""
        with self._lock:
            for name, limit in self._limits.items():
                if limit is not None and self._used[name] >= limit:
                    return name
        return None


class Budget:
    """Counts what a run uses of the model. Steps and time are the episode's.

    Args:
        limits: ``None`` in a field means no limit.
        total: charged too, and its limits hold too.

    Attributes:
        prompt_tokens, completion_tokens: so far.
        cached_tokens, reasoning_tokens: those of them that the service said came from its cache, or were reasoning.
        calls: model calls so far, failed ones included.
        replies: those of them that brought a reply.
        cost_usd: so far; only what is known.
        cost_known: false once a call had no known price.
    """

    def __init__(self, limits: Limits, total: TotalBudget | None = None) -> None:
        self.limits = limits
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.reasoning_tokens = 0
        self.calls = 0
        self.replies = 0
        self.cost_usd = 0.0
        self.cost_known = True
        self._total = total

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return self.prompt_tokens + self.completion_tokens

    def charge(self, usage: Usage, *, replied: bool = True) -> None:
        """Count one model call, whatever became of it. A price that makes no sense is an unknown one."""
        self.calls += 1
        self.replies += replied
        self.prompt_tokens += prompt_tokens(usage)
        self.completion_tokens += completion_tokens(usage)
        self.cached_tokens += min(max(0, usage.cached_tokens or 0), prompt_tokens(usage))
        self.reasoning_tokens += min(max(0, usage.reasoning_tokens or 0), completion_tokens(usage))
        cost = known_cost(usage)
        if cost is None:
            self.cost_known = False
        else:
            self.cost_usd += cost
        if self._total is not None:
            self._total.charge(usage)

    def exhausted(self) -> str | None:
        """``cost``, ``tokens`` or ``calls`` when that limit of the run, or of all runs, is reached, else ``None``."""
        limits = self.limits
        if limits.cost_usd is not None and self.cost_usd >= limits.cost_usd:
            return "cost"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return "tokens"
        if limits.model_calls is not None and self.calls >= limits.model_calls:
            return "calls"
        return self._total.exhausted() if self._total is not None else None


def known_cost(usage: Usage) -> float | None:
    """The call's price in US dollars, if it is known and makes sense."""
    cost = usage.cost_usd
    return cost if cost is not None and 0 <= cost < math.inf else None


def prompt_tokens(usage: Usage) -> int:
    """Tokens of the prompt; a count that makes no sense is none."""
    return min(max(0, usage.prompt_tokens), _LARGEST)


def completion_tokens(usage: Usage) -> int:
    """Tokens of the completion; a count that makes no sense is none."""
    return min(max(0, usage.completion_tokens), _LARGEST)
