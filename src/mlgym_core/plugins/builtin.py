"""The core's own backends, models, tools and agents, registered through the hooks like anybody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlgym_core.errors import UsageError
from mlgym_core.plugins.hookspecs import AgentEntry, BackendEntry, ModelEntry, hookimpl

if TYPE_CHECKING:
    from mlgym_core.models.base import Model, ModelContext
    from mlgym_core.sandbox.base import Backend
    from mlgym_core.tools.base import Tool


@hookimpl
def mlgym_register_tools() -> Iterable[Tool]:
    """``bash``, the tools for files, ``validate``, ``submit``."""
    from mlgym_core.tools.builtin import TOOLS

    return TOOLS


@hookimpl
def mlgym_register_backends() -> Iterable[BackendEntry]:
    """``docker`` and ``local``."""
    return [BackendEntry("docker", _docker, rank=10), BackendEntry("local", _local, rank=100)]


@hookimpl
def mlgym_register_models() -> Iterable[ModelEntry]:
    """``baseline``, ``scripted:<file>``, ``litellm:<provider/model>``, ``replay:<run>`` and ``human``."""
    return [
        ModelEntry("baseline", _baseline, "run the task's shipped baseline, validate, submit", remote=False),
        ModelEntry("scripted", _scripted, "scripted:<file> plays a list of actions", remote=False),
        ModelEntry("litellm", _litellm, "litellm:<provider/model> asks a model service (extra: litellm)", remote=True),
        ModelEntry("replay", _replay, "replay:<run> plays the replies of an earlier run", remote=True),
        ModelEntry(
            "human", _human, "a person at the terminal; human:thoughts asks why too", remote=False, interactive=True
        ),
    ]


@hookimpl
def mlgym_register_agents() -> Iterable[AgentEntry]:
    """The shipped configurations of the ReAct agent."""
    from mlgym_core.agent.config import SHIPPED, entry, shipped

    return [entry(shipped(name)) for name in SHIPPED]


def _docker(argument: str) -> Backend:
    from mlgym_core.sandbox.engine.docker import DockerBackend

    return DockerBackend(host=argument or None)


def _local(argument: str) -> Backend:
    from mlgym_core.sandbox.local.backend import LocalBackend

    kinds = {"": None, "isolated": True, "plain": False}
    if argument not in kinds:
        raise UsageError(f"backend local:{argument} does not exist; choose local, local:isolated or local:plain")
    return LocalBackend(isolate=kinds[argument])


def _baseline(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.scripted import baseline

    return baseline(argument, context)


def _scripted(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.scripted import scripted

    return scripted(argument, context)


def _litellm(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.litellm.client import create

    return create(argument, context)


def _replay(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.replay import create

    return create(argument, context)


def _human(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.human.human import create

    return create(argument, context)
