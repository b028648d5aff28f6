"""The grader's side: keys, lockstep, checks of what the player answers, statistics. No jax is needed here."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlgym_core.grading.inside import mlgym_peer as peer

SEED = "00" * 16


def test_keys_differ_by_seed_and_purpose(evaluation: ModuleType) -> None:
    drawn = [evaluation.Keys(seed).draw(purpose, 9) for seed in (SEED, "01" * 16) for purpose in ("a", "b")]
    assert len({keys.tobytes() for keys in drawn}) == 4
    assert drawn[0].shape == (9, 2)
    assert len({key.tobytes() for key in evaluation.Keys(SEED).draw("a", 5000)}) == 5000
    assert np.array_equal(evaluation.Keys(SEED).draw("a", 9), drawn[0])
    first, same, other = (evaluation.Keys(SEED).generator(purpose).random() for purpose in "aab")
    assert first == same != other


class Counter:
    """A world in which an episode ends in its own frame, and a reward is the action times the frame's number."""

    def __init__(self, lengths: list[int], choices: int = 0) -> None:
        self.lengths, self.choices = np.array(lengths), choices
        self.action_shape: tuple[int, ...] = () if choices else (1,)
        self.action_type = np.int32 if choices else np.float32
        self.observation_shape = (3,)
        self.keys: list[Any] = []

    def start(self, keys: Any) -> Any:
        self.keys.append(keys)
        self.now, self.ended = 0, np.zeros(len(keys), bool)
        return np.tile(np.arange(len(keys))[:, None], 3)

    def step(self, keys: Any, actions: Any) -> tuple[Any, Any]:
        self.keys.append(keys)
        self.now += 1
        rewards = np.where(self.ended, 0.0, actions.reshape(len(keys)) * self.now)
        self.ended = self.ended | (self.lengths <= self.now)
        return np.where(self.ended[:, None], 0.0, np.tile(np.arange(len(keys))[:, None], 3)), rewards


class Box:
    """Stands for ``mlgym_peer``: a player in this process that answers each frame by a function.

    ``said`` is what the players of a test were told and asked, in order.
    """

    InvalidSubmission, PlayerError = peer.InvalidSubmission, peer.PlayerError

    def __init__(self, answer: Any, said: list[str] | None = None) -> None:
        self.answer, self.said = answer, [] if said is None else said
        self.headers: list[Any] = []
        self.arrays: list[Any] = []
        self.limits: list[float] = []
        self.closed = False

    def open_player(self, timeout: float) -> Box:
        self.said.append("open")
        return self

    def send(self, header: Any, /, **buffers: Any) -> None:
        self.said.append(f"send {header['do']}")
        self.headers.append(header)
        self.arrays.append(buffers)

    def receive(self, timeout: float) -> Any:
        self.said.append("receive")
        self.limits.append(timeout)
        if self.headers[-1]["do"] != "act":
            return peer.Reply({}, {})
        actions = self.answer(self.arrays[-1]["observations"])
        return peer.Reply({}, {} if actions is None else {"actions": peer.as_buffer(actions)})

    def close(self) -> None:
        self.closed = True


def entrant(evaluation: ModuleType, box: Box, **options: Any) -> Any:
    """One that is open."""
    arrays = {"w": np.array([7.0])}
    found = evaluation.Entrant(box, arrays, 4, **{"packed": False, "name": "a.safetensors", **options})
    found.open()
    return found


def test_every_episode_counts_once_and_keeps_its_place(evaluation: ModuleType) -> None:
    world = Counter([1, 2, 3, 4, 1, 1, 9, 9])
    boxes = [Box(lambda seen: seen[:, :1].astype("<f4")), Box(lambda seen: np.ones((4, 1), "<f4"))]
    entrants = [entrant(evaluation, box) for box in boxes]
    returns = evaluation.play(world, entrants, evaluation.Keys(SEED), 50)
    # Observations, and so actions, are the place in the world; they are zero once an episode is over.
    assert returns[0].tolist() == [0 * 1, 1 * (1 + 2), 2 * (1 + 2 + 3), 3 * (1 + 2 + 3 + 4)]
    assert world.now == 9, "when all have ended, nothing more is played"
    assert returns[1].tolist() == [1, 1, 45, 45]
    assert [header["do"] for header in boxes[0].headers] == ["begin", *["act"] * 9]
    assert boxes[0].arrays[0]["w"].item() == 7.0
    assert boxes[0].headers[0]["key"] != boxes[1].headers[0]["key"]
    assert boxes[0].headers[0]["rules"] == boxes[1].headers[0]["rules"]
    assert len({keys.tobytes() for keys in world.keys}) == 10


def test_all_are_asked_before_any_answer_is_waited_for(evaluation: ModuleType) -> None:
    world, said = Counter([9] * 12), list[str]()
    entrants = [entrant(evaluation, Box(lambda seen: np.ones((4, 1), "<f4"), said)) for _ in range(3)]
    evaluation.play(world, entrants, evaluation.Keys(SEED), 2)
    turns = ["open", "send begin", "receive", "send act", "receive", "send act", "receive"]
    assert said == [turn for turn in turns for _ in range(3)]


def test_frames_are_a_limit(evaluation: ModuleType) -> None:
    world = Counter([99] * 4)
    box = Box(lambda seen: np.ones((4, 1), "<f4"))
    (returns,) = evaluation.play(world, [entrant(evaluation, box)], evaluation.Keys(SEED), 3)
    assert returns.tolist() == [6.0] * 4


@pytest.mark.parametrize(
    ("choices", "actions", "message"),
    [
        (0, None, "did not answer with 4 actions"),
        (0, np.zeros((3, 1), "<f4"), "did not answer"),
        (0, np.zeros(4, "<f4"), "did not answer"),
        (0, np.zeros((4, 1), "<f8"), "did not answer"),
        (0, np.zeros((4, 1), "<i4"), "did not answer"),
        (0, np.array([[0], [0], [0], [np.nan]], "<f4"), "not finite"),
        (0, np.array([[0], [0], [0], [-np.inf]], "<f4"), "not finite"),
        (0, np.array([[0], [0], [0], [2e6]], "<f4"), "over 1e.06"),
        (3, np.array([0, 1, 2, 3], "|u1"), "not below 3"),
        (3, np.array([0, 1, 2, 255], "|u1"), "not below 3"),
        (3, np.zeros(4, "<i4"), "did not answer"),
        (3, np.zeros((4, 1), "|u1"), "did not answer"),
    ],
)
def test_the_grader_believes_no_answer(evaluation: ModuleType, choices: int, actions: Any, message: str) -> None:
    world = Counter([9] * 4, choices)
    with pytest.raises(peer.InvalidSubmission, match=rf"^with a\.safetensors: .*{message}"):
        evaluation.play(world, [entrant(evaluation, Box(lambda seen: actions))], evaluation.Keys(SEED), 3)


def test_zeros_and_ones_are_packed(evaluation: ModuleType) -> None:
    world = Counter([9] * 4, choices=3)
    box = Box(lambda seen: np.zeros(4, "|u1"))
    one = entrant(evaluation, box, packed=True)
    one.begin(world, 0)
    shown = np.random.default_rng(0).random((4, 5, 5, 2)) < 0.5
    one.ask(7, shown.astype(float))
    sent = box.arrays[-1]["observations"]
    assert sent.nbytes == 4 * 7
    assert np.array_equal(np.unpackbits(sent, axis=1, count=50).reshape(shown.shape), shown)


def test_the_random_checkpoint_may_fail_and_the_others_go_on(evaluation: ModuleType) -> None:
    def fail(seen: Any) -> Any:
        raise peer.PlayerError("raised", "it divided by zero")

    for answer in (fail, lambda seen: np.full((4, 1), np.nan, "<f4")):
        world = Counter([9] * 4 + [2] * 4)
        fine, failing = Box(lambda seen: np.ones((4, 1), "<f4")), Box(answer)
        entrants = [entrant(evaluation, failing, name=""), entrant(evaluation, fine)]
        returns = evaluation.play(world, entrants, evaluation.Keys(SEED), 9)
        assert returns[1].tolist() == [3.0] * 4
        assert world.now == 2
        assert entrants[0].failure
        assert failing.closed, "it takes no more of the machine"
        assert not entrants[1].failure


def test_the_random_checkpoint_waits_no_longer_than_it_may(
    evaluation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def take(seconds: float) -> Any:
        def answer(seen: Any) -> Any:
            now[0] += seconds
            return np.zeros((4, 1), "<f4")

        return answer

    # The others take 1 s, it another 4 s each frame: 5 s are allowed, and 60 s beyond the others in all.
    world, (fine, slow) = Counter([99] * 8), (Box(take(1)), Box(take(4)))
    entrants = [entrant(evaluation, slow, name=""), entrant(evaluation, fine)]
    evaluation.play(world, entrants, evaluation.Keys(SEED), 17)
    assert set(fine.limits[1:]) == {evaluation.FRAME_SECONDS}
    assert slow.limits[1:] == [4.0] * 15 + [evaluation.LEAST_WAIT] * 2
    # Three times as long as others that take 10 s.
    world, (fine, slow) = Counter([99] * 8), (Box(take(10)), Box(take(0)))
    entrants = [entrant(evaluation, slow, name=""), entrant(evaluation, fine)]
    evaluation.play(world, entrants, evaluation.Keys(SEED), 2)
    assert slow.limits[1:] == [20.0, 20.0]


def test_standard_errors_are_those_of_checkpoints(evaluation: ModuleType) -> None:
    returns = np.random.default_rng(0).normal(size=(5, 40)) + np.arange(5)[:, None]
    means = returns.mean(1)
    assert evaluation.jackknife(returns, np.mean) == pytest.approx(means.std(ddof=1) / 5**0.5)
    assert evaluation.jackknife(returns, np.std) > 0
    assert evaluation.jackknife(returns[:1], np.mean) == 0.0


@pytest.mark.parametrize(
    ("real", "randomly", "flagged"),
    [([10.0, 12.0] * 50, [0.0, 2.0] * 50, False), ([1.0, 1.2] * 50, [1.0, 1.2] * 50, True),
     ([0.0, 2.0] * 50, [5.0] * 20, True), ([0.0, 2.0] * 2, [0.0, 1.5] * 2, True), ([0.0] * 9, [-1.0] * 9, False),
     ([3.0] * 9, [3.0] * 9, True), ([3.0] * 9, None, None)],
)  # fmt: skip
def test_a_policy_that_needs_no_checkpoint_is_flagged(
    evaluation: ModuleType, real: list[float], randomly: list[float] | None, flagged: bool | None
) -> None:
    given = None if randomly is None else np.array(randomly)
    assert evaluation.not_learned(np.array(real), given) is flagged
    found: list[Any] = []
    box = SimpleNamespace(scored=lambda *result: found.extend(result))
    # Only the checkpoint from which the random one was made is compared with it.
    returns = np.array([np.add(real, 1000), real, np.subtract(real, 1000)])
    evaluation.report(box, returns, 1, given, {"about": "a test"})
    metrics, errors, details = found
    assert metrics == {"Reward Mean": returns.mean(), "Reward Std": returns.std()}
    assert errors.keys() == metrics.keys()
    assert details["not_learned"] is flagged
    assert details["about"] == "a test"
    assert ("random_checkpoint_mean" in details) == (randomly is not None)
