"""Trains the starter's policies with PPO and writes ``checkpoints/0.safetensors`` and so on, one for each seed.

    python3 train.py                 the hyper-parameters of the run's size, from config.toml
    python3 train.py --size tiny     those of a size
    python3 train.py --restart       from the beginning, whatever has been kept

All seeds train side by side in one program, on the GPU where jax finds one. The state of the training is kept in
``training/``: the same command takes it up again after an interruption, and starts anew when config or code changed.
"""

# jax and its relatives are installed in the task's image, not where types are checked.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator, no-any-return"

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEPT = HERE / "training"
CHECKPOINTS = HERE / "checkpoints"
REPORTS = 20  #: lines of progress
KEEP_SECONDS = 60.0  #: between two savings of the state


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or take up what was interrupted, and write the checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default=os.environ.get("MLGYM_SIZE", "full"), help="section of config.toml")
    parser.add_argument("--restart", action="store_true", help="do not take up an interrupted training")
    parser.add_argument("--stop-after", type=int, metavar="UPDATES", help="interrupt it there")
    options = parser.parse_args(arguments)
    config, mark = read_config(options.size)
    learner, begin = prepare(config)
    done, training = (None if options.restart else resume(begin, mark)) or (0, begin())
    training = train(learner, training, done, options.stop_after or config.updates, mark)
    if options.stop_after is None:
        write_checkpoints(training.weights, config.seeds)


def read_config(size: str) -> tuple[Any, str]:
    """The hyper-parameters, and a mark of everything that a training depends on."""
    from ppo import Config

    sections = tomllib.loads((HERE / "config.toml").read_text("utf-8"))
    if size not in sections:
        sys.exit(f"config.toml has no section [{size}]; it has: {', '.join(sections)}")
    config = Config(**sections[size])
    code = [(HERE / name).read_text("utf-8") for name in ("policy.py", "ppo.py", "train.py")]
    return config, hashlib.sha256(json.dumps([config, code]).encode()).hexdigest()


def prepare(config: Any) -> tuple[Any, Any]:
    """The learner, and a function that makes the state in which all seeds begin."""
    import gymnax
    import jax
    import numpy as np
    from ppo import Learner

    learner = Learner(config, *gymnax.make(config.environment))
    start = jax.jit(learner.begin)
    print(
        f"{config.environment}: {config.seeds} seeds, {config.updates} updates of {config.environments} x "
        f"{config.rollout} steps each, on {jax.devices()[0].platform}",
        flush=True,
    )

    def begin() -> Any:
        # One seed after the other: orthogonal initialisers under vmap can block jax on few cores.
        return jax.tree.map(lambda *leaves: np.stack(leaves), *[start(seed) for seed in range(config.seeds)])

    return learner, begin


def train(learner: Any, training: Any, done: int, until: int, mark: str) -> Any:
    """Train from ``done`` updates until ``until``, reporting and keeping the state on the way."""
    import jax

    config, many = learner.config, compiled(learner)
    every = max(1, config.updates // REPORTS)
    begun, kept = time.monotonic(), time.monotonic()
    first = done
    while done < until:
        turns = min(every - done % every, until - done)
        training = jax.block_until_ready(many(training, turns))
        done += turns
        training = report(training, config, done, (done - first, time.monotonic() - begun))
        if done == until or time.monotonic() - kept > KEEP_SECONDS:
            keep(training, done, mark)
            kept = time.monotonic()
    return training


def compiled(learner: Any) -> Any:
    """The function that trains all seeds for a number of updates, one program for every number."""
    import jax

    def several(one: Any, updates: Any) -> Any:
        return jax.lax.fori_loop(0, updates, lambda _, now: learner.update(now), one)

    return jax.jit(jax.vmap(several, (0, None)))


def report(training: Any, config: Any, done: int, pace: tuple[int, float]) -> Any:
    """Print the mean return of each seed's finished episodes since the last line, and forget them."""
    import jax.numpy as jnp

    means = [f"{f / c:8.2f}" if c else "       -" for f, c in zip(training.finished, training.count, strict=True)]
    per_update = config.environments * config.rollout
    speed = pace[0] * per_update * config.seeds / pace[1]
    print(
        f"{done:6d}/{config.updates} updates, {done * per_update:9,d} steps a seed, return {''.join(means)}"
        f"  ({speed:,.0f} steps/s in all)",
        flush=True,
    )
    return training._replace(finished=jnp.zeros_like(training.finished), count=jnp.zeros_like(training.count))


def keep(training: Any, done: int, mark: str) -> None:
    """Write the state of the training, at once or not at all."""
    from flax import serialization

    KEPT.mkdir(exist_ok=True)
    new = KEPT / "state.new"
    new.write_bytes(serialization.to_bytes({"mark": mark, "done": done, "training": training}))
    new.replace(KEPT / "state.msgpack")


def resume(begin: Any, mark: str) -> tuple[int, Any] | None:
    """What was kept of a training with the same config and code, if anything was."""
    from flax import serialization

    path = KEPT / "state.msgpack"
    if not path.is_file():
        return None
    found = serialization.msgpack_restore(path.read_bytes())
    if found["mark"] != mark:
        print("config or code has changed since the last training: starting anew", flush=True)
        return None
    print(f"taking up the training after {found['done']} updates (--restart begins anew)", flush=True)
    return int(found["done"]), serialization.from_state_dict(begin(), found["training"])


def write_checkpoints(weights: Any, seeds: int) -> None:
    """One file for each seed, with names like ``params/Dense_0/kernel``."""
    import numpy as np
    from flax.traverse_util import flatten_dict
    from safetensors.numpy import save_file

    CHECKPOINTS.mkdir(exist_ok=True)
    for seed in range(seeds):
        arrays = {
            name: np.ascontiguousarray(np.asarray(leaf)[seed]) for name, leaf in flatten_dict(weights, sep="/").items()
        }
        save_file(arrays, CHECKPOINTS / f"{seed}.safetensors")
    print(f"wrote {seeds} checkpoints to {CHECKPOINTS.name}/", flush=True)


if __name__ == "__main__":
    main()
