"""What to run: plain data, as a command line or a file gives it, before anything in it has been looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import attrs
from attrs import field, frozen

from mlgym_core.agent.base import Agent
from mlgym_core.agent.budget import TotalBudget
from mlgym_core.errors import UsageError
from mlgym_core.grading.secrets import Secrets
from mlgym_core.models.base import Model, ModelSettings
from mlgym_core.runner import backends
from mlgym_core.sandbox.base import Backend, Network
from mlgym_core.task import yamlfile
from mlgym_core.task.task import DEFAULT_SIZE, SPLITS, Split, Task

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _one_of(*choices: str) -> Check:
    def check(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
        if value not in choices:
            raise UsageError(f"{attribute.name.replace('_', '-')} must be {' or '.join(choices)}, not {value!r}")

    return check


def _text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(
            f"{attribute.name} must be a name, not {value!r:.80}; hand an object of your own over beside the "
            f"configuration: run(RunConfig(...), {attribute.name}=...)"
        )


@frozen
class RunConfig:
    """What to run.

    Attributes:
        task: id, alias, ``distribution:id``, or path (``./mytask.py``, ``./folder``).
        model: ``name`` or ``name:argument``.
        agent: ``name``, ``name:argument``, or path of a configuration (``./mine.yaml``).
        backend: ``name``, ``name:argument``, or ``auto``.
        size: of the task's data.
        source: of the task's data; the task's default when ``None``.
        network: of the agent's sandbox.
        seed: of the run and of data preparation; graders use secrets of their own.
        out: folder for the runs' folders; ``MLGYM_RUNS`` or ``runs`` when ``None``.
        limits: overrides of the task's limits, field -> value; ``None`` lifts one that may be lifted.
        validate_on: split that ``validate`` scores.
        keep: leave the sandbox for debugging.
        build: build a missing image.
        allow_unsafe: let whatever chooses the actions into a backend that does not isolate.
        settings: how a remote model is asked.

    Raises:
        UsageError: a value is not one of those allowed.
    """

    task: str = field(default="", validator=_text)
    model: str = field(default="baseline", validator=_text)
    agent: str = field(default="default", validator=_text)
    backend: str = field(default=backends.AUTO, validator=_text)
    size: str = DEFAULT_SIZE
    source: str | None = None
    network: Network = field(default="none", validator=_one_of("none", "full"))
    seed: int = 0
    out: Path | None = None
    limits: Mapping[str, Any] = field(factory=dict)
    validate_on: Split = field(default="dev", validator=_one_of(*SPLITS))
    keep: bool = False
    build: bool = True
    allow_unsafe: bool = False
    settings: ModelSettings = field(factory=ModelSettings)

    @classmethod
    def from_plain(cls, raw: object) -> RunConfig:
        """A configuration from what a YAML or JSON file holds.

        Raises:
            UsageError: a key is unknown (the nearest one is named) or a value is not of its kind.
        """
        return yamlfile.structure(raw, cls, UsageError, "the configuration of a run")


class Own(TypedDict, total=False):
    """Objects of the caller's own, handed over beside a configuration, in the place of what it names.

    Attributes:
        task: a loaded task.
        model: answers messages.
        agent: does the work.
        backend: opens the boxes.
        total: shared with other runs; a run that would start when it is used up is ``not_started``.
        secrets: shared by runs that are to be compared, see :func:`~mlgym_core.runner.execution.run_together`; drawn
            anew without it. Those of both splits known from the start (``Secrets.fixed``) are for checks and tests.
    """

    task: Task
    model: Model
    agent: Agent
    backend: Backend
    total: TotalBudget
    secrets: Secrets


def check_own(own: Own) -> None:
    """Refuse an object under a name that means nothing.

    Raises:
        UsageError: with the names that do.
    """
    unknown = sorted(set(own) - set(Own.__annotations__))
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is no object beside a configuration; those are: {', '.join(Own.__annotations__)}"
        )
