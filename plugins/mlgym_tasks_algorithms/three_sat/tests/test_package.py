"""What the package declares, and what the agent finds."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from mlgym_core.task.task import Task

HERE = Path(__file__).parents[1]


def test_the_package_fits_the_task(task: Task) -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]
    assert points["mlgym.tasks"] == {task.id: "mlgym_task_three_sat"}
    assert tuple(points["mlgym.task_aliases"]) == task.aliases == ("3SATTime",)
    domain = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    assert any(one.startswith(project["name"]) for one in domain["project"]["optional-dependencies"]["all"])
    assert domain["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/mlgym_tasks_algorithms"]}


def test_sizes_limits_and_scores(whole: Task) -> None:
    groups = {name: [tuple(one.values()) for one in size.parameters["groups"]] for name, size in whole.sizes.items()}
    full = [(30, 3.0, 600), (30, 4.26, 600), (40, 4.26, 500), (50, 4.26, 300)]
    tiny = [(20, 3.0, 60), (30, 4.26, 80), (40, 4.26, 40), (50, 4.26, 24)]
    assert [one[:3] for one in groups["full"]] == full
    assert [one[:3] for one in groups["tiny"]] == tiny
    assert all(6 <= batch <= 40 for some in groups.values() for *_, batch in some)
    assert all(size.parameters["seconds"] < whole.limits.grading_seconds for size in whole.sizes.values())
    assert (whole.limits.steps, whole.limits.cost_usd, whole.limits.action_seconds) == (50, 4.0, 1800)
    assert whole.resources.gpus == 0
    for size in whole.sizes:
        known = whole.baseline_score(size, "Time")
        assert known is not None
        assert known.source == "measured"


def test_what_the_agent_gets(whole: Task) -> None:
    assert set(whole.public_files()) == {"heuristic.py", "baseline.py", "solver.py", "player.py", "practice.py"}
    told = " ".join(whole.description().split())
    for word in ("fresh process", "renamed", "replayed", "0.8", "2,000,000", "120", "60 seconds", "an hour", "seeded"):
        assert word in told


def test_the_starter_is_the_baseline(whole: Task) -> None:
    chosen = []
    for name in ("heuristic", "baseline"):
        module = ModuleType(name)
        exec((whole.folder / "public" / f"{name}.py").read_text(), module.__dict__)
        random.seed(3)
        chosen.append(
            [module.heuristic_fn([], {2: True, 4: False}, dict.fromkeys(range(1, 9), 0), [], 2) for _ in range(99)]
        )
    assert chosen[0] == chosen[1]
    assert {variable for variable, _ in chosen[0]} == {1, 3, 5, 6, 7, 8}
    assert {value for _, value in chosen[0]} == {True}


@pytest.mark.parametrize("count", ["1", "2"])
def test_practice(whole: Task, count: str) -> None:
    command = [sys.executable, "-B", "practice.py", count]
    done = subprocess.run(command, cwd=whole.folder / "public", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["variables", "20", "30", "40", "50", "your"]
