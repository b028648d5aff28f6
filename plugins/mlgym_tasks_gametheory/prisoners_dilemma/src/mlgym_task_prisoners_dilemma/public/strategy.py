"""Your strategy for the prisoner's dilemma; the function ``row_strategy`` is what is scored.

This starter answers in kind, though not always.
Run ``python3 strategy.py`` to see that it works.
"""

import random


def row_strategy(history: list[tuple[int, int]]) -> int:
    """Choose the row player's next move.

    Args:
        history: the rounds so far, oldest first, as (row_move, column_move) tuples; you are the row player.

    Returns:
        0 to cooperate or 1 to defect.
    """
    chance = random.random()
    if not history:
        return 0 if chance < 0.5 else 1
    own_last, partner_last = history[-1]
    if partner_last == 1:
        if chance < 0.75:
            return 1
        return own_last if chance < 0.9 else 0
    if chance < 0.6:
        return 0
    return own_last if chance < 0.9 else 1


if __name__ == "__main__":
    print("opening move:", row_strategy([]))
    print("after one round:", row_strategy([(0, 1)]))
