"""The starter's training, in the tasks' environment: it can be taken up again, and repeats."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlgym_core.task import Task
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


def train(python: Path, folder: Path, *arguments: str, size: str = "tiny") -> str:
    env = {**os.environ, "MLGYM_SIZE": size}
    command = [str(python), "train.py", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def mark(python: Path, folder: Path, size: str) -> str:
    """What a kept training is recognised by."""
    program = f"import sys; sys.path.insert(0, '.'); import train; print(train.read_config({size!r})[1])"
    command = [str(python), "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def content(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "checkpoints").iterdir())]


def test_an_interrupted_training_ends_like_one_in_one_piece(
    tasks: dict[str, Task], jax_python: Path, tmp_path: Path
) -> None:
    whole, parts = (workspace(tmp_path / name, tasks["mountain_car"]) for name in ("whole", "parts"))
    printed = train(jax_python, whole)
    assert "4/4 updates" in printed
    assert 5 < len(printed.splitlines()) < 30

    train(jax_python, parts, "--stop-after", "2")
    assert not (parts / "checkpoints").exists()
    assert "taking up the training after 2 updates" in train(jax_python, parts)
    assert content(parts) == content(whole)

    found = checkpoints.read_all(whole / "checkpoints", 5)
    assert found[0]["params/actor_0/kernel"].shape == (2, 8)
    assert all(array.dtype == np.float32 for array in found[0].values())
    assert found[0].keys() == found[4].keys()

    # A changed network, and another size, are other trainings.
    marks = [mark(jax_python, parts, size) for size in ("tiny", "full")]
    (parts / "policy.py").write_text((parts / "policy.py").read_text() + "\n# changed\n")
    marks.append(mark(jax_python, parts, "tiny"))
    assert marks[0] == mark(jax_python, whole, "tiny")
    assert len(set(marks)) == 3
