"""Starter, agent's sandbox, grader and player in containers, on a training that takes no time."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgym_core import RunConfig
from mlgym_core.episode.episode import Action
from mlgym_core.errors import BackendUnavailableError
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.runner.execution import open_episode
from mlgym_core.task.task import Task

SMALL = (
    r"sed -i -E 's/^total_steps.*/total_steps = 64/; s/^(environments|rollout) .*/\1 = 4/;"
    r" s/^minibatches.*/minibatches = 1/; s/^epochs.*/epochs = 1/; s/^layers.*/layers = 1/' config.toml"
)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)  # builds the image
def test_from_the_starter_to_the_score(tasks: dict[str, Task], tmp_path: Path) -> None:
    try:
        choose(Registry(), "docker")
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    config = RunConfig(backend="docker", size="tiny", out=tmp_path)
    with open_episode(config, task=tasks["breakout"]) as episode:
        episode.reset()
        trained = episode.step(f"{SMALL} && python3 train.py && ls checkpoints")
        assert "Breakout-MinAtar: 5 seeds, 4 updates" in trained.observation
        assert "4.safetensors" in trained.observation
        validated = episode.step(Action("validate"))
        assert "dev score: Reward Mean" in validated.observation
        submitted = episode.step(Action("submit"))
        assert submitted.done
        assert episode.submitted is not None
        grade = episode.submitted.grades["test"]
    assert 0 < grade.metrics["Reward Mean"] < 2
    assert grade.details["not_learned"] in (True, False)
