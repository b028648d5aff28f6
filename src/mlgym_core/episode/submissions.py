"""What an episode hands in: freezing, validating, submitting, and the rules and the order of grading."""

from __future__ import annotations

import time
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
from mlgym_core.record import events
from mlgym_core.sandbox.base import Sandbox
from mlgym_core.task.task import Split, Task
from mlgym_core.tools.base import ToolOutput

Log = Callable[[events.Event], None]


@frozen
class Attempt:
    """An accepted submission.

    Attributes:
        step: when it was frozen.
        archive: its content.
        validated: whether it was handed in with ``validate``, else it is the submission that counts.
        grades: split -> grade.
    """

    step: int
    archive: Archive
    validated: bool
    grades: Mapping[Split, Grade]


@define
class Submissions:
    """The submissions of one episode.

    The order that seals the test split: a submission is checked on dev while the agent is alive, which may learn what
    it can of that; :meth:`settle` comes after the agent's box is closed, commits to what was handed in, has the secret
    of the test split drawn, and only then lets anything run on test.

    Attributes:
        task: what is worked on.
        grader: scores frozen submissions on the split that ``validate`` scores.
        draw: gives what scores them on test; called once, when the agent has ended.
        folder: where they are kept, by content hash.
        log: writes an event.
        validate_on: split that ``validate`` scores; with ``test`` the order above is given up.
        attempts: accepted submissions so far, in order.
        submitted: the one that counts, once there is one.
        outcome: so far: that of ``submitted``, else ``no_submission`` or ``invalid_submission``.
        reason: why there is no score, for people.
        ungraded: accepted submissions that late grading had no time for.
    """

    task: Task
    grader: Grader
    draw: Callable[[], Grader]
    folder: Path
    log: Log
    validate_on: Split
    attempts: list[Attempt] = field(factory=list, init=False)
    submitted: Attempt | None = field(default=None, init=False)
    outcome: str = field(default="no_submission", init=False)
    reason: str = field(default="", init=False)
    ungraded: int = field(default=0, init=False)
    settled: bool = field(default=False, init=False)
    _committed: bool = field(default=False, init=False)
    _validations: int = field(default=0, init=False)
    _known: dict[tuple[str, Split], Grade] = field(factory=dict, init=False)

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
        grade = self._grade(self.grader, archive, split, step)
        if grade.outcome != "scored":
            return _not_scored(grade)
        self._validations += 1
        self.attempts.append(Attempt(step, archive, True, {split: grade}))
        text = f"{split} score: {_scores(grade)}. {left - 1} validations left."
        return ToolOutput(text, {"outcome": grade.outcome, "split": split, "metrics": grade.metrics})

    def submit(self, sandbox: Sandbox, step: int) -> ToolOutput:
        """Freeze, check on the split that ``validate`` scores, and accept. What is invalid costs the step, no more."""
        sandbox.stop_processes()
        try:
            archive = self._freeze(sandbox)
        except InvalidSubmissionError as error:
            return _refused(str(error))
        grade = self._checked(archive, step)
        if grade.outcome == "invalid_submission":
            return _not_scored(grade)
        self._accept(archive, grade, step)
        return ToolOutput("Submitted.", {"outcome": "accepted", "split": self.validate_on})

    def take_rest(self, sandbox: Sandbox, step: int, lost: bool) -> None:
        """No submission was accepted: take the workspace as it is, else the newest valid archive.

        Args:
            sandbox: the agent's, still open.
            step: the last one.
            lost: it died, so that nothing in it can be stopped.
        """
        try:
            if not lost:
                sandbox.stop_processes()
            archive = self._freeze(sandbox)
            grade = self._checked(archive, step)
        except MissingSubmissionError:
            pass
        except InvalidSubmissionError as error:
            self._refuse(str(error))
        except InfrastructureError as error:
            if not lost and not isinstance(error, SandboxLostError):
                raise
            self.log(events.SandboxLost(str(error)))
        else:
            if grade.outcome != "invalid_submission":
                self._accept(archive, grade, step)
                return
            self._refuse(grade.message)
        if self.attempts:
            newest = self.attempts[-1]
            self._accept(newest.archive, newest.grades[self.validate_on], step)

    def commit(self) -> None:
        """Write down what was handed in; nothing is added after that."""
        if not self._committed:
            self._committed = True
            self.log(events.Commitment(sorted({attempt.archive.digest for attempt in self.attempts})))

    def settle(self, step: int) -> None:
        """Score on test what was handed in: what counts, then every other archive as far as time allows.

        The agent must have ended and its box must be closed. A failure on test is final for its archive.
        """
        if self.settled:
            return
        self.settled = True
        self.commit()
        grader = self.draw()
        if not self.attempts:
            return
        self.log(events.TestDrawn())
        if self.submitted is not None:
            grade = self._grade(grader, self.submitted.archive, "test", step)
            self.outcome, self.reason = grade.outcome, grade.message if grade.outcome != "scored" else ""
        started = time.monotonic()
        for attempt in self._others():
            if time.monotonic() - started < self.task.limits.late_grading_seconds:
                self._grade(grader, attempt.archive, "test", step)
        self.attempts = [self._with_test(attempt) for attempt in self.attempts]
        self.ungraded = sum("test" not in attempt.grades for attempt in self.attempts)
        if self.ungraded:
            self.log(events.Notice(f"late grading ran out of time; not scored on test: {self.ungraded} submissions"))
        if self.submitted is not None:
            self.submitted = self._with_test(self.submitted)

    def _others(self) -> list[Attempt]:
        """What is graded late: the best on dev first, then the newest first."""
        metric = self.task.primary
        newest = self.attempts[::-1]
        best = max(
            (a for a in newest if a.grades[self.validate_on].outcome == "scored"),
            key=lambda a: metric.sign * a.grades[self.validate_on].metrics[metric.name],
            default=None,
        )
        return newest if best is None else [best, *newest]

    def _freeze(self, sandbox: Sandbox) -> Archive:
        submission = self.task.submission
        try:
            with sandbox.export(submission.paths, submission.max_bytes) as stream:
                return freeze(stream, submission, self.folder)
        except ExportError as error:
            raise InvalidSubmissionError(str(error)) from error

    def _checked(self, archive: Archive, step: int) -> Grade:
        """Its grade on the split that ``validate`` scores; a known one is not asked for again."""
        return self._grade(self.grader, archive, self.validate_on, step, again=False)

    def _grade(self, grader: Grader, archive: Archive, split: Split, step: int, again: bool = True) -> Grade:
        known = self._known.get((archive.digest, split))
        if known is not None and (split == "test" or not again):
            return known
        grade = grader.grade(archive, split)
        if grade.outcome != "grader_error":
            self._known[archive.digest, split] = grade
        self.log(events.Grade(step, split, archive.digest, grade))
        return grade

    def _accept(self, archive: Archive, grade: Grade, step: int) -> None:
        self.submitted = Attempt(step, archive, False, {self.validate_on: grade})
        self.outcome = "accepted"
        self.attempts.append(self.submitted)

    def _refuse(self, reason: str) -> None:
        self.outcome, self.reason = "invalid_submission", reason
        self.log(events.InvalidSubmission(reason))

    def _with_test(self, attempt: Attempt) -> Attempt:
        known = self._known.get((attempt.archive.digest, "test"))
        return attempt if known is None else evolve(attempt, grades={**attempt.grades, "test": known})


def _not_scored(grade: Grade) -> ToolOutput:
    if grade.outcome == "grader_error":
        return ToolOutput("The grader failed; this is not your fault and was not counted.", {"outcome": grade.outcome})
    return _refused(grade.message)


def _refused(reason: str) -> ToolOutput:
    return ToolOutput(f"Invalid submission: {reason}", {"outcome": "invalid_submission", "message": reason})


def _scores(grade: Grade) -> str:
    parts = []
    for name, value in grade.metrics.items():
        error = grade.standard_error.get(name)
        parts.append(f"{name} {value:.6g}" + (f" ± {error:.2g}" if error is not None else ""))
    return ", ".join(parts)
