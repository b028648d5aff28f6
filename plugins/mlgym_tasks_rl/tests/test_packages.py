"""The packages: what a task declares, that the starters fit the published protocol, and what a wheel holds."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mlgym_core.task.task import Task

DOMAIN = Path(__file__).parents[1]
NAMES = ("breakout", "meta_maze", "mountain_car")
ALIASES = {"breakout": "rlBreakoutMinAtar", "meta_maze": "rlMetaMazeMisc", "mountain_car": "rlMountainCarContinuous"}
PUBLISHED = {"breakout": (48.82, 30.36), "meta_maze": (15.73, 16.31), "mountain_car": (33.79, 41.71)}
# Steps, environments, rollout, minibatches, layers, discount, trace, clip, entropy, gradient norm, learning rates.
HYPER = {
    "breakout": (10_000_000, 64, 128, 8, 2, 0.999, 0.95, 0.2, 0.01, 0.5, 5e-4, 5e-4),
    "meta_maze": (10_000_000, 64, 32, 4, 2, 0.99, 0.95, 0.1, 0.05, 1.0, 5e-4, 5e-4),
    "mountain_car": (20_000_000, 256, 256, 8, 4, 0.99, 0.99, 0.1, 0.1, 0.5, 6e-4, 5e-4),
}


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_points_fit_the_task(tasks: dict[str, Task], name: str) -> None:
    task, points = tasks[name], toml(DOMAIN / name / "pyproject.toml")["project"]["entry-points"]
    assert points["mlgym.tasks"] == {task.id: f"mlgym_task_{name}"}
    assert tuple(points["mlgym.task_aliases"]) == task.aliases == (ALIASES[name],)
    (registered,) = importlib.import_module(f"mlgym_task_{name}").mlgym_register_tasks()
    assert registered == task


@pytest.mark.parametrize("name", NAMES)
def test_what_the_agent_gets_and_what_it_does_not(tasks: dict[str, Task], name: str) -> None:
    task = tasks[name]
    assert set(task.public_files()) == {"policy.py", "config.toml", "player.py", "ppo.py", "train.py"}
    assert set(task.private_files()) == {"grade.py", "evaluation.py", "checkpoints.py"}
    assert (task.limits.steps, task.limits.cost_usd, task.limits.action_seconds) == (50, 4.0, 1800)
    assert task.resources.gpus == 2
    assert task.submission.withheld == ("checkpoints/",), "a player has one checkpoint, sent by the grader"
    full = task.sizes["full"].parameters
    assert (full["checkpoints"], full["seeds"], full["environments"]) == (5, 5, 256)
    assert full["dev_environments"] < full["environments"]
    assert str(full["dev_environments"]) in task.description()


@pytest.mark.parametrize("name", NAMES)
def test_the_published_protocol(tasks: dict[str, Task], name: str) -> None:
    task = tasks[name]
    known = task.baseline.scores["full"]
    assert (known["Reward Mean"].value, known["Reward Std"].value) == PUBLISHED[name]
    config = toml(task.folder / "public" / "config.toml")["full"]
    keys = ("total_steps", "environments", "rollout", "minibatches", "layers", "discount", "trace", "clip", "entropy",
            "gradient_norm", "learning_rate", "final_learning_rate")  # fmt: skip
    assert tuple(config[key] for key in keys) == HYPER[name]
    assert (config["seeds"], config["epochs"], config["critic"], config["width"]) == (5, 4, 0.5, 256)


def test_the_three_share_one_image(tasks: dict[str, Task]) -> None:
    images = [{p.name: p.read_bytes() for p in tasks[name].image.folder.iterdir()} for name in NAMES]
    assert images[0] == images[1] == images[2]


@pytest.mark.parametrize("name", NAMES)
def test_tiny_changes_the_one_line_of_the_starter_that_it_means(tasks: dict[str, Task], name: str) -> None:
    baseline, policy = tasks[name].baseline, (tasks[name].folder / "public" / "policy.py").read_text()
    assert baseline.command_for("full") == "python3 train.py"
    command = baseline.command_for("tiny")
    assert command.endswith("python3 train.py")
    if "sed" in command:
        assert "s/inputs = observation$/" in command
        assert policy.count("inputs = observation\n") == 1
    else:
        assert name == "breakout"


def test_the_domain_holds_none_of_its_tasks_files() -> None:
    project = toml(DOMAIN / "pyproject.toml")
    build = project["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"] == {"packages": ["src/mlgym_tasks_rl"]}
    assert build["sdist"]["only-include"] == ["src/mlgym_tasks_rl", "README.md", "LICENSE"]
    assert {path.name for path in (DOMAIN / "src").iterdir()} == {"mlgym_tasks_rl"}
    extra = project["project"]["optional-dependencies"]["all"]
    assert {one.split(">")[0] for one in extra} == {f"mlgym-task-{name.replace('_', '-')}" for name in NAMES}
