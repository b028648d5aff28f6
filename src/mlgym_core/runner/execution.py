"""Runs one task from beginning to end, opens an episode for a caller, grades a folder."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Unpack

from mlgym_core.agent.base import Agent
from mlgym_core.agent.budget import Budget
from mlgym_core.episode.episode import Episode
from mlgym_core.errors import (
    InfrastructureError,
    InvalidSubmissionError,
    MLGymError,
    ModelError,
    RecordError,
    SandboxLostError,
    UsageError,
)
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import Grader, GradingData
from mlgym_core.grading.secrets import Secrets
from mlgym_core.plugins.loading import Registry
from mlgym_core.record import events
from mlgym_core.record.endings import REASONS
from mlgym_core.record.eventjson import to_json
from mlgym_core.record.redact import Redactor
from mlgym_core.record.watcher import Listener, Watcher
from mlgym_core.record.writer import RunRecord
from mlgym_core.runner import backends
from mlgym_core.runner.config import Own, RunConfig
from mlgym_core.runner.document import RunResult, attempts, baseline_of, details, grade_document, improvement, scores
from mlgym_core.runner.plan import Plan, make_plan
from mlgym_core.runner.setup import Setup
from mlgym_core.sandbox.base import Backend, PreparedImage, Progress, Role
from mlgym_core.task.task import DEFAULT_SIZE, Split, Task

__all__ = ["RunConfig", "execute", "execute_together", "grade_folder", "open_episode", "run", "run_together"]

#: What the published protocol gives up.
ON_TEST = (
    "validated on test: submissions were run on the test split while the agent was alive, so the score says what it "
    "could learn of that split too"
)


def run(
    config: RunConfig, on_event: Listener | None = None, registry: Registry | None = None, **own: Unpack[Own]
) -> RunResult:
    """Run one task with one agent and return the result; its folder is ``out/<run id>``.

    Args:
        config: what to run.
        on_event: sees every event as it is recorded; the progress of preparing the data comes before the record
            exists and is only shown.
        registry: plugins; a fresh one when ``None``.
        **own: objects in the place of what the configuration names, see :class:`~mlgym_core.runner.config.Own`.

    Raises:
        UsageError: the configuration does not fit together; nothing has been created.
        BackendUnavailableError: no backend can be used; nothing has been created.
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: after the result ``interrupted`` has been written and the sandbox closed.
    """
    setup = Setup.of(config, registry, **own)
    return execute(make_plan(setup, config, _shown(on_event), **own), on_event)


def execute(plan: Plan, on_event: Listener | None = None) -> RunResult:
    """Carry out a plan that has an agent; see :func:`run`."""
    return execute_together([plan], on_event)[0]


def run_together(
    configs: Sequence[RunConfig], on_event: Listener | None = None, registry: Registry | None = None, **own: Unpack[Own]
) -> list[RunResult]:
    """Run several configurations, one after the other, whose test scores are to be compared.

    They share the secrets of both splits. That of test is drawn when the last agent has ended, so that no agent can
    learn from the grading of another one.

    Raises:
        UsageError, BackendUnavailableError, RecordError: as :func:`run`.
    """
    own = {"secrets": Secrets(), **own}
    setups = [Setup.of(config, registry, **own) for config in configs]
    shown = _shown(on_event)
    plans = [make_plan(setup, config, shown, **own) for setup, config in zip(setups, configs, strict=True)]
    return execute_together(plans, on_event)


def execute_together(plans: Sequence[Plan], on_event: Listener | None = None) -> list[RunResult]:
    """Carry out plans with agents; what they have handed in is scored on test when all agents have ended."""
    with ExitStack() as stack:
        executions = [_Execution(plan, stack.enter_context(plan.open_record(on_event))) for plan in plans]
        episodes = [stack.enter_context(execution.episode()) for execution in executions]
        for execution, episode in zip(executions, episodes, strict=True):
            execution.carry_out(episode)
    return [execution.result for execution in executions]


@contextmanager
def open_episode(
    config: RunConfig, on_event: Listener | None = None, registry: Registry | None = None, **own: Unpack[Own]
) -> Iterator[Episode]:
    """An episode to step by yourself; the model and the agent of the configuration are not used.

    An accepted ``submit`` ends it: ``step`` closes the sandbox and scores the submission on test before it returns. To
    have the workspace scored without one, call :meth:`Episode.finish <mlgym_core.episode.episode.Episode.finish>`. On
    leaving, the sandbox is closed and the result is written.

    Raises:
        UsageError: as :func:`run`; also when the backend does not isolate and ``allow_unsafe`` is not set.
    """
    setup = Setup.of(config, registry, **own)
    plan = make_plan(setup, config, _shown(on_event), with_agent=False, **own)
    with plan.open_record(on_event) as record, _Execution(plan, record).episode() as episode:
        yield episode


def _shown(on_event: Listener | None) -> Progress:
    """Progress before there is a record."""
    watcher = Watcher(on_event)

    def progress(text: str) -> None:
        watcher(to_json(events.Progress(text)))

    return progress


class _Execution:
    """One run in progress: sees to it that a result is written whatever happens."""

    def __init__(self, plan: Plan, record: RunRecord) -> None:
        self._plan = plan
        self._record = record
        self._budget = Budget(plan.task.limits, plan.total)
        self._images: Mapping[Role, PreparedImage] = {}
        self._reason: str | None = None
        self._message = ""
        self._skipped = False
        self._failure: InfrastructureError | None = None
        self.result: RunResult

    @contextmanager
    def episode(self) -> Iterator[Episode]:
        """An episode, not yet reset; manifest and result are written around it."""
        plan, record = self._plan, self._record
        record.manifest(plan.manifest({}, finished=False))
        record.event(events.Start(**plan.facts(), limits=plan.task.limits, why=plan.setup.why, folder=record.folder))
        episode = plan.episode(record, self._prepare, settle=plan.agent is None)
        status = "infra_error"
        try:
            yield episode
            status = self._settle(episode)
        except InfrastructureError as error:
            self._message = str(error)
            if isinstance(error, RecordError) or plan.agent is None:
                raise
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            status = "interrupted"
            raise
        except BaseException as error:
            self._message = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._close(episode)
            plan.secrets.ended(plan.run_id)
            self._write(episode, status)

    def _settle(self, episode: Episode) -> str:
        """Have the agent's work scored on test; returns the run's status."""
        if self._failure is not None:
            raise self._failure
        if self._skipped:
            return "not_started"
        if self._unanswered(episode):
            return "infra_error"
        if self._plan.agent is not None:
            episode.finish(self._reason or "stopped")
        self._message = self._message or episode.submissions.reason
        return episode.outcome

    def carry_out(self, episode: Episode) -> None:
        """The agent's whole work, until its sandbox is closed. A failure of the machine is kept for the result."""
        assert self._plan.agent is not None
        try:
            if not self.used_up():
                episode.reset()
                self.work(self._plan.agent, episode)
            if self._unanswered(episode):
                self._close(episode)
            elif not self._skipped:
                episode.end(self._reason or "stopped")
        except InfrastructureError as error:
            self._failure = error
            self._close(episode)
        self._plan.secrets.ended(self._plan.run_id)

    def _unanswered(self, episode: Episode) -> bool:
        """Whether the model never replied: then what lies in the workspace says nothing about it, and is not scored."""
        return self._reason == "model_error" and self._budget.replies == episode.steps == 0

    def used_up(self) -> bool:
        """Whether what the runs may use together is used up; this one counts as not started then."""
        total = self._plan.total
        reason = total.exhausted() if total is not None else None
        if reason:
            self._skipped, self._reason = True, reason
            self._message = f"the total limit on {reason} was reached before this run's first model call"
        return self._skipped

    def work(self, agent: Agent, episode: Episode) -> None:
        """Let the agent work. Whatever it raises ends its work, not the run: what it has done is graded."""
        if self.used_up():
            return
        try:
            reason = agent.run(episode, self._budget)
            self._reason = reason if reason in REASONS else "stopped"
            if reason in ("cost", "tokens", "calls") and episode.steps == self._budget.calls == 0:
                self.used_up()
        except ModelError as error:
            self._reason, self._message = "model_error", str(error)
        except SandboxLostError as error:
            self._reason, self._message = "sandbox_lost", str(error)
        except InfrastructureError:
            raise
        except Exception as error:
            self._reason, self._message = "model_error", f"the agent failed: {type(error).__name__}: {error}"
            self._record.event(events.AgentFailed(traceback.format_exc()))

    def _explanation(self, episode: Episode, reason: str | None) -> str:
        if self._message or reason in (None, "submitted") or episode.steps or self._plan.agent is None:
            return self._message
        return f"no action was done before the run ended ({reason}); what was graded is the workspace as it began"

    def _close(self, episode: Episode) -> None:
        """A sandbox that cannot be removed now is removed by the next run; the result stands."""
        try:
            episode.close()
        except InfrastructureError as error:
            self._record.event(events.Notice(f"the sandbox could not be removed: {error}"))

    def _prepare(self) -> PreparedImage:
        """Clean up after dead runs, and have all images ready before the clock starts."""
        try:
            removed = self._plan.setup.backend.reap()
            if removed:
                self._record.event(events.Reaped(removed))
        except (MLGymError, OSError) as error:
            self._record.event(events.Notice(f"what dead runs left behind could not be removed: {error}"))
        self._images = self._plan.images(self._record)
        self._record.manifest(self._plan.manifest(self._images, finished=False))
        return self._images["agent"]

    def _write(self, episode: Episode, status: str) -> None:
        plan, budget = self._plan, self._budget
        reason = episode.reason or self._reason
        self._record.redact = Redactor.from_environment()
        self._message = self._explanation(episode, reason)
        found = scores(plan.task, episode.attempts, episode.submitted)
        document: dict[str, Any] = {
            **plan.facts(),
            "status": status,
            "reason": reason,
            "message": self._message,
            "steps": episode.steps,
            "scores": found,
            "attempts": attempts(episode.attempts),
            "not_scored_on_test": episode.submissions.ungraded,
            "caveats": [ON_TEST] if plan.config.validate_on == "test" else [],
            "details": details(episode.submitted),
            "primary_metric": plan.task.primary.name,
            "baseline": baseline_of(plan.task, plan.config.size),
            "improvement": improvement(plan.task, plan.config.size, found["test"].get(plan.task.primary.name)),
            "cost": {"usd": round(budget.cost_usd, 6), "known": budget.cost_known},
            "tokens": {
                "prompt": budget.prompt_tokens,
                "completion": budget.completion_tokens,
                "cached": budget.cached_tokens,
                "reasoning": budget.reasoning_tokens,
            },
            "model_calls": budget.calls,
            "wall_s": round(episode.clock.seconds, 3),
            "waited_s": round(episode.clock.seconds - episode.clock.working_seconds, 3),
            "final_grading_s": round(episode.clock.since_stop, 3),
        }
        self._record.event(events.End(status, reason, self._message))
        self._record.manifest(plan.manifest(self._images, finished=True))
        self.result = RunResult(self._record.result(document), self._record.folder)


def grade_folder(
    task: str | Path | Task,
    folder: Path,
    *,
    backend: str | Backend = backends.AUTO,
    size: str = DEFAULT_SIZE,
    split: Split = "test",
    source: str | None = None,
    seed: int = 0,
    secret: bytes | None = None,
    build: bool = True,
    prepared: GradingData | None = None,
    registry: Registry | None = None,
    progress: Progress = lambda _: None,
) -> Grade:
    """Grade the submission that lies in a folder, as a run would; nothing is recorded.

    Args:
        task: id, alias, ``distribution:id``, path (``./mytask.py``, ``./folder``) or a loaded task.
        folder: holds the submission's files.
        backend, size, source, build: as in :class:`RunConfig`.
        split: ``dev`` or ``test``.
        seed: of the data that the submission was made for.
        secret: 16 bytes from which the grading seed is derived; drawn anew when ``None``.
        prepared: the data itself, in the place of ``source`` and ``seed``.
        registry: plugins; a fresh one when ``None``.
        progress: told what takes time.

    Raises:
        UsageError: unknown task, size or backend; no such folder.
        InvalidSubmissionError: the folder holds no acceptable submission.
        InfrastructureError: the grading could not be run.
    """
    setup = Setup.find(task, backend, registry, size=size, source=source, build=build)
    _need_folder(folder)
    progress(f"grading on {setup.why}")
    known = setup.data(seed, progress) if prepared is None else prepared
    return _grade(setup.grader(known, secret=secret, progress=progress), folder, split)


def graded_document(
    task: Task, folder: Path, *, backend: str, size: str, source: str | None, seed: int, build: bool, progress: Progress
) -> dict[str, Any]:
    """What ``mlgym grade`` prints: :func:`grade_folder` with an unacceptable folder as a result of its own.

    Raises:
        UsageError, InfrastructureError: as :func:`grade_folder`.
    """
    setup = Setup.find(task, backend, size=size, source=source, build=build)
    _need_folder(folder)
    progress(f"grading on {setup.why}")
    try:
        grade = _grade(setup.grader(setup.data(seed, progress), progress=progress), folder, "test")
    except InvalidSubmissionError as error:
        grade = Grade("invalid_submission", message=str(error))
    return grade_document(task, size, grade, setup.backend.name, backends.missing(task, "none", setup.backend))


def _grade(grader: Grader, folder: Path, split: Split) -> Grade:
    with tempfile.TemporaryDirectory(prefix="mlgym-grade-") as store:
        return grader.grade(freeze_folder(folder, grader.task.submission, Path(store)), split)


def _need_folder(folder: Path) -> None:
    try:
        there = folder.is_dir()
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from error
    if not there:
        raise UsageError(f"{folder} does not exist or is no folder; name the folder that holds the submission")
