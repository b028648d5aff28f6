"""From a configuration to a plan: everything is looked up and checked before anything is created."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from mlgym_core import data
from mlgym_core.agent.base import Agent, AgentContext
from mlgym_core.episode.episode import Episode
from mlgym_core.errors import UsageError
from mlgym_core.grading.sealed import Grader, derive_seed
from mlgym_core.models.base import Model, ModelContext
from mlgym_core.plugins.loading import Registry, load_task
from mlgym_core.record.record import Listener, Redactor, RunRecord, new_run_id
from mlgym_core.runner import backends, provenance
from mlgym_core.runner.config import RunConfig
from mlgym_core.sandbox.base import Backend, BoxSpec, Mount, PreparedImage, Role, Sandbox
from mlgym_core.settings import runs_folder
from mlgym_core.task.task import SPLITS, Capability, Limits, Task
from mlgym_core.task.taskfile import numbers_problem
from mlgym_core.tools.base import Tool
from mlgym_core.tools.scripted import tool_files

SECRET_BYTES = 16


@frozen
class Plan:
    """A configuration with everything in it looked up and checked.

    Attributes:
        task: with the run's limits in place of its own.
        model, agent: ``None`` for an episode that the caller steps.
        missing: capabilities that the run wants and the backend lacks.
    """

    config: RunConfig
    registry: Registry
    task: Task
    backend: Backend
    why: str
    missing: list[str]
    run_id: str
    secret: bytes
    prepared: data.Prepared
    tools: tuple[Tool, ...]
    model: Model | None
    agent: Agent | None

    @property
    def sealed(self) -> bool:
        """Whether scores of this run can be trusted: boxes are isolated."""
        return Capability.ISOLATION in self.backend.capabilities()

    def open_record(self, on_event: Listener | None) -> RunRecord:
        """The run's folder, with listeners told of every event.

        Raises:
            RecordError: it cannot be written.
        """
        redact = Redactor.from_environment()
        for value in (self.secret.hex(), *(derive_seed(self.secret, self.task.id, split) for split in SPLITS)):
            redact.add(value)
        observed = self.registry.observes("mlgym_run_event")

        def listen(event: Mapping[str, Any]) -> None:
            if on_event is not None:
                on_event(event)
            if observed:
                self.registry.notify("mlgym_run_event", run_id=self.run_id, event=event)

        listener = listen if on_event is not None or observed else None
        return RunRecord(runs_folder(self.config.out) / self.run_id, self.run_id, redact, listener)

    def grader(self, record: RunRecord) -> Grader:
        """Scores this run's submissions."""
        return Grader(
            task=self.task,
            backend=self.backend,
            run_id=self.run_id,
            size=self.config.size,
            secret=self.secret,
            data=self.prepared,
            build=self.config.build,
            progress=lambda text: record.event("progress", text=text),
        )

    def images(self, record: RunRecord, grader: Grader) -> dict[str, PreparedImage]:
        """Prepare the images of all roles, so that nothing is built in the middle of a run."""

        def progress(text: str) -> None:
            record.event("progress", text=text)

        images = {"agent": self.backend.prepare_image(self.task.image, "agent", progress, self.config.build)}
        roles: tuple[Role, ...] = ("grader",) if self.task.submission.kind == "csv" else ("grader", "player")
        images |= {role: grader.image(role) for role in roles}
        for role, image in images.items():
            record.event("image", role=role, reference=image.reference, digest=image.digest)
        return images

    def episode(self, record: RunRecord, grader: Grader, image: Callable[[], PreparedImage]) -> Episode:
        """The environment; ``image`` gives the agent's image when the sandbox is opened."""
        return Episode(
            task=self.task,
            open_sandbox=lambda: self._open_sandbox(image()),
            grader=grader,
            record=record,
            tools=self.tools,
            size=self.config.size,
            validate_on=self.config.validate_on,
            keep=self.config.keep,
        )

    def _open_sandbox(self, image: PreparedImage) -> Sandbox:
        public = self.prepared.public
        return self.backend.open_sandbox(
            BoxSpec(
                run_id=self.run_id,
                role="agent",
                image=image,
                resources=self.task.resources,
                network=self.config.network,
                files=self.task.public_files(),
                mounts=(Mount(public, "data"),) if public else (),
                tools=tool_files(self.tools),
                env={"MLGYM_SIZE": self.config.size},
            )
        )

    def facts(self) -> dict[str, Any]:
        """What manifest and result have in common."""
        config = self.config
        return {
            "task": self.task.id,
            "protocol": self.task.protocol,
            "size": config.size,
            "source": self.prepared.source or None,
            "seed": config.seed,
            "model": self.model.name if self.model is not None else None,
            "agent": self.agent.name if self.agent is not None else None,
            "backend": self.backend.name,
            "sealed": self.sealed,
            "missing_capabilities": self.missing,
            "validate_on": config.validate_on,
            "network": config.network,
            "versions": provenance.versions(self.task),
        }

    def manifest(self, images: Mapping[str, PreparedImage], finished: bool) -> dict[str, Any]:
        """The content of ``run.json``; the grading secret is in it only when the run has finished."""
        seeds = {"run": self.config.seed, "data": self.config.seed, "grading": self.secret.hex() if finished else None}
        return {
            **self.facts(),
            "backend_choice": self.why,
            "seeds": seeds,
            "limits": self.task.limits,
            "tools": [tool.name for tool in self.tools],
            "model_settings": self.config.settings,
            "agent_settings": getattr(self.agent, "settings", {}),
            "images": dict(images),
            "hardware": provenance.hardware(),
            "data_checksums": self.prepared.checksums,
        }


def make_plan(config: RunConfig, registry: Registry, on_event: Listener | None, with_agent: bool) -> Plan:
    """Look everything up.

    Args:
        config: what to run.
        registry: plugins.
        on_event: told of the progress of preparing data, which comes before there is a record.
        with_agent: whether model and agent are wanted; otherwise the caller chooses the actions.

    Raises:
        UsageError: something in the configuration does not exist or does not fit; nothing has been created.
        BackendUnavailableError: no backend can be used.
    """

    def progress(text: str) -> None:
        if on_event is not None:
            on_event({"t": 0.0, "kind": "progress", "text": text})

    task = find_task(config.task, config.size)
    task = attrs.evolve(task, limits=_limits(task, config.limits))
    tools = tuple(registry.collect("mlgym_register_tools"))
    model, remote = _model(config, registry, task, tools) if with_agent else (None, True)
    agent = _agent(config, registry, task, model, tools) if with_agent else None
    choice = backends.choose(registry, config.backend)
    missing = backends.missing(task, config.network, choice.backend)
    if remote and Capability.ISOLATION not in choice.backend.capabilities() and not config.allow_unsafe:
        raise UsageError(
            f"backend {choice.backend.name} ({choice.backend.describe()}) does not isolate, and "
            f"{f'model {model.name}' if model else 'whatever steps the episode'} could do anything to this machine; "
            f"install bubblewrap or a container engine, or pass --allow-unsafe (allow_unsafe=True)"
        )
    return Plan(
        config=config,
        registry=registry,
        task=task,
        backend=choice.backend,
        why=choice.why,
        missing=missing,
        run_id=new_run_id(task.id),
        secret=config.secret or secrets.token_bytes(SECRET_BYTES),
        prepared=data.prepare(task, config.source, config.size, config.seed, progress),
        tools=tools,
        model=model,
        agent=agent,
    )


def find_task(task: str | Task, size: str) -> Task:
    """The task, which must have this size.

    Raises:
        UsageError: it does not exist or has no such size.
    """
    found = load_task(task) if isinstance(task, str) else task
    if size not in found.sizes:
        raise UsageError(f"task {found.id} has no size {size!r}; choose from: {', '.join(found.sizes)}")
    return found


def _model(config: RunConfig, registry: Registry, task: Task, tools: tuple[Tool, ...]) -> tuple[Model, bool]:
    """The model, and whether what it answers is not chosen by the person who starts the run."""
    if not isinstance(config.model, str):
        return config.model, bool(getattr(config.model, "remote", True))
    name, _, argument = config.model.partition(":")
    entry = registry.choose("mlgym_register_models", name, "model")
    context = ModelContext(task, config.size, config.seed, task.limits, config.settings, tools)
    return entry.create(argument, context), entry.remote


def _agent(config: RunConfig, registry: Registry, task: Task, model: Model | None, tools: tuple[Tool, ...]) -> Agent:
    if not isinstance(config.agent, str):
        return config.agent
    context = AgentContext(task, config.size, config.seed, config.network, model, tools)
    name, _, argument = config.agent.partition(":")
    if "/" in name or name.endswith((".yaml", ".yml")):
        from mlgym_core.agent.config import from_file

        return from_file(Path(config.agent).expanduser(), context)
    agent: Agent = registry.choose("mlgym_register_agents", name, "agent").create(argument, context)
    return agent


def _limits(task: Task, overrides: Mapping[str, Any]) -> Limits:
    known = {a.name for a in attrs.fields(Limits)}
    for name in overrides:
        if name not in known:
            raise UsageError(f"unknown limit {name!r}; limits: {', '.join(sorted(known))}")
    limits = attrs.evolve(task.limits, **overrides)
    problem = numbers_problem(limits)
    if problem:
        raise UsageError(problem)
    return limits
