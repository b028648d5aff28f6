"""Your branching heuristic; the function ``heuristic_fn`` is what is scored.

This starter takes any unassigned variable and tries True first. Run ``python3 practice.py`` to time it.
"""

from random import choice


def heuristic_fn(
    clauses: list[tuple[int, ...]],
    assignments: dict[int, bool],
    conflict_count: dict[int, int],
    assignment_history: list[tuple[int, bool, int]],
    level: int,
) -> tuple[int, bool]:
    """Choose the variable to branch on, and the value to be tried first.

    Everything given is the solver's own: read it, and do not change it.

    Args:
        clauses: what is left of the formula; each clause is a tuple of two or three literals, and a literal is a
            variable's number, negative for its negation.
        assignments: variable -> value, for all variables that have one.
        conflict_count: variable -> how often a clause became false on it in this search; has all variables.
        assignment_history: (variable, value, level) of the assignments in force, oldest first.
        level: how many decisions are in force.

    Returns:
        An unassigned variable and a truth value.
    """
    return choice([variable for variable in conflict_count if variable not in assignments]), True
