"""What an agent is, and the budget it works within."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from mlgym_core.task import Limits

if TYPE_CHECKING:
    from mlgym_core.episode import Episode
    from mlgym_core.models.base import Usage


class Agent(Protocol):
    """Works on an episode until it submits or something runs out.

    It may be a loop around a model in this process, or start a program inside the sandbox with one long
    :meth:`Episode.step <mlgym_core.episode.Episode.step>` and let that work.
    """

    name: str

    def run(self, episode: Episode, budget: Budget) -> str:
        """Work on a freshly reset episode.

        Returns:
            Why it ended, one of :data:`mlgym_core.record.REASONS`.
        """


class Budget:
    """Counts what a run uses of the model and of time. Steps are counted by the episode.

    Args:
        limits: ``None`` in a field means no limit.

    Attributes:
        prompt_tokens, completion_tokens: so far.
        cost_usd: so far; only what is known.
        cost_known: false once a call had no known price.
        calls: model calls so far.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cost_usd = 0.0
        self.cost_known = True
        self.calls = 0
        self._started = time.monotonic()

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return self.prompt_tokens + self.completion_tokens

    def start_clock(self) -> None:
        """Seconds count from here."""
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the first step could be taken."""
        return time.monotonic() - self._started

    def charge(self, usage: Usage) -> None:
        """Count one model call, whatever became of it."""
        self.calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        if usage.cost_usd is None:
            self.cost_known = False
        else:
            self.cost_usd += usage.cost_usd

    def exhausted(self) -> str | None:
        """``cost``, ``tokens`` or ``time`` when that limit is reached, else ``None``."""
        limits = self.limits
        if limits.cost_usd is not None and self.cost_usd >= limits.cost_usd:
            return "cost"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return "tokens"
        if limits.wall_seconds is not None and self.seconds >= limits.wall_seconds:
            return "time"
        return None
