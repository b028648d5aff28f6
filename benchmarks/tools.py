"""What a tool call costs: ``open`` of a 1,000-line file as a step, beside starting Python in the same shell.

Run: ``python benchmarks/tools.py [--backend local|docker]``. Also what the tools cost everybody else: ``true`` before
and after a file is open, and resets with and without tools in the box.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mlgym_core import Action, RunConfig, load_task, open_episode
from mlgym_core.episode.episode import Episode
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.sandbox.base import BoxSpec
from mlgym_core.tools.builtin import TOOLS
from mlgym_core.tools.scripted import tool_files

TASK = "battle-of-sexes"
EDIT = Action("edit", {"start": 500, "end": 500, "text": "x = 500  # edited\n"})


def timed(action: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each of ``count`` calls."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def report(console: Console, title: str, floor: str, times: Mapping[str, list[float]]) -> None:
    table = Table(title, "count", "p50 ms", "p95 ms", f"x {floor}")
    base = statistics.median(times[floor])
    for name, taken in times.items():
        median, p95 = statistics.median(taken), statistics.quantiles(taken, n=20)[18]
        table.add_row(name, str(len(taken)), f"{median:.3f}", f"{p95:.3f}", f"{median / base:.2f}")
    console.print(table)


def calls(episode: Episode, rounds: int) -> dict[str, list[float]]:
    """Tool calls, in turn with the floor, so that a busy moment is everybody's."""
    episode.step("seq -f 'x = %g' 1000 > thousand.py; cp thousand.py thousand.txt")
    ways: dict[str, Callable[[], object]] = {
        "python3 -c pass": lambda: episode.step("python3 -c pass"),
        "open, 1,000 lines": lambda: episode.step(Action("open", {"path": "thousand.txt"})),
        "edit": lambda: episode.step(EDIT),
        "open in bash": lambda: episode.step("open thousand.py"),
        "edit, checked": lambda: episode.step(EDIT),
        "find_file": lambda: episode.step(Action("find_file", {"name": "*.py"})),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            taken = timed(way, 1)
            times[name] += taken if number else []  # the first call in a box compiles
    return times


def resets(backend_name: str, count: int) -> dict[str, list[float]]:
    backend, task = choose(Registry(), backend_name).backend, load_task(TASK)
    image = backend.prepare_image(task.image, "agent", lambda _: None)

    def opened(tools: Mapping[str, Path]) -> Callable[[], None]:
        spec = BoxSpec("benchmark", "agent", image, task.resources, files=task.public_files(), tools=tools)
        return lambda: backend.open_sandbox(spec).close()

    ways = {"without tools": opened({}), "with tools": opened(tool_files(TOOLS))}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(count):
        for name, way in ways.items():
            times[name] += timed(way, 1)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        limits = {"steps": 10 * arguments.rounds + 20, "cost_usd": None}
        config = RunConfig(
            TASK, backend=arguments.backend, allow_unsafe=True, size="tiny", out=Path(folder), limits=limits
        )
        with open_episode(config) as episode:
            episode.reset()
            times = calls(episode, arguments.rounds)
            plain: list[float] = []
            after: list[float] = []
            for _ in range(5):
                episode.run_command("mv $MLGYM_TOOLS_STATE $MLGYM_TOOLS_STATE.off")
                plain += timed(lambda: episode.run_command("true"), 300)
                episode.run_command("mv $MLGYM_TOOLS_STATE.off $MLGYM_TOOLS_STATE")
                after += timed(lambda: episode.run_command("true"), 300)
            fresh = timed(lambda: episode.run_command("printf '{}\\n' >$MLGYM_TOOLS_STATE"), 300)
            other = timed(lambda: episode.run_command("printf '{}\\n' >$MLGYM_TOOLS_STATE.other"), 300)
    report(console, f"{arguments.backend}: a step", "python3 -c pass", times)
    report(console, "true, round trip", "no file open", {"no file open": plain, "a file open": after})
    report(console, "a file written, round trip", "any", {"any": other, "the tools' state": fresh})
    report(console, "open and close a box", "without tools", resets(arguments.backend, 8))


if __name__ == "__main__":
    main()
