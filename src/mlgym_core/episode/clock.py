"""The limits on an episode's time."""

from __future__ import annotations

import time

from attrs import define

from mlgym_core.task.task import Limits

LEAST_ACTION_SECONDS = 0.1  #: that an action gets when the episode's time is as good as over


@define
class Clock:
    """Counts wall-clock and working time from the moment it is started.

    Attributes:
        limits: of the task and the run.
    """

    limits: Limits
    _started: float | None = None
    _waited: float = 0.0
    _stopped: float | None = None

    def start(self) -> None:
        """Begin to count."""
        self._started = time.monotonic()

    def stop(self) -> None:
        """The agent's work has ended; harmless when repeated."""
        if self._stopped is None:
            self._stopped = time.monotonic()

    @property
    def since_stop(self) -> float:
        """Seconds since the agent's work ended; 0 before."""
        return 0.0 if self._stopped is None else time.monotonic() - self._stopped

    def wait(self, seconds: float) -> None:
        """Leave these seconds, just spent waiting for a model service, out of the working time."""
        self._waited += seconds

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the agent's work so far; 0 before the start."""
        if self._started is None:
            return 0.0
        return (time.monotonic() if self._stopped is None else self._stopped) - self._started

    @property
    def working_seconds(self) -> float:
        """Seconds since the start without those spent waiting for the model."""
        return max(0.0, self.seconds - self._waited)

    @property
    def seconds_left(self) -> float | None:
        """Until the first of the limits on time; ``None`` without one."""
        limits = ((self.limits.wall_seconds, self.seconds), (self.limits.working_seconds, self.working_seconds))
        return min((limit - used for limit, used in limits if limit is not None), default=None)

    @property
    def out_of_time(self) -> bool:
        """Whether a limit on time is reached."""
        left = self.seconds_left
        return left is not None and left <= 0

    def action_seconds(self, wanted: float | None) -> float:
        """What an action may take: what it asks for, within the task's limit an action and the episode's time left.

        The sandbox's shell enforces it: it kills the action's whole process tree then.
        """
        seconds = min(wanted or self.limits.action_seconds, self.limits.action_seconds)
        left = self.seconds_left
        return seconds if left is None else min(seconds, max(LEAST_ACTION_SECONDS, left))
