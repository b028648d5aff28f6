"""What runs of one task share: everything is looked up and checked before anything is created, and made once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from attrs import define, field

from mlgym_core import data
from mlgym_core.agent.base import Agent, AgentContext
from mlgym_core.errors import UsageError
from mlgym_core.grading.sealed import Grader, GradingData
from mlgym_core.grading.secrets import draw
from mlgym_core.models.base import Model, ModelContext
from mlgym_core.plugins.loading import Registry
from mlgym_core.record.folder import new_run_id
from mlgym_core.runner import backends
from mlgym_core.runner.config import Own, RunConfig, check_own
from mlgym_core.runner.tasks import find_task
from mlgym_core.sandbox.base import Backend, PreparedImage, Progress, Role
from mlgym_core.storage import expanded
from mlgym_core.task.task import Capability, Limits, Task
from mlgym_core.task.taskfile import checked_limits
from mlgym_core.tools.base import Tool


@define
class Setup:
    """A task at one size on one backend, for any number of runs and gradings, also at once from several threads.

    Attributes:
        registry: plugins.
        task: with its own limits.
        backend: opens all boxes.
        why: the backend was taken, in one sentence.
        size: of the task's data.
        source: of the task's data; the task's default when ``None``.
        build: whether a missing image may be built.
        tools: all that are registered.
    """

    registry: Registry
    task: Task
    backend: Backend
    why: str
    size: str
    source: str | None = None
    build: bool = True
    tools: tuple[Tool, ...] = ()
    _images: dict[Role, PreparedImage] = field(factory=dict, init=False, repr=False)
    _data: dict[int, data.Prepared] = field(factory=dict, init=False, repr=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False, repr=False)

    @classmethod
    def of(cls, config: RunConfig, registry: Registry | None = None, **own: Unpack[Own]) -> Setup:
        """Look up the task and the backend that a configuration names, or take those handed over.

        Raises:
            UsageError: there is none of that name, or the task has no such size.
            BackendUnavailableError: no backend can be used.
        """
        check_own(own)
        task, backend = own.get("task", config.task), own.get("backend", config.backend)
        return cls.find(task, backend, registry, size=config.size, source=config.source, build=config.build)

    @classmethod
    def find(
        cls,
        task: str | Path | Task,
        backend: str | Backend,
        registry: Registry | None = None,
        *,
        size: str,
        source: str | None = None,
        build: bool = True,
    ) -> Setup:
        """Look up a task and a backend; see :meth:`of`."""
        registry = registry or Registry()
        found = find_task(task, size)
        tools = tuple(registry.collect("mlgym_register_tools"))
        choice = backends.choose(registry, backend)
        return cls(registry, found, choice.backend, choice.why, size, source, build, tools)

    @property
    def sealed(self) -> bool:
        """Whether scores can be trusted: boxes are isolated."""
        return Capability.ISOLATION in self.backend.capabilities()

    def data(self, seed: int, progress: Progress = lambda _: None) -> data.Prepared:
        """The task's data for this seed.

        Raises:
            UsageError, InfrastructureError: as :func:`mlgym_core.data.prepare`.
        """
        with self._lock:
            if seed not in self._data:
                self._data[seed] = data.prepare(self.task, self.source, self.size, seed, progress)
            return self._data[seed]

    def images(self, progress: Progress) -> Mapping[Role, PreparedImage]:
        """The images of all roles, so that nothing is built in the middle of a run.

        Raises:
            InfrastructureError: one is absent and may not be built, or its build failed.
        """
        roles: tuple[Role, ...] = ("agent", "grader") if self.task.submission.kind == "csv" else _ROLES
        with self._lock:
            for role in roles:
                if role not in self._images:
                    self._images[role] = self.backend.prepare_image(self.task.image, role, progress, self.build)
            return dict(self._images)

    def grader(
        self,
        prepared: GradingData,
        *,
        secret: bytes | None = None,
        run_id: str | None = None,
        task: Task | None = None,
        progress: Progress = lambda _: None,
    ) -> Grader:
        """What scores submissions: the one way to make it.

        Args:
            prepared: the task's data.
            secret: 16 bytes from which grading seeds are derived; drawn anew when ``None``.
            run_id: labels its boxes; a new one when ``None``.
            task: with a run's limits in place of its own.
            progress: told what takes time.
        """
        return Grader(
            task=task or self.task,
            backend=self.backend,
            run_id=run_id or new_run_id(self.task.id),
            size=self.size,
            secret=secret or draw(),
            data=prepared,
            progress=progress,
            build=self.build,
        )

    def limits(self, overrides: Mapping[str, Any]) -> Limits:
        """The task's limits with some replaced.

        Raises:
            UsageError: there is no such limit, or its value makes no sense.
        """
        return checked_limits(self.task.limits, overrides)

    def model(self, config: RunConfig, task: Task, own: Own) -> tuple[Model, bool]:
        """The model, and whether what it answers is not chosen by the person who starts the run.

        Raises:
            UsageError: there is none of that name, or it cannot be made.
        """
        if "model" in own:
            return own["model"], bool(getattr(own["model"], "remote", True))
        name, _, argument = config.model.partition(":")
        entry = self.registry.choose("mlgym_register_models", name, "model")
        context = ModelContext(task, config.size, config.seed, task.limits, config.settings, self.tools)
        return entry.create(argument, context), entry.remote

    def agent(self, config: RunConfig, task: Task, model: Model, own: Own) -> Agent:
        """The agent.

        Raises:
            UsageError: there is none of that name, or its configuration is wrong.
        """
        if "agent" in own:
            return own["agent"]
        context = AgentContext(task, config.size, config.seed, config.network, model, self.tools)
        name, _, argument = config.agent.partition(":")
        if "/" in name or name.endswith((".yaml", ".yml")):
            from mlgym_core.agent.config import from_file

            return from_file(expanded(config.agent), context)
        agent: Agent = self.registry.choose("mlgym_register_agents", name, "agent").create(argument, context)
        return agent

    def need_isolation(self, model: Model | None) -> None:
        """Refuse to let a stranger's actions into boxes that do not isolate.

        Raises:
            UsageError: they do not.
        """
        if not self.sealed:
            who = f"model {model.name}" if model else "whatever steps the episode"
            raise UsageError(
                f"backend {self.backend.name} ({self.backend.describe()}) does not isolate, and {who} could do "
                f"anything to this machine; install bubblewrap or a container engine, or pass --allow-unsafe "
                "(allow_unsafe=True)"
            )


_ROLES: tuple[Role, ...] = ("agent", "grader", "player")
