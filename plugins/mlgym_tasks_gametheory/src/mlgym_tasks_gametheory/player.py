"""Asks ``strategy.py`` for its moves; runs in the player box, where MLGym provides ``mlgym_peer``.

This file is here to be read: it shows how your strategy is called. It is not part of the submission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import index
from struct import iter_unpack
from typing import Any

import mlgym_peer as peer
from strategy import row_strategy  # type: ignore[import-not-found]

Check = Callable[[Any], "bytes | None"]


def answer(rules: dict[str, Any], buffers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytearray]]:
    """One round: the histories of all simulations in, one move for each out."""
    past, data = rules["round"] - 1, buffers["history"].data
    check, wanted = _one_number(rules) if rules["width"] == 1 else _several_numbers(rules)
    rounds = _rounds(data, rules["width"])
    chosen = bytearray()
    for number in range(rules["simulations"]):
        given = row_strategy(list(islice(rounds, past)))
        move = check(given)
        if move is None:
            history = list(islice(_rounds(data, rules["width"]), number * past, (number + 1) * past))
            text = f"row_strategy returned {given!r:.200} for the history {history!r:.600}; return {wanted}"
            raise peer.InvalidSubmission(text)
        chosen += move
    return {}, {"moves": chosen}


def _rounds(data: memoryview, width: int) -> Iterator[tuple[Any, Any]]:
    """(row_move, column_move) of every round of every simulation, one simulation after the other."""
    moves: Iterator[Any] = iter(data) if width == 1 else iter_unpack(f"{width}B", data)
    return zip(moves, moves, strict=True)


def _one_number(rules: dict[str, Any]) -> tuple[Check, str]:
    packed = [bytes([number]) for number in range(rules["highest"] + 1)]

    def check(given: Any) -> bytes | None:
        try:
            number = index(given)
        except TypeError:
            return None
        return packed[number] if 0 <= number < len(packed) else None

    return check, f"an integer from 0 to {rules['highest']}"


def _several_numbers(rules: dict[str, Any]) -> tuple[Check, str]:
    width, total = rules["width"], rules["total"]

    def check(given: Any) -> bytes | None:
        try:
            packed = bytes(map(index, given))
        except (TypeError, ValueError):
            return None
        return packed if len(packed) == width and sum(packed) <= total else None

    return check, f"{width} integers, none negative, that add up to at most {total}"


if __name__ == "__main__":
    peer.serve(answer)
