"""Colonel Blotto: its rules, its opponent, and known scores at full size through the real grading."""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

import pytest

from mlgym_core.task.task import Task


@pytest.fixture(scope="module")
def task(games: dict[str, Task]) -> Task:
    return games["blotto"]


def literal_opponent(rng: random.Random) -> list[int]:
    """Written down from the rules, sharing nothing with the package."""
    draws = [rng.randint(0, 120) for _ in range(6)]
    while sum(draws) == 0:
        draws = [rng.randint(0, 120) for _ in range(6)]
    fields = [int(120 * draw / sum(draws)) for draw in draws]
    fields[rng.randrange(6)] += 120 - sum(fields)
    return fields


def literal_payoff(row: Any, column: Any) -> int:
    won = len([i for i in range(6) if row[i] > column[i]])
    lost = len([i for i in range(6) if row[i] < column[i]])
    return 1 if won > lost else -1 if won < lost else 0


def moves_of(data: bytes) -> list[tuple[int, ...]]:
    return [tuple(data[at : at + 6]) for at in range(0, len(data), 6)]


def test_the_opponent_places_all_its_soldiers(task: Task, load_file: Any, stream: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").Blotto()
    moves = moves_of(opponent.respond([b""] * 20_000, stream(4)))
    rng = random.Random(3)
    literal = [literal_opponent(rng) for _ in range(20_000)]
    assert all(sum(move) == 120 for move in moves)
    for field in range(6):
        assert sum(move[field] for move in moves) / 20_000 == pytest.approx(20, abs=0.4)
    for quantity in (max, min, lambda move: move.count(0), lambda move: move[0] ** 2 / 100):
        means = [sum(map(quantity, sample)) / 20_000 for sample in (moves, literal)]
        assert means[0] == pytest.approx(means[1], abs=0.25)
    assert len(set(moves)) > 19_000


def test_an_opponent_that_draws_nothing_puts_everything_on_one_field(task: Task, load_file: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").Blotto()

    class Zeros:
        def words(self, purpose: str, count: int) -> list[int]:
            return [0] * count

    assert moves_of(opponent.respond([b""], Zeros())) == [(120, 0, 0, 0, 0, 0)]


def test_payoffs(task: Task, load_file: Any) -> None:
    opponent = load_file(task.folder / "private" / "opponent.py").Blotto()
    rng = random.Random(5)
    rows, columns = ([literal_opponent(rng) for _ in range(2_000)] for _ in range(2))
    packed = [bytes(itertools.chain.from_iterable(moves)) for moves in (rows, columns)]
    assert opponent.payoffs(*packed) == [literal_payoff(r, c) for r, c in zip(rows, columns, strict=True)]
    assert opponent.payoffs(packed[0], packed[0]) == [0] * 2_000


def test_the_baseline_always_places_exactly_120(task: Task, load_file: Any) -> None:
    strategy = load_file(task.folder / "public" / "strategy.py")
    moves = [strategy.row_strategy([]) for _ in range(20_000)]
    assert all(len(move) == 6 and min(move) >= 0 and sum(move) == 120 for move in moves)
    assert {type(number) for move in moves for number in move} == {int}


@pytest.mark.parametrize(
    ("strategy", "expected", "within"),
    [
        ("return (0, 0, 30, 30, 30, 30)", 0.247, 0.02),
        ("return [20] * 6", None, 0.025),
        ("return [history[-1][1][i] for i in (1, 2, 3, 4, 5, 0)] if history else [120, 0, 0, 0, 0, 0]", None, 0.025),
        (None, -0.2462, 0.025),
    ],
)
def test_known_scores_at_full_size(
    task: Task, grade_strategy: Any, strategy: str | None, expected: float | None, within: float
) -> None:
    text = None if strategy is None else f"def row_strategy(history):\n    {strategy}\n"
    grade = grade_strategy(task, text)
    assert grade.outcome == "scored", grade.message
    assert 0 < grade.standard_error["Score"] < 0.006
    assert grade.metrics["Score"] == pytest.approx(literal_score(task, text), abs=within)
    if expected is not None:
        assert grade.metrics["Score"] == pytest.approx(expected, abs=within)


def literal_score(task: Task, text: str | None, games: int = 4_000) -> float:
    namespace: dict[str, Any] = {"__name__": "strategy", "sys": sys}
    exec(text or (task.folder / "public" / "strategy.py").read_text(), namespace)
    rng, total = random.Random(7), 0
    for _ in range(games):
        history: list[tuple[Any, Any]] = []
        for _ in range(10):
            row, column = namespace["row_strategy"](list(history)), literal_opponent(rng)
            total += literal_payoff(row, column)
            history.append((tuple(row), tuple(column)))
    return total / games / 10
