"""The graders' worlds against gymnax stepped by hand, in the environment that has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import mlgym_tasks_rl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Plays the same episodes twice: once as graders do, once one by one with gymnax's own step, whose automatic reset
# shows that the first episode is over. Actions follow from the frame and the place.
PROGRAM = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from evaluation import Keys, World
import gymnax, jax

found = {}
for name, frames in (("Breakout-MinAtar", 60), ("MetaMaze-misc", 199), ("MountainCarContinuous-v0", 130)):
    world, keys, count = World(name), Keys("07" * 16), 12
    def actions(frame):
        draw = np.random.default_rng(frame)
        if world.choices:
            return draw.integers(0, world.choices, count).astype(np.int32)
        return np.full((count, 1), 1.0 if frame // 32 % 2 else -1.0, np.float32)
    environment, parameters = gymnax.make(name)
    reset = jax.jit(jax.vmap(environment.reset_env, (0, None)))
    step = jax.jit(jax.vmap(environment.step, (0, 0, 0, None)))
    inner = jax.jit(jax.vmap(environment.step_env, (0, 0, 0, None)))
    seen, state = reset(keys.draw("start", count), parameters)
    first = world.start(keys.draw("start", count))
    same = [bool(np.array_equal(seen, first))]
    returns, expected, running = np.zeros(count), np.zeros(count), np.ones(count, bool)
    lengths = np.zeros(count, int)
    for frame in range(frames):
        drawn = keys.draw(f"frame {frame}", count)
        observations, rewards = world.step(drawn, actions(frame))
        # World hands its keys to step_env as they are, gymnax's step splits them; only the maze uses them.
        if name == "MetaMaze-misc":
            seen, state, reward, over, _ = inner(drawn, state, actions(frame), parameters)
        else:
            seen, state, reward, ended, cut, _ = step(drawn, state, actions(frame), parameters)
            over = ended | cut
        returns += rewards
        expected += np.where(running, reward, 0.0)
        lengths += running
        running &= ~np.asarray(over)
        shape = (count,) + (1,) * (observations.ndim - 1)
        same.append(bool(np.array_equal(observations, np.where(running.reshape(shape), seen, 0.0))))
        same.append(bool((world.ended == ~running).all()))
    found[name] = {"same": all(same), "returns": returns.tolist(), "expected": expected.tolist(),
                   "lengths": lengths.tolist(), "shape": world.observation_shape, "choices": world.choices,
                   "action": world.action_shape}
print(json.dumps(found))
"""


def test_the_first_episode_is_gymnaxs_own_and_the_only_one(jax_python: Path) -> None:
    folder = Path(mlgym_tasks_rl.__file__).parent
    command = [str(jax_python), "-I", "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for world in found.values():
        assert world["same"]
        assert world["returns"] == pytest.approx(world["expected"], abs=1e-4)
    assert found["Breakout-MinAtar"]["shape"] == [10, 10, 4]
    assert found["Breakout-MinAtar"]["choices"] == 3
    assert len(set(found["Breakout-MinAtar"]["lengths"])) > 1, "episodes end at different times"
    assert max(found["Breakout-MinAtar"]["lengths"]) < 60
    assert sum(found["MetaMaze-misc"]["returns"]) > 0
    assert (found["MountainCarContinuous-v0"]["choices"], found["MountainCarContinuous-v0"]["action"]) == (0, [1])
    assert max(found["MountainCarContinuous-v0"]["returns"]) > 80
