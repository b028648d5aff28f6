"""Times your heuristic against the baseline's, as the evaluation does: python3 practice.py [instances of each kind].

The instances are made here, anew each time, of the same kinds as the hidden ones.
"""

import random
import sys
import time

import baseline  # type: ignore[import-not-found]
import heuristic  # type: ignore[import-not-found]
from solver import Heuristic, Search  # type: ignore[import-not-found]

KINDS = ((20, 3.0), (30, 4.26), (40, 4.26), (50, 4.26))  #: variables, clauses a variable


def instance(variables: int, ratio: float) -> list[tuple[int, ...]]:
    """Clauses of three different variables, each negated with probability one half."""
    names = range(1, variables + 1)
    return [
        tuple(random.choice((1, -1)) * one for one in random.sample(names, 3)) for _ in range(round(ratio * variables))
    ]


def measured(function: Heuristic, variables: int, formulas: list[list[tuple[int, ...]]]) -> tuple[float, int, int]:
    """Seconds, decisions and satisfiable formulas."""
    start, decisions, satisfiable = time.perf_counter(), 0, 0
    for clauses in formulas:
        search = Search(variables, function)
        satisfiable += search.solve(clauses)
        decisions += len(search.decisions)
    return time.perf_counter() - start, decisions, satisfiable


def main(count: int) -> None:
    """Print a line for each kind of instance, and one for all."""
    print("variables  satisfiable    your s  decisions   baseline s  decisions")
    totals = [0.0, 0.0]
    for variables, ratio in KINDS:
        formulas = [instance(variables, ratio) for _ in range(count)]
        seconds, decisions, satisfiable = measured(heuristic.heuristic_fn, variables, formulas)
        theirs, their_decisions, _ = measured(baseline.heuristic_fn, variables, formulas)
        share = f"{satisfiable}/{count}"
        print(f"{variables:9}  {share:>11}  {seconds:8.3f}  {decisions:9}   {theirs:10.3f}  {their_decisions:9}")
        totals = [totals[0] + seconds, totals[1] + theirs]
    print(f"your time is {totals[0] / totals[1]:.3f} of the baseline's")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
