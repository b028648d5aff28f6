"""Times full gradings of shipped tasks: python benchmarks/grading.py [--backend local|docker|local:plain].

Seconds are of the wall clock from the call of ``Grader.grade`` to its return, the start and end of all boxes included.
Games are graded with their baselines; the target is 2 s for each on 2 cores. house-price is graded with its sample
submission where ``MLGYM_TEST_HOUSE_PRICES`` names the folder of the real ``train.csv``; its target is 1 s beyond the
start of a box, which the same run measures.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import tempfile
from pathlib import Path

from mlgym_core import data
from mlgym_core.grading.archive import Archive, freeze_folder
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.sealed import Grader
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.runner.tasks import load_task
from mlgym_core.sandbox.base import Backend
from mlgym_core.task.task import Task

GAMES = ("battle-of-sexes", "prisoners-dilemma", "blotto")
TARGET_SECONDS = 2.0


def grade_often(
    task: Task, backend: Backend, archive: Archive, prepared: data.Prepared, options: argparse.Namespace
) -> list[Grade]:
    """Grade ``repeats`` times, each with a secret of its own, after one run that is not counted."""
    graders = [
        Grader(task, backend, "benchmark", options.size, secrets.token_bytes(16), prepared)
        for _ in range(options.repeats + 1)
    ]
    return [grader.grade(archive, "test") for grader in graders][1:]


def games(backend: Backend, options: argparse.Namespace) -> None:
    print(f"{'game':20} {'median s':>9} {'max s':>7} {'Score':>9} {'+-':>7} {'published':>10}  {'target':>6}")
    for name in GAMES:
        task = load_task(name)
        with tempfile.TemporaryDirectory() as store:
            archive = freeze_folder(task.folder / "public", task.submission, Path(store))
            grades = grade_often(task, backend, archive, data.Prepared(), options)
        seconds = [grade.seconds for grade in grades]
        scores = [grade.metrics["Score"] for grade in grades]
        error = statistics.fmean(grade.standard_error["Score"] for grade in grades) / len(grades) ** 0.5
        known = task.baseline_score("full", "Score")
        met = "met" if statistics.median(seconds) <= TARGET_SECONDS else "MISSED"
        print(
            f"{name:20} {statistics.median(seconds):9.2f} {max(seconds):7.2f} {statistics.fmean(scores):9.4f} "
            f"{error:7.4f} {known.value if known else float('nan'):10.4f}  {met:>6}"
        )


def house_price(backend: Backend, options: argparse.Namespace) -> None:
    folder = os.environ.get("MLGYM_TEST_HOUSE_PRICES")
    if not folder:
        print("house-price: skipped, MLGYM_TEST_HOUSE_PRICES does not name the folder of the real train.csv")
        return
    task = load_task("house-price")
    prepared = data.prepare(task, f"local:{folder}", options.size, 0)
    assert prepared.public is not None
    with tempfile.TemporaryDirectory() as store:
        rows = (prepared.public / "sample_submission.csv").read_text("utf-8")
        (Path(store) / "submission.csv").write_text(rows, "utf-8")
        archive = freeze_folder(Path(store), task.submission, Path(store) / "archives")
        seconds = [grade.seconds for grade in grade_often(task, backend, archive, prepared, options)]
    median, longest = statistics.median(seconds), max(seconds)
    print(f"{'house-price':20} {median:9.2f} {longest:7.2f}   (one box, its start included; target: 1 s beyond that)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--size", default="full")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    backend = choose(Registry(), options.backend).backend
    print(f"{backend.describe()}; {os.cpu_count()} cores; size {options.size}; {options.repeats} gradings each")
    games(backend, options)
    house_price(backend, options)


if __name__ == "__main__":
    main()
