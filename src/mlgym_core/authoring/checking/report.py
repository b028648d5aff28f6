"""What a check finds, and how a check says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from attrs import field, frozen

from mlgym_core.task.task import Task

Outcome = Literal["passed", "failed", "skipped"]


class BrokenError(Exception):
    """The task breaks its contract; the message is a sentence that tells its author what to do."""


class NotApplicableError(Exception):
    """The check cannot say anything about this task here; the message says why."""


@frozen
class Finding:
    """What one check found.

    Attributes:
        name: of the check, for ``--only`` and ``--skip``.
        about: what it proves, in a few words.
        outcome: ``passed``, ``failed`` or ``skipped``.
        message: what to do when it failed, why it was skipped, what was measured when it passed.
        seconds: wall-clock time it took.
    """

    name: str
    about: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@frozen
class Report:
    """What all checks of one task found.

    Attributes:
        task: id, or the name that was asked for when the task cannot be loaded.
        size, backend: that the checks used; empty when none ran.
        sealed: whether the backend isolates; attacks run only then.
        findings: in the order of the checks.
        infrastructure: why the check could not be finished; empty when it could.
    """

    task: str
    size: str = ""
    backend: str = ""
    sealed: bool = False
    findings: Sequence[Finding] = field(factory=tuple)
    infrastructure: str = ""

    def count(self, outcome: Outcome) -> int:
        """How many checks ended so."""
        return sum(finding.outcome == outcome for finding in self.findings)

    @property
    def status(self) -> str:
        """``failed`` when any check failed, else ``infrastructure`` when one could not be finished, else ``passed``."""
        if self.count("failed"):
            return "failed"
        return "infrastructure" if self.infrastructure else "passed"

    @property
    def exit_code(self) -> int:
        """What ``mlgym check`` exits with: 0 passed, 1 failed, 3 infrastructure."""
        return {"passed": 0, "failed": 1, "infrastructure": 3}[self.status]

    def to_json(self) -> dict[str, Any]:
        """The document of ``mlgym check --json``."""
        outcomes: tuple[Outcome, ...] = ("passed", "failed", "skipped")
        return {
            "schema": 1,
            "task": self.task,
            "size": self.size,
            "backend": self.backend,
            "sealed": self.sealed,
            "status": self.status,
            "infrastructure": self.infrastructure,
            "counts": {outcome: self.count(outcome) for outcome in outcomes},
            "findings": [
                {
                    "name": one.name,
                    "about": one.about,
                    "outcome": one.outcome,
                    "message": one.message,
                    "seconds": round(one.seconds, 3),
                }
                for one in self.findings
            ],
        }


def failing(task: Task, file: str, text: str) -> BrokenError:
    """An error that begins with the task's file that is to be changed."""
    return BrokenError(f"{task.folder.name}/{file}: {text}")
