"""The prisoner's dilemma: its rules, its eleven opponents, and known scores at full size through the real grading."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from mlgym_core.task.task import Task

History = list[tuple[int, int]]


@pytest.fixture(scope="module")
def task(games: dict[str, Task]) -> Task:
    return games["prisoners_dilemma"]


def literal_moves(history: History) -> list[float]:
    """Probability of defecting, for each of the eleven strategies in the order of the task's facts."""
    if not history:
        return [1, 0, 0, 0.0 + 1, 0.5, 0, 0, 0, 1, 0.5, 0]
    rows = [row for row, _ in history]
    row, column = history[-1]
    two = len(rows) > 1 and rows[-1] == 1 and rows[-2] == 1
    return [
        1 / 6 + 0.4 * (column == 1) + 0.1 * (row == 0),
        1.0 if row == 1 else 0.0,
        0.0,
        1.0,
        0.5,
        1.0 if 1 in rows else 0.0,
        0.0 if row == column else 1.0,
        1.0 if two else 0.0,
        1.0 if row == 1 else 0.0,
        0.5,
        0.0 if two else (1.0 if row == 1 else 0.0),
    ]


def literal_game(row_strategy: Callable[[History], int], rng: random.Random) -> float:
    """One game written down from the rules, sharing nothing with the package."""
    history: History = []
    total = 0
    for _ in range(10):
        row = row_strategy(list(history))
        column = 1 if rng.random() < rng.choice(literal_moves(history)) else 0
        total += {(0, 0): 3, (0, 1): 0, (1, 0): 5, (1, 1): 1}[row, column]
        history.append((row, column))
    return total / 10


def test_every_strategy_plays_as_described(task: Task, load_file: Any, stream: Any) -> None:
    strategies = load_file(task.folder / "private" / "opponent.py").STRATEGIES
    words = stream(1).words("test", 4_000)
    moves = list(itertools.product((0, 1), repeat=2))
    histories = [list(h) for length in range(4) for h in itertools.product(moves, repeat=length)]
    assert len(strategies) == 11
    for history in histories:
        past = bytes(itertools.chain.from_iterable(history))
        for play, expected in zip(strategies, literal_moves(history), strict=True):
            share = sum(play(past, word) for word in words) / len(words)
            exact = expected in (0, 1)
            assert share == expected if exact else abs(share - expected) < 0.04, (play.__name__, history)


def test_each_strategy_is_drawn_equally_often(task: Task, load_file: Any, stream: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").PrisonersDilemma()
    for history in ([], [(1, 0), (1, 1)], [(0, 1)]):
        past = bytes(itertools.chain.from_iterable(history))
        share = sum(opponent.respond([past] * 20_000, stream(2))) / 20_000
        assert abs(share - sum(literal_moves(history)) / 11) < 0.02


def test_payoffs(task: Task, load_file: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").PrisonersDilemma()
    assert opponent.payoffs(b"\0\0\1\1", b"\0\1\0\1") == [3, 0, 5, 1]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("return 1", 2.626), ("return history[-1][1] if history else 0", None), (None, 2.3766)],
)
def test_known_scores_at_full_size(
    task: Task, grade_strategy: Any, strategy: str | None, expected: float | None
) -> None:
    text = None if strategy is None else f"def row_strategy(history):\n    {strategy}\n"
    grade = grade_strategy(task, text)
    assert grade.outcome == "scored", grade.message
    assert 0 < grade.standard_error["Score"] < 0.008
    rng = random.Random(7)
    namespace: dict[str, Any] = {"__name__": "strategy"}
    exec(text or (task.folder / "public" / "strategy.py").read_text(), namespace)
    recomputed = sum(literal_game(namespace["row_strategy"], rng) for _ in range(10_000)) / 10_000
    assert grade.metrics["Score"] == pytest.approx(recomputed, abs=0.03)
    if expected is not None:
        assert grade.metrics["Score"] == pytest.approx(expected, abs=0.025)
