"""Plays all simulations of a repeated two-player game in lockstep, one message to the player a round.

Runs in the grader box. Every random number comes from the secret grading seed through SHAKE-128 (FIPS 202), so
neither the opponent nor the order of the simulations can be predicted from what the player sees.
"""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

TIMEOUT = 300.0  #: seconds for the moves of one round


class Stream:
    """Keyed random numbers of one round.

    Args:
        seed: the secret, in hexadecimal.
        round_number: counted from 1; other rounds have other numbers.
    """

    def __init__(self, seed: str, round_number: int) -> None:
        self._key = bytes.fromhex(seed) + round_number.to_bytes(4, "big")

    def words(self, purpose: str, count: int) -> array[int]:
        """``count`` uniform 32-bit numbers; each purpose has its own."""
        words = array("I")
        words.frombytes(hashlib.shake_128(self._key + purpose.encode()).digest(4 * count))
        if sys.byteorder == "big":
            words.byteswap()
        return words

    def order(self, count: int) -> list[int]:
        """A uniform permutation of ``range(count)``."""
        high, low = self.words("order", count), self.words("order ties", count)
        return sorted(range(count), key=[(h << 32) | w for h, w in zip(high, low, strict=True)].__getitem__)


class Game(Protocol):
    """One game, seen from the grader. A move is ``width`` small numbers, one byte each.

    Attributes:
        width: numbers in a move.
        highest: largest number allowed.
        total: largest sum of a move's numbers, or None.
    """

    width: int
    highest: int
    total: int | None

    def respond(self, histories: Sequence[bytes], stream: Stream) -> bytes:
        """The opponent's next move in every simulation, in order.

        Args:
            histories: one a simulation; row's move, column's move, row's move, ... oldest first.
            stream: randomness of this round.
        """

    def payoffs(self, rows: bytes, columns: bytes) -> Sequence[float]:
        """The row player's payoff in every simulation."""


def play(game: Game, peer: Any) -> None:
    """Grade the submission and write the result.

    Args:
        game: the rules and the opponent.
        peer: the module ``mlgym_peer``.
    """
    job = peer.job()
    rounds, simulations = job.parameters["rounds"], job.parameters["simulations"]
    histories = [b""] * simulations
    totals = [0.0] * simulations
    with peer.open_player() as player:
        for number in range(1, rounds + 1):
            stream = Stream(job.seed, number)
            order = stream.order(simulations)
            shown = b"".join([histories[i] for i in order])
            player.send(_rules(game, number, simulations), history=shown)
            columns = game.respond(histories, stream)
            answer = player.receive(TIMEOUT).buffers.get("moves")
            rows = _in_place(_checked(game, answer, simulations, peer), order, game.width)
            totals = [t + p for t, p in zip(totals, game.payoffs(rows, columns), strict=True)]
            histories = _longer(histories, rows, columns, game.width)
    mean, error = statistics([total / rounds for total in totals])
    peer.scored({"Score": mean}, {"Score": error}, {"rounds": rounds, "simulations": simulations})


def statistics(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error (sample standard deviation over the root of the count)."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def _rules(game: Game, number: int, simulations: int) -> dict[str, Any]:
    return {
        "round": number,
        "simulations": simulations,
        "width": game.width,
        "highest": game.highest,
        "total": game.total,
    }


def _checked(game: Game, answer: Any, simulations: int, peer: Any) -> bytes:
    """The moves as bytes, with every rule checked again: the player's own checks are not to be trusted."""
    if answer is None or answer.dtype != "|u1" or answer.shape != (simulations * game.width,):
        raise peer.InvalidSubmission(f"the player did not answer with {simulations} moves")
    moves = bytes(answer.data)
    if max(moves) > game.highest:
        raise peer.InvalidSubmission(f"a move has a number over {game.highest}")
    if game.total is not None and max(map(sum, zip(*[iter(moves)] * game.width, strict=True))) > game.total:
        raise peer.InvalidSubmission(f"the numbers of a move add up to more than {game.total}")
    return moves


def _in_place(moves: bytes, order: Sequence[int], width: int) -> bytes:
    """Moves given in the order shown to the player, put back into the order of the simulations."""
    back = bytearray(len(moves))
    if width == 1:
        for i, move in zip(order, moves, strict=True):
            back[i] = move
    else:
        for place, i in enumerate(order):
            back[i * width : (i + 1) * width] = moves[place * width : (place + 1) * width]
    return bytes(back)


def _longer(histories: Sequence[bytes], rows: bytes, columns: bytes, width: int) -> list[bytes]:
    return [
        past + rows[at : at + width] + columns[at : at + width]
        for past, at in zip(histories, range(0, len(rows), width), strict=True)
    ]
