"""The agent loop's own time a turn, model and sandbox left out: against ``episode.step`` in the same run."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlgym_core import Action, Episode, RunConfig, StepResult, run
from mlgym_core.agent.budget import Budget
from mlgym_core.agent.config import AgentConfig, load, shipped
from mlgym_core.agent.react import ReactAgent
from mlgym_core.models.base import Message, Reply, ToolCall, Usage
from mlgym_core.tools.base import Tool
from mlgym_core.tools.builtin import TOOLS

RULES = (
    "schema: 1\nhistory:\n  - {keep: newest_windows}\n  - {keep: last_observations, count: 10}\n"
    "  - {keep: token_window, tokens: 20000}\n"
)


class Instant:
    """Answers at once with a command that prints 2 kB, and remembers when it was asked and when it answered."""

    name = "instant"

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.answered: list[float] = []

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        del tools
        self.asked.append(time.perf_counter())
        number = len(self.asked)
        call = ToolCall(f"call-{number}", "bash", {"command": f"seq {number} {number + 400}"})
        reply = Reply("because", (call,), Usage(sum(len(m.content) for m in messages) // 4, 20))
        self.answered.append(time.perf_counter())
        return reply


class Timed:
    """The ReAct agent on an episode whose steps are timed."""

    name = "timed"

    def __init__(self, config: AgentConfig, model: Instant, steps: list[float]) -> None:
        self._agent = ReactAgent("timed", model, config, TOOLS)
        self._steps = steps

    def run(self, episode: Episode, budget: Budget) -> str:
        take = episode.step

        def step(action: Action | str) -> StepResult:
            started = time.perf_counter()
            result = take(action)
            self._steps.append(time.perf_counter() - started)
            return result

        timed: Any = episode
        timed.step = step
        return self._agent.run(episode, budget)


def measure(name: str, config: AgentConfig, backend: str, turns: int) -> None:
    model, steps = Instant(), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        run(
            RunConfig(
                "battle-of-sexes",
                backend=backend,
                size="tiny",
                out=Path(folder),
                limits={"steps": turns},
                allow_unsafe=True,
            ),
            model=model,
            agent=Timed(config, model, steps),
        )
    between = zip(model.asked[1:], model.answered, steps, strict=False)
    loop = sorted(asked - answered - step for asked, answered, step in between)
    p50, p95 = statistics.median(loop), loop[int(len(loop) * 0.95)]
    ratio = p50 / statistics.median(steps)
    print(f"{name:<34}{p50 * 1e3:>9.3f} ms{p95 * 1e3:>9.3f} ms{ratio:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--turns", type=int, default=200)
    arguments = parser.parse_args()
    print(f"{'loop a turn, ' + arguments.backend:<34}{'p50':>12}{'p95':>12}{'to step':>8}")
    for name in ("default", "text"):
        measure(name, load(shipped(name)), arguments.backend, arguments.turns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(RULES)
        measure("default with three history rules", load(path), arguments.backend, arguments.turns)


if __name__ == "__main__":
    main()
