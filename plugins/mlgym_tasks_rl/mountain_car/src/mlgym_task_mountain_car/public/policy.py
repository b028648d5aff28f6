"""Your policy: ``load``, ``initial_state`` and ``act`` are what is scored; ``player.py`` shows how they are called.

This starter is a Gaussian policy over a multi-layer perceptron. ``train.py`` trains it with the functions below
``act``; only this file and ``checkpoints/`` are handed in, so keep what ``act`` needs in here.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict

ACTION_SIZE = 1
Array = Any


def load(arrays: dict[str, Any]) -> Any:
    """Turn the arrays of one checkpoint (name -> numpy array) into what ``act`` gets as ``weights``."""
    return jax.tree.map(jnp.asarray, unflatten_dict(arrays, sep="/"))


def initial_state(batch: int) -> Any:
    """What is carried from frame to frame for ``batch`` episodes; this policy needs nothing."""
    return ()


@jax.jit
def act(weights: Any, observation: Array, start: Array, state: Any, key: Array) -> tuple[Array, Any]:
    """Choose actions for a batch of episodes of one checkpoint.

    Args:
        weights: from ``load``.
        observation: (batch, 2), float32: position and velocity.
        start: (batch,), bool: whether the episode begins with this frame.
        state: from ``initial_state``, or what the last call returned.
        key: for ``jax.random``; another one for each checkpoint and frame.

    Returns:
        Actions (batch, 1), float32, and the state to carry on.
    """
    layers = [layer for name, layer in weights["params"].items() if name.startswith("actor")]
    output, _ = network(len(layers), layers[0]["bias"].size).apply(weights, observation)
    return played(sample(output, key)), state


class ActorCritic(nn.Module):
    """Two perceptrons: one for mean and deviation of the action, one for the value."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, observation: Array) -> tuple[tuple[Array, Array], Array]:
        """Map observations (batch, ...) to what the functions below take, and values (batch,)."""
        inputs = observation
        actor = critic = inputs
        for layer in range(self.layers):
            actor = nn.relu(_dense(self.width, 2**0.5, f"actor_{layer}")(actor))
            critic = nn.relu(_dense(self.width, 2**0.5, f"critic_{layer}")(critic))
        mean = _dense(ACTION_SIZE, 0.01, "mean")(actor)
        log_deviation = self.param("log_deviation", nn.initializers.zeros, (ACTION_SIZE,))
        value = _dense(1, 1.0, "value")(critic)
        return (mean, jnp.broadcast_to(log_deviation, mean.shape)), value[..., 0]


def _dense(size: int, scale: float, name: str) -> Any:
    return nn.Dense(size, kernel_init=nn.initializers.orthogonal(scale), name=name)


def network(layers: int, width: int) -> Any:
    """The network that ``train.py`` trains; ``apply`` returns what the functions below take, and the values."""
    return ActorCritic(layers, width)


def sample(output: tuple[Array, Array], key: Array) -> Array:
    """Draw actions (batch, 1), of any size."""
    mean, log_deviation = output
    return mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)


def played(actions: Array) -> Array:
    """What the environment gets for drawn actions: it pushes no harder than 1, but charges for more."""
    return jnp.clip(actions, -1.0, 1.0)


def log_probability(output: tuple[Array, Array], actions: Array) -> Array:
    """Logarithm of the density of actions, (batch,)."""
    mean, log_deviation = output
    distance = (actions - mean) / jnp.exp(log_deviation)
    return (-0.5 * distance**2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)


def entropy(output: tuple[Array, Array]) -> Array:
    """Entropy of the action's distribution, (batch,)."""
    return (output[1] + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)
