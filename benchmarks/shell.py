"""What a shell action costs: the local shell beside a bare bash pipe, in one run, and large output.

Run: ``python benchmarks/shell.py``. The loop is tight: after some idle time the first action costs more.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from mlgym_core.sandbox.base import BoxSpec, Sandbox
from mlgym_core.sandbox.environments import base_image
from mlgym_core.sandbox.local import LocalBackend
from mlgym_core.task import Resources

ROUNDS = 5
ACTIONS = 400


class BarePipe:
    """The floor: bash reads ``true`` and an echo from a pipe; no nonce, no standard error, no state."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def run(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"true; echo\n")
        self.process.stdout.read(1)

    def close(self) -> None:
        self.process.communicate()


def timed(action: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(ACTIONS):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def row(table: Table, name: str, times: list[float], floor: float) -> None:
    median = statistics.median(times)
    table.add_row(name, f"{median:.3f}", f"{statistics.quantiles(times, n=20)[18]:.3f}", f"{median / floor:.1f}")


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def output(sandbox: Sandbox, size: int) -> str:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = min(seconds(lambda: sandbox.run(f"head -c {size} /dev/zero", 60)) for _ in range(3))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{took * 1000:.0f} ms, host memory +{grown / 1024:.1f} MiB"


def main() -> None:
    console = Console()
    backends = {"plain": LocalBackend(isolate=False)}
    if LocalBackend().isolates:
        backends["bubblewrap"] = LocalBackend(isolate=True)
    table = Table(
        "shell", "p50 ms", "p95 ms", "x bare pipe", title=f"`true`, {ROUNDS} x {ACTIONS} actions, interleaved"
    )
    bare = BarePipe()
    opening: dict[str, float] = {}
    sandboxes: dict[str, Sandbox] = {}
    for name, backend in backends.items():
        started = time.perf_counter()
        sandboxes[name] = backend.open_sandbox(BoxSpec("benchmark", "agent", base_image(), Resources()))
        opening[name] = time.perf_counter() - started
    try:
        times: dict[str, list[float]] = {"bare bash pipe": [], **{name: [] for name in sandboxes}}
        for _ in range(ROUNDS):
            times["bare bash pipe"] += timed(bare.run)
            for name, sandbox in sandboxes.items():
                times[name] += timed(lambda sandbox=sandbox: sandbox.run("true", 10))  # type: ignore[misc]
        floor = statistics.median(times["bare bash pipe"])
        for name, taken in times.items():
            row(table, name, taken, floor)
        console.print(table)
        for name, sandbox in sandboxes.items():
            console.print(f"{name}: open {opening[name] * 1000:.0f} ms")
            console.print(f"{name}: 3 MB of output {output(sandbox, 3_000_000)}")
            console.print(f"{name}: 200 MB of output {output(sandbox, 200_000_000)}")
    finally:
        bare.close()
        for sandbox in sandboxes.values():
            sandbox.close()


if __name__ == "__main__":
    main()
