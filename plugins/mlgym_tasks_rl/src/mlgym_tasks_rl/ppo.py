"""Proximal policy optimisation (Schulman et al. 2017) over gymnax environments, one seed at a time or vectorised.

Everything is a pure function of a :class:`Training`, so that ``jax.vmap`` trains several seeds in one program and a
stopped training can be taken up again. ``policy.py`` says what the network is and how actions are drawn.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import policy

Array = Any
Tree = Any


class Config(NamedTuple):
    """Hyper-parameters; ``config.toml`` holds one set for each size.

    Attributes:
        environment: gymnax id.
        total_steps: environment steps of one seed.
        seeds: policies to train, one checkpoint each.
        environments: stepped side by side.
        rollout: steps of each environment between two updates.
        epochs, minibatches: passes over a rollout, and its parts.
        learning_rate, final_learning_rate: Adam's, changed linearly from one to the other.
        discount, trace: gamma and lambda of generalised advantage estimation.
        clip: of the probability ratio and of the value's change.
        entropy, critic: weights in the loss.
        gradient_norm: gradients longer than this are shortened to it.
        layers, width: of policy and value network each.
    """

    environment: str
    total_steps: int
    seeds: int
    environments: int
    rollout: int
    epochs: int
    minibatches: int
    learning_rate: float
    final_learning_rate: float
    discount: float
    trace: float
    clip: float
    entropy: float
    critic: float
    gradient_norm: float
    layers: int
    width: int

    @property
    def updates(self) -> int:
        """Rollouts of one seed."""
        return max(1, self.total_steps // (self.environments * self.rollout))


class Training(NamedTuple):
    """The state of one seed.

    Attributes:
        weights, optimiser: of the network, and Adam's.
        states, observations: of the environments, first axis one for each.
        returns: of the running episodes.
        finished, count: sum and number of the returns of finished episodes since they were last set to 0.
        key: of jax's random numbers.
    """

    weights: Tree
    optimiser: Tree
    states: Tree
    observations: Array
    returns: Array
    finished: Array
    count: Array
    key: Array


class Frames(NamedTuple):
    """What a rollout has seen; axes: step, environment, and those of an observation or action."""

    observations: Array
    actions: Array
    log_probabilities: Array
    values: Array
    rewards: Array
    ends: Array


class Learner:
    """Trains one seed.

    Args:
        config: hyper-parameters.
        environment, parameters: as ``gymnax.make`` returns them.
    """

    def __init__(self, config: Config, environment: Any, parameters: Any) -> None:
        self.config, self.environment, self.parameters = config, environment, parameters
        self.network = policy.network(config.layers, config.width)
        turns = config.updates * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, config.final_learning_rate, turns)
        clipping = optax.clip_by_global_norm(config.gradient_norm)
        self.optimiser = optax.chain(clipping, optax.adam(rate, eps=1e-5))

    def begin(self, seed: int) -> Training:
        """Fresh weights and environments."""
        key, first, second = jax.random.split(jax.random.PRNGKey(seed), 3)
        starts = jax.random.split(first, self.config.environments)
        observations, states = jax.vmap(self.environment.reset, in_axes=(0, None))(starts, self.parameters)
        weights = self.network.init(second, observations[:1])
        zeros = jnp.zeros(self.config.environments)
        optimiser = self.optimiser.init(weights)
        return Training(weights, optimiser, states, observations, zeros, jnp.zeros(()), jnp.zeros((), int), key)

    def update(self, training: Training) -> Training:
        """One rollout, and the epochs over it."""
        training, frames = self.collect(training)
        _, last = self.network.apply(training.weights, training.observations)
        advantages = self.advantages(frames, last)
        batch = (frames, advantages, advantages + frames.values)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
        key, *keys = jax.random.split(training.key, self.config.epochs + 1)

        def epoch(carry: Tree, key: Array) -> tuple[Tree, None]:
            order = jax.random.permutation(key, flat[1].shape[0]).reshape(self.config.minibatches, -1)
            return jax.lax.scan(lambda c, rows: (self.descend(c, rows, flat), None), carry, order)

        (weights, optimiser), _ = jax.lax.scan(epoch, (training.weights, training.optimiser), jnp.stack(keys))
        return training._replace(weights=weights, optimiser=optimiser, key=key)

    def collect(self, training: Training) -> tuple[Training, Frames]:
        """Let the policy act for one rollout."""
        step = jax.vmap(self.environment.step, in_axes=(0, 0, 0, None))

        def frame(now: Training, _: None) -> tuple[Training, Frames]:
            key, acting, stepping = jax.random.split(now.key, 3)
            output, values = self.network.apply(now.weights, now.observations)
            actions = policy.sample(output, acting)
            keys = jax.random.split(stepping, self.config.environments)
            played = policy.played(actions)
            seen, states, rewards, terminated, truncated, _ = step(keys, now.states, played, self.parameters)
            ends = jnp.logical_or(terminated, truncated)
            returns = now.returns + rewards
            later = now._replace(
                states=states,
                observations=seen,
                returns=jnp.where(ends, 0.0, returns),
                finished=now.finished + jnp.where(ends, returns, 0.0).sum(),
                count=now.count + ends.sum(),
                key=key,
            )
            chances = policy.log_probability(output, actions)
            return later, Frames(now.observations, actions, chances, values, rewards, ends)

        return jax.lax.scan(frame, training, None, self.config.rollout)

    def advantages(self, frames: Frames, last: Array) -> Array:
        """Generalised advantage estimation (Schulman et al. 2016), equation 16."""
        gamma, trace = self.config.discount, self.config.trace

        def back(carry: Tree, frame: Frames) -> tuple[Tree, Array]:
            advantage, following = carry
            going = 1.0 - frame.ends
            delta = frame.rewards + gamma * following * going - frame.values
            advantage = delta + gamma * trace * going * advantage
            return (advantage, frame.values), advantage

        slim = frames._replace(observations=(), actions=())
        return jax.lax.scan(back, (jnp.zeros_like(last), last), slim, reverse=True)[1]

    def descend(self, carry: Tree, rows: Array, flat: Tree) -> Tree:
        """One step of the optimiser on one minibatch."""
        weights, optimiser = carry
        batch = jax.tree.map(lambda x: x[rows], flat)
        gradients = jax.grad(self.loss)(weights, *batch)
        changes, optimiser = self.optimiser.update(gradients, optimiser, weights)
        return optax.apply_updates(weights, changes), optimiser

    def loss(self, weights: Tree, frames: Frames, advantages: Array, targets: Array) -> Array:
        """The clipped objective, with the value's error and the entropy."""
        clip = self.config.clip
        output, values = self.network.apply(weights, frames.observations)
        ratio = jnp.exp(policy.log_probability(output, frames.actions) - frames.log_probabilities)
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        actor = jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - clip, 1 + clip) * scaled).mean()
        near = frames.values + jnp.clip(values - frames.values, -clip, clip)
        critic = 0.5 * jnp.maximum((values - targets) ** 2, (near - targets) ** 2).mean()
        return self.config.critic * critic - actor - self.config.entropy * policy.entropy(output).mean()
