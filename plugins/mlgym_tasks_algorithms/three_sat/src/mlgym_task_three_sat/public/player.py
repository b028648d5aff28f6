"""Runs the solver with ``heuristic.py``; runs in the player box, where MLGym provides ``mlgym_peer``.

This file is here to be read: it shows how your heuristic is called. It is not part of the submission.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from typing import Any

import mlgym_peer as peer
from solver import BadDecision, Search  # type: ignore[import-not-found]

random.seed(0)  # what a heuristic draws while it is imported is the same in every pass

import heuristic  # type: ignore[import-not-found]  # noqa: E402


def answer(header: dict[str, Any], buffers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Search each formula of a batch.

    The answer says how each search ended (1: satisfied, 0: refuted) and what the heuristic decided in it, as literals;
    each search follows from these.
    """
    random.seed(header["seed"])
    ends, lengths, decisions = array("B"), array("I"), array("b")
    for variables, clauses in formulas(buffers):
        search = Search(variables, heuristic.heuristic_fn)
        try:
            ends.append(search.solve(clauses))
        except BadDecision as error:
            where = f"after {len(search.decisions)} decisions on {variables} variables, {len(clauses)} clauses"
            raise peer.InvalidSubmission(f"{error} ({where})") from None
        lengths.append(len(search.decisions))
        decisions.extend(search.decisions)
    return {}, {"ends": ends, "lengths": lengths, "decisions": decisions}


def formulas(buffers: dict[str, Any]) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    """The number of variables and the clauses of each formula; ``clauses`` of the call has a clause in each row."""
    rows = map(tuple, buffers["clauses"].tolist())
    for variables, count in buffers["sizes"].tolist():
        yield variables, [next(rows) for _ in range(count)]


if __name__ == "__main__":
    if not callable(getattr(heuristic, "heuristic_fn", None)):
        raise peer.InvalidSubmission("heuristic.py has no function heuristic_fn; define it")
    peer.serve(answer)
