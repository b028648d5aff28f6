"""Steps environments for submitted policies, all episodes of all checkpoints in lockstep.

Runs in the grader box, which alone has the environments and their randomness. The player gets the observations of
all running episodes, one message a frame, and answers with all actions. An episode that has ended stays ended: no
other one begins in its place, and its observations are zeros from then on.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

import hashlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from checkpoints import (
    BadCheckpointError,
    digest,
    randomised,
    read_all,
)

LOAD_SECONDS = 120.0  #: to load the submission, or one checkpoint
FRAME_SECONDS = 120.0  #: for the actions of one frame; the first one includes the compilation
LARGEST_ACTION = 1e6  #: magnitude of a continuous action; beyond it the square of a float32 is no use any more
STANDARD_ERRORS = 2.0  #: by which the return must fall with random checkpoints to count as learnt


class Keys:
    """Random keys of the environments: each is drawn by itself from the secret seed through SHAKE-128 (FIPS 202).

    Args:
        seed: the secret, in hexadecimal.
    """

    def __init__(self, seed: str) -> None:
        self._seed = bytes.fromhex(seed)

    def draw(self, purpose: str, count: int) -> Any:
        """Keys for jax, an uint32 array (count, 2); each purpose has its own."""
        data = hashlib.shake_128(self._seed + purpose.encode()).digest(8 * count)
        return np.frombuffer(data, "<u4").reshape(count, 2)

    def number(self, purpose: str) -> int:
        """A number of 64 bits."""
        return int.from_bytes(self.draw(purpose, 1).tobytes(), "little")

    def generator(self, purpose: str) -> np.random.Generator:
        """Numpy's random numbers."""
        return np.random.Generator(np.random.Philox(self.number(purpose)))


class World:
    """One gymnax environment, stepped for many episodes at once without starting any of them again.

    Args:
        name: gymnax id.
    """

    def __init__(self, name: str) -> None:
        # Graders have no GPU. The plotting that gymnax imports takes seconds, and nobody looks at it here.
        os.environ["JAX_PLATFORMS"] = "cpu"
        sys.modules.update({module: MagicMock() for module in ("matplotlib", "matplotlib.pyplot", "seaborn")})
        import gymnax
        import jax

        self._environment, self._parameters = gymnax.make(name)
        space = self._environment.action_space(self._parameters)
        self.choices = int(space.n) if hasattr(space, "n") else 0
        self.action_shape = () if self.choices else tuple(space.shape)
        self.observation_shape = tuple(self._environment.observation_space(self._parameters).shape)
        self._start = jax.jit(jax.vmap(self._environment.reset_env, (0, None)))
        self._step = jax.jit(jax.vmap(self._one, (0, 0, 0, 0)))
        self._state: Any = None
        self.ended: Any = None

    def start(self, keys: Any) -> Any:
        """Begin one episode for each key; returns the observations."""
        observations, self._state = self._start(keys, self._parameters)
        self.ended = np.zeros(len(keys), bool)
        return np.asarray(observations)

    def step(self, keys: Any, actions: Any) -> tuple[Any, Any]:
        """Step all episodes; those that have ended stay as they are.

        Returns:
            Observations and rewards, zeros where the episode had ended before.
        """
        observations, self._state, rewards, ended = self._step(keys, self._state, actions, self.ended)
        self.ended = np.asarray(ended)
        return np.asarray(observations), np.asarray(rewards, np.float64)

    def _one(self, key: Any, state: Any, action: Any, ended: Any) -> tuple[Any, Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        seen, later, reward, terminated, _ = self._environment.step_env(key, state, action, self._parameters)
        over = ended | terminated | self._environment.is_truncated(later, self._parameters)
        kept = jax.tree.map(lambda old, new: jnp.where(ended, old, new), state, later)
        return jnp.where(over, 0.0, seen), kept, jnp.where(ended, 0.0, reward), over


class Squad:
    """One player and its episodes.

    Args:
        peer: the module ``mlgym_peer``.
        checkpoints: name -> array for each.
        episodes: of each checkpoint.
        world: what is played.
        packed: whether observations are zeros and ones, eight of which are sent as one byte.
        required: whether its failure is the submission's; otherwise it is noted in ``failure`` and the others go on.
    """

    def __init__(
        self, peer: Any, checkpoints: Sequence[Any], episodes: int, world: World, *, packed: bool, required: bool
    ) -> None:
        self._peer, self._world, self._packed, self._required = peer, world, packed, required
        self._checkpoints, self._episodes = checkpoints, episodes
        self._player: Any = None
        self.count = len(checkpoints) * episodes
        self.failure = ""

    def begin(self, key: int) -> None:
        """Open the player, hand the checkpoints over and say what will be played.

        Args:
            key: of the randomness that the policy may use; nothing else follows from it.
        """
        self._attempt(lambda: self._begin(key))

    def ask(self, frame: int, observations: Any) -> None:
        """Send the observations of a frame, (count, ...)."""
        if self._packed:
            shown = np.packbits(observations.reshape(self.count, -1).astype(bool), axis=1)
        else:
            shown = np.asarray(observations, "<f4")
        self._attempt(lambda: self._player.send({"do": "act", "frame": frame}, observations=shown))

    def actions(self) -> Any:
        """The answer, checked again: the player's own checks are not to be trusted."""
        found = self._attempt(self._answer)
        if found is None:
            return np.zeros((self.count, *self._world.action_shape), np.int32 if self._world.choices else np.float32)
        return found

    def _attempt(self, do: Callable[[], Any]) -> Any:
        if self.failure:
            return None
        try:
            return do()
        except (self._peer.PlayerError, self._peer.InvalidSubmission) as error:
            if self._required:
                raise
            self.failure = str(error) or type(error).__name__
            return None

    def _begin(self, key: int) -> None:
        self._player = self._peer.open_player(LOAD_SECONDS)
        for number, arrays in enumerate(self._checkpoints):
            self._player.send({"do": "load", "checkpoint": number}, **arrays)
            self._player.receive(LOAD_SECONDS)
        rules = {
            "checkpoints": len(self._checkpoints),
            "episodes": self._episodes,
            "observation": list(self._world.observation_shape),
            "packed": self._packed,
            "choices": self._world.choices,
            "action": list(self._world.action_shape),
        }
        self._player.call({"do": "begin", "rules": rules, "key": key}, timeout=LOAD_SECONDS)

    def _answer(self) -> Any:
        answer = self._player.receive(FRAME_SECONDS).buffers.get("actions")
        dtype, shape = ("|u1" if self._world.choices else "<f4"), (self.count, *self._world.action_shape)
        if answer is None or (answer.dtype, answer.shape) != (dtype, shape):
            raise self._peer.InvalidSubmission(f"the player did not answer with {self.count} actions")
        actions = answer.numpy()
        if self._world.choices:
            if actions.max() >= self._world.choices:
                raise self._peer.InvalidSubmission(f"an action is not below {self._world.choices}")
            return actions.astype(np.int32)
        if not np.abs(actions).max() <= LARGEST_ACTION:  # also false for nan
            raise self._peer.InvalidSubmission(f"an action is not finite, or over {LARGEST_ACTION:g} in magnitude")
        return actions


def evaluate(name: str, frames: int, peer: Any, packed: bool = False) -> None:
    """Grade the submission and write the result.

    Args:
        name: gymnax id of the environment.
        frames: after which every episode is over.
        peer: the module ``mlgym_peer``.
        packed: see :class:`Squad`.
    """
    job = peer.job()
    sizes = job.parameters
    environments = sizes["dev_environments" if job.split == "dev" else "environments"]
    try:
        checkpoints = read_all(job.paths["submission"] / "checkpoints", sizes["checkpoints"])
    except BadCheckpointError as error:
        raise peer.InvalidSubmission(str(error)) from None
    keys = Keys(job.seed)
    world = World(name)
    real = Squad(peer, checkpoints, sizes["seeds"] * environments, world, packed=packed, required=True)
    draw = keys.generator("random checkpoints")
    mixed = [randomised(arrays, draw) for arrays in checkpoints]
    stand_in = Squad(peer, mixed, sizes["random_episodes"], world, packed=packed, required=False)
    returns, random_returns = play(world, (real, stand_in), keys, frames)
    details = {
        "evaluation": f"{job.split}: {len(checkpoints)} checkpoints x {sizes['seeds']} seeds x {environments} "
        f"environments, {frames} frames; validate uses {sizes['dev_environments']} environments and other seeds, "
        f"submit {sizes['environments']}",
        "checkpoint_digests": [digest(arrays)[:16] for arrays in checkpoints],
    }
    report(peer, returns.reshape(len(checkpoints), -1), None if stand_in.failure else random_returns, details)


def play(world: World, squads: Sequence[Squad], keys: Keys, frames: int) -> list[Any]:
    """Play one episode in each place of each squad.

    Returns:
        For each squad the undiscounted return of every episode.
    """
    bounds = np.cumsum([0, *(squad.count for squad in squads)])
    parts = [slice(begin, end) for begin, end in itertools.pairwise(bounds)]
    for number, squad in enumerate(squads):
        squad.begin(keys.number(f"policy {number}") % 2**32)
    observations = world.start(keys.draw("start", bounds[-1]))
    returns = np.zeros(bounds[-1])
    for frame in range(frames):
        for squad, part in zip(squads, parts, strict=True):
            squad.ask(frame, observations[part])
        actions = np.concatenate([squad.actions() for squad in squads])
        observations, rewards = world.step(keys.draw(f"frame {frame}", bounds[-1]), actions)
        returns += rewards
        if all(squad.failure or world.ended[part].all() for squad, part in zip(squads, parts, strict=True)):
            break
    return [returns[part] for part in parts]


def report(peer: Any, returns: Any, random_returns: Any, details: Mapping[str, Any]) -> None:
    """Write the result.

    Args:
        peer: the module ``mlgym_peer``.
        returns: (checkpoints, episodes).
        random_returns: with random checkpoints, or ``None`` when the policy cannot play with them.
        details: what else is to be recorded.
    """
    metrics = {"Reward Mean": returns.mean(), "Reward Std": returns.std()}
    errors = {"Reward Mean": jackknife(returns, np.mean), "Reward Std": jackknife(returns, np.std)}
    found = {**details, "checkpoint_means": returns.mean(1), "not_learned": not_learned(returns, random_returns)}
    if random_returns is not None:
        found |= {"random_checkpoints_mean": random_returns.mean()}
    peer.scored({k: float(v) for k, v in metrics.items()}, errors, found)


def jackknife(returns: Any, statistic: Callable[[Any], Any]) -> float:
    """Standard error of a statistic over checkpoints: each is left out once (Efron and Stein 1981)."""
    count = len(returns)
    if count < 2:
        return 0.0
    without = np.array([statistic(np.delete(returns, one, 0)) for one in range(count)])
    return float(np.sqrt((count - 1) * without.var()))


def not_learned(returns: Any, random_returns: Any) -> bool | None:
    """Whether the return is no lower with random checkpoints, by more than chance; ``None`` when nobody knows."""
    if random_returns is None:
        return None
    error = math.sqrt(returns.var() / returns.size + random_returns.var() / random_returns.size)
    return bool(returns.mean() - random_returns.mean() <= STANDARD_ERRORS * error)
