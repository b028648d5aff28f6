"""Your strategy for Colonel Blotto; the function ``row_strategy`` is what is scored.

This starter masses soldiers on a few random fields and spreads the rest.
Run ``python3 strategy.py`` to see that it works.
"""

from random import random

FIELDS = 6
SOLDIERS = 120


def row_strategy(history: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[int]:
    """Place the row player's soldiers for the next round.

    Args:
        history: the rounds so far, oldest first, as (row_move, column_move) tuples; you are the row player and
            each move is a tuple of six integers.

    Returns:
        Six integers, none negative, that add up to at most 120.
    """
    fields = [0] * FIELDS
    for _ in range(between(1, 6)):
        fields[between(0, FIELDS - 1)] += between(10, 30)
    left = SOLDIERS - sum(fields)
    for i in range(FIELDS):
        if fields[i] == 0 and left > 0:
            fields[i] = between(0, left)
            left -= fields[i]
    return fitted(fields)


def fitted(fields: list[int]) -> list[int]:
    """Scale to exactly 120 soldiers; what rounding leaves over goes to a random field."""
    whole = sum(fields)
    fields = [SOLDIERS * number // whole for number in fields]
    fields[between(0, FIELDS - 1)] += SOLDIERS - sum(fields)
    return fields


def between(low: int, high: int) -> int:
    """A uniform integer from low to high, both included."""
    return low + int(random() * (high - low + 1))


if __name__ == "__main__":
    print("opening move:", row_strategy([]))
    print("after one round:", row_strategy([((20, 20, 20, 20, 20, 20), (60, 60, 0, 0, 0, 0))]))
