"""What an episode hands in: freezing, validating, submitting, and the rules of grading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import define, evolve, field, frozen

from mlgym_core.errors import (
    ExportError,
    InfrastructureError,
    InvalidSubmissionError,
    MissingSubmissionError,
    SandboxLostError,
)
from mlgym_core.grading.archive import Archive, freeze
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import Grader
from mlgym_core.sandbox.base import Sandbox
from mlgym_core.task.task import Split, Task
from mlgym_core.tools.base import ToolOutput

TEST_FAILURES = 2  #: submissions of code that may fail on the test split alone before one counts

Log = Callable[..., None]


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


@define
class Submissions:
    """The submissions of one episode.

    Attributes:
        task: what is worked on.
        grader: scores frozen submissions.
        folder: where they are kept, by content hash.
        log: writes an event.
        validate_on: split that ``validate`` scores.
        attempts: accepted submissions so far, in order.
        submitted: the one that counts, once there is one.
        outcome: so far: that of ``submitted``, else ``no_submission`` or ``invalid_submission``.
    """

    task: Task
    grader: Grader
    folder: Path
    log: Log
    validate_on: Split
    attempts: list[Attempt] = field(factory=list, init=False)
    submitted: Attempt | None = field(default=None, init=False)
    outcome: str = field(default="no_submission", init=False)
    _validations: int = field(default=0, init=False)
    _test_grades: dict[str, Grade] = field(factory=dict, init=False)
    _test_failures: int = field(default=0, init=False)

    def validate(self, sandbox: Sandbox, step: int) -> ToolOutput:
        """Freeze and score on the dev split. Only submissions that are scored count against the limit."""
        limit = self.task.limits.validations
        left = limit - self._validations
        if left <= 0:
            return ToolOutput(f"No validation is left ({limit} were allowed). You can still submit.")
        try:
            archive = self._freeze(sandbox)
        except InvalidSubmissionError as error:
            return _refused(str(error))
        split = self.validate_on
        grade = self._grade(archive, split, step)
        if grade.outcome != "scored":
            return self._not_scored(grade, split)
        self._validations += 1
        self.attempts.append(Attempt(step, archive, {split: grade}))
        text = f"{split} score: {_scores(grade)}. {left - 1} validations left."
        return ToolOutput(text, {"outcome": grade.outcome, "split": split, "metrics": grade.metrics})

    def submit(self, sandbox: Sandbox, step: int) -> ToolOutput:
        """Freeze, score on the test split and accept. An invalid submission costs the step, no more.

        Code that fails on the dev split is not run on the test split at all, and code that fails on the test split
        alone counts as the submission after :data:`TEST_FAILURES` times: each failure could carry a bit of the
        hidden instances out.
        """
        sandbox.stop_processes()
        try:
            archive = self._freeze(sandbox)
        except InvalidSubmissionError as error:
            return _refused(str(error))
        if self._runs_code and not self._ran_on_dev(archive):
            tried = self._grade(archive, "dev", step)
            if tried.outcome == "invalid_submission":
                return self._not_scored(tried, "dev")
        grade = self._grade(archive, "test", step)
        if grade.outcome == "invalid_submission":
            self._test_failures += 1
            if not self._runs_code or self._test_failures <= TEST_FAILURES:
                return self._not_scored(grade, "test")
        self._accept(archive, grade, step)
        text = (
            "Submitted."
            if grade.outcome == "scored"
            else "Submitted; the grader failed, the submission is kept and can be graded again."
        )
        return ToolOutput(text, {"outcome": grade.outcome, "split": "test"})

    def finish(self, sandbox: Sandbox | None, step: int, lost: bool) -> None:
        """Grade what the workspace holds unless a submission was accepted, then score every attempt on test.

        Args:
            sandbox: the agent's; ``None`` when it was never opened or is closed.
            step: the last one.
            lost: the sandbox died, so that nothing in it can be stopped.
        """
        if self.submitted is None and sandbox is not None:
            self._submit_rest(sandbox, step, lost)
        self.attempts = [self._with_test(attempt, step) for attempt in self.attempts]

    @property
    def _runs_code(self) -> bool:
        return self.task.submission.kind != "csv"

    def _ran_on_dev(self, archive: Archive) -> bool:
        return any(a.archive.digest == archive.digest and "dev" in a.grades for a in self.attempts)

    def _freeze(self, sandbox: Sandbox) -> Archive:
        submission = self.task.submission
        try:
            with sandbox.export(submission.paths, submission.max_bytes) as stream:
                return freeze(stream, submission, self.folder)
        except ExportError as error:
            raise InvalidSubmissionError(str(error)) from error

    def _grade(self, archive: Archive, split: Split, step: int) -> Grade:
        known = self._test_grades.get(archive.digest) if split == "test" else None
        if known is not None:
            return known
        grade = self.grader.grade(archive, split)
        if split == "test" and grade.outcome != "grader_error":
            self._test_grades[archive.digest] = grade
        self.log("grade", step=step, split=split, archive=archive.digest, grade=grade)
        return grade

    def _not_scored(self, grade: Grade, split: Split) -> ToolOutput:
        if grade.outcome == "grader_error":
            return ToolOutput(
                "The grader failed; this is not your fault and was not counted.", {"outcome": grade.outcome}
            )
        if split == "test" and self._runs_code:
            # Code could smuggle hidden instances out in its errors.
            return _refused("it failed on the test split although it ran on the dev split; make it more robust")
        return _refused(grade.message)

    def _accept(self, archive: Archive, grade: Grade, step: int) -> None:
        self.submitted = Attempt(step, archive, {"test": grade})
        self.outcome = grade.outcome
        self.attempts.append(self.submitted)

    def _submit_rest(self, sandbox: Sandbox, step: int, lost: bool) -> None:
        """No submission was accepted: take the workspace as it is, else the newest valid archive."""
        try:
            if not lost:
                sandbox.stop_processes()
            archive = self._freeze(sandbox)
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
            grade = self._grade(archive, "test", step)
            if grade.outcome != "invalid_submission":
                self._accept(archive, grade, step)
                return
            self.outcome = "invalid_submission"
        if self.attempts:
            newest = self.attempts[-1]
            self._accept(newest.archive, self._grade(newest.archive, "test", step), step)

    def _with_test(self, attempt: Attempt, step: int) -> Attempt:
        """Score an accepted archive on test, unseen by the agent, once for each content."""
        if "test" in attempt.grades:
            return attempt
        return evolve(attempt, grades={**attempt.grades, "test": self._grade(attempt.archive, "test", step)})


def _refused(reason: str) -> ToolOutput:
    return ToolOutput(f"Invalid submission: {reason}", {"outcome": "invalid_submission", "message": reason})


def _scores(grade: Grade) -> str:
    parts = []
    for name, value in grade.metrics.items():
        error = grade.standard_error.get(name)
        parts.append(f"{name} {value:.6g}" + (f" ± {error:.2g}" if error is not None else ""))
    return ", ".join(parts)
