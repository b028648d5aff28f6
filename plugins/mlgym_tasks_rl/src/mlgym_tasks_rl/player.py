"""Asks ``policy.py`` for its actions; runs in the player box, where MLGym provides ``mlgym_peer``.

This file is here to be read: it shows how your policy is called. It is not part of the submission. Each checkpoint
has a player of its own, and all of them play at the same time.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

import math
import os
from typing import Any

import mlgym_peer as peer

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or one player takes the whole GPU

import policy

for name in ("load", "initial_state", "act"):
    if not callable(getattr(policy, name, None)):
        raise peer.InvalidSubmission(f"policy.py has no function {name}; the starter's policy.py shows all three")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


class Play:
    """All episodes of one checkpoint, frame by frame."""

    def __init__(self) -> None:
        self.weights: Any = None
        self.state: Any = None
        self.key: Any = None
        self.rules: dict[str, Any] = {}

    def answer(self, header: dict[str, Any], buffers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """One message of the grader: the checkpoint and the rules first, then the frames."""
        if header["do"] == "begin":
            self.rules, self.key = header["rules"], jax.random.PRNGKey(header["key"])
            self.weights = policy.load({name: found.numpy().copy() for name, found in buffers.items()})
            self.state = policy.initial_state(self.rules["episodes"])
            return {}, {}
        return {}, {"actions": self.frame(header["frame"], buffers["observations"].numpy())}

    def frame(self, frame: int, shown: Any) -> Any:
        """Actions for all episodes."""
        start = jnp.full(self.rules["episodes"], frame == 0)
        key = jax.random.fold_in(self.key, frame)
        found = policy.act(self.weights, self.unpacked(shown), start, self.state, key)
        if not isinstance(found, tuple) or len(found) != 2:
            raise peer.InvalidSubmission(f"act returned {_kind(found)}; return a tuple of two: (actions, state)")
        actions, self.state = found
        return self.checked(actions)

    def unpacked(self, shown: Any) -> Any:
        """(episodes, ...), the policy's own to write to: float32, or uint8 where observations are zeros and ones."""
        shape = self.rules["observation"]
        if self.rules["packed"]:
            shown = np.unpackbits(shown, axis=1, count=math.prod(shape))
        return np.array(shown).reshape(self.rules["episodes"], *shape)

    def checked(self, actions: Any) -> Any:
        """The actions as they are sent."""
        wanted, choices = (self.rules["episodes"], *self.rules["action"]), self.rules["choices"]
        right = f"integers (int32) from 0 to {choices - 1}" if choices else "floats (float32)"
        right += f", an array of shape {wanted}"
        try:
            found = np.asarray(actions)
        except Exception as error:
            raise peer.InvalidSubmission(
                f"act's actions, {_kind(actions)}, are no array ({error!s:.200}); return {right}"
            ) from None
        if found.dtype.kind not in ("iu" if choices else "f"):
            raise peer.InvalidSubmission(f"act returned actions of type {found.dtype}; return {right}")
        if found.shape != wanted:
            raise peer.InvalidSubmission(f"act returned actions of shape {found.shape}; return {right}")
        if choices and (found.min() < 0 or found.max() >= choices):
            raise peer.InvalidSubmission(f"act returned actions from {found.min()} to {found.max()}; return {right}")
        if not choices and not np.isfinite(found).all():
            raise peer.InvalidSubmission("act returned actions that are not finite (nan or infinity)")
        return found.astype("|u1" if choices else "<f4")


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"one {type(value).__name__}"


if __name__ == "__main__":
    peer.serve(Play().answer)
