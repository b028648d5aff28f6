"""What an attack is, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import define

from mlgym_core.authoring.checking.bench import Bench, Played, beats
from mlgym_core.authoring.checking.report import BrokenError
from mlgym_core.episode.episode import Action
from mlgym_core.errors import InvalidSubmissionError
from mlgym_core.grading.grade import Grade
from mlgym_core.task.task import SubmissionKind, Task

EVERY_KIND: tuple[SubmissionKind, ...] = ("csv", "code", "policy", "model")
RUN_KINDS: tuple[SubmissionKind, ...] = ("code", "policy", "model")
SUBMIT = Action("submit")
VALIDATE = Action("validate")
FOUND = "ATTACK-FOUND"  #: what an attack prints or raises when it has found what it must not find


class Attack(Protocol):
    """One scripted adversary."""

    @property
    def name(self) -> str:
        """Words joined by hyphens."""

    @property
    def about(self) -> str:
        """What it tries, in a few words."""

    @property
    def kinds(self) -> Sequence[SubmissionKind]:
        """The kinds of submission it can be tried on."""

    @property
    def specific(self) -> bool:
        """Whether its outcome depends on the task's own grader and player."""

    def run(self, arena: Arena) -> str:
        """Try it.

        Returns:
            How it ended, in a few words.

        Raises:
            BrokenError: it succeeded; the message tells the task's author what to do.
            NotApplicableError: it cannot be tried on this task.
        """


@define
class Arena:
    """Where attacks are run: the task with a canary in its private part, and the judgement of what comes out."""

    bench: Bench

    @property
    def task(self) -> Task:
        """The attacked task as its author wrote it."""
        return self.bench.task

    @property
    def honest(self) -> Mapping[str, bytes]:
        """Files of the baseline's submission."""
        return self.bench.baseline().files()

    def hand_in(self, files: Mapping[str, bytes | None], hasty: bool = False) -> Grade:
        """Freeze and grade files on the test split; what is refused comes back as an invalid submission.

        Args:
            files: path -> content.
            hasty: allow little time, for submissions that never answer.
        """
        task, prepared = self.bench.guarded()
        try:
            archive = self.bench.freeze(files)
        except InvalidSubmissionError as error:
            return Grade("invalid_submission", message=str(error))
        return self.bench.grade(archive, "test", self.bench.hasty(task) if hasty else task, prepared)

    def judge(self, grade: Grade) -> str:
        """See to it that a grade gains nothing.

        Raises:
            BrokenError: it does.
        """
        self.judge_text(grade.message)
        if grade.outcome == "grader_error":
            raise BrokenError(
                "it made the grader fail, so that nobody knows a score; catch this in grade.py and raise "
                f"peer.InvalidSubmission with a reason: {grade.message.strip()[-400:]}"
            )
        if grade.outcome == "invalid_submission":
            return "refused"
        honest = self.bench.baseline().test
        name = self.task.primary.name
        if beats(self.task, grade, honest):
            raise BrokenError(
                f"it scored {name} {grade.metrics[name]:g}, more than the honest baseline ({honest.metrics[name]:g}); "
                "believe nothing that comes from the submission and measure in grade.py"
            )
        return f"{name} {grade.metrics[name]:.4g}"

    def judge_text(self, text: str) -> None:
        """See to it that what the agent reads holds nothing of the private part.

        Raises:
            BrokenError: it does.
        """
        if FOUND in text or self.bench.canary in text:
            at = max(text.find(FOUND), text.find(self.bench.canary), 0)
            raise BrokenError(f"it found what it must not find: {text[at : at + 400]}")

    def play(self, actions: Sequence[str | Action], **limits: Any) -> Played:
        """An episode whose agent acts so, beginning with the honest submission in place, and then submits.

        What is refused (a background writer may have torn it) is handed in once more as it should be.

        Raises:
            BrokenError: the agent was told something of the private part, or gained something.
        """
        task, prepared = self.bench.guarded()
        with self.bench.episode(task, prepared, **limits) as played:
            played.steps([*actions, SUBMIT])
            if played.episode.reason is None:
                played.place_honest()
                played.step(SUBMIT)
            played.episode.finish("stopped")
        for text in played.said:
            self.judge_text(text)
        for attempt in played.episode.attempts:
            for grade in attempt.grades.values():
                self.judge_text(grade.message)
            if "test" in attempt.grades:
                self.judge(attempt.grades["test"])
        return played


def filled(text: str, task: Task) -> str:
    """Text with ``@PATH@`` replaced by the first declared path and ``@METRIC@`` by the primary metric's name."""
    return text.replace("@PATH@", task.submission.paths[0].rstrip("/")).replace("@METRIC@", task.primary.name)
