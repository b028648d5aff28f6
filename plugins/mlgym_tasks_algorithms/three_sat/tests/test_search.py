"""The solver against brute force, and what a replay accepts and refuses."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PACKAGE = Path(__file__).parents[1] / "src" / "mlgym_task_three_sat"
steady = settings(deadline=None, derandomize=True)
MOST = 6
literals = st.integers(1, MOST).flatmap(lambda variable: st.sampled_from((variable, -variable)))
clauses = st.lists(literals, min_size=3, max_size=3, unique_by=abs).map(tuple)
formulas = st.lists(clauses, max_size=40)


def models(formula: Any, variables: int = MOST) -> list[tuple[bool, ...]]:
    values = product((False, True), repeat=variables)
    return [one for one in values if all(any(one[abs(x) - 1] == (x > 0) for x in clause) for clause in formula)]


def random_heuristic(seed: int) -> Any:
    rng = random.Random(seed)

    def heuristic(clauses: Any, assignments: Any, conflict_count: Any, history: Any, level: int) -> tuple[int, bool]:
        return rng.choice([one for one in conflict_count if one not in assignments]), rng.random() < 0.5

    return heuristic


def searched(parts: SimpleNamespace, formula: Any, seed: int) -> Any:
    search = parts.solver.Search(MOST, random_heuristic(seed))
    return search.solve(formula), search


def proved(parts: SimpleNamespace, formula: Any, end: int, decisions: list[int]) -> bool:
    instance = parts.instances.Instance(MOST, tuple(formula))
    try:
        parts.pristine.replay([instance], [end], [len(decisions)], decisions, float("inf"))
    except parts.pristine.Unproved:
        return False
    return True


@steady
@given(formula=formulas, seed=st.integers(0, 9))
def test_the_search_agrees_with_brute_force(parts: SimpleNamespace, formula: Any, seed: int) -> None:
    found, search = searched(parts, formula, seed)
    assert found == bool(models(formula))
    if found:
        model = [search.assignments.get(one, False) for one in range(1, MOST + 1)]
        assert tuple(model) in models(formula)
    else:
        assert (search.assignments, search.history) == ({}, [])


@steady
@given(formula=formulas, seed=st.integers(0, 9))
def test_what_a_heuristic_is_told(parts: SimpleNamespace, formula: Any, seed: int) -> None:
    choose, conflicts = random_heuristic(seed), [0]

    def heuristic(left: Any, assignments: Any, conflict_count: Any, history: Any, level: int) -> Any:
        assert {variable: value for variable, value, _ in history} == assignments
        assert sorted(conflict_count) == list(range(1, MOST + 1))
        assert sum(conflict_count.values()) >= conflicts[-1]
        conflicts.append(sum(conflict_count.values()))
        assert len({at for _, _, at in history} - {0}) == level
        satisfied = [clause for clause in formula if any(assignments.get(abs(x)) == (x > 0) for x in clause)]
        open_ones = [
            tuple(x for x in clause if abs(x) not in assignments) for clause in formula if clause not in satisfied
        ]
        assert left == open_ones
        assert {len(clause) for clause in left} <= {2, 3}
        return choose(left, assignments, conflict_count, history, level)

    parts.solver.Search(MOST, heuristic).solve(formula)


@steady
@given(formula=formulas, seed=st.integers(0, 9))
def test_an_honest_log_is_proved_and_its_opposite_is_not(parts: SimpleNamespace, formula: Any, seed: int) -> None:
    found, search = searched(parts, formula, seed)
    assert proved(parts, formula, found, search.decisions)
    assert not proved(parts, formula, not found, search.decisions)


@steady
@given(formula=formulas, end=st.integers(0, 1), decisions=st.lists(st.integers(-128, 127), max_size=20))
def test_no_log_proves_what_is_not_so(parts: SimpleNamespace, formula: Any, end: int, decisions: list[int]) -> None:
    assert not proved(parts, formula, end, decisions) or end == bool(models(formula))


@steady
@given(formula=st.lists(clauses, min_size=8, max_size=40), seed=st.integers(0, 9), data=st.data())
def test_a_log_that_was_tampered_with_is_refused(parts: SimpleNamespace, formula: Any, seed: int, data: Any) -> None:
    found, search = searched(parts, formula, seed)
    log = search.decisions
    assert not proved(parts, formula, found, [*log, data.draw(literals)])
    if not log:
        return
    at = data.draw(st.integers(0, len(log) - 1))
    assert not proved(parts, formula, found, log[:at])
    assert not proved(parts, formula, found, [log[0], *log])
    for stranger in (0, MOST + 1, -MOST - 1, -128):
        assert not proved(parts, formula, found, [*log[:at], stranger, *log[at + 1 :]])
    assert not proved(parts, formula, not found, [*log[:at], data.draw(literals), *log[at + 1 :]])


def test_a_replay_ends_at_its_deadline(parts: SimpleNamespace) -> None:
    instance = parts.instances.Instance(3, ((1, 2, 3),))
    with pytest.raises(parts.pristine.TooLong):
        parts.pristine.replay([instance], [1], [1], [1], 0.0)


def test_the_graders_solver_is_the_agents() -> None:
    """Line for line: the grader sees no public file, so it has the solver once more."""
    public, private = ((PACKAGE / name).read_text() for name in ("public/solver.py", "private/pristine.py"))
    core = public[public.index("class BadDecision") :]
    assert core.strip() in private


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "returned None; return"),
        (3, "returned 3; return"),
        ((1,), "returned (1,); return"),
        ((1, True, 0), "returned (1, True, 0); return"),
        ((1, None), "returned (1, None); return"),
        ((1.0, True), "returned (1.0, True); return"),
        (("1", True), "returned ('1', True); return"),
        ((0, True), "returned (0, True); return"),
        ((7, True), "returned (7, True); return"),
        ((-1, True), "returned (-1, True); return"),
        ((1, 2), "returned (1, 2); return"),
        ((6, False), "returned (6, False), but 6 is assigned already; return"),
    ],
)
def test_a_bad_decision_is_named(parts: SimpleNamespace, returned: Any, told: str) -> None:
    def heuristic(clauses: Any, assignments: Any, *_: Any) -> Any:
        return returned if assignments else (6, True)

    with pytest.raises(parts.solver.BadDecision) as caught:
        parts.solver.Search(6, heuristic).solve([(1, 2, 3), (-1, 4, 5), (1, -2, -4)])
    assert told in str(caught.value)
    assert "(variable, value) with an unassigned variable from 1 to 6 and True or False" in str(caught.value)


@pytest.mark.parametrize("value", [True, 1, False, 0])
def test_what_counts_as_a_decision(parts: SimpleNamespace, value: Any) -> None:
    search = parts.solver.Search(3, lambda *_: (2, value))
    assert search.solve([(1, 2 if value else -2, 3)])
    assert search.decisions == [2 if value else -2]


def test_the_log_is_all_that_the_search_depends_on(parts: SimpleNamespace) -> None:
    formula = [(1, 2, 3), (1, 2, -3), (1, -2, 3), (1, -2, -3), (-1, 2, 3), (-1, 2, -3), (-1, -2, 3), (-1, -2, -3)]
    found, search = searched(parts, formula, 0)
    assert not found
    assert len(search.decisions) >= 3
    assert proved(parts, [clause[::-1] for clause in formula[::-1]], 0, search.decisions)
