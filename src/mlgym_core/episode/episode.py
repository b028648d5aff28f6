"""The environment: ``reset()`` and ``step()``. Knows no agent and no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import evolve, field, frozen

from mlgym_core.errors import (
    ExportError,
    InfrastructureError,
    InvalidSubmissionError,
    MissingSubmissionError,
    MLGymError,
    SandboxLostError,
    UsageError,
)
from mlgym_core.grading.archive import Archive, freeze
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import Grader
from mlgym_core.record.record import RunRecord
from mlgym_core.sandbox.base import ActionResult, Sandbox
from mlgym_core.task.task import Split, Task
from mlgym_core.tools.base import Tool, ToolArgumentError, ToolOutput
from mlgym_core.tools.scripted import ToolsState, readable, script_command

TEST_FAILURES = 2  #: submissions of code that may fail on the test split alone before one counts
REQUESTS = ("validate", "submit")  #: tools that a script in the sandbox may ask for


@frozen
class Action:
    """One thing the agent does: a tool and its arguments."""

    tool: str
    arguments: Mapping[str, Any] = field(factory=dict)


@frozen
class StepResult:
    """What :meth:`Episode.step` returns.

    Attributes:
        observation: text for the agent.
        step: how many steps have been taken.
        done: no further step is possible.
        reason: why it is done (``submitted``, ``steps``, ``time``), else ``None``.
        info: the tool's own facts (exit code, dev score, ...).
        directory: of the shell, as last known.
        open_file: of the file tools, as last known.
    """

    observation: str
    step: int
    done: bool
    reason: str | None = None
    info: Mapping[str, Any] = field(factory=dict)
    directory: str = ""
    open_file: str | None = None


@frozen
class Attempt:
    """An accepted submission.

    Attributes:
        step: when it was frozen.
        archive: its content.
        grades: split -> grade.
    """

    step: int
    archive: Archive
    grades: Mapping[Split, Grade]


class Episode:
    """One run of one task in one sandbox.

    Use it as a context manager, or call :meth:`close`. ``reset`` opens the sandbox; ``step`` acts in it;
    ``finish`` grades what is there when the agent has not submitted.

    Args:
        task: what is worked on.
        open_sandbox: opens the agent's sandbox.
        grader: scores frozen submissions.
        record: where everything is written.
        tools: what the agent may call.
        size: of the task's data.
        validate_on: split that ``validate`` scores; ``test`` reproduces the published protocol.
        keep: leave the sandbox running at the end, for debugging.

    Attributes:
        attempts: accepted submissions so far, in order.
        submitted: the one that counts, once there is one.
        outcome: of the episode so far: that of ``submitted``, else ``no_submission`` or ``invalid_submission``.
    """

    def __init__(
        self,
        *,
        task: Task,
        open_sandbox: Callable[[], Sandbox],
        grader: Grader,
        record: RunRecord,
        tools: Sequence[Tool],
        size: str = "full",
        validate_on: Split = "dev",
        keep: bool = False,
    ) -> None:
        self.task = task
        self.size = size
        self.limits = task.limits
        self.tools = tuple(tools)
        self.steps = 0
        self.attempts: list[Attempt] = []
        self.submitted: Attempt | None = None
        self.outcome = "no_submission"
        self._tools = {tool.name: tool for tool in self.tools}
        if len(self._tools) < len(self.tools):
            raise UsageError("two plugins offer a tool of the same name; uninstall one of them (see: mlgym plugins)")
        self._open = open_sandbox
        self._sandbox: Sandbox | None = None
        self._grader = grader
        self._record = record
        self._validate_on = validate_on
        self._keep = keep
        self._started = 0.0
        self._waited = 0.0
        self._validations = 0
        self._reason: str | None = None
        self._closed = False
        self._test_grades: dict[str, Grade] = {}
        self._test_failures = 0
        self._directory = ""
        self._tools_state = ToolsState()
        self._requests: set[str] = set()

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as the agent sees it."""
        return self._live().workdir

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since ``reset``; 0 before."""
        return time.monotonic() - self._started if self._sandbox is not None else 0.0

    @property
    def reason(self) -> str | None:
        """Why the episode is over; ``None`` while it is not."""
        return self._reason

    @property
    def out_of_time(self) -> bool:
        """Whether a limit on time is reached."""
        left = self.seconds_left
        return left is not None and left <= 0

    @property
    def working_seconds(self) -> float:
        """Seconds since ``reset`` without those spent waiting for the model."""
        return max(0.0, self.seconds - self._waited)

    @property
    def seconds_left(self) -> float | None:
        """Until the first of the limits on time; ``None`` without one."""
        limits = ((self.limits.wall_seconds, self.seconds), (self.limits.working_seconds, self.working_seconds))
        return min((limit - used for limit, used in limits if limit is not None), default=None)

    def waited(self, seconds: float) -> None:
        """Leave out these seconds, just spent waiting for a model service, from the working time."""
        self._waited += seconds

    def reset(self) -> str:
        """Open a fresh sandbox and return the task's description.

        Raises:
            InfrastructureError: the sandbox cannot be opened.
        """
        if self._sandbox is not None:
            raise UsageError("an episode is reset once; open another one for another run")
        opened = time.monotonic()
        self._sandbox = self._open()
        self._started = time.monotonic()
        self._directory = self._sandbox.workdir
        self.log("reset", seconds=round(self._started - opened, 6), workdir=self._sandbox.workdir)
        return self.task.description()

    def step(self, action: Action | str) -> StepResult:
        """Do one action; text is a shell command.

        Raises:
            UsageError: the episode has not been reset, or is over.
            SandboxLostError: the sandbox died and could not be brought back.
        """
        if self._reason is not None or self._closed:
            raise UsageError(f"the episode is over ({self._reason or 'closed'}); open another one")
        if isinstance(action, str):
            action = Action("bash", {"command": action})
        self._live()
        self.steps += 1
        started = time.monotonic()
        output = self._fulfil(self._apply(action))
        seconds = round(time.monotonic() - started, 6)
        self._reason = self._end()
        self.log(
            "step",
            step=self.steps,
            tool=action.tool,
            arguments=action.arguments,
            observation=output.text,
            info=output.info,
            seconds=seconds,
            done=self._reason,
        )
        return StepResult(
            output.text,
            self.steps,
            self._reason is not None,
            self._reason,
            output.info,
            self._directory,
            self._tools_state.open_file,
        )

    def finish(self, reason: str) -> None:
        """Grade what the workspace holds unless a submission was accepted, then score every attempt on test.

        At a limit the workspace is frozen and graded if valid, else the newest valid archive is.
        """
        self._reason = self._reason or reason
        if self.submitted is None and self._sandbox is not None and not self._closed:
            self._submit_rest(lost=reason == "sandbox_lost")
        self.attempts = [self._with_test(attempt) for attempt in self.attempts]

    def close(self) -> None:
        """Close the sandbox (or leave it, if it is to be kept); harmless when repeated."""
        if self._sandbox is not None and not self._closed:
            if self._keep:
                self.log("kept", how_to_enter=self._sandbox.enter_hint())
            self._sandbox.close(keep=self._keep)
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log(self, kind: str, **content: Any) -> None:
        """Write an event into the run's record."""
        self._record.event(kind, **content)

    # What tools use (mlgym_core.tools.base.ToolContext).

    def run_command(self, command: str, timeout: float | None = None) -> ActionResult:
        """Run shell text in the sandbox; the timeout is capped by the task's and the run's limits."""
        seconds = min(timeout or self.limits.action_seconds, self.limits.action_seconds)
        left = self.seconds_left
        if left is not None:
            seconds = min(seconds, max(0.1, left))
        result = self._live().run(command, seconds, self._record.output_stem(self.steps))
        self._directory = readable(result.directory) or self._directory
        self._tools_state = ToolsState.parse(result.state)
        return result

    def run_script(self, name: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Run a tool's script in the sandbox, with the arguments as JSON on its standard input."""
        return self.run_command(script_command(self._live().tools, name, arguments))

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file of the sandbox as the agent's user."""
        return self._live().read_file(path, limit)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file of the sandbox as the agent's user."""
        self._live().write_file(path, data)

    def validate(self) -> ToolOutput:
        """Freeze and score on the dev split. Only submissions that are scored count against the limit."""
        left = self.limits.validations - self._validations
        if left <= 0:
            return ToolOutput(f"No validation is left ({self.limits.validations} were allowed). You can still submit.")
        try:
            archive = self._freeze()
        except InvalidSubmissionError as error:
            return self._refused(str(error))
        grade = self._grade(archive, self._validate_on)
        if grade.outcome != "scored":
            return self._not_scored(grade, self._validate_on)
        self._validations += 1
        self.attempts.append(Attempt(self.steps, archive, {self._validate_on: grade}))
        text = f"{self._validate_on} score: {_scores(grade)}. {left - 1} validations left."
        return ToolOutput(text, {"outcome": grade.outcome, "split": self._validate_on, "metrics": grade.metrics})

    def submit(self) -> ToolOutput:
        """Freeze, score on the test split and end the episode. An invalid submission costs the step, no more.

        Code that fails on the dev split is not run on the test split at all, and code that fails on the test split
        alone counts as the submission after :data:`TEST_FAILURES` times: each failure could carry a bit of the
        hidden instances out.
        """
        self._live().stop_processes()
        try:
            archive = self._freeze()
        except InvalidSubmissionError as error:
            return self._refused(str(error))
        if self._runs_code and not self._ran_on_dev(archive):
            tried = self._grade(archive, "dev")
            if tried.outcome == "invalid_submission":
                return self._not_scored(tried, "dev")
        grade = self._grade(archive, "test")
        if grade.outcome == "invalid_submission":
            self._test_failures += 1
            if not self._runs_code or self._test_failures <= TEST_FAILURES:
                return self._not_scored(grade, "test")
        self._accept(archive, grade)
        text = (
            "Submitted."
            if grade.outcome == "scored"
            else "Submitted; the grader failed, the submission is kept and can be graded again."
        )
        return ToolOutput(text, {"outcome": grade.outcome, "split": "test"})

    @property
    def _runs_code(self) -> bool:
        return self.task.submission.kind != "csv"

    def _ran_on_dev(self, archive: Archive) -> bool:
        return any(a.archive.digest == archive.digest and "dev" in a.grades for a in self.attempts)

    def _live(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError("call reset() before the first step")
        return self._sandbox

    def _apply(self, action: Action) -> ToolOutput:
        tool = self._tools.get(action.tool)
        if tool is None:
            return ToolOutput(f"There is no tool {action.tool!r}; the tools are: {', '.join(self._tools)}.")
        try:
            tool.check(action.arguments)
            return tool.run(self, action.arguments)
        except ToolArgumentError as error:
            return ToolOutput(str(error), {"error": "arguments"})
        except MLGymError:
            raise
        except Exception as error:
            self.log("tool_failed", tool=action.tool, error=repr(error))
            return ToolOutput(f"The tool {action.tool} failed: {error!r:.500}", {"error": "tool"})

    def _fulfil(self, output: ToolOutput) -> ToolOutput:
        """Do what a script has asked for during the action: ``validate`` or ``submit``, once for each request."""
        request = self._tools_state.request
        if request is None or request[0] in self._requests or self.submitted is not None:
            return output
        self._requests.add(request[0])
        if request[1] not in REQUESTS or request[1] not in self._tools:
            return output
        done = self._apply(Action(request[1]))
        info = {**output.info, "requested": request[1], **done.info}
        return ToolOutput(f"{output.text}\n[{request[1]}]\n{done.text}", info)

    def _end(self) -> str | None:
        if self.submitted is not None:
            return "submitted"
        if self.steps >= self.limits.steps:
            return "steps"
        return "time" if self.out_of_time else None

    def _freeze(self) -> Archive:
        submission = self.task.submission
        try:
            with self._live().export(submission.paths, submission.max_bytes) as stream:
                return freeze(stream, submission, self._record.submissions)
        except ExportError as error:
            raise InvalidSubmissionError(str(error)) from error

    def _grade(self, archive: Archive, split: Split) -> Grade:
        known = self._test_grades.get(archive.digest) if split == "test" else None
        if known is not None:
            return known
        grade = self._grader.grade(archive, split)
        if split == "test" and grade.outcome != "grader_error":
            self._test_grades[archive.digest] = grade
        self.log("grade", step=self.steps, split=split, archive=archive.digest, grade=grade)
        return grade

    def _refused(self, reason: str) -> ToolOutput:
        return ToolOutput(f"Invalid submission: {reason}", {"outcome": "invalid_submission", "message": reason})

    def _not_scored(self, grade: Grade, split: Split) -> ToolOutput:
        if grade.outcome == "grader_error":
            return ToolOutput(
                "The grader failed; this is not your fault and was not counted.", {"outcome": grade.outcome}
            )
        if split == "test" and self._runs_code:
            # Code could smuggle hidden instances out in its errors.
            return self._refused("it failed on the test split although it ran on the dev split; make it more robust")
        return self._refused(grade.message)

    def _accept(self, archive: Archive, grade: Grade) -> None:
        self.submitted = Attempt(self.steps, archive, {"test": grade})
        self.outcome = grade.outcome
        self.attempts.append(self.submitted)

    def _submit_rest(self, lost: bool) -> None:
        """No submission was accepted: take the workspace as it is, else the newest valid archive."""
        try:
            if not lost:
                self._live().stop_processes()
            archive = self._freeze()
        except MissingSubmissionError:
            pass
        except InvalidSubmissionError as error:
            self.outcome = "invalid_submission"
            self.log("invalid_submission", message=str(error))
        except InfrastructureError as error:
            if not lost and not isinstance(error, SandboxLostError):
                raise
            self.log("sandbox_lost", message=str(error))
        else:
            grade = self._grade(archive, "test")
            if grade.outcome != "invalid_submission":
                self._accept(archive, grade)
                return
            self.outcome = "invalid_submission"
        if self.attempts:
            newest = self.attempts[-1]
            self._accept(newest.archive, self._grade(newest.archive, "test"))

    def _with_test(self, attempt: Attempt) -> Attempt:
        """Score an accepted archive on test, unseen by the agent, once for each content."""
        if "test" in attempt.grades:
            return attempt
        return evolve(attempt, grades={**attempt.grades, "test": self._grade(attempt.archive, "test")})


def _scores(grade: Grade) -> str:
    parts = []
    for name, value in grade.metrics.items():
        error = grade.standard_error.get(name)
        parts.append(f"{name} {value:.6g}" + (f" ± {error:.2g}" if error is not None else ""))
    return ", ".join(parts)
