"""Runs one task from beginning to end, opens an episode for a caller, grades a folder."""

from __future__ import annotations

import secrets
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlgym_core import data
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
from mlgym_core.grading.sealed import Grader
from mlgym_core.plugins.loading import Registry
from mlgym_core.record.record import REASONS, Listener, Redactor, RunRecord, new_run_id
from mlgym_core.runner import backends
from mlgym_core.runner.config import RunConfig
from mlgym_core.runner.document import RunResult, baseline_of, details, grade_document, improvement, scores
from mlgym_core.runner.setup import SECRET_BYTES, Plan, find_task, make_plan
from mlgym_core.sandbox.base import Backend, PreparedImage, Progress
from mlgym_core.task.task import DEFAULT_SIZE, Split, Task

__all__ = ["RunConfig", "grade_folder", "open_episode", "run"]


def run(config: RunConfig, on_event: Listener | None = None, registry: Registry | None = None) -> RunResult:
    """Run one task with one agent and return the result; its folder is ``out/<run id>``.

    Args:
        config: what to run.
        on_event: sees every event as it is recorded; the progress of preparing the data comes before the record
            exists and is only shown.
        registry: plugins; a fresh one when ``None``.

    Raises:
        UsageError: the configuration does not fit together; nothing has been created.
        BackendUnavailableError: no backend can be used; nothing has been created.
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: after the result ``interrupted`` has been written and the sandbox closed.
    """
    plan = make_plan(config, registry or Registry(), on_event, with_agent=True)
    assert plan.agent is not None
    with plan.open_record(on_event) as record:
        execution = _Execution(plan, record)
        with execution.episode() as episode:
            if not execution.used_up():
                episode.reset()
                execution.work(plan.agent, episode)
        return execution.result


@contextmanager
def open_episode(
    config: RunConfig, on_event: Listener | None = None, registry: Registry | None = None
) -> Iterator[Episode]:
    """An episode to step by yourself; ``config.model`` and ``config.agent`` are not used.

    On leaving, the sandbox is closed and the result is written. A submission has been graded by ``step`` already; to
    have the workspace graded without one, call :meth:`Episode.finish <mlgym_core.episode.episode.Episode.finish>`.

    Raises:
        UsageError: as :func:`run`; also when the backend does not isolate and ``allow_unsafe`` is not set.
    """
    plan = make_plan(config, registry or Registry(), on_event, with_agent=False)
    with plan.open_record(on_event) as record, _Execution(plan, record).episode() as episode:
        yield episode


class _Execution:
    """One run in progress: sees to it that a result is written whatever happens."""

    def __init__(self, plan: Plan, record: RunRecord) -> None:
        self._plan = plan
        self._record = record
        self._budget = Budget(plan.task.limits, plan.config.total)
        self._images: dict[str, PreparedImage] = {}
        self._reason: str | None = None
        self._message = ""
        self._worked: float | None = None
        self._skipped = False
        self.result: RunResult

    @contextmanager
    def episode(self) -> Iterator[Episode]:
        """An episode, not yet reset; manifest and result are written around it."""
        plan, record = self._plan, self._record
        record.manifest(plan.manifest({}, finished=False))
        record.event("start", **plan.facts(), limits=plan.task.limits, why=plan.why, folder=record.folder)
        grader = plan.grader(record)
        episode = plan.episode(record, grader, lambda: self._prepare(grader))
        status = "infra_error"
        try:
            yield episode
            if plan.agent is not None and not self._skipped:
                episode.finish(self._reason or "stopped")
            status = "not_started" if self._skipped else episode.outcome
            if status == "grader_error" and episode.submitted is not None:
                self._message = episode.submitted.grades["test"].message
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
            self._write(episode, status)

    def used_up(self) -> bool:
        """Whether what the runs may use together is used up; this one counts as not started then."""
        total = self._plan.config.total
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
            self._record.event("agent_failed", traceback=traceback.format_exc())
        finally:
            self._worked = episode.clock.seconds

    def _explanation(self, episode: Episode, reason: str | None) -> str:
        if self._message or reason in (None, "submitted") or episode.steps or self._plan.agent is None:
            return self._message
        return f"no action was done before the run ended ({reason}); what was graded is the workspace as it began"

    def _close(self, episode: Episode) -> None:
        """A sandbox that cannot be removed now is removed by the next run; the result stands."""
        try:
            episode.close()
        except InfrastructureError as error:
            self._record.event("notice", text=f"the sandbox could not be removed: {error}")

    def _prepare(self, grader: Grader) -> PreparedImage:
        """Clean up after dead runs, and have all images ready before the clock starts."""
        try:
            removed = self._plan.backend.reap()
            if removed:
                self._record.event("reaped", removed=removed)
        except (MLGymError, OSError) as error:
            self._record.event("notice", text=f"what dead runs left behind could not be removed: {error}")
        self._images = self._plan.images(self._record, grader)
        self._record.manifest(self._plan.manifest(self._images, finished=False))
        return self._images["agent"]

    def _write(self, episode: Episode, status: str) -> None:
        plan, budget = self._plan, self._budget
        seconds = episode.clock.seconds
        worked = self._worked if self._worked is not None else seconds
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
            "wall_s": round(worked, 3),
            "waited_s": round(episode.clock.seconds - episode.clock.working_seconds, 3),
            "final_grading_s": round(seconds - worked, 3),
        }
        self._record.event("end", status=status, reason=reason, message=self._message)
        self._record.manifest(plan.manifest(self._images, finished=True))
        self.result = RunResult(self._record.result(document), self._record.folder)


def grade_folder(
    task: str | Task,
    folder: Path,
    *,
    backend: str | Backend = backends.AUTO,
    size: str = DEFAULT_SIZE,
    split: Split = "test",
    source: str | None = None,
    seed: int = 0,
    secret: bytes | None = None,
    build: bool = True,
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
        registry: plugins; a fresh one when ``None``.
        progress: told what takes time.

    Raises:
        UsageError: unknown task, size or backend; no such folder.
        InvalidSubmissionError: the folder holds no acceptable submission.
        InfrastructureError: the grading could not be run.
    """
    task = find_task(task, size)
    try:
        there = folder.is_dir()
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from error
    if not there:
        raise UsageError(f"{folder} does not exist or is no folder; name the folder that holds the submission")
    chosen = backends.choose(registry or Registry(), backend)
    progress(f"grading on {chosen.why}")
    prepared = data.prepare(task, source, size, seed, progress)
    with tempfile.TemporaryDirectory(prefix="mlgym-grade-") as store:
        archive = freeze_folder(folder, task.submission, Path(store))
        grader = Grader(
            task=task,
            backend=chosen.backend,
            run_id=new_run_id(task.id),
            size=size,
            secret=secret or secrets.token_bytes(SECRET_BYTES),
            data=prepared,
            progress=progress,
            build=build,
        )
        return grader.grade(archive, split)


def graded_document(task: Task, folder: Path, *, backend: str | Backend, size: str, **options: Any) -> dict[str, Any]:
    """What ``mlgym grade`` prints: :func:`grade_folder` with an unacceptable folder as a result of its own.

    Raises:
        UsageError, InfrastructureError: as :func:`grade_folder`.
    """
    registry = options.pop("registry", None) or Registry()
    chosen = backends.choose(registry, backend).backend
    try:
        grade = grade_folder(task, folder, backend=chosen, size=size, registry=registry, **options)
    except InvalidSubmissionError as error:
        grade = Grade("invalid_submission", message=str(error))
    return grade_document(task, size, grade, chosen.name, backends.missing(task, "none", chosen))
