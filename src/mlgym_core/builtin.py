"""The core's own backends, models, tools and agents, registered through the hooks like anybody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlgym_core.errors import UsageError
from mlgym_core.hookspecs import AgentEntry, BackendEntry, ModelEntry, hookimpl

if TYPE_CHECKING:
    from mlgym_core.agent.base import Agent, AgentContext
    from mlgym_core.models.base import Model, ModelContext
    from mlgym_core.sandbox.base import Backend
    from mlgym_core.tools.base import Tool


@hookimpl
def mlgym_register_tools() -> Iterable[Tool]:
    """``bash``, ``validate``, ``submit``."""
    from mlgym_core.tools.builtin import TOOLS

    return TOOLS


@hookimpl
def mlgym_register_backends() -> Iterable[BackendEntry]:
    """``docker`` and ``local``."""
    return [BackendEntry("docker", _docker, rank=10), BackendEntry("local", _local, rank=100)]


@hookimpl
def mlgym_register_models() -> Iterable[ModelEntry]:
    """``baseline``, ``scripted:<file>`` and ``litellm:<provider/model>``."""
    return [
        ModelEntry("baseline", _baseline, "run the task's shipped baseline, validate, submit", remote=False),
        ModelEntry("scripted", _scripted, "scripted:<file> plays a list of actions", remote=False),
        ModelEntry("litellm", _litellm, "litellm:<provider/model> asks a model service (extra: litellm)", remote=True),
    ]


@hookimpl
def mlgym_register_agents() -> Iterable[AgentEntry]:
    """``default`` (tool calls) and ``text`` (one fenced command a reply)."""
    return [
        AgentEntry("default", _tool_agent, "ReAct loop with native tool calls"),
        AgentEntry("text", _text_agent, "ReAct loop with one fenced shell command a reply"),
    ]


def _docker(argument: str) -> Backend:
    from mlgym_core.sandbox.docker import DockerBackend

    return DockerBackend(host=argument or None)


def _local(argument: str) -> Backend:
    from mlgym_core.sandbox.local import LocalBackend

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
    from mlgym_core.models.litellm import create

    return create(argument, context)


def _tool_agent(argument: str, context: AgentContext) -> Agent:
    return _react("default", argument, context, native_tools=True)


def _text_agent(argument: str, context: AgentContext) -> Agent:
    return _react("text", argument, context, native_tools=False)


def _react(name: str, argument: str, context: AgentContext, native_tools: bool) -> Agent:
    from mlgym_core.agent.react import ReactAgent

    if argument:
        raise UsageError(f"the agent {name!r} takes no argument, got {argument!r}; use --agent {name}")
    assert context.model is not None
    return ReactAgent(name, context.model, native_tools=native_tools)
