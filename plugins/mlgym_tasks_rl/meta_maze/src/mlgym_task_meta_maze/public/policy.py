"""Your policy: ``load``, ``initial_state`` and ``act`` are what is scored; ``player.py`` shows how they are called.

This starter is a multi-layer perceptron with one output for each action. ``train.py`` trains it with the functions
below ``act``; only this file and ``checkpoints/`` are handed in, so keep what ``act`` needs in here.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict

ACTIONS = 4
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
        observation: (batch, 15), float32; see description.md.
        start: (batch,), bool: whether the episode begins with this frame.
        state: from ``initial_state``, or what the last call returned.
        key: for ``jax.random``; another one for each checkpoint and frame.

    Returns:
        Actions (batch,), integers from 0 to 3, and the state to carry on.
    """
    layers = [layer for name, layer in weights["params"].items() if name.startswith("actor")]
    logits, _ = network(len(layers), layers[0]["bias"].size).apply(weights, observation)
    return played(sample(logits, key)), state


class ActorCritic(nn.Module):
    """Two perceptrons: one for the logits of the actions, one for the value."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, observation: Array) -> tuple[Array, Array]:
        """Map observations (batch, ...) to what the functions below take, and values (batch,)."""
        inputs = observation
        actor = critic = inputs
        for layer in range(self.layers):
            actor = nn.relu(_dense(self.width, 2**0.5, f"actor_{layer}")(actor))
            critic = nn.relu(_dense(self.width, 2**0.5, f"critic_{layer}")(critic))
        logits = _dense(ACTIONS, 0.01, "logits")(actor)
        value = _dense(1, 1.0, "value")(critic)
        return logits, value[..., 0]


def _dense(size: int, scale: float, name: str) -> Any:
    return nn.Dense(size, kernel_init=nn.initializers.orthogonal(scale), name=name)


def network(layers: int, width: int) -> Any:
    """The network that ``train.py`` trains; ``apply`` returns what the functions below take, and the values."""
    return ActorCritic(layers, width)


def sample(logits: Array, key: Array) -> Array:
    """Draw actions (batch,)."""
    return jax.random.categorical(key, logits)


def played(actions: Array) -> Array:
    """What the environment gets for drawn actions."""
    return actions


def log_probability(logits: Array, actions: Array) -> Array:
    """Logarithm of the probability of actions, (batch,)."""
    return jnp.take_along_axis(nn.log_softmax(logits), actions[..., None], -1)[..., 0]


def entropy(logits: Array) -> Array:
    """Entropy of the action's distribution, (batch,)."""
    return -(nn.softmax(logits) * nn.log_softmax(logits)).sum(-1)
