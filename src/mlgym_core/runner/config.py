"""What to run: a configuration, before anything in it has been looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from mlgym_core.agent.base import Agent
from mlgym_core.agent.budget import TotalBudget
from mlgym_core.errors import UsageError
from mlgym_core.models.base import Model, ModelSettings
from mlgym_core.runner import backends
from mlgym_core.sandbox.base import Backend, Network
from mlgym_core.task.task import DEFAULT_SIZE, SPLITS, Split, Task


def _one_of(*choices: str) -> Callable[[Any, attrs.Attribute[Any], str], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
        if value not in choices:
            raise UsageError(f"{attribute.name.replace('_', '-')} must be {' or '.join(choices)}, not {value!r}")

    return check


@frozen
class RunConfig:
    """What to run.

    Attributes:
        task: id, alias, ``distribution:id``, path (``./mytask.py``, ``./folder``) or a loaded task.
        model: ``name``, ``name:argument`` or a model of your own.
        agent: ``name``, ``name:argument``, path of a configuration (``./mine.yaml``) or an agent of your own.
        backend: ``name``, ``name:argument``, ``auto`` or a backend of your own.
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
        secret: 16 bytes from which grading seeds are derived; drawn anew when ``None``. Runs that are to be
            compared share one.
        settings: how a remote model is asked.
        total: shared with other runs; a run that would start when it is used up is ``not_started``.

    Raises:
        UsageError: a value is not one of those allowed.
    """

    task: str | Task
    model: str | Model = "baseline"
    agent: str | Agent = "default"
    backend: str | Backend = backends.AUTO
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
    secret: bytes | None = field(default=None, repr=False)
    settings: ModelSettings = field(factory=ModelSettings)
    total: TotalBudget | None = None
