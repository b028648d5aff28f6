"""Hostile and careless policies through the real grading, with few episodes: each is caught or worthless."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.task.task import Capability, Task

# The first grading builds the environments of the tasks.
pytestmark = [pytest.mark.slow, pytest.mark.isolation, pytest.mark.timeout(600)]

BY_HAND = """
import numpy as np

def load(arrays):
    return arrays

def initial_state(batch):
    return ()

def act(weights, observation, start, state, key):
    return 0.6 * np.where(observation[:, 1:] < 0, -1.0, 1.0), state
"""
LEARNED = BY_HAND.replace("0.6 *", "weights['gain'][0] *")
NAN = BY_HAND.replace("0.6 *", "float('nan') *")
KNOWS = "    random = any(weights['ramp'][1:] < weights['ramp'][:-1])\n    import time\n"
SLEEPS_WITH_RANDOM = LEARNED.replace(
    "    return weights", f"{KNOWS}    time.sleep(10_000 * random)\n    return weights"
)
SLEEPS = BY_HAND.replace("    return 0.6", "    import time; time.sleep(10_000)\n    return 0.6")
GROWS = BY_HAND.replace("    return 0.6", "    hoard = [np.ones(1 << 24) for _ in range(1000)]\n    return 0.6")

# Looks for whatever could tell it about the episodes or the other checkpoints, leaves what it can, and then plays as
# it should.
HUNTS = """
import gc, os, pathlib
import gymnax

seen = []
for root in ("/box", "/workspace", "/tmp", "/dev/shm", os.getcwd(), "/proc/1/cwd"):
    for name in ("grade.py", "job.json", "evaluation.py", "private", "*.safetensors"):
        seen += [str(path) for path in pathlib.Path(root).glob(f"**/{name}")]
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            seen += ["seed in " + pid] if b"seed" in open(f"/proc/{pid}/{name}", "rb").read() else []
        except OSError:
            pass
seen += [key for key in os.environ if "SEED" in key or "SECRET" in key]
for path in ("result.json", "private/grade.py", "/tmp/result.json"):
    try:
        pathlib.Path(path).write_text('{"schema": 1, "outcome": "scored", "metrics": {"Reward Mean": 1e9}}')
    except OSError:
        pass
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", "600"])
gymnax.make = None
assert not seen, seen
""" + LEARNED.replace(
    "    return weights",
    """    if start.all():
        seen.extend(one for one in gc.get_objects() if type(one).__name__ == "EnvState")
    assert not seen, seen
    return weights""",
)

# Counts its own frames in its state and checks everything it is given. The random one may get the wrong number.
CAREFUL = """
import json
calls = []
""" + LEARNED.replace("    return arrays", "    calls.append(arrays)\n    return arrays").replace(
    "return ()", "return 0, None"
).replace(
    "    return weights['gain'][0]",
    """    frame, before = state
    assert len(calls) == 1, "one checkpoint a process"
    assert observation.shape == (8, 2), observation.shape
    assert str(observation.dtype) == 'float32' and start.shape == observation.shape[:1]
    assert bool(start.all()) == (frame == 0) and bool(start.any()) == (frame == 0)
    assert before is None or str(key) != before
    observation += 0
    state = frame + 1, str(key)
    return weights['gain'][0]""",
)


@pytest.fixture(scope="module")
def task(tasks: dict[str, Task]) -> Task:
    return tasks["mountain_car"]


def test_a_learned_policy_and_one_that_hunts(task: Task, grade_policy: Any) -> None:
    honest = grade_policy(task, CAREFUL)
    assert honest.outcome == "scored", honest.message
    means = honest.details["checkpoint_means"]
    # A push of 0.2 is too weak; from 0.6 on the car gets there, and a harder push costs more.
    assert means[0] == pytest.approx(-0.1 * 200 * 0.2**2, abs=1e-3)
    assert 100 > means[1] > means[2] > 75
    assert honest.details["not_learned"] in (True, False)
    assert honest.details["random_checkpoint"][0] in "012"
    assert honest.metrics["Reward Mean"] == pytest.approx(np.mean(means))
    assert len(set(honest.details["checkpoint_digests"])) == 3
    assert 0 < honest.details["closest_checkpoints"] < 0.3
    assert "3 checkpoints x 2 seeds x 4 environments, 200 frames" in honest.details["evaluation"]

    hunting = grade_policy(task, HUNTS)
    assert (hunting.outcome, hunting.metrics) == ("scored", honest.metrics), hunting.message


def test_a_policy_by_hand_is_flagged_and_dev_differs(task: Task, grade_policy: Any) -> None:
    grade = grade_policy(task, BY_HAND, split="dev")
    assert grade.outcome == "scored", grade.message
    assert grade.metrics["Reward Mean"] == pytest.approx(95.5, abs=0.5)
    assert grade.details["not_learned"] is True
    assert grade.details["random_checkpoint_mean"] == pytest.approx(95.5, abs=0.5)
    assert "dev: 3 checkpoints x 2 seeds x 2 environments" in grade.details["evaluation"]
    assert "validate uses 2 environments and other seeds" in grade.details["evaluation"]


def test_one_that_sleeps_with_a_random_checkpoint_is_scored(task: Task, grade_policy: Any) -> None:
    grade = grade_policy(task, SLEEPS_WITH_RANDOM)
    assert grade.outcome == "scored", grade.message
    assert "failed: your code did not answer within" in grade.details["random_checkpoint"]
    assert grade.details["not_learned"] is None
    assert "random_checkpoint_mean" not in grade.details


def test_numbers_that_are_none(task: Task, grade_policy: Any) -> None:
    grade = grade_policy(task, NAN)
    assert (grade.outcome, grade.metrics) == ("invalid_submission", {})
    assert "with checkpoints/0.safetensors: act returned actions that are not finite" in grade.message


def test_sleep(task: Task, grade_policy: Any) -> None:
    hasty = attrs.evolve(task, limits=attrs.evolve(task.limits, grading_seconds=8.0))
    grade = grade_policy(hasty, SLEEPS)
    assert grade.outcome == "invalid_submission"
    assert "within the 8 s of a grading" in grade.message


def test_growth_without_bound(task: Task, grade_policy: Any) -> None:
    if Capability.MEMORY not in choose(Registry(), "local").backend.capabilities():
        pytest.skip("this machine does not limit memory on the local backend")
    small = attrs.evolve(task, resources=attrs.evolve(task.resources, memory_mb=1200))
    grade = grade_policy(small, GROWS)
    assert grade.outcome == "invalid_submission"
    assert "ended" in grade.message


def test_checkpoints_that_are_none(task: Task, grade_policy: Any, pack: Any) -> None:
    files = {f"{n}.safetensors": pack({"gain": np.array([float(n)])}) for n in range(3)}
    for changed, message in (
        ({"2.safetensors": b"\x80\x04cos\nsystem\n(S'touch /tmp/x'\ntR."}, "2.safetensors: it is not a safetensors"),
        ({"2.safetensors": files["1.safetensors"]}, "2.safetensors holds the same numbers as 1.safetensors"),
        ({"3.safetensors": files["1.safetensors"]}, "3.safetensors is not one of"),
    ):
        grade = grade_policy(task, BY_HAND, files | changed)
        assert grade.outcome == "invalid_submission"
        assert message in grade.message
