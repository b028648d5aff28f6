"""What the player tells a policy that answers wrongly, in the tasks' environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import mlgym_tasks_rl
from mlgym_core.grading import inside

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Calls the real player, in one process for all cases, with a policy that writes into what it is shown.
PROGRAM = """
import importlib, json, sys, types
sys.path[:0] = sys.argv[1:]
import jax.numpy as jnp, numpy as np
import mlgym_peer as peer
def policy(**functions):
    sys.modules["policy"] = types.SimpleNamespace(load=dict, **functions)
    return sys.modules["policy"]
policy(initial_state=dict, act=dict)
import player

ANSWERS = {
    "continuous": {
        "right": lambda: (np.zeros((4, 1), "<f4"), ()),
        "right, of jax": lambda: (jnp.zeros((4, 1), jnp.float16), ()),
        "bfloat16": lambda: (jnp.zeros((4, 1), jnp.bfloat16), ()),
        "integers": lambda: (np.zeros((4, 1), int), ()),
        "texts": lambda: ([["a"]] * 4, ()),
        "objects": lambda: (np.array([["a"], [None], [1], [2]], object), ()),
        "None": lambda: (None, ()),
        "ragged": lambda: ([[1.0], [1.0, 2.0], [], []], ()),
        "no state": lambda: np.zeros((2, 1), "<f4"),
        "three": lambda: (np.zeros((4, 1), "<f4"), (), ()),
        "nothing": lambda: None,
        "shape": lambda: (np.zeros(4, "<f4"), ()),
        "nan": lambda: (np.full((4, 1), np.nan), ()),
    },
    "discrete": {
        "right": lambda: (np.array([0, 1, 2, 0]), ()),
        "int4": lambda: (jnp.zeros(4, jnp.int4), ()),
        "booleans": lambda: (np.zeros(4, bool), ()),
        "range": lambda: (np.array([0, -1, 3, 0]), ()),
    },
}
shown = {"continuous": np.ones((4, 2), "<f4"), "discrete": np.packbits(np.ones((4, 12), bool), axis=1)}
rules = {
    "continuous": {"episodes": 4, "observation": [2], "packed": False, "choices": 0, "action": [1]},
    "discrete": {"episodes": 4, "observation": [3, 4], "packed": True, "choices": 3, "action": []},
}
found = {}
for kind, answers in ANSWERS.items():
    for name, answer in answers.items():
        def act(weights, observation, start, state, key):
            assert observation.all() and observation.shape == (4, *rules[kind]["observation"])
            observation[:] = 0
            return answer()
        player.policy = policy(initial_state=lambda batch: (), act=act)
        play = player.Play()
        play.answer({"do": "begin", "rules": rules[kind], "key": 0}, {})
        observations = peer.as_buffer(shown[kind])
        try:
            _, buffers = play.answer({"do": "act", "frame": 0}, {"observations": observations})
            found[f"{kind}: {name}"] = buffers["actions"].dtype.str
        except peer.InvalidSubmission as error:
            found[f"{kind}: {name}"] = str(error)
policy(act=dict)
try:
    importlib.reload(player)
except peer.InvalidSubmission as error:
    found["function"] = str(error)
print(json.dumps(found))
"""
FLOATS, INTEGERS = "return floats (float32), an array of shape (4, 1)", "return integers (int32) from 0 to 2"
SAID = {
    "continuous: right": "<f4",
    "continuous: right, of jax": "<f4",
    "continuous: bfloat16": f"actions of type bfloat16; {FLOATS}",
    "continuous: integers": f"actions of type int64; {FLOATS}",
    "continuous: texts": f"actions of type <U1; {FLOATS}",
    "continuous: objects": f"actions of type object; {FLOATS}",
    "continuous: None": f"actions of type object; {FLOATS}",
    "continuous: ragged": "a list of 4, are no array",
    "continuous: no state": "act returned one ndarray; return a tuple of two: (actions, state)",
    "continuous: three": "act returned a tuple of 3; return a tuple of two: (actions, state)",
    "continuous: nothing": "act returned None; return a tuple of two: (actions, state)",
    "continuous: shape": f"actions of shape (4,); {FLOATS}",
    "continuous: nan": "actions that are not finite",
    "discrete: right": "|u1",
    "discrete: int4": f"actions of type int4; {INTEGERS}",
    "discrete: booleans": f"actions of type bool; {INTEGERS}",
    "discrete: range": f"actions from -1 to 3; {INTEGERS}",
    "function": "policy.py has no function initial_state",
}


@pytest.fixture(scope="module")
def said(jax_python: Path) -> dict[str, Any]:
    folders = [str(Path(package.__file__).parent) for package in (mlgym_tasks_rl, inside) if package.__file__]
    command = [str(jax_python), "-c", PROGRAM, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_wrong_answer_gets_a_sentence(said: dict[str, Any]) -> None:
    assert said.keys() == SAID.keys()
    for case, wanted in SAID.items():
        assert wanted in said[case], case
