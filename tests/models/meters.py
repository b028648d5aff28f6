"""A meter that remembers, and what the tests of the litellm model ask."""

from __future__ import annotations

from mlgym_core.models.base import FailedAttempt, Message

HELLO = [Message("system", "Be brief."), Message("user", "Hello.")]
KEY = "sk-loopback-0123456789"


class Meter:
    """Remembers what it is told; ``left`` and ``stop`` are what it answers."""

    def __init__(self, left: float | None = None) -> None:
        self.left = left
        self.stop: str | None = None
        self.attempts: list[FailedAttempt] = []
        self.notices: list[str] = []

    def seconds_left(self) -> float | None:
        return self.left

    def exhausted(self) -> str | None:
        return self.stop

    def failed(self, attempt: FailedAttempt) -> None:
        self.attempts.append(attempt)

    def notice(self, text: str) -> None:
        self.notices.append(text)


def kinds(meter: Meter) -> list[tuple[str, int | None]]:
    return [(attempt.kind, attempt.status) for attempt in meter.attempts]
