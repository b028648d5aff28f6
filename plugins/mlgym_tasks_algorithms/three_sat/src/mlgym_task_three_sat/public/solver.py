"""The solver: recursive DPLL with unit propagation on residual formulas. Your heuristic chooses where it branches.

A literal is a variable's number (from 1), negative for its negation; a clause is a tuple of literals. The evaluation
runs this file as it is here: it is not part of the submission.

Davis, Logemann and Loveland, "A machine program for theorem-proving", 1962.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any

Clause = tuple[int, ...]
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
