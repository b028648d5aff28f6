"""Times known heuristics through the real grading: python benchmarks/three_sat.py [--backend local|docker|local:plain].

All are graded on the same hidden instances. ``faster`` is the baseline heuristic's Time in the same grading divided by
this one's. ``solver`` is the share of Time that the pristine solver takes for the same decisions, and ``floor`` the
least share of it that a submission with these decisions can be credited with, however fast its own solver is.

The spread is (largest - smallest) / median over repeated gradings of the baseline on the same instances.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
from collections.abc import Sequence

from mlgym_core.grading.grade import Grade
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.runner.tasks import load_task
from mlgym_core.testing import grade_files

FLOOR = 0.8  #: as in the grader

DLIS = """
    counts = {}
    for clause in clauses:
        for literal in clause:
            counts[literal] = counts.get(literal, 0) + 1
    literal = max(counts, key=counts.get)
    return abs(literal), literal > 0
"""

_WEIGHTS = """
    scores = {}
    for clause in clauses:
        weight = 2.0 ** -len(clause)
        for literal in clause:
            scores[literal] = scores.get(literal, 0.0) + weight
"""

ONE_SIDED = f"""{_WEIGHTS}
    literal = max(scores, key=scores.get)
    return abs(literal), literal > 0
"""

TWO_SIDED = f"""{_WEIGHTS}
    literal = max(scores, key=lambda one: scores[one] + scores.get(-one, 0.0))
    variable = abs(literal)
    return variable, scores.get(variable, 0.0) >= scores.get(-variable, 0.0)
"""

MOMS = """
    counts, shortest = {}, min(map(len, clauses))
    for clause in clauses:
        if len(clause) == shortest:
            for literal in clause:
                counts[literal] = counts.get(literal, 0) + 1
    get = counts.get
    literal = max(counts, key=lambda one: 32 * counts[one] * get(-one, 0) + counts[one] + get(-one, 0))
    variable = abs(literal)
    return variable, get(variable, 0) >= get(-variable, 0)
"""

#: name -> body, and by how much faster than random it was measured to be at full size when the task was designed
HEURISTICS = {
    "DLIS": (DLIS, 4.2),
    "Jeroslow-Wang": (ONE_SIDED, 5.6),
    "two-sided J-W": (TWO_SIDED, 6.9),
    "MOMS": (MOMS, 8.3),
}


def source(body: str) -> str:
    """A submission with this body."""
    return f"def heuristic_fn(clauses, assignments, conflict_count, assignment_history, level):\n{body}"


def spread(values: Sequence[float]) -> float:
    """(largest - smallest) / median, in per cent."""
    return 100 * (max(values) - min(values)) / statistics.median(values)


def row(name: str, grade: Grade, expected: float) -> str:
    """One line of the table."""
    if grade.outcome != "scored":
        return f"{name:14} {grade.outcome}: {grade.message[:200]}"
    metrics = grade.metrics
    share = grade.details["replay_time"] / metrics["Time"]
    return (
        f"{name:14} {metrics['Time']:7.2f} {metrics['Decisions']:10.0f} {1 / metrics['Relative']:7.2f} {expected:9.1f} "
        f"{share:7.2f} {FLOOR * share:6.2f} {grade.seconds:9.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--size", default="tiny", help="full takes about four minutes a grading")
    parser.add_argument("--repeats", type=int, default=5, help="gradings of the baseline")
    options = parser.parse_args()
    task, backend = load_task("three-sat"), choose(Registry(), options.backend).backend
    secret = secrets.token_bytes(16)

    def graded(text: str) -> Grade:
        return grade_files(task, {"heuristic.py": text}, size=options.size, secret=secret, backend=backend)

    print(f"{backend.describe()}; {os.cpu_count()} cores; size {options.size}")
    titles = ("Time s", "Decisions", "faster", "designed", "solver", "floor", "grading s")
    widths = (7, 10, 7, 9, 7, 6, 9)
    print("heuristic     ", *(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)))
    repeated = [graded((task.folder / "public" / "heuristic.py").read_text("utf-8")) for _ in range(options.repeats)]
    for grade in repeated:
        print(row("random", grade, 1.0), flush=True)
    for name, (body, expected) in HEURISTICS.items():
        print(row(name, graded(source(body)), expected), flush=True)
    for metric in ("Time", "Relative"):
        values = [grade.metrics[metric] for grade in repeated if grade.outcome == "scored"]
        print(f"spread of {metric} over {len(values)} gradings: {spread(values):.1f} %")
    passes = [sum(grade.details["passes"]) / len(grade.details["passes"]) for grade in repeated]
    print(f"a whole pass of random: {statistics.median(passes):.2f} s")


if __name__ == "__main__":
    main()
