"""The package, and its baseline from the task's image to the score."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from mlgym_core import RunConfig, run
from mlgym_core.errors import BackendUnavailableError
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.task.task import Task

HERE = Path(__file__).parents[1]


def check(task: Task, table: Path, backend: str, out: Path) -> None:
    result = run(RunConfig(backend=backend, source=f"local:{table}", out=out), task=task)
    assert result.document["status"] == "scored", result.document["message"]
    scores = result.document["scores"]["test"]
    if os.environ.get("MLGYM_TEST_HOUSE_PRICES"):
        assert scores["r2"] == pytest.approx(0.880, abs=0.002)
        assert scores["rmse"] == pytest.approx(30340.1, rel=0.01)
    else:
        assert 0.9 < scores["r2"] < 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_baseline_on_the_local_backend(
    task: Task, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    check(task, table, "local", tmp_path / "runs")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_baseline_in_containers(task: Task, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    try:
        choose(Registry(), "docker")
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    check(task, table, "docker", tmp_path / "runs")


def test_the_package_fits_the_task(task: Task) -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]
    assert points["mlgym.tasks"] == {task.id: "mlgym_task_house_price"}
    assert tuple(points["mlgym.task_aliases"]) == task.aliases == ("regressionKaggleHousePrice",)
    domain = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    assert any(one.startswith(project["name"]) for one in domain["project"]["optional-dependencies"]["all"])
    assert domain["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/mlgym_tasks_datascience"]}


def test_what_the_agent_gets_and_what_it_does_not(task: Task) -> None:
    assert set(task.public_files()) == {"baseline.py"}
    assert set(task.private_files()) == {"grade.py"}
    assert task.data is not None
    assert task.data.sources == ("openml", "kaggle", "local")
    told = task.description()
    for word in (
        "1,022",
        "438",
        "146",
        "292",
        "Id,SalePrice",
        "coefficient of determination",
        "no network",
    ):
        assert word in told
    assert (task.limits.steps, task.limits.cost_usd, task.limits.action_seconds) == (50, 4.0, 1800)


def test_the_description_names_every_column() -> None:
    told = (HERE / "src" / "mlgym_task_house_price" / "description.md").read_text()
    for line in (HERE / "tests" / "columns.csv").read_text().splitlines():
        for name in line.split(",")[1:]:
            assert f"`{name}`" in told, name


def test_the_known_scores_are_the_published_ones(task: Task) -> None:
    for size in ("full", "tiny"):
        known = task.baseline.scores[size]
        assert {name: (round(score.value, 4), score.source) for name, score in known.items()} == {
            "r2": (0.88, "published"), "rmse": (30340.1119, "published")
        }  # fmt: skip
