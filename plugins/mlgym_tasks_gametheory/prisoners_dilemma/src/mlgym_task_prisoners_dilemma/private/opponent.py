"""The rules of the game and the hidden opponent: in every round one of eleven strategies, drawn uniformly.

A strategy gets the moves so far (row's, column's, row's, ... oldest first) and a random 32-bit number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlgym_tasks_gametheory.lockstep import Stream

COOPERATE, DEFECT = 0, 1
_PAYOFFS = (3.0, 0.0, 5.0, 1.0)  # by 2 * row + column


def _noisy_copier(past: bytes, word: int) -> int:
    if not past:
        return DEFECT
    chance = word / 2**32
    if chance < 1 / 3:
        return COOPERATE
    if chance < 1 / 2:
        return DEFECT
    return past[-1] if chance < 0.9 else 1 - past[-2]


def _tit_for_tat(past: bytes, word: int) -> int:
    del word
    return past[-2] if past else COOPERATE


def _always_cooperate(past: bytes, word: int) -> int:
    del past, word
    return COOPERATE


def _always_defect(past: bytes, word: int) -> int:
    del past, word
    return DEFECT


def _fair_coin(past: bytes, word: int) -> int:
    del past
    return word & 1


def _grim_trigger(past: bytes, word: int) -> int:
    del word
    return DEFECT if DEFECT in past[::2] else COOPERATE


def _pavlov(past: bytes, word: int) -> int:
    del word
    return DEFECT if past and past[-1] != past[-2] else COOPERATE


def _tit_for_two_tats(past: bytes, word: int) -> int:
    del word
    return DEFECT if len(past) >= 4 and past[-2] and past[-4] else COOPERATE


def _suspicious_tit_for_tat(past: bytes, word: int) -> int:
    del word
    return past[-2] if past else DEFECT


def _forgiving_tit_for_tat(past: bytes, word: int) -> int:
    del word
    if not past or (len(past) >= 4 and past[-2] and past[-4]):
        return COOPERATE
    return past[-2]


STRATEGIES: tuple[Callable[[bytes, int], int], ...] = (
    _noisy_copier,
    _tit_for_tat,
    _always_cooperate,
    _always_defect,
    _fair_coin,
    _grim_trigger,
    _pavlov,
    _tit_for_two_tats,
    _suspicious_tit_for_tat,
    _fair_coin,
    _forgiving_tit_for_tat,
)


class PrisonersDilemma:
    """0 cooperates, 1 defects."""

    width = 1
    highest = 1
    total = None

    def respond(self, histories: Sequence[bytes], stream: Stream) -> bytes:
        """The column player's next move in every simulation."""
        picks, words = stream.words("strategy", len(histories)), stream.words("noise", len(histories))
        kinds = len(STRATEGIES)
        return bytes(
            [STRATEGIES[pick % kinds](past, word) for past, pick, word in zip(histories, picks, words, strict=True)]
        )

    def payoffs(self, rows: bytes, columns: bytes) -> Sequence[float]:
        """The row player's payoffs."""
        return [_PAYOFFS[2 * row + column] for row, column in zip(rows, columns, strict=True)]
