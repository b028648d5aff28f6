"""The core's own backends, models, tools and agents, registered through the hooks like anybody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlgym_core.hookspecs import AgentEntry, BackendEntry, ModelEntry, hookimpl

if TYPE_CHECKING:
    from mlgym_core.agent.base import Agent
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
    """``local``."""
    return [BackendEntry("local", _local, rank=100)]


@hookimpl
def mlgym_register_models() -> Iterable[ModelEntry]:
    """``baseline`` and ``scripted:<file>``."""
    return [
        ModelEntry("baseline", _baseline, "run the task's shipped baseline, validate, submit", remote=False),
        ModelEntry("scripted", _scripted, "scripted:<file> plays a list of actions", remote=False),
    ]


@hookimpl
def mlgym_register_agents() -> Iterable[AgentEntry]:
    """``default`` (tool calls) and ``text`` (one fenced command a reply)."""
    return [
        AgentEntry("default", _tool_agent, "ReAct loop with native tool calls"),
        AgentEntry("text", _text_agent, "ReAct loop with one fenced shell command a reply"),
    ]


def _local() -> Backend:
    from mlgym_core.sandbox.local import LocalBackend

    return LocalBackend()


def _baseline(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.scripted import baseline

    return baseline(argument, context)


def _scripted(argument: str, context: ModelContext) -> Model:
    from mlgym_core.models.scripted import scripted

    return scripted(argument, context)


def _tool_agent(model: Model) -> Agent:
    from mlgym_core.agent.react import ReactAgent

    return ReactAgent("default", model, native_tools=True)


def _text_agent(model: Model) -> Agent:
    from mlgym_core.agent.react import ReactAgent

    return ReactAgent("text", model, native_tools=False)
