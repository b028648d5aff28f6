"""Trains the starter's policies with PPO and writes ``checkpoints/0.safetensors`` and so on, one for each seed.

    python3 train.py                 the hyper-parameters of the run's size, from config.toml
    python3 train.py --size tiny     those of a size
    python3 train.py --restart       from the beginning, whatever has been kept

All seeds train side by side in one program, on the GPU where jax finds one. About once a minute the checkpoints are
written, and the state of the training is kept in ``training/``: the same command takes it up again after an
interruption. Another size, and any change of config or code, is another training with a state of its own.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

HERE = Path(__file__).parent
KEPT = HERE / "training"
CHECKPOINTS = HERE / "checkpoints"
REPORTS = 20  #: lines of progress
KEEP_SECONDS = 60.0  #: between two savings
CHECKSUM_BYTES = 32


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or take up what was interrupted, and write the checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default=os.environ.get("MLGYM_SIZE", "full"), help="section of config.toml")
    parser.add_argument("--restart", action="store_true", help="do not take up an interrupted training")
    parser.add_argument("--stop-after", type=int, metavar="UPDATES", help="interrupt it there")
    options = parser.parse_args(arguments)
    if options.stop_after is not None and options.stop_after < 0:
        parser.error("--stop-after needs a number of updates, 0 or more")
    config, mark = read_config(options.size)
    learner, begin = prepare(config)
    done, training = (None if options.restart else resume(begin, mark)) or (0, begin())
    until = config.updates if options.stop_after is None else min(options.stop_after, config.updates)
    train(learner, training, done, until, mark)
    print(f"wrote {config.seeds} checkpoints to {CHECKPOINTS.name}/", flush=True)


def read_config(size: str) -> tuple[Any, str]:
    """The hyper-parameters, and a mark of everything that a training depends on."""
    from ppo import Config

    try:
        sections = tomllib.loads((HERE / "config.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"config.toml cannot be read: {error}")
    if not isinstance(sections.get(size), dict):
        sys.exit(f"config.toml has no section [{size}]; it has: {', '.join(sections)}")
    if problem := _problem(sections[size], get_type_hints(Config)):
        sys.exit(f"config.toml, section [{size}]: {problem}")
    config = Config(**sections[size])
    code = [(HERE / name).read_text("utf-8") for name in ("policy.py", "ppo.py", "train.py")]
    return config, hashlib.sha256(json.dumps([config, code]).encode()).hexdigest()


def _problem(section: Mapping[str, Any], kinds: Mapping[str, type]) -> str:
    """What is wrong with a section, or nothing."""
    if missing := sorted(kinds.keys() - section.keys()):
        return f"{', '.join(missing)} missing; ppo.py explains all keys"
    if unknown := sorted(section.keys() - kinds.keys()):
        return f"{', '.join(unknown)} unknown; the keys are {', '.join(kinds)}"
    for name, kind in kinds.items():
        value = section[name]
        if kind is int and (type(value) is not int or value < 1):
            return f"{name} = {value!r} must be a whole number, 1 or more"
        if kind is float and not (type(value) in (int, float) and 0 <= value < float("inf")):
            return f"{name} = {value!r} must be a number, 0 or more"
        if kind is str and not isinstance(value, str):
            return f"{name} = {value!r} must be a text"
    batch = section["environments"] * section["rollout"]
    if batch % section["minibatches"]:
        return f"minibatches = {section['minibatches']} must divide environments x rollout = {batch}"
    return ""


def prepare(config: Any) -> tuple[Any, Any]:
    """The learner, and a function that makes the state in which all seeds begin."""
    import gymnax
    import jax
    import numpy as np
    from ppo import Learner

    if config.environment not in gymnax.registered_envs:
        sys.exit(f"gymnax has no environment {config.environment!r}; it has: {', '.join(gymnax.registered_envs)}")
    learner = Learner(config, *gymnax.make(config.environment))
    check_actions(learner)
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


def check_actions(learner: Any) -> None:
    """End with one line when ``policy.py`` does not choose actions of the environment's shape and kind."""
    import jax
    import jax.numpy as jnp
    import policy

    def chosen(seed: Any) -> Any:
        training = learner.begin(seed)
        output, _ = learner.network.apply(training.weights, training.observations)
        return policy.played(policy.sample(output, training.key))

    found = jax.eval_shape(chosen, 0)
    space = learner.environment.action_space(learner.parameters)
    discrete = hasattr(space, "n")
    wanted = (learner.config.environments, *(() if discrete else space.shape))
    if found.shape != wanted or jnp.issubdtype(found.dtype, jnp.integer) != discrete:
        sys.exit(
            f"policy.py does not fit {learner.config.environment}: it chooses actions of shape {found.shape}, "
            f"{found.dtype}; needed are {wanted}, {'integers' if discrete else 'floats'}"
        )


def train(learner: Any, training: Any, done: int, until: int, mark: str) -> Any:
    """Train from ``done`` updates until ``until``, reporting, keeping the state and writing checkpoints on the way."""
    import jax

    config, many = learner.config, compiled(learner)
    every = max(1, config.updates // REPORTS)
    begun = kept = time.monotonic()
    first, pace = done, KEEP_SECONDS  # seconds an update; nothing is known of it before the first one
    while done < until:
        asked = time.monotonic()
        affordable = max(1, int((kept + KEEP_SECONDS - asked) / pace))
        turns = min(every - done % every, until - done, affordable)
        training = jax.block_until_ready(many(training, turns))
        done += turns
        now = time.monotonic()
        pace = (now - asked) / turns
        if done % every == 0 or done == until:
            training = report(training, config, done, (done - first, now - begun))
        if now - kept + pace > KEEP_SECONDS and done < until:
            save(training, done, mark)
            kept = now
    save(training, done, mark)
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


def save(training: Any, done: int, mark: str) -> None:
    """Keep the state of the training and write its checkpoints."""
    from flax import serialization

    content = serialization.to_bytes({"done": done, "training": training})
    write(state_path(mark), hashlib.sha256(content).digest() + content)
    write_checkpoints(training.weights)


def state_path(mark: str) -> Path:
    """Where the state of a training is kept."""
    return KEPT / f"{mark[:16]}.state"


def write(path: Path, content: bytes) -> None:
    """Write a file at once or not at all."""
    KEPT.mkdir(exist_ok=True)
    path.parent.mkdir(exist_ok=True)
    new = KEPT / "new"  # not beside the checkpoints, which may be validated at any time
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def resume(begin: Any, mark: str) -> tuple[int, Any] | None:
    """What was kept of a training with the same config and code, if anything was."""
    from flax import serialization

    path = state_path(mark)
    if not path.is_file():
        if KEPT.is_dir() and any(KEPT.glob("*.state")):
            print(f"starting anew; {KEPT.name}/ keeps trainings with other config or code", flush=True)
        return None
    content = path.read_bytes()
    if hashlib.sha256(content[CHECKSUM_BYTES:]).digest() != content[:CHECKSUM_BYTES]:
        print(f"{KEPT.name}/{path.name} cannot be read: starting anew", flush=True)
        return None
    found = serialization.msgpack_restore(content[CHECKSUM_BYTES:])
    print(f"taking up the training after {found['done']} updates (--restart begins anew)", flush=True)
    return int(found["done"]), serialization.from_state_dict(begin(), found["training"])


def write_checkpoints(weights: Any) -> None:
    """One file for each seed, with names like ``params/Dense_0/kernel``."""
    import numpy as np
    from flax.traverse_util import flatten_dict
    from safetensors.numpy import save

    flat = {name: np.asarray(leaf) for name, leaf in flatten_dict(weights, sep="/").items()}
    for seed in range(len(next(iter(flat.values())))):
        content = save({name: np.ascontiguousarray(leaf[seed]) for name, leaf in flat.items()})
        write(CHECKPOINTS / f"{seed}.safetensors", content)


if __name__ == "__main__":
    main()
