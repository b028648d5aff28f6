"""Scores a heuristic: the time the solver takes with it, the best of three passes for each batch."""

import time

import mlgym_peer as peer
from instances import batches_of  # type: ignore[import-not-found]
from passes import FLOOR, run  # type: ignore[import-not-found]

PASSES = 3
TOO_FAST = 0.95  #: of the replay's time: an honest search, which also runs the heuristic, never is


def grade() -> None:
    """Grade the submission and write the result."""
    job = peer.job()
    deadline = time.perf_counter() + job.parameters["seconds"]
    batches = batches_of(job.parameters["groups"], job.seed)
    passes = [run(number, batches, job.seed, deadline) for number in range(PASSES)]
    instances = sum(map(len, batches))
    seconds = best([floored(one.measured, one.replayed) for one in passes])
    measured, replayed, baseline = (
        best([getattr(one, name) for one in passes]) for name in ("measured", "replayed", "baseline")
    )
    metrics = {
        "Time": seconds,
        "Decisions": sum(one.decisions for one in passes) / PASSES,
        "Correct": 1.0,
        "Relative": seconds / baseline,
    }
    details = {
        "relative_time": seconds / baseline,
        "baseline_time": baseline,
        "baseline_decisions": sum(one.baseline_decisions for one in passes) / PASSES,
        "measured_time": measured,
        "replay_time": replayed,
        "solver_bypassed": measured < TOO_FAST * replayed,
        "passes": [sum(one.measured) for one in passes],
        "instances": instances,
        "satisfiable": passes[0].satisfiable,
        "batches": len(batches),
    }
    peer.scored(metrics, details=details)


def best(passes: list[list[float]]) -> float:
    """Sum over the batches of the shortest of the passes, in seconds."""
    shortest: list[float] = [min(times) for times in zip(*passes, strict=True)]
    return sum(shortest)


def floored(measured: list[float], replayed: list[float]) -> list[float]:
    """Seconds of each batch; none below the floor that its own replay sets."""
    return [max(one, FLOOR * other) for one, other in zip(measured, replayed, strict=True)]


if __name__ == "__main__":
    grade()
