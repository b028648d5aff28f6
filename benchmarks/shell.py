"""What a shell action costs: our shell beside the obvious ways, in one run; large output, memory and resets.

Run: ``python benchmarks/shell.py [--backend local|docker]``. The loop is tight: after some idle time the first action
costs more. Local actions are compared with a bare bash pipe, docker's with the SDK's ``exec_run`` and the
``docker exec`` command, each of which starts a process for every action.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen
from rich.console import Console
from rich.table import Table

from mlgym_core.sandbox.base import Backend, BoxSpec, PreparedImage, Sandbox
from mlgym_core.sandbox.engine.docker import DockerBackend
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.sandbox.local.environments import base_image
from mlgym_core.task.task import Image, Resources

ROUNDS = 5
ACTIONS = 400
SLOW_ACTIONS = 10
IDLE = 10
RESETS = 5
BASE = "debian:bookworm-slim"


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


@frozen
class Subject:
    """A backend to measure.

    Attributes:
        name: its row.
        backend: opens the boxes.
        image: that they are made of.
    """

    name: str
    backend: Backend
    image: PreparedImage

    def open(self) -> Sandbox:
        return self.backend.open_sandbox(BoxSpec("benchmark", "agent", self.image, Resources()))


def timed(action: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each of ``count`` calls."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def resident() -> float:
    """Memory of this process in KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def latency(console: Console, title: str, ways: dict[str, tuple[Callable[[], object], int]]) -> None:
    """Time ``true`` in every way, in turn; the first one is what the others are compared with."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (action, count) in ways.items():
            times[name] += timed(action, count)
    table = Table("way", "actions", "p50 ms", "p95 ms", f"x {next(iter(ways))}", title=title)
    floor = statistics.median(next(iter(times.values())))
    for name, taken in times.items():
        median = statistics.median(taken)
        p95 = statistics.quantiles(taken, n=20)[18]
        table.add_row(name, str(len(taken)), f"{median:.3f}", f"{p95:.3f}", f"{median / floor:.1f}")
    console.print(table)


def output(sandbox: Sandbox, size: int) -> str:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = min(timed(lambda: sandbox.run(f"head -c {size} /dev/zero", 60), 3))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{took:.0f} ms, host memory +{grown / 1024:.1f} MiB"


def idle(subject: Subject) -> str:
    """Memory of this process for each open sandbox, after one action, and of a container as its engine counts it."""
    subject.open().close()  # what is imported or cached once is not a sandbox's
    before = resident()
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            sandbox = subject.open()
            stack.callback(sandbox.close)
            sandbox.run("true", 10)
        said = f"{(resident() - before) / IDLE:.0f} KiB of this process"
        if isinstance(subject.backend, DockerBackend):
            api = subject.backend.client.api
            boxes = api.containers(filters={"label": "mlgym.run=benchmark"})
            usages = [api.stats(box["Id"], stream=False)["memory_stats"]["usage"] for box in boxes]
            said += f", {statistics.median(usages) / 1024:.0f} KiB of the container"
    return said


def measure(console: Console, subject: Subject, sandbox: Sandbox) -> None:
    """Print what is not latency."""
    console.print(f"{subject.name}: 3 MB of output {output(sandbox, 3_000_000)}")
    console.print(f"{subject.name}: 200 MB of output {output(sandbox, 200_000_000)}")
    console.print(f"{subject.name}: idle sandbox {idle(subject)}")
    opened: list[Sandbox] = []
    resets = timed(lambda: opened.append(subject.open()), RESETS)
    closes = timed(lambda: opened.pop().close(), RESETS)
    console.print(f"{subject.name}: reset {statistics.median(resets):.0f} ms, close {statistics.median(closes):.0f} ms")


def local(console: Console) -> None:
    subjects = [Subject("plain", LocalBackend(isolate=False), base_image())]
    if LocalBackend().isolates:
        subjects.append(Subject("bubblewrap", LocalBackend(isolate=True), base_image()))
    bare = BarePipe()
    with contextlib.ExitStack() as stack:
        stack.callback(bare.close)
        ways: dict[str, tuple[Callable[[], object], int]] = {"bare bash pipe": (bare.run, ACTIONS)}
        boxes = [subject.open() for subject in subjects]
        for subject, sandbox in zip(subjects, boxes, strict=True):
            stack.callback(sandbox.close)
            ways[subject.name] = (lambda sandbox=sandbox: sandbox.run("true", 10)), ACTIONS  # type: ignore[misc]
        latency(console, "`true` on this machine", ways)
        for subject, sandbox in zip(subjects, boxes, strict=True):
            measure(console, subject, sandbox)


@contextlib.contextmanager
def prepared(backend: DockerBackend) -> Iterator[PreparedImage]:
    with tempfile.TemporaryDirectory(prefix="mlgym-benchmark-") as folder:
        image = Path(folder) / "benchmark" / "image"
        image.mkdir(parents=True)
        (image / "Dockerfile").write_text(f"FROM {BASE}\n")
        yield backend.prepare_image(Image(folder=image), "agent", lambda _: None)


def docker(console: Console) -> None:
    backend = DockerBackend()
    with prepared(backend) as image, contextlib.ExitStack() as stack:
        subject = Subject("docker", backend, image)
        sandbox = subject.open()
        stack.callback(sandbox.close)
        (found,) = backend.client.containers.list(filters={"label": "mlgym.run=benchmark"})
        ways: dict[str, tuple[Callable[[], object], int]] = {
            "docker": (lambda: sandbox.run("true", 10), ACTIONS),
            "SDK exec_run": (lambda: found.exec_run("true"), SLOW_ACTIONS),
        }
        program = shutil.which("docker")
        if program is not None:
            command = [program, "exec", found.id, "true"]
            ways["docker exec"] = (lambda: subprocess.run(command, check=True, capture_output=True)), SLOW_ACTIONS
        latency(console, f"`true` in a container, {backend.describe()}", ways)
        measure(console, subject, sandbox)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a shell action costs.")
    parser.add_argument("--backend", choices=["local", "docker"], default="local")
    {"local": local, "docker": docker}[parser.parse_args().backend](Console())


if __name__ == "__main__":
    main()
