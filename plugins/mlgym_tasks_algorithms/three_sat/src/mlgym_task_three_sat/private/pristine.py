"""The solver as the agent has it, and what the grader does with it: the baseline, and the replay of decisions.

The first half is that of ``public/solver.py``, since a grader sees no public file; a test holds the two together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import Any

from instances import Clause, Instance, satisfies  # type: ignore[import-not-found]

Heuristic = Callable[[list[Clause], dict[int, bool], dict[int, int], list[tuple[int, bool, int]], int], Any]


class BadDecision(ValueError):  # noqa: N818 - a verdict on what a heuristic returned
    """The heuristic returned something that is not an unassigned variable and a truth value."""


class Search:
    """The search for a model of one formula.

    Args:
        variables: how many there are; they are numbered from 1.
        heuristic: chooses every decision; see ``heuristic.py``.

    Attributes:
        assignments: variable -> value, decided or propagated, in the branch that is being looked at.
        conflicts: variable -> how often a clause became false on it.
        history: (variable, value, level) of the assignments in force, oldest first.
        decisions: what the heuristic chose, as literals, in order; the whole search follows from them.
    """

    def __init__(self, variables: int, heuristic: Heuristic) -> None:
        self.variables, self.heuristic = variables, heuristic
        self.assignments: dict[int, bool] = {}
        self.conflicts = dict.fromkeys(range(1, variables + 1), 0)
        self.history: list[tuple[int, bool, int]] = []
        self.decisions: list[int] = []

    def solve(self, clauses: Iterable[Clause], level: int = 0) -> bool:
        """Look for a model, which is then in ``assignments``.

        Args:
            clauses: the formula; below the first level, what is left of it.
            level: decisions made so far on this branch.

        Returns:
            Whether there is one.

        Raises:
            BadDecision: the heuristic returned something that cannot be decided.
        """
        left = self.propagate(list(clauses), level)
        if not left:
            return left is not None
        chosen, before = self.decide(left, level), len(self.history)
        for literal in (chosen, -chosen):
            self.assign(literal, level + 1)
            if self.solve(reduced(left, literal), level + 1):
                return True
            self.undo(before)
        return False

    def propagate(self, clauses: list[Clause], level: int) -> list[Clause] | None:
        """Assign what clauses of one literal demand, until none is left.

        Returns:
            The residual formula, whose clauses all have two literals or more; None if a clause became false.
        """
        while True:
            for clause in clauses:
                if len(clause) == 1:
                    break
            else:
                return clauses
            literal = clause[0]
            if (-literal,) in clauses:
                self.conflicts[abs(literal)] += 1
                return None
            self.assign(literal, level)
            clauses = reduced(clauses, literal)

    def decide(self, clauses: list[Clause], level: int) -> int:
        """Ask the heuristic for the next literal to be tried."""
        given = self.heuristic(clauses, self.assignments, self.conflicts, self.history, level)
        literal = self.checked(given)
        self.decisions.append(literal)
        return literal

    def checked(self, given: Any) -> int:
        """What the heuristic returned, as a literal."""
        wanted = f"return (variable, value) with an unassigned variable from 1 to {self.variables} and True or False"
        try:
            variable, value = given
            number, truth = index(variable), index(value)
        except (TypeError, ValueError):
            raise BadDecision(f"heuristic_fn returned {given!r:.200}; {wanted}") from None
        if truth not in (0, 1) or not 1 <= number <= self.variables:
            raise BadDecision(f"heuristic_fn returned {given!r:.200}; {wanted}")
        if number in self.assignments:
            raise BadDecision(f"heuristic_fn returned {given!r:.200}, but {number} is assigned already; {wanted}")
        return number if truth else -number

    def assign(self, literal: int, level: int) -> None:
        """Make a literal true."""
        self.assignments[abs(literal)] = literal > 0
        self.history.append((abs(literal), literal > 0, level))

    def undo(self, length: int) -> None:
        """Take back all assignments but the first ``length``."""
        for variable, _, _ in self.history[length:]:
            del self.assignments[variable]
        del self.history[length:]


def reduced(clauses: list[Clause], literal: int) -> list[Clause]:
    """What is left of a formula when a literal is true: without the clauses it satisfies and without its negation."""
    false = -literal
    return [
        tuple([one for one in clause if one != false]) if false in clause else clause
        for clause in clauses
        if literal not in clause
    ]


class TooLong(Exception):  # noqa: N818 - an end like any other
    """A replay has reached its deadline."""


class Unproved(Exception):  # noqa: N818 - a verdict on what a player answered
    """The decisions are not those of a whole search with the end that was claimed."""


def baseline(batch: Sequence[Instance], seed: int) -> tuple[float, int]:
    """Solve a batch with the baseline heuristic: any unassigned variable, True first.

    Returns:
        Seconds and decisions.
    """

    def heuristic_fn(_clauses: Any, assignments: Any, conflict_count: Any, _history: Any, _level: int) -> Any:
        return random.choice([variable for variable in conflict_count if variable not in assignments]), True

    start, decisions = time.perf_counter(), 0
    random.seed(seed)
    for instance in batch:
        search = Search(instance.variables, heuristic_fn)
        search.solve(instance.clauses)
        decisions += len(search.decisions)
    return time.perf_counter() - start, decisions


def replay(
    batch: Sequence[Instance], ends: Sequence[int], lengths: Sequence[int], decisions: Sequence[int], deadline: float
) -> float:
    """Search a batch by the decisions of a log, which proves them or not.

    Args:
        batch: instances in the order of the log.
        ends: what is claimed: 1 for satisfied, 0 for refuted.
        lengths: decisions of each instance.
        decisions: all of them, as literals.
        deadline: a value of :func:`time.perf_counter`.

    Returns:
        Seconds.

    Raises:
        Unproved, TooLong: the log is not accepted.
    """
    start = time.perf_counter()
    log = iter(decisions)
    for instance, claimed, length in zip(batch, ends, lengths, strict=True):
        search = Search(instance.variables, _following(log, length, deadline))
        try:
            found = search.solve(instance.clauses)
        except BadDecision:
            raise Unproved(_misfit(instance, claimed, length, "not a whole search")) from None
        if found != claimed or len(search.decisions) != length:
            end = "not a whole search" if found == claimed else "satisfied" if found else "unsatisfiable"
            raise Unproved(_misfit(instance, claimed, length, end))
        if found and not satisfies(search.assignments, instance):
            raise RuntimeError(f"the solver found a model that is none, for {instance}")
    return time.perf_counter() - start


def _following(log: Iterator[int], length: int, deadline: float) -> Heuristic:
    """A heuristic that decides what the next ``length`` entries of a log say."""
    left = length

    def heuristic_fn(_clauses: Any, _assignments: Any, _conflicts: Any, _history: Any, _level: int) -> Any:
        nonlocal left
        if not left:
            raise BadDecision("the log has no further decision")
        if time.perf_counter() > deadline:
            raise TooLong
        left -= 1
        literal = next(log)
        return abs(literal), literal > 0

    return heuristic_fn


def _misfit(instance: Instance, claimed: int, length: int, end: str) -> str:
    said = "satisfied" if claimed else "unsatisfiable"
    return (
        f"a search over {instance.variables} variables was said to end as {said} after {length} decisions, and an "
        f"untouched solver finds these decisions {end}; the heuristic must leave the solver and what it is given as "
        "they are"
    )
