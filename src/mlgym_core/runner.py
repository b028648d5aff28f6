"""Runs one task from beginning to end: everything that can be refused is refused before anything is created."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from mlgym_core import backends, data, environment
from mlgym_core.agent.base import Agent, Budget
from mlgym_core.episode import Episode
from mlgym_core.errors import InfrastructureError, ModelError, RecordError, SandboxLostError, UsageError
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.sealed import Grade, Grader
from mlgym_core.models.base import Model, ModelContext
from mlgym_core.plugins import Registry, load_task
from mlgym_core.record import Redactor, RunRecord, new_run_id
from mlgym_core.result import RunResult, baseline_of, improvement, scores
from mlgym_core.sandbox.base import Backend, BoxSpec, Capability, Mount, Network, Sandbox
from mlgym_core.task import DEFAULT_SIZE, SPLITS, Limits, Split, Task

EventListener = Callable[[Mapping[str, Any]], None]
SECRET_BYTES = 16


@frozen
class RunConfig:
    """What to run.

    Attributes:
        task: id, alias, ``distribution:id`` or a loaded task.
        model: ``name`` or ``name:argument``.
        agent: name of an agent.
        backend: name of a container backend, or ``auto``.
        size: of the task's data.
        source: of the task's data; the task's default when ``None``.
        network: of the agent's sandbox.
        seed: of the run and of data preparation; graders use secrets of their own.
        out: folder for the runs' folders.
        limits: overrides of the task's limits, field -> value.
        validate_on: split that ``validate`` scores.
        keep: leave the sandbox for debugging.
        build: build a missing image.
        allow_unsafe: let a remote model into a backend that does not isolate.
        secret: 16 bytes from which grading seeds are derived; drawn anew when ``None``. Runs that are to be
            compared share one.
    """

    task: str | Task
    model: str = "baseline"
    agent: str = "default"
    backend: str = backends.AUTO
    size: str = DEFAULT_SIZE
    source: str | None = None
    network: Network = "none"
    seed: int = 0
    out: Path | None = None
    limits: Mapping[str, Any] = field(factory=dict)
    validate_on: Split = "dev"
    keep: bool = False
    build: bool = True
    allow_unsafe: bool = False
    secret: bytes | None = field(default=None, repr=False)


def run(config: RunConfig, on_event: EventListener | None = None, registry: Registry | None = None) -> RunResult:
    """Run one task with one agent and return the result; its folder is ``out/<run id>``.

    Args:
        config: what to run.
        on_event: sees every event as it is recorded.
        registry: plugins; a fresh one when ``None``.

    Raises:
        UsageError: the configuration does not fit together; nothing has been created.
        BackendUnavailableError: no backend can be used; nothing has been created.
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: after the result ``interrupted`` has been written and the sandbox closed.
    """
    plan = _plan(config, registry or Registry())
    agent = plan.agent()
    with plan.open_record(on_event) as record:
        return _Execution(plan, record).run(agent)


@contextmanager
def open_episode(
    config: RunConfig, on_event: EventListener | None = None, registry: Registry | None = None
) -> Iterator[Episode]:
    """An episode to step by yourself, without agent and model (``config.model`` is only recorded).

    On leaving, the sandbox is closed; whatever was submitted has been graded by ``step`` already.

    Raises:
        UsageError: as :func:`run`.
    """
    plan = _plan(config, registry or Registry())
    with plan.open_record(on_event) as record, plan.episode(record) as episode:
        yield episode


def grade_folder(
    task: str | Task,
    folder: Path,
    *,
    backend: str = backends.AUTO,
    size: str = DEFAULT_SIZE,
    split: Split = "test",
    source: str | None = None,
    secret: bytes | None = None,
    build: bool = True,
    registry: Registry | None = None,
) -> Grade:
    """Grade the submission that lies in a folder, as a run would; nothing is recorded.

    Raises:
        UsageError: unknown task, size or backend.
        InvalidSubmissionError: the folder holds no acceptable submission.
        InfrastructureError: the grading could not be run.
    """
    import tempfile

    registry = registry or Registry()
    task = _task(task)
    if not folder.is_dir():
        raise UsageError(f"{folder} does not exist or is no folder; name the folder that holds the submission")
    _check_size(task, size)
    chosen = backends.choose(registry, backend).backend
    prepared = data.prepare(task, source, size, seed=0)
    with tempfile.TemporaryDirectory(prefix="mlgym-grade-") as store:
        archive = freeze_folder(folder, task.submission, Path(store))
        grader = Grader(
            task=task,
            backend=chosen,
            run_id=new_run_id(task.id),
            size=size,
            secret=secret or secrets.token_bytes(SECRET_BYTES),
            data=prepared,
            build=build,
        )
        return grader.grade(archive, split)


@frozen
class _Plan:
    """A configuration with everything in it looked up and checked."""

    config: RunConfig
    registry: Registry
    task: Task
    limits: Limits
    backend: Backend
    why: str
    missing: list[str]
    run_id: str
    secret: bytes
    folder: Path
    prepared: data.Prepared
    model: Model

    def agent(self) -> Agent:
        entry = self.registry.choose("mlgym_register_agents", self.config.agent, "agent")
        agent: Agent = entry.create(self.model)
        return agent

    @property
    def sealed(self) -> bool:
        return Capability.ISOLATION in self.backend.capabilities()

    def open_record(self, on_event: EventListener | None) -> RunRecord:
        redact = Redactor.from_environment()
        redact.add(self.secret.hex())
        observed = self.registry.observes("mlgym_run_event")

        def listen(event: Mapping[str, Any]) -> None:
            if on_event is not None:
                on_event(event)
            if observed:
                self.registry.notify("mlgym_run_event", run_id=self.run_id, event=event)

        listener = listen if on_event is not None or observed else None
        return RunRecord(self.folder, self.run_id, redact, listener)

    def episode(self, record: RunRecord) -> Episode:
        config = self.config
        grader = Grader(
            task=self.task,
            backend=self.backend,
            run_id=self.run_id,
            size=config.size,
            secret=self.secret,
            data=self.prepared,
            build=config.build,
            progress=lambda text: record.event("progress", text=text),
        )
        return Episode(
            task=self.task,
            open_sandbox=lambda: self._open_sandbox(record),
            grader=grader,
            record=record,
            tools=self.registry.collect("mlgym_register_tools"),
            limits=self.limits,
            size=config.size,
            validate_on=config.validate_on,
            keep=config.keep,
        )

    def _open_sandbox(self, record: RunRecord) -> Sandbox:
        image = self.backend.prepare_image(
            self.task.image, "agent", lambda text: record.event("progress", text=text), self.config.build
        )
        record.event("image", reference=image.reference, digest=image.digest)
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
            "model": self.model.name,
            "agent": config.agent,
            "backend": self.backend.name,
            "sealed": self.sealed,
            "missing_capabilities": self.missing,
            "validate_on": config.validate_on,
            "network": config.network,
            "versions": environment.versions(self.task),
        }

    def manifest(self, finished: bool) -> dict[str, Any]:
        seeds = {"run": self.config.seed, "data": self.config.seed, "grading": self.secret.hex() if finished else None}
        return {
            **self.facts(),
            "backend_choice": self.why,
            "seeds": seeds,
            "limits": attrs.asdict(self.limits),
            "hardware": environment.hardware(),
            "data_checksums": dict(self.prepared.checksums),
        }


class _Execution:
    """One run in progress: sees to it that a result is written whatever happens."""

    def __init__(self, plan: _Plan, record: RunRecord) -> None:
        self._plan = plan
        self._record = record
        self._budget = Budget(plan.limits)
        self._reason: str | None = None
        self._message = ""

    def run(self, agent: Agent) -> RunResult:
        plan, record = self._plan, self._record
        record.manifest(plan.manifest(finished=False))
        record.event("start", **plan.facts(), limits=plan.limits, why=plan.why)
        episode = plan.episode(record)
        status = "infra_error"
        try:
            with episode:
                episode.reset()
                self._work(agent, episode)
                episode.finish(self._reason or "submitted")
            status = episode.outcome
            if status == "grader_error" and episode.submitted is not None:
                self._message = f"the grader failed: {episode.submitted.grades['test'].message}"
        except InfrastructureError as error:
            if isinstance(error, RecordError):
                raise
            self._message = str(error)
        except (KeyboardInterrupt, SystemExit):
            status = "interrupted"
            raise
        except BaseException as error:
            self._message = f"{type(error).__name__}: {error}"
            raise
        finally:
            result = self._write(episode, status)
        return result

    def _work(self, agent: Agent, episode: Episode) -> None:
        self._budget.start_clock()
        try:
            self._reason = agent.run(episode, self._budget)
        except ModelError as error:
            self._reason, self._message = "model_error", str(error)
        except SandboxLostError as error:
            self._reason, self._message = "sandbox_lost", str(error)

    def _write(self, episode: Episode, status: str) -> RunResult:
        plan, budget = self._plan, self._budget
        self._record.redact = Redactor.from_environment()
        found = scores(plan.task, episode)
        document = {
            **plan.facts(),
            "status": status,
            "reason": self._reason,
            "message": self._message,
            "steps": episode.steps,
            "scores": found,
            "primary_metric": plan.task.primary.name,
            "baseline": baseline_of(plan.task, plan.config.size),
            "improvement": improvement(plan.task, plan.config.size, found["test"].get(plan.task.primary.name)),
            "cost": {"usd": round(budget.cost_usd, 6), "known": budget.cost_known},
            "tokens": {"prompt": budget.prompt_tokens, "completion": budget.completion_tokens},
            "wall_s": round(budget.seconds, 3),
        }
        self._record.event("end", status=status, reason=self._reason, message=self._message)
        self._record.manifest(plan.manifest(finished=True))
        return RunResult(self._record.result(document), self._record.folder)


def _plan(config: RunConfig, registry: Registry) -> _Plan:
    task = _task(config.task)
    _check_size(task, config.size)
    if config.validate_on not in SPLITS:
        raise UsageError(f"--validate-on must be dev or test, not {config.validate_on!r}")
    if config.network not in ("none", "full"):
        raise UsageError(f"--network must be none or full, not {config.network!r}")
    limits = _limits(task, config.limits)
    name, _, argument = config.model.partition(":")
    entry = registry.choose("mlgym_register_models", name, "model")
    model = entry.create(argument, ModelContext(task, config.size, config.seed))
    registry.choose("mlgym_register_agents", config.agent, "agent")
    choice = backends.choose(registry, config.backend)
    missing = backends.missing(task, config.network, choice.backend)
    if entry.remote and str(Capability.ISOLATION) in missing and not config.allow_unsafe:
        raise UsageError(
            f"backend {choice.backend.name} ({choice.backend.describe()}) does not isolate, and model {config.model} "
            f"could do anything to this machine; install bubblewrap or a container engine, or pass --allow-unsafe"
        )
    run_id = new_run_id(task.id)
    return _Plan(
        config=config,
        registry=registry,
        task=task,
        limits=limits,
        backend=choice.backend,
        why=choice.why,
        missing=missing,
        run_id=run_id,
        secret=config.secret or secrets.token_bytes(SECRET_BYTES),
        folder=runs_folder(config.out) / run_id,
        prepared=data.prepare(task, config.source, config.size, config.seed),
        model=model,
    )


def runs_folder(out: Path | None = None) -> Path:
    """Where runs are kept: ``out``, else ``MLGYM_RUNS``, else ``runs`` in the current folder."""
    return out or Path(os.environ.get("MLGYM_RUNS") or "runs")


def _task(task: str | Task) -> Task:
    return load_task(task) if isinstance(task, str) else task


def _check_size(task: Task, size: str) -> None:
    if size not in task.sizes:
        raise UsageError(f"task {task.id} has no size {size!r}; choose from: {', '.join(task.sizes)}")


def _limits(task: Task, overrides: Mapping[str, Any]) -> Limits:
    known = {a.name for a in attrs.fields(Limits)}
    for name, value in overrides.items():
        if name not in known:
            raise UsageError(f"unknown limit {name!r}; limits: {', '.join(sorted(known))}")
        if value is not None and not value > 0:
            raise UsageError(f"limit {name} must be positive, got {value!r}")
    return attrs.evolve(task.limits, **overrides)
