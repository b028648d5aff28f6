"""What an agent is, and what it may know of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from mlgym_core.agent.budget import Budget
from mlgym_core.task.task import Task

if TYPE_CHECKING:
    from mlgym_core.episode.episode import Episode
    from mlgym_core.models.base import Model
    from mlgym_core.tools.base import Tool


class Agent(Protocol):
    """Works on an episode until it submits or something runs out.

    It may be a loop around a model in this process, or start a program inside the sandbox with one long
    :meth:`Episode.step <mlgym_core.episode.episode.Episode.step>` and let that work. An attribute ``settings``, if it
    has one, goes into the run's manifest.
    """

    name: str

    def run(self, episode: Episode, budget: Budget) -> str:
        """Work on a freshly reset episode.

        Returns:
            Why it ended, one of :data:`mlgym_core.record.endings.REASONS`.
        """


@frozen
class AgentContext:
    """What an agent may know of the run when it is created.

    Attributes:
        network: of the sandbox, for an agent that is a program inside it.
        model: what it asks; an agent that is a program of its own may ignore it.
        tools: all that are registered.
    """

    task: Task
    size: str
    seed: int
    network: str
    model: Model | None
    tools: tuple[Tool, ...] = ()
