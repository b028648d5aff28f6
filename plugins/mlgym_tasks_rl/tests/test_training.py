"""The starter's training, in the tasks' environment: it can be taken up again, and repeats."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgym_core.task.task import Task
from mlgym_tasks_rl import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = {"total_steps": 256, "environments": 4, "rollout": 16, "epochs": 1, "minibatches": 2, "layers": 1, "width": 8}


def workspace(folder: Path, task: Task) -> Path:
    """The agent's workspace with a config that takes no time."""
    folder.mkdir()
    for name, path in task.public_files().items():
        (folder / name).write_bytes(path.read_bytes())
    config = (folder / "config.toml").read_text()
    for name, value in SMALL.items():
        config = re.sub(rf"^{name} = .*$", f"{name} = {value}", config, flags=re.MULTILINE)
    (folder / "config.toml").write_text(config)
    return folder


def started(python: Path, folder: Path, *arguments: str, size: str = "tiny") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MLGYM_SIZE": size}
    command = [str(python), "train.py", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def train(python: Path, folder: Path, *arguments: str) -> str:
    done = started(python, folder, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def marks(python: Path, folder: Path) -> list[str]:
    """What a kept training of each size is recognised by."""
    program = (
        "import sys; sys.path.insert(0, '.'); import train; print(*[train.read_config(s)[1] for s in sys.argv[1:]])"
    )
    command = [str(python), "-c", program, "tiny", "full"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


def content(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "checkpoints").iterdir())]


def test_an_interrupted_training_ends_like_one_in_one_piece(
    tasks: dict[str, Task], jax_python: Path, tmp_path: Path
) -> None:
    whole, parts = (workspace(tmp_path / name, tasks["mountain_car"]) for name in ("whole", "parts"))
    printed = train(jax_python, whole)
    assert "4/4 updates" in printed
    assert 5 < len(printed.splitlines()) < 30
    found = checkpoints.read_all(whole / "checkpoints", 5)
    assert found[0]["params/actor_0/kernel"].shape == (2, 8)
    assert all(array.dtype == np.float32 for array in found[0].values())
    assert found[0].keys() == found[4].keys()

    # A state that cannot be read; and what is interrupted has checkpoints already.
    (parts / "training").mkdir()
    tiny, full = marks(jax_python, parts)
    assert tiny != full
    state = parts / "training" / f"{tiny[:16]}.state"
    state.write_bytes(b"x" * 40)
    assert f"training/{state.name} cannot be read: starting anew" in train(jax_python, parts, "--stop-after", "2")
    checkpoints.read_all(parts / "checkpoints", 5)
    assert content(parts) != content(whole)

    # Another training in between, here of an edited network, leaves that state alone.
    policy = (parts / "policy.py").read_text()
    (parts / "policy.py").write_text(policy + "\n# changed\n")
    other = train(jax_python, parts, "--stop-after", "0")
    assert "starting anew; training/ keeps trainings with other config or code" in other
    assert " updates, " not in other.partition("steps each")[2], "0 is no training at all"
    (parts / "policy.py").write_text(policy)
    assert "taking up the training after 2 updates" in train(jax_python, parts, "--stop-after", "999")
    assert content(parts) == content(whole)


# Trains by a clock of its own, on which an update takes 7 s, and prints when what was saved.
CLOCK = """
import sys; sys.path.insert(0, ".")
import types, train
now, saved, turns = [0.0], [], []
train.time = types.SimpleNamespace(monotonic=lambda: now[0])
train.save = lambda training, done, mark: saved.append((now[0], done))
def many(training, updates):
    turns.append(updates)
    now[0] += 7.0 * updates + (20.0 if len(turns) == 1 else 0.0)
    return training
train.compiled = lambda learner: many
train.report = lambda training, config, done, pace: training
config = types.SimpleNamespace(updates=400)
train.train(types.SimpleNamespace(config=config), 0, 0, 400, "")
gaps = [later[0] - earlier[0] for earlier, later in zip([(0.0, 0), *saved], saved)]
print(max(gaps), min(gaps[:-1]), saved[-1][1], sum(turns), max(turns), len(gaps) < 52)
"""


def test_it_saves_once_a_minute_however_seldom_it_reports(
    tasks: dict[str, Task], jax_python: Path, tmp_path: Path
) -> None:
    folder = workspace(tmp_path / "w", tasks["mountain_car"])
    command = [str(jax_python), "-c", CLOCK]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    longest, shortest, done, trained, turns, few = printed.split()
    assert 45 < float(shortest) <= float(longest) <= 60
    assert (done, trained) == ("400", "400")
    assert int(turns) > 4, "many updates a call"
    assert few == "True"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("minibatches", "3", "minibatches = 3 must divide environments x rollout = 64"),
        ("seeds", "0", "seeds = 0 must be a whole number"),
        ("width", "2.5", "width = 2.5 must be a whole number"),
        ("clip", '"x"', "clip = 'x' must be a number"),
        ("clip", "1\nclips = 1", "clips unknown"),
        ("clip", None, "clip missing"),
        ("clip", "", "config.toml cannot be read"),
        ("environment", '"Pong"', "gymnax has no environment 'Pong'"),
        ("environment", '"MetaMaze-misc"', "policy.py does not fit MetaMaze-misc: it chooses actions of shape (4, 1)"),
    ],
)
def test_bad_hyper_parameters_get_one_line(
    tasks: dict[str, Task], jax_python: Path, tmp_path: Path, name: str, value: str | None, said: str
) -> None:
    folder = workspace(tmp_path / "w", tasks["mountain_car"])
    line = "" if value is None else f"{name} = {value}"
    config = re.sub(rf"^{name} = .*$", line, (folder / "config.toml").read_text(), flags=re.MULTILINE)
    (folder / "config.toml").write_text(config)
    done = started(jax_python, folder)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_size_that_is_not_there(tasks: dict[str, Task], jax_python: Path, tmp_path: Path) -> None:
    folder = workspace(tmp_path / "w", tasks["mountain_car"])
    assert "no section [huge]; it has: full, tiny" in started(jax_python, folder, size="huge").stderr
    assert "0 or more" in started(jax_python, folder, "--stop-after", "-1").stderr
