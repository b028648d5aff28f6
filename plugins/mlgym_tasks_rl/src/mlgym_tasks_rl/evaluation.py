"""Steps environments for submitted policies, all episodes of all checkpoints in lockstep.

Runs in the grader box, which alone has the environments and their randomness. Each checkpoint has a player of its own,
and one more plays with a random checkpoint. A player gets the observations of all its episodes, one message a frame,
and answers with all actions; all are asked before any answer is waited for, so that they think at the same time. An
episode that has ended stays ended: no other one begins in its place, and its observations are zeros from then on.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from checkpoints import (
    BadCheckpointError,
    closest,
    digest,
    randomised,
    read_all,
)

LOAD_SECONDS = 120.0  #: to import the policy, or to load a checkpoint
FRAME_SECONDS = 120.0  #: for the actions of one frame; the first one includes the compilation
SLOW_SECONDS = 5.0  #: for an answer with the random checkpoint, or three times what the slowest of the others takes
SPARE_SECONDS = 60.0  #: to wait for the random checkpoint in all, after the others have answered
LEAST_WAIT = 0.05  #: seconds for an answer when these are used up
LARGEST_ACTION = 1e6  #: magnitude of a continuous action; beyond it the square of a float32 is no use any more
STANDARD_ERRORS = 2.0  #: by which the return must fall with the random checkpoint to count as learnt


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
        self.action_type = np.int32 if self.choices else np.float32
        self.observation_shape = tuple(self._environment.observation_space(self._parameters).shape)
        self._start = jax.jit(jax.vmap(self._environment.reset_env, (0, None)))
        self._step = jax.jit(jax.vmap(self._one, (0, 0, 0, 0)))
        self._state: Any = None
        self.ended: Any = None

    def warmed(self, count: int) -> World:
        """The world itself, compiled for a number of episodes."""
        self.start(np.zeros((count, 2), np.uint32))
        self.step(np.zeros((count, 2), np.uint32), np.zeros((count, *self.action_shape), self.action_type))
        return self

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


class Entrant:
    """One checkpoint's player and its episodes.

    Args:
        peer: the module ``mlgym_peer``.
        arrays: the checkpoint, name -> array.
        episodes: how many.
        packed: whether observations are zeros and ones, eight of which are sent as one byte.
        name: of the checkpoint, for what is said when the player fails; without one a failure is noted in ``failure``
            and the others go on.
    """

    def __init__(self, peer: Any, arrays: Mapping[str, Any], episodes: int, *, packed: bool, name: str = "") -> None:
        self._peer, self._packed, self._name = peer, packed, name
        self._arrays, self.episodes = arrays, episodes
        self._player: Any = None
        self._world: Any = None
        self._patience = SPARE_SECONDS
        self.required, self.failure = bool(name), ""

    def open(self) -> None:
        """Open the player and wait until it has imported the policy."""
        self._player = self._attempt(lambda: self._peer.open_player(LOAD_SECONDS))

    def begin(self, world: World, key: int) -> None:
        """Hand the checkpoint over and say what will be played; :meth:`wait` tells when that is done.

        Args:
            world: what is played.
            key: of the randomness that the policy may use; nothing else follows from it.
        """
        self._world = world
        rules = {
            "episodes": self.episodes,
            "observation": list(world.observation_shape),
            "packed": self._packed,
            "choices": world.choices,
            "action": list(world.action_shape),
        }
        self._attempt(lambda: self._player.send({"do": "begin", "rules": rules, "key": key}, **self._arrays))

    def wait(self, asked: float) -> None:
        """Wait until the checkpoint is loaded."""
        self._attempt(lambda: self._receive(LOAD_SECONDS, asked))

    def ask(self, frame: int, observations: Any) -> None:
        """Send the observations of a frame, (episodes, ...)."""
        if self._packed:
            shown = np.packbits(observations.reshape(self.episodes, -1).astype(bool), axis=1)
        else:
            shown = np.asarray(observations, "<f4")
        self._attempt(lambda: self._player.send({"do": "act", "frame": frame}, observations=shown))

    def actions(self, asked: float) -> Any:
        """The answer, checked again: the player's own checks are not to be trusted."""
        found = self._attempt(lambda: self._checked(self._receive(FRAME_SECONDS, asked)))
        if found is None:
            return np.zeros((self.episodes, *self._world.action_shape), self._world.action_type)
        return found

    def _attempt(self, do: Callable[[], Any]) -> Any:
        if self.failure:
            return None
        try:
            return do()
        except (self._peer.PlayerError, self._peer.InvalidSubmission) as error:
            if self.required:
                raise self._peer.InvalidSubmission(f"with {self._name}: {error}") from None
            self.failure = str(error) or type(error).__name__
            if self._player is not None:
                self._player.close()
            return None

    def _receive(self, limit: float, asked: float) -> Any:
        """An answer; one that is not required must come soon after those that are, which have been received before.

        Args:
            limit: seconds for one that is required.
            asked: when all were asked, by :func:`time.monotonic`.
        """
        if self.required:
            return self._player.receive(limit)
        now = time.monotonic()
        others = now - asked
        try:
            return self._player.receive(max(LEAST_WAIT, min(max(SLOW_SECONDS, 3 * others) - others, self._patience)))
        finally:
            self._patience -= time.monotonic() - now

    def _checked(self, answer: Any) -> Any:
        actions = answer.buffers.get("actions")
        dtype, shape = ("|u1" if self._world.choices else "<f4"), (self.episodes, *self._world.action_shape)
        if actions is None or (actions.dtype, actions.shape) != (dtype, shape):
            raise self._peer.InvalidSubmission(f"the player did not answer with {self.episodes} actions")
        actions = actions.numpy()
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
        packed: see :class:`Entrant`.
    """
    job = peer.job()
    sizes = job.parameters
    environments = sizes["dev_environments" if job.split == "dev" else "environments"]
    try:
        checkpoints = read_all(job.paths["submission"] / "checkpoints", sizes["checkpoints"])
    except BadCheckpointError as error:
        raise peer.InvalidSubmission(str(error)) from None
    keys, episodes = Keys(job.seed), sizes["seeds"] * environments
    entrants = [
        Entrant(peer, arrays, episodes, packed=packed, name=f"checkpoints/{number}.safetensors")
        for number, arrays in enumerate(checkpoints)
    ]
    # The stand-in's place is secret too: players get their turn one after the other, which they might notice.
    draw = keys.generator("random checkpoint")
    chosen, place = int(draw.integers(len(checkpoints))), int(draw.integers(len(checkpoints) + 1))
    stand_in = Entrant(peer, randomised(checkpoints[chosen], draw), episodes, packed=packed)
    entrants.insert(place, stand_in)
    with ThreadPoolExecutor(1) as pool:  # gymnax takes as long to load as some of the players
        loading = pool.submit(lambda: World(name).warmed(episodes * len(entrants)))
        peer.prepare_players(len(entrants))
        for entrant in entrants:
            entrant.open()
    returns = play(loading.result(), entrants, keys, frames)
    details = {
        "evaluation": f"{job.split}: {len(checkpoints)} checkpoints x {sizes['seeds']} seeds x {environments} "
        f"environments, {frames} frames; validate uses {sizes['dev_environments']} environments and other seeds, "
        f"submit {sizes['environments']}",
        "checkpoint_digests": [digest(arrays)[:16] for arrays in checkpoints],
        "closest_checkpoints": closest(checkpoints),
        "random_checkpoint": f"failed: {stand_in.failure}" if stand_in.failure else f"{chosen}.safetensors, mixed",
    }
    random_returns = None if stand_in.failure else returns[place]
    report(peer, np.delete(returns, place, 0), chosen, random_returns, details)


def play(world: World, entrants: Sequence[Entrant], keys: Keys, frames: int) -> Any:
    """Play one episode in each place of each entrant; all are open and have as many episodes.

    Returns:
        The undiscounted return of every episode, (entrants, episodes).
    """
    asked = time.monotonic()
    for number, entrant in enumerate(entrants):
        entrant.begin(world, keys.number(f"policy {number}") % 2**32)
    gather(entrants, lambda one: one.wait(asked))
    shape = (len(entrants), entrants[0].episodes)
    observations = world.start(keys.draw("start", math.prod(shape)))
    returns = np.zeros(shape)
    for frame in range(frames):
        asked = time.monotonic()
        for entrant, shown in zip(entrants, observations.reshape(*shape, *world.observation_shape), strict=True):
            entrant.ask(frame, shown)
        actions = np.concatenate(gather(entrants, lambda one, asked=asked: one.actions(asked)))
        observations, rewards = world.step(keys.draw(f"frame {frame}", math.prod(shape)), actions)
        returns += rewards.reshape(shape)
        ended = world.ended.reshape(shape).all(1)
        if all(one.failure or over for one, over in zip(entrants, ended, strict=True)):
            break
    return returns


def gather(entrants: Sequence[Entrant], receive: Callable[[Entrant], Any]) -> list[Any]:
    """The answers in the order of the entrants; those that are required are waited for first."""
    order = sorted(range(len(entrants)), key=lambda at: not entrants[at].required)
    found = {at: receive(entrants[at]) for at in order}
    return [found[at] for at in range(len(entrants))]


def report(peer: Any, returns: Any, chosen: int, random_returns: Any, details: Mapping[str, Any]) -> None:
    """Write the result.

    Args:
        peer: the module ``mlgym_peer``.
        returns: (checkpoints, episodes).
        chosen: the checkpoint from which the random one was made.
        random_returns: of the random one, (episodes,), or ``None`` when the policy cannot play with it.
        details: what else is to be recorded.
    """
    metrics = {"Reward Mean": returns.mean(), "Reward Std": returns.std()}
    errors = {"Reward Mean": jackknife(returns, np.mean), "Reward Std": jackknife(returns, np.std)}
    found = {**details, "checkpoint_means": returns.mean(1)}
    found["not_learned"] = not_learned(returns[chosen], random_returns)
    if random_returns is not None:
        found["random_checkpoint_mean"] = random_returns.mean()
    peer.scored({k: float(v) for k, v in metrics.items()}, errors, found)


def jackknife(returns: Any, statistic: Callable[[Any], Any]) -> float:
    """Standard error of a statistic over checkpoints: each is left out once (Efron and Stein 1981)."""
    count = len(returns)
    if count < 2:
        return 0.0
    without = np.array([statistic(np.delete(returns, one, 0)) for one in range(count)])
    return float(np.sqrt((count - 1) * without.var()))


def not_learned(returns: Any, random_returns: Any) -> bool | None:
    """Whether the return is no lower with the random checkpoint, by more than chance; ``None`` when nobody knows."""
    if random_returns is None:
        return None
    error = math.sqrt(returns.var() / returns.size + random_returns.var() / random_returns.size)
    return bool(returns.mean() - random_returns.mean() <= STANDARD_ERRORS * error)
