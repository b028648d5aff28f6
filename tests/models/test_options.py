"""The options of ``mlgym run`` that say how a model is asked and how much of it may be used."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from models.server import ModelServer, bash, submit
from typer.testing import CliRunner

from mlgym_core.cli import app, options
from mlgym_core.cli import run as run_module
from mlgym_core.errors import UsageError
from mlgym_core.models.base import ModelSettings
from mlgym_core.task.task import Limits

BASE = ["run", "battle-of-sexes", "--size", "tiny", "--backend", "local", "--allow-unsafe", "--json"]
ASKED = ["--model", "litellm:openai/test-model", "--temperature", "0.5", "--top-p", "default", "--max-tokens", "99"]
ASKED += ["--reasoning-effort", "low", "--stop", "END", "--stop", "STOP", "--model-seed", "7", "--stream", "--no-cache"]
ASKED += ["--model-timeout", "55", "--price", "10,20"]
ASKED += ["--model-option", "top_k=4", "--model-option", "user=me", "--model-option", 'logit_bias={"1": 2}']
LIMITS = ["--steps", "9", "--cost", "3", "--tokens", "9999", "--time", "300", "--working-time", "200"]
LIMITS += ["--action-time", "60", "--model-calls", "8", "--validations", "2"]


def test_every_option_reaches_the_service_or_the_run(server: ModelServer, tmp_path: Path) -> None:
    server.script(bash("true"), submit())
    done = CliRunner().invoke(app, [*BASE, *ASKED, *LIMITS, "--base-url", server.url])
    assert done.exit_code == 0, done.output
    body = dict(server.requests[0].body)
    expected: dict[str, Any] = {"temperature": 0.5, "max_tokens": 99, "reasoning_effort": "low", "seed": 7}
    expected |= {"stop": ["END", "STOP"], "stream": True, "top_k": 4, "user": "me", "logit_bias": {"1": 2}}
    assert {name: body.get(name) for name in expected} == expected
    assert "top_p" not in body
    (path,) = (tmp_path / "runs").glob("*/run.json")
    manifest = json.loads(path.read_text())
    kept = manifest["model_settings"]
    assert (kept["timeout"], kept["cache"], kept["price"]) == (55.0, False, {"prompt": 10.0, "completion": 20.0})
    limits = {"steps": 9, "cost_usd": 3.0, "tokens": 9999, "wall_seconds": 300.0, "working_seconds": 200.0}
    limits |= {"action_seconds": 60.0, "model_calls": 8, "validations": 2}
    assert {name: manifest["limits"][name] for name in limits} == limits
    assert set(limits) == {field.name for field in attrs.fields(Limits)} - {"grading_seconds", "late_grading_seconds"}


def test_every_setting_has_an_option() -> None:
    taken = set(inspect.signature(run_module.command).parameters)
    spelled = {"seed": "model_seed", "timeout": "model_timeout", "extra": "model_option"}
    assert {spelled.get(field.name, field.name) for field in attrs.fields(ModelSettings)} <= taken


@pytest.mark.parametrize(
    ("item", "name", "value"),
    [
        ("a=1", "a", 1),
        ("a=1.5", "a", 1.5),
        ("a=true", "a", True),
        ("a=null", "a", None),
        ("a=text", "a", "text"),
        ('a="1"', "a", "1"),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ('a={"b": [1]}', "a", {"b": [1]}),
    ],
)
def test_a_model_option_is_json_where_it_can_be(item: str, name: str, value: Any) -> None:
    assert options.model_settings(extra=[item]).extra == {name: value}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extra": ["novalue"]}, "--model-option takes KEY=VALUE"),
        ({"extra": ["=1"]}, "--model-option takes KEY=VALUE"),
        ({"extra": ["a=NaN"]}, "plain JSON"),
        ({"extra": ["api_key=x"]}, "use the environment"),
        ({"stop": [""]}, "must not be empty"),
        ({"reasoning_effort": "very high"}, "one word"),
        ({"timeout": 0.0}, "timeout"),
        ({"price": "3"}, "two numbers"),
        ({"temperature": "hot"}, "--temperature takes a number"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options.model_settings(**given)


def test_nothing_given_changes_nothing() -> None:
    assert options.model_settings() == ModelSettings()
    assert options.limits() == {}
    assert options.limits(cost=0) == {"cost_usd": None}
