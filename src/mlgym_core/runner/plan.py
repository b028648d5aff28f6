"""One run, with everything in it looked up and checked; nothing has been created yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import attrs
from attrs import frozen

from mlgym_core import data
from mlgym_core.agent.base import Agent
from mlgym_core.agent.budget import TotalBudget
from mlgym_core.episode.episode import Episode
from mlgym_core.grading.sealed import Grader, derive_seed
from mlgym_core.grading.secrets import Secrets
from mlgym_core.models.base import Model
from mlgym_core.record import events
from mlgym_core.record.folder import new_run_id
from mlgym_core.record.redact import Redactor
from mlgym_core.record.watcher import Listener
from mlgym_core.record.writer import RunRecord
from mlgym_core.runner import backends, provenance
from mlgym_core.runner.config import Own, RunConfig
from mlgym_core.runner.setup import Setup
from mlgym_core.sandbox.base import BoxSpec, Mount, PreparedImage, Progress, Role, Sandbox
from mlgym_core.settings import runs_folder
from mlgym_core.task.task import SPLITS, Task
from mlgym_core.tools.scripted import tool_files


@frozen
class Plan:
    """One run made from a setup.

    Attributes:
        config: what was asked for.
        setup: what it shares with others.
        task: with the run's limits in place of its own.
        missing: capabilities that the run wants and the backend lacks.
        run_id: see :func:`~mlgym_core.record.folder.new_run_id`.
        secrets: what everything hidden is derived from.
        prepared: the task's data.
        model, agent: ``None`` for an episode that the caller steps.
        total: budget shared with other runs.
    """

    config: RunConfig
    setup: Setup
    task: Task
    missing: list[str]
    run_id: str
    secrets: Secrets
    prepared: data.Prepared
    model: Model | None = None
    agent: Agent | None = None
    total: TotalBudget | None = None

    def open_record(self, on_event: Listener | None) -> RunRecord:
        """The run's folder, with listeners told of every event.

        Raises:
            RecordError: it cannot be written.
        """
        redact = Redactor.from_environment()
        self._hide(redact, self.secrets.dev)
        if self.secrets.drawn is not None:
            self._hide(redact, self.secrets.drawn)
        registry = self.setup.registry
        observed = registry.observes("mlgym_run_event")

        def listen(event: Mapping[str, Any]) -> None:
            if on_event is not None:
                on_event(event)
            if observed:
                registry.notify("mlgym_run_event", run_id=self.run_id, event=event)

        listener = listen if on_event is not None or observed else None
        return RunRecord(runs_folder(self.config.out) / self.run_id, self.run_id, redact, listener)

    def _hide(self, redact: Redactor, secret: bytes) -> None:
        for value in (secret.hex(), *(derive_seed(secret, self.task.id, split) for split in SPLITS)):
            redact.add(value)

    def _grader(self, record: RunRecord, secret: bytes) -> Grader:
        return self.setup.grader(
            self.prepared,
            secret=secret,
            run_id=self.run_id,
            task=self.task,
            progress=lambda text: record.event(events.Progress(text)),
        )

    def images(self, record: RunRecord) -> Mapping[Role, PreparedImage]:
        """The images of all roles, told to the record."""
        images = self.setup.images(lambda text: record.event(events.Progress(text)))
        for role, image in images.items():
            record.event(events.Image(role, image.reference, image.digest))
        return images

    def episode(self, record: RunRecord, image: Callable[[], PreparedImage], settle: bool = False) -> Episode:
        """The environment.

        Args:
            record: where everything is written.
            image: gives the agent's image when the sandbox is opened.
            settle: whether an accepted ``submit`` is scored on test at once.
        """

        def draw() -> Grader:
            self.secrets.ended(self.run_id)
            secret = self.secrets.test()
            self._hide(record.redact, secret)
            return self._grader(record, secret)

        on_test = self.config.validate_on == "test"
        if not on_test:
            self.secrets.expect(self.run_id)
        return Episode(
            task=self.task,
            open_sandbox=lambda: self._open_sandbox(image()),
            grader=self._grader(record, self.secrets.test() if on_test else self.secrets.dev),
            draw=draw,
            record=record,
            tools=self.setup.tools,
            size=self.config.size,
            validate_on=self.config.validate_on,
            keep=self.config.keep,
            settle=settle,
        )

    def _open_sandbox(self, image: PreparedImage) -> Sandbox:
        public = self.prepared.public
        return self.setup.backend.open_sandbox(
            BoxSpec(
                run_id=self.run_id,
                role="agent",
                image=image,
                resources=self.task.resources,
                network=self.config.network,
                files=self.task.public_files(),
                mounts=(Mount(public, "data"),) if public else (),
                tools=tool_files(self.setup.tools),
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
            "backend": self.setup.backend.name,
            "sealed": self.setup.sealed,
            "missing_capabilities": self.missing,
            "validate_on": config.validate_on,
            "network": config.network,
            "versions": provenance.versions(self.task),
        }

    def manifest(self, images: Mapping[Role, PreparedImage], finished: bool) -> dict[str, Any]:
        """The content of ``run.json``; the grading secrets are in it only when the run has finished."""
        test = self.secrets.drawn
        seeds = {
            "run": self.config.seed,
            "data": self.config.seed,
            "grading": self.secrets.dev.hex() if finished else None,
            "grading_test": test.hex() if finished and test is not None else None,
        }
        return {
            **self.facts(),
            "backend_choice": self.setup.why,
            "seeds": seeds,
            "limits": self.task.limits,
            "tools": [tool.name for tool in self.setup.tools],
            "model_settings": self.config.settings,
            "agent_settings": getattr(self.agent, "settings", {}),
            "images": dict(images),
            "hardware": provenance.hardware(),
            "data_checksums": self.prepared.checksums,
        }


def make_plan(
    setup: Setup, config: RunConfig, progress: Progress = lambda _: None, with_agent: bool = True, **own: Unpack[Own]
) -> Plan:
    """One run of a setup.

    Args:
        setup: made for the same task, backend, size and source.
        config: what to run.
        progress: told of preparing data, which comes before there is a record.
        with_agent: whether model and agent are wanted; otherwise the caller chooses the actions.
        **own: objects in the place of what the configuration names.

    Raises:
        UsageError: something in the configuration does not exist or does not fit; nothing has been created.
    """
    secrets = own.get("secrets") or Secrets()
    secrets.check_unused()
    task = attrs.evolve(setup.task, limits=setup.limits(config.limits))
    model, remote = setup.model(config, task, own) if with_agent else (None, True)
    agent = setup.agent(config, task, model, own) if model is not None else None
    missing = backends.missing(task, config.network, setup.backend)
    if remote and not config.allow_unsafe:
        setup.need_isolation(model)
    return Plan(
        config=config,
        setup=setup,
        task=task,
        missing=missing,
        run_id=new_run_id(task.id),
        secrets=secrets,
        prepared=setup.data(config.seed, progress),
        model=model,
        agent=agent,
        total=own.get("total"),
    )
