"""Times the evaluation and the training of the reinforcement-learning tasks: python benchmarks/rl.py [--backend local].

Evaluation is at full size (5 checkpoints x 5 seeds x 256 environments) with baseline networks that have not
been trained, from the call of ``Grader.grade`` to its return; in Breakout the paddle follows the ball beside that, or
episodes would be over at once. Training is the starter's, in the task's own environment, against a plain PPO loop over
the same gymnax environment with the same hyper-parameters that reports, keeps and resumes nothing: a ratio of speeds
within one run. Last, whole runs of the baseline at size tiny: training, submission and grading.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mlgym_core import data
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.sealed import Grader
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.runner.tasks import load_task
from mlgym_core.sandbox.base import Backend
from mlgym_core.sandbox.local import environments
from mlgym_core.task.task import Task

TARGET_SECONDS = {"mountain-car": 20.0, "breakout": 120.0}
TARGET_RATIO = 1.3
TARGET_RUN_SECONDS = 60.0

# Writes five checkpoints of the full network of the workspace it runs in.
UNTRAINED = """
import sys; sys.path.insert(0, ".")
import train
config, _ = train.read_config("full")
learner, begin = train.prepare(config._replace(environments=1))
train.write_checkpoints(begin().weights)
"""

# A few lines after those of ``act``: the paddle follows the ball, so that episodes last. The network still runs.
FOLLOW = """
_learned = act

@jax.jit
def act(weights, observation, start, state, key):
    actions, state = _learned(weights, observation, start, state, key)
    ball = observation[:, :, :, 1].any(1).argmax(1)
    paddle = observation[:, 9, :, 0].argmax(1)
    return jnp.where(ball < paddle, 1, jnp.where(ball > paddle, 2, 0)) + 0 * actions, state
"""

# The same algorithm in one function, with nothing around it. Prints the steps a second of both loops, in turns.
COMPARE = """
import json, sys, time; sys.path.insert(0, ".")
import gymnax, jax, jax.numpy as jnp, optax, policy, train

config, _ = train.read_config("tiny")
learner, begin = train.prepare(config)
environment, parameters = gymnax.make(config.environment)
network = policy.network(config.layers, config.width)
optimiser = optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate, eps=1e-5))

def loss(weights, seen, actions, old, values, targets, advantages):
    output, now = network.apply(weights, seen)
    ratio = jnp.exp(policy.log_probability(output, actions) - old)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    bounded = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    near = values + jnp.clip(now - values, -config.clip, config.clip)
    critic = 0.5 * jnp.maximum((now - targets) ** 2, (near - targets) ** 2).mean()
    actor = -jnp.minimum(ratio * advantages, bounded * advantages).mean()
    return actor + config.critic * critic - config.entropy * policy.entropy(output).mean()

def update(carry):
    weights, moments, seen, state, key = carry
    def frame(carry, _):
        seen, state, key = carry
        key, one, two = jax.random.split(key, 3)
        output, value = network.apply(weights, seen)
        action = policy.sample(output, one)
        keys = jax.random.split(two, config.environments)
        later, state, reward, ended, cut, _ = jax.vmap(environment.step, (0, 0, 0, None))(
            keys, state, policy.played(action), parameters)
        chance = policy.log_probability(output, action)
        return (later, state, key), (seen, action, chance, value, reward, ended | cut)
    (seen, state, key), frames = jax.lax.scan(frame, (seen, state, key), None, config.rollout)
    shown, actions, old, values, rewards, ends = frames
    last = network.apply(weights, seen)[1]
    def back(carry, row):
        advantage, following = carry
        value, reward, end = row
        delta = reward + config.discount * following * (1 - end) - value
        advantage = delta + config.discount * config.trace * (1 - end) * advantage
        return (advantage, value), advantage
    _, advantages = jax.lax.scan(back, (jnp.zeros_like(last), last), (values, rewards, ends), reverse=True)
    batch = (shown, actions, old, values, advantages + values, advantages)
    batch = [x.reshape(-1, *x.shape[2:]) for x in batch]
    def descend(carry, rows):
        weights, moments = carry
        change, moments = optimiser.update(jax.grad(loss)(weights, *[x[rows] for x in batch]), moments)
        return (optax.apply_updates(weights, change), moments), None
    def epoch(carry, key):
        order = jax.random.permutation(key, batch[0].shape[0])
        return jax.lax.scan(descend, carry, order.reshape(config.minibatches, -1))
    key, again = jax.random.split(key)
    (weights, moments), _ = jax.lax.scan(epoch, (weights, moments), jax.random.split(again, config.epochs))
    return weights, moments, seen, state, key

starts = begin()
plain = (starts.weights, jax.vmap(optimiser.init)(starts.weights), starts.observations, starts.states, starts.key)
loop = jax.jit(jax.vmap(update))
steps = config.environments * config.rollout * config.seeds
plain = jax.block_until_ready(loop(loop(plain)))
turns = max(6, config.updates // 8)
training = starts
speeds = {"starter": [], "plain": []}
program = train.compiled(learner)
training = jax.block_until_ready(program(training, 2))
train.compiled = lambda learner: program
for _ in range(3):
    begun = time.monotonic()
    for _ in range(turns):
        plain = jax.block_until_ready(loop(plain))
    speeds["plain"].append(turns * steps / (time.monotonic() - begun))
    begun = time.monotonic()
    # Saves after these few updates, which is more often than a real training does.
    training = train.train(learner, training, 0, turns, "benchmark")
    speeds["starter"].append(turns * steps / (time.monotonic() - begun))
print(json.dumps(speeds))
"""


def workspace(task: Task, folder: Path) -> Path:
    """The agent's workspace."""
    for name, path in task.public_files().items():
        (folder / name).write_bytes(path.read_bytes())
    return folder


def inside(task: Task, folder: Path, program: str) -> str:
    """Run a program in a workspace with the Python of the task's environment; returns the last line that it prints."""
    python = environments.interpreter(environments.prepare(task.image, "agent", print))
    command = [str(python), "-c", program]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]


def evaluation(name: str, backend: Backend, repeats: int) -> None:
    task = load_task(name)
    with tempfile.TemporaryDirectory() as place:
        folder = workspace(task, Path(place))
        inside(task, folder, UNTRAINED)
        if name == "breakout":
            with (folder / "policy.py").open("a") as file:
                file.write(FOLLOW)
        archive = freeze_folder(folder, task.submission, folder / "archives")
        grades = []
        for _ in range(repeats + 1):
            grader = Grader(task, backend, "benchmark", "full", secrets.token_bytes(16), data.Prepared())
            grades.append(grader.grade(archive, "test"))
    bad = [grade.message for grade in grades if grade.outcome != "scored"]
    if bad:
        raise SystemExit(f"{name} was not scored: {bad[0]}")
    seconds = float(np.median([grade.seconds for grade in grades[1:]]))
    met = "met" if seconds <= TARGET_SECONDS[name] else "MISSED"
    reward = grades[-1].metrics["Reward Mean"]
    print(
        f"{name:14} {seconds:8.1f} s  (target {TARGET_SECONDS[name]:g} s: {met}; Reward Mean {reward:.2f})", flush=True
    )


def training(name: str) -> None:
    task = load_task(name)
    with tempfile.TemporaryDirectory() as place:
        found: dict[str, Any] = json.loads(inside(task, workspace(task, Path(place)), COMPARE))
    speed = {kind: float(np.median(values)) for kind, values in found.items()}
    ratio = speed["plain"] / speed["starter"]
    met = "met" if ratio <= TARGET_RATIO else "MISSED"
    print(
        f"{name:14} {speed['starter']:10,.0f} steps/s; a plain loop, {speed['plain']:,.0f}, is {ratio:.2f} times that "
        f"(target {TARGET_RATIO}: {met})",
        flush=True,
    )


def baseline_run(name: str, backend: str) -> None:
    command = [sys.executable, "-m", "mlgym_core", "run", name, "--model", "baseline", "--size", "tiny", "--json"]
    with tempfile.TemporaryDirectory() as place:
        command += ["--backend", backend, "--out", place]
        begun = time.monotonic()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds = time.monotonic() - begun
    reward = json.loads(done.stdout)["scores"]["test"]["Reward Mean"]
    met = "met" if seconds <= TARGET_RUN_SECONDS else "MISSED"
    print(
        f"{name:14} {seconds:8.1f} s for a run (target {TARGET_RUN_SECONDS:g} s: {met}; Reward Mean {reward:.2f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    backend = choose(Registry(), options.backend).backend
    print(
        f"{backend.describe()}; {os.cpu_count()} cores; {options.repeats} evaluations each, then training "
        "and whole runs at size tiny"
    )
    for name in TARGET_SECONDS:
        evaluation(name, backend, options.repeats)
    for name in ("mountain-car", "meta-maze", "breakout"):
        training(name)
    for name in ("mountain-car", "meta-maze", "breakout"):
        baseline_run(name, options.backend)


if __name__ == "__main__":
    main()
