"""What connections of every kind share: waiting for a deadline, and output that comes while input is being sent."""

from __future__ import annotations

import time
from collections.abc import Sequence

from attrs import define, field

CHUNK = 256 * 1024  #: bytes to read at a time
_BACKLOG = 64 * 1024 * 1024
_LONGEST_WAIT_MS = 2**31 - 1


def milliseconds(deadline: float) -> int:
    """Time left until a :func:`time.monotonic` value, as :meth:`select.poll.poll` wants it."""
    left = deadline - time.monotonic()
    return int(min(left * 1000 + 1, _LONGEST_WAIT_MS)) if left > 0 else 0


@define
class Backlog:
    """Output that was read while input was being sent, so that neither end waits for the other forever.

    Attributes:
        pieces: stream and data, in order of arrival.
        size: bytes of data.
    """

    pieces: list[tuple[int, bytes]] = field(factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more should be read before something is taken."""
        return self.size >= _BACKLOG

    def add(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Put pieces behind the others."""
        self.pieces += pieces
        self.size += sum(len(data) for _, data in pieces)

    def put_back(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Put pieces before the others."""
        self.pieces[:0] = pieces
        self.size += sum(len(data) for _, data in pieces)

    def take(self) -> list[tuple[int, bytes]]:
        """All pieces; the backlog is empty afterwards."""
        pieces, self.pieces, self.size = self.pieces, [], 0
        return pieces
