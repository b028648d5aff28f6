"""What everything hidden is derived from: a secret for each split, that of test drawn when no agent is left."""

from __future__ import annotations

import secrets
import threading

from attrs import define, field

from mlgym_core.errors import UsageError

SECRET_BYTES = 16


def draw() -> bytes:
    """A fresh secret."""
    return secrets.token_bytes(SECRET_BYTES)


@define
class Secrets:
    """The secrets of one run, or of runs that are to be compared.

    Boxes of one machine share caches, processor and disk, so there will always be a way for code that is graded to
    tell something to an agent that is alive. What does not exist yet cannot be told: the secret of the test split is
    drawn when the last agent has ended, after its submissions have been committed to.

    Attributes:
        dev: of the dev split; agents may learn what they can of it.
    """

    dev: bytes = field(factory=draw, repr=False)
    _test: bytes | None = field(default=None, repr=False)
    _known: bool = field(default=False, repr=False)
    _alive: set[str] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False, repr=False)

    @classmethod
    def fixed(cls, secret: bytes) -> Secrets:
        """The same secret for both splits, known from the start: for checks and tests that are to repeat."""
        return cls(secret, secret, known=True)

    @property
    def drawn(self) -> bytes | None:
        """The secret of the test split, if there is one by now."""
        return self._test

    def check_unused(self) -> None:
        """Refuse to let one more agent begin when something has been graded on test.

        Raises:
            UsageError: it has, and the secret was not known from the start.
        """
        if self._test is not None and not self._known:
            raise UsageError("runs that share secrets begin before any of them is graded; use run_together")

    def expect(self, run_id: str) -> None:
        """The agent of this run may profit from what it learns of the test split."""
        with self._lock:
            self._alive.add(run_id)

    def ended(self, run_id: str) -> None:
        """The agent of this run has ended; its box is closed and its submissions are committed to."""
        with self._lock:
            self._alive.discard(run_id)

    def test(self) -> bytes:
        """The secret of the test split, drawn when it is first asked for.

        Raises:
            UsageError: an agent that could profit from it has not ended.
        """
        with self._lock:
            if self._test is None:
                if self._alive:
                    raise UsageError(
                        f"nothing is graded on test while agents that could profit are alive: {', '.join(self._alive)}"
                    )
                self._test = draw()
            return self._test
