"""The code that the games share: keyed randomness, shuffling, statistics, and the checks on both sides."""

from __future__ import annotations

import math
import random
import statistics as reference
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.grading.inside import mlgym_peer as peer
from mlgym_tasks_gametheory import lockstep
from mlgym_tasks_gametheory.lockstep import Stream

SEED = "00" * 16


def test_random_numbers_differ_by_seed_round_and_purpose() -> None:
    drawn = [
        bytes(Stream(seed, number).words(purpose, 64))
        for seed in (SEED, "01" * 16)
        for number in (1, 2, 256)
        for purpose in ("a", "b")
    ]
    assert len(set(drawn)) == len(drawn)
    assert bytes(Stream(SEED, 1).words("a", 64)) == drawn[0]


def test_random_numbers_are_uniform() -> None:
    words = Stream(SEED, 1).words("a", 50_000)
    assert reference.fmean(words) / 2**32 == pytest.approx(0.5, abs=0.005)
    for bit in range(32):
        assert sum(word >> bit & 1 for word in words) / 50_000 == pytest.approx(0.5, abs=0.015)


@given(st.integers(1, 300), st.integers(1, 1000))
def test_the_order_is_a_permutation(count: int, number: int) -> None:
    assert sorted(Stream(SEED, number).order(count)) == list(range(count))


def test_the_order_changes_from_round_to_round() -> None:
    orders = [tuple(Stream(SEED, number).order(1000)) for number in range(1, 11)]
    assert len(set(orders)) == 10
    places = [order.index(0) for order in orders]
    assert len(set(places)) > 5


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=50))
def test_mean_and_standard_error(values: list[float]) -> None:
    mean, error = lockstep.statistics(values)
    assert mean == pytest.approx(reference.fmean(values), abs=1e-12)
    assert error == pytest.approx(reference.stdev(values) / math.sqrt(len(values)), abs=1e-9)


def test_one_simulation_has_no_standard_error() -> None:
    assert lockstep.statistics([0.5]) == (0.5, 0.0)


@given(st.integers(1, 40), st.sampled_from([1, 6]), st.randoms(use_true_random=False))
def test_moves_find_their_way_back(count: int, width: int, rng: random.Random) -> None:
    order = rng.sample(range(count), count)
    true = bytes(rng.randrange(121) for _ in range(count * width))
    shown = b"".join(true[i * width : (i + 1) * width] for i in order)
    assert lockstep._in_place(shown, order, width) == true


class Counting:
    """A game in which the column player repeats row's last move and a move is worth its number."""

    width, highest, total = 1, 9, None

    def __init__(self) -> None:
        self.seen: list[list[bytes]] = []

    def respond(self, histories: Any, stream: Stream) -> bytes:
        self.seen.append(list(histories))
        return bytes(past[-2] if past else 0 for past in histories)

    def payoffs(self, rows: bytes, columns: bytes) -> list[float]:
        return [float(row) for row in rows]


class LoopBack:
    """Stands for ``mlgym_peer``: a player in this process that answers by a function of one history."""

    InvalidSubmission = peer.InvalidSubmission

    def __init__(self, rounds: int, simulations: int, choose: Any) -> None:
        self.parameters = {"rounds": rounds, "simulations": simulations}
        self.choose, self.messages, self.result = choose, [], None

    def job(self) -> Any:
        return SimpleNamespace(seed=SEED, parameters=self.parameters)

    def open_player(self) -> LoopBack:
        return self

    def __enter__(self) -> LoopBack:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, rules: dict[str, Any], history: bytes) -> None:
        size = 2 * rules["width"] * (rules["round"] - 1)
        self.messages.append([history[i * size : (i + 1) * size] for i in range(rules["simulations"])])

    def receive(self, timeout: float) -> Any:
        return peer.Reply({}, {"moves": peer.as_buffer(bytes(map(self.choose, self.messages[-1])))})

    def scored(self, *result: Any) -> None:
        self.result = result


def test_every_simulation_keeps_its_own_history() -> None:
    draws = iter(random.Random(1).choices(range(10), k=10_000))
    box, game = LoopBack(4, 50, lambda past: next(draws) if not past else (past[0] + len(past) // 2) % 10), Counting()
    lockstep.play(game, box)
    for number, histories in enumerate(game.seen):
        assert sorted(histories) == sorted(box.messages[number])
        for past in histories:
            rows, columns = past[::2], past[1::2]
            assert list(rows) == [(rows[0] + k) % 10 for k in range(number)] if number else past == b""
            assert columns == (b"\0" + rows[:-1] if number else b"")
    assert game.seen[-1] != box.messages[-1]
    (metrics, error, details) = box.result
    assert details == {"rounds": 4, "simulations": 50}
    assert 0 < metrics["Score"] < 9
    assert error["Score"] > 0


@pytest.mark.parametrize(
    "answer", [None, b"", b"\0" * 9, b"\0" * 11, peer.buffer("<i2", [0] * 10), b"\0" * 9 + b"\x0a"]
)
def test_the_grader_believes_nothing(answer: Any) -> None:
    given_moves = None if answer is None else peer.as_buffer(answer)
    with pytest.raises(peer.InvalidSubmission):
        lockstep._checked(Counting(), given_moves, 10, peer)


def test_the_grader_adds_up_every_move() -> None:
    game: Any = SimpleNamespace(width=3, highest=9, total=9)
    assert lockstep._checked(game, peer.as_buffer(b"\x03\x03\x03\x09\0\0"), 2, peer) == b"\x03\x03\x03\x09\0\0"
    with pytest.raises(peer.InvalidSubmission, match="more than 9"):
        lockstep._checked(game, peer.as_buffer(b"\x03\x03\x03\x09\0\x01"), 2, peer)
