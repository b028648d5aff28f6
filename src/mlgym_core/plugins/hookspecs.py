"""The hooks that plugins implement. Part of the stable surface: arguments are only ever added.

A *task* package is found through the entry-point group ``mlgym.tasks`` (name = task id, value = module)
and implements :func:`mlgym_register_tasks`. A module with *behaviour* is found through the group ``mlgym``
and implements any of the others. The core registers its own backends, models, tools and agents through
the same hooks (:mod:`mlgym_core.plugins.builtin`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import field, frozen, validators

if TYPE_CHECKING:
    import typer

    from mlgym_core.agent.base import Agent, AgentContext
    from mlgym_core.models.base import Model, ModelContext
    from mlgym_core.sandbox.base import Backend
    from mlgym_core.task.task import Task
    from mlgym_core.tools.base import Tool

PROJECT = "mlgym"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@frozen
class BackendEntry:
    """A container backend on offer.

    Attributes:
        name: what stands before the colon in ``--backend name:argument``.
        create: called with the text after the colon (``""`` if none); returns the backend, or raises
            :class:`~mlgym_core.errors.BackendUnavailableError` saying what was tried and what would help.
        rank: ``auto`` takes the available backend with the lowest rank (docker 10, podman 20, local 100).
    """

    name: str
    create: Callable[[str], Backend]
    rank: int = field(default=50, validator=validators.instance_of(int))


@frozen
class ModelEntry:
    """A model backend on offer.

    Attributes:
        name: what stands before the colon in ``--model name:argument``.
        create: called with the text after the colon (``""`` if none) and the run's context.
        help: one line for people.
        remote: the model's output is not chosen by the person who starts the run; such a model is let
            into an unsealed backend only with ``--allow-unsafe``.
        interactive: it uses the terminal itself, so progress is not shown there.
    """

    name: str
    create: Callable[[str, ModelContext], Model]
    help: str = ""
    remote: bool = True
    interactive: bool = False


@frozen
class AgentEntry:
    """An agent on offer: the loop around a model, or a program inside the sandbox.

    Attributes:
        name: what stands before the colon in ``--agent name:argument``.
        create: called with the text after the colon (``""`` if none) and the run's context.
        help: one line for people.
    """

    name: str
    create: Callable[[str, AgentContext], Agent]
    help: str = ""


@hookspec
def mlgym_register_tasks() -> Iterable[Task]:  # type: ignore[empty-body]
    """Return the package's tasks, loaded with :func:`mlgym_core.load_task_folder`."""


@hookspec
def mlgym_register_tools() -> Iterable[Tool]:  # type: ignore[empty-body]
    """Return tools that agents may call."""


@hookspec
def mlgym_register_backends() -> Iterable[BackendEntry]:  # type: ignore[empty-body]
    """Return container backends."""


@hookspec
def mlgym_register_models() -> Iterable[ModelEntry]:  # type: ignore[empty-body]
    """Return model backends."""


@hookspec
def mlgym_register_agents() -> Iterable[AgentEntry]:  # type: ignore[empty-body]
    """Return agents."""


@hookspec
def mlgym_register_commands() -> Iterable[tuple[str, typer.Typer]]:  # type: ignore[empty-body]
    """Return ``(name, typer app)`` pairs that become ``mlgym <name>``."""


@hookspec
def mlgym_run_event(run_id: str, event: Mapping[str, Any]) -> None:
    """See one event of a run, as it is written to ``events.jsonl``. Must be quick; errors are reported once."""
