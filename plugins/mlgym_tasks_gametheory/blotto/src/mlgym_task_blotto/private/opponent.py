"""The rules of the game and the hidden opponent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgym_tasks_gametheory.lockstep import Stream

FIELDS, SOLDIERS = 6, 120


class Blotto:
    """The column player draws six numbers, scales them to its soldiers and gives the remainder to a random field."""

    width = FIELDS
    highest = SOLDIERS
    total = SOLDIERS

    def respond(self, histories: Sequence[bytes], stream: Stream) -> bytes:
        """The column player's next move in every simulation; the past does not matter to it."""
        count = len(histories)
        draws = [word % (SOLDIERS + 1) for word in stream.words("draws", count * FIELDS)]
        moves = bytearray()
        for at, word in enumerate(stream.words("remainder", count)):
            drawn = draws[at * FIELDS : (at + 1) * FIELDS]
            whole = sum(drawn) or 1
            move = [SOLDIERS * number // whole for number in drawn]
            move[word % FIELDS] += SOLDIERS - sum(move)
            moves += bytes(move)
        return bytes(moves)

    def payoffs(self, rows: bytes, columns: bytes) -> Sequence[float]:
        """1 where the row player holds more fields than the column player, -1 where fewer, else 0."""
        leads = map(_lead, _moves(rows), _moves(columns))
        return [float((lead > 0) - (lead < 0)) for lead in leads]


def _lead(row: tuple[int, ...], column: tuple[int, ...]) -> int:
    """Fields that row holds, less fields that column holds. Written out, since it runs 100,000 times a grading."""
    a, b, c, d, e, f = row
    u, v, w, x, y, z = column
    held = (a > u) + (b > v) + (c > w) + (d > x) + (e > y) + (f > z)
    return held - (a < u) - (b < v) - (c < w) - (d < x) - (e < y) - (f < z)


def _moves(data: bytes) -> Iterator[tuple[int, ...]]:
    return zip(*[iter(data)] * FIELDS, strict=True)
