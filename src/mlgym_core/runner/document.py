"""What a run came to: status and exit code, and the document ``result.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from mlgym_core.episode.submissions import Attempt
from mlgym_core.grading.grade import Grade
from mlgym_core.record.reader import read_result
from mlgym_core.task.task import Capability, Metric, Split, Task

EXIT_CODES: Mapping[str, int] = {
    "scored": 0,
    "invalid_submission": 1,
    "no_submission": 1,
    "grader_error": 3,
    "infra_error": 3,
    "interrupted": 130,
    "not_started": 3,
}


@frozen
class RunResult:
    """A finished run.

    Attributes:
        document: the content of ``result.json``.
        folder: where the record is.
    """

    document: Mapping[str, Any]
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> RunResult:
        """The result that a run has left in its folder.

        Raises:
            RecordError: there is none.
        """
        return cls(read_result(folder), folder)

    @property
    def status(self) -> str:
        """One of :data:`mlgym_core.record.endings.STATUSES`."""
        return str(self.document["status"])

    @property
    def score(self) -> float | None:
        """The primary metric on the test split, if there is one."""
        test = self.document["scores"]["test"]
        value = test.get(self.document["primary_metric"]) if test else None
        return None if value is None else float(value)

    @property
    def exit_code(self) -> int:
        """What ``mlgym run`` exits with: 0 scored, 1 no score, 3 infrastructure, model or grader."""
        if self.document["reason"] in ("model_error", "sandbox_lost"):
            return 3
        return EXIT_CODES[self.status]


def scores(task: Task, attempts: Sequence[Attempt], submitted: Attempt | None) -> dict[str, Any]:
    """Section ``scores`` of the result: every dev score, the test score, the best attempt."""
    primary = task.primary
    dev = [_attempt(a, "dev") for a in attempts if a.validated and "dev" in a.grades]
    final = _grade(submitted, "test") if submitted else None
    best = _best(attempts, primary, by="test")
    best_on_dev = _best(attempts, primary, by="dev")
    return {
        "dev": dev,
        "test": dict(final.metrics) if final else {},
        "test_standard_error": dict(final.standard_error) if final else {},
        "best_attempt": _attempt(best, "test") if best else {},
        "best_on_dev": _attempt(best_on_dev, "test") if best_on_dev else {},
    }


def attempts(accepted: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Section ``attempts`` of the result: every accepted submission with its grades, whatever came of them."""
    return [
        {
            "step": attempt.step,
            "archive": attempt.archive.digest,
            "counts": not attempt.validated,
            "grades": {split: grade.summary() for split, grade in attempt.grades.items()},
        }
        for attempt in accepted
    ]


def details(submitted: Attempt | None) -> dict[str, Any]:
    """What the grader told beside the scores of the submission that counts."""
    final = _grade(submitted, "test") if submitted else None
    return dict(final.details) if final else {}


def flags(document: Mapping[str, Any]) -> list[str]:
    """Names of the details that are true, in words: what whoever reads a score should know (``not learned``)."""
    return [name.replace("_", " ") for name, value in document["details"].items() if value is True]


def grade_document(task: Task, size: str, grade: Grade, backend: str, missing: Sequence[str]) -> dict[str, Any]:
    """A grading outside a run, in the terms of ``result.json``."""
    return {
        "schema": 1,
        "task": task.id,
        "protocol": task.protocol,
        "size": size,
        "backend": backend,
        "sealed": Capability.ISOLATION not in missing,
        "missing_capabilities": list(missing),
        "status": grade.outcome,
        "message": grade.message,
        "scores": {"test": dict(grade.metrics), "test_standard_error": dict(grade.standard_error)},
        "primary_metric": task.primary.name,
        "baseline": baseline_of(task, size),
        "improvement": improvement(task, size, grade.metrics.get(task.primary.name)),
        "details": dict(grade.details),
        "log": grade.log,
        "grading_s": round(grade.seconds, 3),
    }


def baseline_of(task: Task, size: str) -> dict[str, Any]:
    """The known baseline scores at this size: metric -> value and source."""
    known = task.baseline.scores.get(size, {})
    return {name: {"value": score.value, "source": score.source} for name, score in known.items()}


def improvement(task: Task, size: str, score: float | None) -> float | None:
    """direction x (score - baseline) of the primary metric; never a ratio."""
    baseline = task.baseline_score(size, task.primary.name)
    if score is None or baseline is None:
        return None
    return task.primary.sign * (score - baseline.value)


def _attempt(attempt: Attempt, split: Split) -> dict[str, Any]:
    grade = attempt.grades.get(split)
    metrics = dict(grade.metrics) if grade and grade.outcome == "scored" else {}
    return {**metrics, "step": attempt.step, "archive": attempt.archive.digest}


def _grade(attempt: Attempt, split: Split) -> Grade | None:
    grade = attempt.grades.get(split)
    return grade if grade and grade.outcome == "scored" else None


def _best(attempts: Sequence[Attempt], metric: Metric, by: Split) -> Attempt | None:
    scored = [(grade.metrics[metric.name], a) for a in attempts if (grade := _grade(a, by))]
    return max(scored, key=lambda pair: metric.sign * pair[0])[1] if scored else None
