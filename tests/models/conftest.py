"""What the tests of model services share: a server, a meter, and a model that does not sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from models.meters import KEY, Meter
from models.server import ModelServer

from mlgym_core.models.base import ModelSettings
from mlgym_core.models.litellm.client import LiteLLMModel
from mlgym_core.models.litellm.retry import Patience


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def make(server: ModelServer, meter: Meter, slept: list[float]) -> Callable[..., LiteLLMModel]:
    """A model that notes its waits instead of sleeping."""

    def build(model: str = "openai/test-model", attempts: int = 5, **settings: Any) -> LiteLLMModel:
        patience = Patience(attempts=attempts, sleep=slept.append, jitter=lambda: 0.0)
        made = LiteLLMModel(model, ModelSettings(**{"base_url": server.url, **settings}), patience)
        made.attach(meter)
        return made

    return build
