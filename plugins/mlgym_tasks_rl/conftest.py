"""What the tests of the three tasks share."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pytest

from mlgym_core.grading.grade import Grade
from mlgym_core.sandbox.local import environments
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.testing import grade_files
from mlgym_tasks_rl import checkpoints

HERE = Path(__file__).parent
NAMES = ("breakout", "meta_maze", "mountain_car")
KINDS = {dtype: kind for kind, dtype in checkpoints.DTYPES.items()}
GradePolicy = Callable[..., Grade]


def packed(arrays: Mapping[str, Any], **changes: Any) -> bytes:
    """A checkpoint file, written from the format's description; ``changes`` replace parts of the header."""
    header: dict[str, Any] = {}
    data = b""
    for name, array in arrays.items():
        raw = np.asarray(array)
        header[name] = {"dtype": KINDS[raw.dtype.str], "shape": list(raw.shape)}
        header[name]["data_offsets"] = [len(data), len(data) + raw.nbytes]
        data += raw.tobytes()
    text = json.dumps(header | changes).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture(scope="session")
def tasks() -> dict[str, Task]:
    """All three, by package folder."""
    return {name: load_task_folder(HERE / name / "src" / f"mlgym_task_{name}") for name in NAMES}


@pytest.fixture(scope="session")
def pack() -> Callable[..., bytes]:
    """Writes a checkpoint file."""
    return packed


@pytest.fixture(scope="session")
def evaluation() -> ModuleType:
    """The grader's module, which finds ``checkpoints`` beside it in the grader box."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "checkpoints", checkpoints)
        return importlib.import_module("mlgym_tasks_rl.evaluation")


@pytest.fixture
def grade_policy() -> GradePolicy:
    """Grades the text of a ``policy.py`` with few episodes: ``grade_policy(task, text, checkpoints, split="dev")``.

    There are three checkpoints, since each costs a player: ``gain`` of 0.2, 0.6 and 1.0 with the number of the
    checkpoint beside it, and ``ramp``, 50 numbers in rising order, by which a policy can tell them from a random one.
    """

    def grade(task: Task, text: str, files: Mapping[str, bytes] | None = None, **options: Any) -> Grade:
        few = {"checkpoints": 3, "seeds": 2, "environments": 4, "dev_environments": 2}
        size = attrs.evolve(task.sizes["tiny"], parameters=few)
        task = attrs.evolve(task, sizes={**task.sizes, "tiny": size})
        ramp = np.linspace(-1, 1, 50, dtype="<f4")
        given = files or {
            f"{n}.safetensors": packed({"gain": np.array([0.2 + 0.4 * n, -1, n], "<f4"), "ramp": ramp})
            for n in range(3)
        }
        every: dict[str, str | bytes] = {f"checkpoints/{name}": content for name, content in given.items()}
        return grade_files(task, {"policy.py": text, **every}, size="tiny", **options)

    return grade


@pytest.fixture(scope="session")
def jax_python(tasks: dict[str, Task]) -> Path:
    """The Python of the tasks' environment on the local backend; it has jax, which MLGym's own has not."""
    image = tasks["mountain_car"].image
    return environments.interpreter(environments.prepare(image, "agent", print))
