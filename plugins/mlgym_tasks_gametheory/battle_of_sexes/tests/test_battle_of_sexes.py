"""The battle of the sexes: its rules, its opponent, and known scores at full size through the real grading."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mlgym_core.task.task import Task


@pytest.fixture(scope="module")
def task(games: dict[str, Task]) -> Task:
    return games["battle_of_sexes"]


def literal_game(row_strategy: Callable[[list[tuple[int, int]]], int], rng: random.Random) -> float:
    """One game written down from the rules, sharing nothing with the package."""
    history: list[tuple[int, int]] = []
    total = 0
    for number in range(10):
        row = row_strategy(list(history))
        if number == 0:
            column = 1
        elif rng.random() < 0.8:
            column = history[0][0]
        else:
            column = 1 if history[0][0] == 0 else 0
        if row == column == 0:
            total += 2
        elif row == column == 1:
            total += 1
        history.append((row, column))
    return total / 10


def test_the_opponent_remembers_the_first_choice(task: Task, load_file: Any, stream: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").BattleOfSexes()
    assert opponent.respond([b""] * 5, stream(1)) == b"\1" * 5
    for first in (0, 1):
        moves = opponent.respond([bytes([first, 1, 1 - first, 0])] * 20_000, stream(3))
        assert abs(moves.count(first) / 20_000 - 0.8) < 0.015


def test_payoffs(task: Task, load_file: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").BattleOfSexes()
    assert opponent.payoffs(b"\0\0\1\1", b"\0\1\0\1") == [2, 0, 0, 1]


@pytest.mark.parametrize(
    ("strategy", "expected", "within"),
    [
        ("return 0", 1.44, 0.01),
        ("return 1", 0.82, 0.01),
        ("return len(history) % 2", None, 0.02),
        (None, 1.0205, 0.025),
    ],
)
def test_known_scores_at_full_size(
    task: Task, grade_strategy: Any, load_file: Any, strategy: str | None, expected: float | None, within: float
) -> None:
    text = None if strategy is None else f"def row_strategy(history):\n    {strategy}\n"
    grade = grade_strategy(task, text)
    assert grade.outcome == "scored", grade.message
    assert 0 < grade.standard_error["Score"] < 0.006
    rng = random.Random(7)
    namespace: dict[str, Any] = {"__name__": "strategy"}
    exec(text or (task.folder / "public" / "strategy.py").read_text(), namespace)
    recomputed = sum(literal_game(namespace["row_strategy"], rng) for _ in range(10_000)) / 10_000
    assert grade.metrics["Score"] == pytest.approx(recomputed, abs=within)
    if expected is not None:
        assert grade.metrics["Score"] == pytest.approx(expected, abs=within)
