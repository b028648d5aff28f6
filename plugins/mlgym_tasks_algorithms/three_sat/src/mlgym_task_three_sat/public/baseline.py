"""The heuristic that yours is measured against: any unassigned variable, True first. Not part of the submission."""

from random import choice


def heuristic_fn(
    clauses: list[tuple[int, ...]],
    assignments: dict[int, bool],
    conflict_count: dict[int, int],
    assignment_history: list[tuple[int, bool, int]],
    level: int,
) -> tuple[int, bool]:
    """See ``heuristic.py``."""
    return choice([variable for variable in conflict_count if variable not in assignments]), True
