"""Configurations as plain data, and what runs share."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support import write_task

from mlgym_core import RunConfig, load_task_folder, run
from mlgym_core.errors import UsageError
from mlgym_core.models.base import ModelSettings, Price
from mlgym_core.runner.execution import execute
from mlgym_core.runner.plan import make_plan
from mlgym_core.runner.setup import Setup
from mlgym_core.task.plainfile import parse_yaml
from mlgym_core.task.task import Task

WHOLE = """
task: blotto
model: litellm:openai/gpt-4o
agent: text
size: tiny
network: full
seed: 3
out: ./somewhere
limits: {steps: 5, cost_usd: null}
validate_on: test
settings: {temperature: 1, price: {prompt: 3, completion: 15}, stop: [END]}
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task_folder(write_task(tmp_path / "task"))


def test_a_yaml_file_makes_a_configuration() -> None:
    assert RunConfig.from_plain(parse_yaml(WHOLE)) == RunConfig(
        task="blotto",
        model="litellm:openai/gpt-4o",
        agent="text",
        size="tiny",
        network="full",
        seed=3,
        out=Path("somewhere"),
        limits={"steps": 5, "cost_usd": None},
        validate_on="test",
        settings=ModelSettings(temperature=1.0, price=Price(3.0, 15.0), stop=("END",)),
    )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"taks": "blotto"}, "unknown key 'taks'; did you mean 'task'"),
        ({"settings": {"temprature": 1}}, "unknown key 'settings.temprature'; did you mean 'temperature'"),
        ({"task": 5}, "task: expected str, got 5"),
        ({"seed": "5"}, "seed: expected int"),
        ({"network": "some"}, "network"),
        (["task"], "must be a mapping"),
    ],
)
def test_a_mistake_in_it_is_named(raw: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig.from_plain(raw)
    assert said in str(caught.value)


def test_objects_have_a_door_of_their_own(task: Task) -> None:
    with pytest.raises(UsageError, match=r"run\(RunConfig\(\.\.\.\), task=\.\.\.\)"):
        RunConfig(task=task)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["modle", "secret"])
def test_an_object_of_an_unknown_name_is_refused(task: Task, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is no object.*secrets"):
        run(RunConfig(backend="local"), task=task, **{name: object()})  # type: ignore[arg-type]


def test_no_task_is_a_plain_error() -> None:
    with pytest.raises(UsageError, match="mlgym tasks"):
        Setup.of(RunConfig(backend="local"))


def test_runs_of_one_setup_share_what_is_expensive_and_nothing_else(task: Task, tmp_path: Path) -> None:
    config = RunConfig(backend="local", out=tmp_path / "runs")
    setup = Setup.of(config, task=task)
    plans = [make_plan(setup, config) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(execute, plans))
    assert [result.status for result in results] == ["scored"] * 3
    assert len({result.folder for result in results}) == 3
    manifests = [json.loads((result.folder / "run.json").read_text()) for result in results]
    assert len({manifest["seeds"]["grading"] for manifest in manifests}) == 3
    assert len({str(manifest["images"]) for manifest in manifests}) == 1
