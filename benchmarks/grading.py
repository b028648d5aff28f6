"""Times the full-size grading of the three games with their baselines: python benchmarks/grading.py [--backend local].

Seconds are of the wall clock from the call of ``Grader.grade`` to its return, both boxes' start and end included.
The target is 2 s for each game on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import tempfile
from pathlib import Path

from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.sealed import Grade, Grader
from mlgym_core.plugins import load_task
from mlgym_core.sandbox.base import Backend
from mlgym_core.task import Task

GAMES = ("battle-of-sexes", "prisoners-dilemma", "blotto")
TARGET_SECONDS = 2.0


def open_backend(name: str) -> Backend:
    """``local`` as it works here, or ``processes`` for plain processes."""
    from mlgym_core.sandbox.local import LocalBackend

    return LocalBackend(isolate=None if name == "local" else False)


def measure(task: Task, backend: Backend, size: str, repeats: int) -> list[Grade]:
    """Grade the baseline ``repeats`` times, each with a secret of its own, after one run that is not counted."""
    with tempfile.TemporaryDirectory() as store:
        archive = freeze_folder(task.folder / "public", task.submission, Path(store))
        graders = [Grader(task, backend, "benchmark", size, secrets.token_bytes(16)) for _ in range(repeats + 1)]
        return [grader.grade(archive, "test") for grader in graders][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("local", "processes"), default="local")
    parser.add_argument("--size", default="full")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    backend = open_backend(options.backend)
    print(f"{backend.describe()}; {os.cpu_count()} cores; size {options.size}; {options.repeats} gradings each")
    print(f"{'game':20} {'median s':>9} {'max s':>7} {'Score':>9} {'+-':>7} {'published':>10}  {'target':>6}")
    for name in GAMES:
        task = load_task(name)
        grades = measure(task, backend, options.size, options.repeats)
        seconds = [grade.seconds for grade in grades]
        scores = [grade.metrics["Score"] for grade in grades]
        error = statistics.fmean(grade.standard_error["Score"] for grade in grades) / len(grades) ** 0.5
        known = task.baseline_score("full", "Score")
        met = "met" if statistics.median(seconds) <= TARGET_SECONDS else "MISSED"
        print(
            f"{name:20} {statistics.median(seconds):9.2f} {max(seconds):7.2f} {statistics.fmean(scores):9.4f} "
            f"{error:7.4f} {known.value if known else float('nan'):10.4f}  {met:>6}"
        )


if __name__ == "__main__":
    main()
