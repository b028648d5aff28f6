"""What an agent is, and the budget it works within."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from mlgym_core.task import Limits, Task

if TYPE_CHECKING:
    from mlgym_core.episode import Episode
    from mlgym_core.models.base import Model, Usage


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


@frozen
class AgentContext:
    """What an agent may know of the run when it is created.

    Attributes:
        network: of the sandbox, for an agent that is a program inside it.
        model: what it asks; an agent that is a program of its own may ignore it.
    """

    task: Task
    size: str
    seed: int
    network: str
    model: Model | None


class Budget:
    """Counts what a run uses of the model. Steps and time are the episode's.

    Args:
        limits: ``None`` in a field means no limit.

    Attributes:
        prompt_tokens, completion_tokens: so far.
        cost_usd: so far; only what is known.
        cost_known: false once a call had no known price.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cost_usd = 0.0
        self.cost_known = True

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens so far."""
        return self.prompt_tokens + self.completion_tokens

    def charge(self, usage: Usage) -> None:
        """Count one model call, whatever became of it. A price that makes no sense is an unknown one."""
        self.prompt_tokens += max(0, usage.prompt_tokens)
        self.completion_tokens += max(0, usage.completion_tokens)
        if usage.cost_usd is None or not 0 <= usage.cost_usd < math.inf:
            self.cost_known = False
        else:
            self.cost_usd += usage.cost_usd

    def exhausted(self) -> str | None:
        """``cost`` or ``tokens`` when that limit is reached, else ``None``."""
        limits = self.limits
        if limits.cost_usd is not None and self.cost_usd >= limits.cost_usd:
            return "cost"
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return "tokens"
        return None
