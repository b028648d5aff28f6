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
from mlgym_core.sandbox import environments
from mlgym_core.task import Task
from mlgym_core.taskfile import load_task_folder
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

    The checkpoints are five arrays named ``gain``, with 1 to 5 times 0.2 in both signs, unless others are given.
    """

    def grade(task: Task, text: str, files: Mapping[str, bytes] | None = None, **options: Any) -> Grade:
        few = {"checkpoints": 5, "seeds": 2, "environments": 4, "dev_environments": 2, "random_episodes": 4}
        size = attrs.evolve(task.sizes["tiny"], parameters=few)
        task = attrs.evolve(task, sizes={**task.sizes, "tiny": size})
        gains = np.array([0.2, -0.2], np.float32)
        given = files or {f"{n}.safetensors": packed({"gain": (n + 1) * gains}) for n in range(5)}
        every: dict[str, str | bytes] = {f"checkpoints/{name}": content for name, content in given.items()}
        return grade_files(task, {"policy.py": text, **every}, size="tiny", **options)

    return grade


@pytest.fixture(scope="session")
def jax_python(tasks: dict[str, Task]) -> Path:
    """The Python of the tasks' environment on the local backend; it has jax, which MLGym's own has not."""
    image = tasks["mountain_car"].image
    return environments.interpreter(environments.prepare(image, "agent", print))
