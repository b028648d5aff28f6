"""``episode.step``, recording included, in a tight loop: against the bare shell round trip in the same run."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mlgym_core import Action, RunConfig, open_episode, run
from mlgym_core.plugins.loading import Registry

SCRIPT = [*(["true"] * 48), {"tool": "validate"}, {"tool": "submit"}]


def timed(action: Callable[[], object], rounds: int) -> list[float]:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)


def show(name: str, seconds: list[float], base: float) -> None:
    p50, p95 = statistics.median(seconds), seconds[int(len(seconds) * 0.95)]
    print(f"{name:<34}{p50 * 1e3:>9.3f} ms{p95 * 1e3:>9.3f} ms{p50 / base:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limits = {"steps": 10 * arguments.rounds, "cost_usd": None}
        config = RunConfig(
            "battle-of-sexes",
            backend=arguments.backend,
            allow_unsafe=True,
            size="tiny",
            out=Path(folder),
            limits=limits,
        )
        with open_episode(config) as episode:
            started = time.perf_counter()
            episode.reset()
            reset = time.perf_counter() - started
            shell = timed(lambda: episode.run_command("true"), arguments.rounds)
            step = timed(lambda: episode.step(Action("bash", {"command": "true"})), arguments.rounds)
        print(f"{arguments.backend:<34}{'p50':>12}{'p95':>12}{'ratio':>8}")
        base = statistics.median(shell)
        show("shell round trip of true", shell, base)
        show("episode.step of true", step, base)
        print(f"{'reset':<34}{reset * 1e3:>9.1f} ms")
        script = Path(folder) / "script.yaml"
        script.write_text(str(SCRIPT))
        config = RunConfig("battle-of-sexes", f"scripted:{script}", backend=arguments.backend, out=Path(folder))
        started = time.perf_counter()
        result = run(config, registry=Registry())
        seconds = time.perf_counter() - started
        print(f"{'50-step scripted episode':<34}{seconds:>9.2f} s   ({result.status}, graded on dev and test)")


if __name__ == "__main__":
    main()
