"""Asks ``policy.py`` for its actions; runs in the player box, where MLGym provides ``mlgym_peer``.

This file is here to be read: it shows how your policy is called. It is not part of the submission.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

import math
from typing import Any

import mlgym_peer as peer
import policy

for name in ("load", "initial_state", "act"):
    if not callable(getattr(policy, name, None)):
        raise peer.InvalidSubmission(f"policy.py has no function {name}; the starter's policy.py shows all three")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


class Play:
    """All episodes of all checkpoints, frame by frame."""

    def __init__(self) -> None:
        self.weights: list[Any] = []
        self.states: list[Any] = []
        self.rules: dict[str, Any] = {}

    def answer(self, header: dict[str, Any], buffers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """One message of the grader: checkpoints first, then the rules, then the frames."""
        if header["do"] == "load":
            self.weights.append(policy.load({name: found.numpy().copy() for name, found in buffers.items()}))
        elif header["do"] == "begin":
            self.rules = header["rules"]
            self.key = jax.random.PRNGKey(header["key"])
            self.states = [policy.initial_state(self.rules["episodes"]) for _ in self.weights]
        else:
            return {}, {"actions": self.frame(header["frame"], buffers["observations"].numpy())}
        return {}, {}

    def frame(self, frame: int, shown: Any) -> Any:
        """Actions for all checkpoints, one after the other; each keeps a state of its own."""
        observations = self.unpacked(shown)
        start = jnp.full(self.rules["episodes"], frame == 0)
        keys = jax.random.split(jax.random.fold_in(self.key, frame), len(self.weights))
        actions = []
        for number, weights in enumerate(self.weights):
            action, self.states[number] = policy.act(
                weights, observations[number], start, self.states[number], keys[number]
            )
            actions.append(action)
        return np.concatenate([self.checked(action) for action in actions])

    def unpacked(self, shown: Any) -> Any:
        """(checkpoints, episodes, ...): float32, or uint8 where observations are zeros and ones."""
        shape = self.rules["observation"]
        if self.rules["packed"]:
            shown = np.unpackbits(shown, axis=1, count=math.prod(shape))
        return shown.reshape(self.rules["checkpoints"], self.rules["episodes"], *shape)

    def checked(self, action: Any) -> Any:
        """The actions of one checkpoint as they are sent."""
        action, choices = np.asarray(action), self.rules["choices"]
        wanted = (self.rules["episodes"], *self.rules["action"])
        if action.shape != wanted:
            raise peer.InvalidSubmission(f"act returned actions of shape {action.shape}, not {wanted}")
        if choices:
            if action.dtype.kind not in "iu" or action.min() < 0 or action.max() >= choices:
                raise peer.InvalidSubmission(
                    f"act returned {action.dtype} from {action.min()} to {action.max()}; "
                    f"return integers from 0 to {choices - 1}"
                )
            return action.astype("|u1")
        if action.dtype.kind != "f" or not np.isfinite(action).all():
            raise peer.InvalidSubmission(f"act returned {action.dtype}, or numbers that are not finite; return floats")
        return action.astype("<f4")


if __name__ == "__main__":
    peer.serve(Play().answer)
