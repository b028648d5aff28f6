"""The rules of the game and the hidden opponent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgym_tasks_gametheory.lockstep import Stream

_LOYAL = 0.8 * 2**32  # probability 0.8 on 32-bit numbers
_PAYOFFS = (2.0, 0.0, 0.0, 1.0)  # by 2 * row + column


class BattleOfSexes:
    """The column player opens with 1, then plays the row player's first choice with probability 0.8."""

    width = 1
    highest = 1
    total = None

    def respond(self, histories: Sequence[bytes], stream: Stream) -> bytes:
        """The column player's next move in every simulation."""
        if not histories[0]:
            return bytes([1]) * len(histories)
        words = stream.words("loyal", len(histories))
        return bytes([past[0] if word < _LOYAL else 1 - past[0] for past, word in zip(histories, words, strict=True)])

    def payoffs(self, rows: bytes, columns: bytes) -> Sequence[float]:
        """The row player's payoffs."""
        return [_PAYOFFS[2 * row + column] for row, column in zip(rows, columns, strict=True)]
