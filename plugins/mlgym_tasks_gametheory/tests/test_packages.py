"""The packages: what a task declares, and that a domain's distribution holds none of its tasks' files."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from mlgym_core.task.task import Task

DOMAIN = Path(__file__).parents[1]
NAMES = ("battle_of_sexes", "prisoners_dilemma", "blotto")
ALIASES = {"battle_of_sexes": ("battleOfSexes",), "prisoners_dilemma": ("prisonersDilemma",), "blotto": ()}


def project(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_points_fit_the_task(games: dict[str, Task], name: str) -> None:
    task, package = games[name], project(DOMAIN / name)["project"]
    assert package["entry-points"]["mlgym.tasks"] == {task.id: f"mlgym_task_{name}"}  # type: ignore[index]
    aliases = package["entry-points"].get("mlgym.task_aliases", {})  # type: ignore[index]
    assert tuple(aliases) == task.aliases == ALIASES[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_plugin_registers_its_task(games: dict[str, Task], name: str) -> None:
    pytest.importorskip(f"mlgym_task_{name}")
    (task,) = importlib.import_module(f"mlgym_task_{name}").mlgym_register_tasks()
    assert task == games[name]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_agent_gets_and_what_it_does_not(games: dict[str, Task], name: str) -> None:
    task = games[name]
    assert set(task.public_files()) == {"strategy.py", "player.py"}
    assert set(task.private_files()) == {"grade.py", "opponent.py", "lockstep.py"}
    told = task.description().lower()
    for word in ("payoff", "history", "10 rounds", "standard error", "hidden", "only the history"):
        assert word in told
    for hidden in ("0.8", "pavlov", "grim", "tit", "uniform"):
        assert hidden not in told


@pytest.mark.parametrize("name", NAMES)
def test_limits_are_the_published_ones(games: dict[str, Task], name: str) -> None:
    task = games[name]
    assert (task.limits.steps, task.limits.cost_usd, task.limits.action_seconds) == (50, 4.0, 1800)
    assert task.resources.gpus == 0
    assert dict(task.sizes["full"].parameters) == {"rounds": 10, "simulations": 10_000}
    assert dict(task.sizes["tiny"].parameters) == {"rounds": 10, "simulations": 1_000}
    published, measured = task.baseline_score("full", "Score"), task.baseline_score("tiny", "Score")
    assert published is not None
    assert measured is not None
    assert (published.source, measured.source) == ("published", "measured")
    assert measured.value == pytest.approx(published.value, abs=0.03)


def test_the_domain_holds_none_of_its_tasks_files() -> None:
    build = project(DOMAIN)["tool"]["hatch"]["build"]["targets"]  # type: ignore[index]
    assert build["wheel"] == {"packages": ["src/mlgym_tasks_gametheory"]}
    assert build["sdist"]["only-include"] == ["src/mlgym_tasks_gametheory", "README.md", "LICENSE"]
    assert {path.name for path in (DOMAIN / "src").iterdir()} == {"mlgym_tasks_gametheory"}
