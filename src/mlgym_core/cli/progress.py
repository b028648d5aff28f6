"""Shows a run as it happens: a live line on a terminal, one line a step elsewhere; and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import singledispatchmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlgym_core.cli.terminal import harmless
from mlgym_core.record import events
from mlgym_core.record.eventjson import from_json
from mlgym_core.runner.document import RunResult, flags

ROUNDING = 1e-9  #: of a score, which is no improvement
ERRORS = 2.0  #: standard errors that an improvement must exceed


class RunProgress:
    """Follows the events of a run. Use it as a context manager and pass :meth:`see` as the listener.

    Args:
        console: to write on.
        quiet: somebody else writes on the same terminal and shows every step: no live line, no line a step.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None
        self._started = time.monotonic()
        self._limit = 0
        self._step = 0
        self._action = "preparing"
        self._cost = 0.0
        self._score = "none yet"
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in one event, as it is written to the record."""
        self._on(from_json(event))

    @singledispatchmethod
    def _on(self, event: events.Event) -> None:
        """Most kinds change nothing that is shown."""

    @_on.register
    def _(self, event: events.Start) -> None:
        self._limit = event.limits["steps"]
        self.folder = Path(event.folder)
        sealed = "sealed" if event.sealed else "not sealed"
        self._say(f"{event.task} with {event.model}, agent {event.agent}, on {event.why}; {sealed}")

    @_on.register
    def _(self, event: events.Progress) -> None:
        self._action = event.text
        self._say(event.text)

    @_on.register
    def _(self, event: events.Reset) -> None:
        self._started = time.monotonic()
        self._action = f"ready in {event.seconds:.1f} s"

    @_on.register
    def _(self, event: events.ModelReply) -> None:
        self._cost = event.cost_usd

    @_on.register
    def _(self, _: events.ModelRequest) -> None:
        self._action = "waiting for the model"

    @_on.register
    def _(self, event: events.Action) -> None:
        self._step += 1
        self._action = _shorten(_action(event.tool, {"command": event.text}))

    @_on.register
    def _(self, event: events.ModelAttempt) -> None:
        self._cost = event.cost_usd
        attempt = event.attempt
        if attempt["wait"] is not None:
            message = _shorten(attempt["message"]).rstrip(".")
            self._say(f"{attempt['kind'].replace('_', ' ')}: {message}; next try in {attempt['wait']:.1f} s")

    @_on.register
    def _(self, event: events.Notice) -> None:
        self._say(event.text)

    @_on.register
    def _(self, event: events.MalformedReply) -> None:
        if not self._quiet:
            self._say(f"malformed reply {event.attempt}: {event.message}")

    @_on.register
    def _(self, event: events.Grade) -> None:
        values = ", ".join(f"{name} {value:.6g}" for name, value in event.grade["metrics"].items())
        self._score = f"{event.split} {values or event.grade['outcome']}"

    @_on.register
    def _(self, event: events.Step) -> None:
        self._step = event.step
        self._action = _shorten(_action(event.tool, event.arguments)) + _trouble(event)
        if not self._quiet:
            self._say(self._line())

    @_on.register
    def _(self, event: events.Refusal) -> None:
        self._step = max(0, self._step - 1)
        if not self._quiet:
            self._say(f"refused, no step: {_shorten(event.observation)}")

    @_on.register
    def _(self, event: events.Kept) -> None:
        self._say(f"the sandbox was kept; enter it with: {event.how_to_enter}")

    def _say(self, text: str) -> None:
        self._console.print(Text(harmless(text)), soft_wrap=True)

    def _line(self) -> str:
        elapsed = time.monotonic() - self._started
        return (
            f"step {self._step}/{self._limit}  {self._action}  elapsed {elapsed:.1f} s  "
            f"cost ${self._cost:.2f}  latest score: {self._score}"
        )

    def _render(self) -> Text:
        return Text(harmless(self._line()), overflow="ellipsis", no_wrap=True)


def result_table(result: RunResult) -> Table:
    """The end of a run: each metric of the test split beside the baseline."""
    document = result.document
    table = Table(title=f"{document['task']}  {document['status']} ({document['reason'] or 'ended early'})")
    table.add_column("metric", overflow="fold")
    for name in ("dev", "test", "best", "baseline", "improvement"):
        table.add_column(name, justify="right", no_wrap=True)
    found = document["scores"]
    dev = found["dev"][-1] if found["dev"] else {}
    names = list(dict.fromkeys([document["primary_metric"], *found["test"], *document["baseline"]]))
    for name in names:
        known = document["baseline"].get(name)
        primary = name == document["primary_metric"]
        table.add_row(
            name,
            _number(dev.get(name)),
            _number(found["test"].get(name), found["test_standard_error"].get(name)),
            _number(found["best_attempt"].get(name)),
            f"{known['value']:g}" if known else "",
            gain(document) if primary else "",
        )
    cost = f"${document['cost']['usd']:.2f}" + ("" if document["cost"]["known"] else " or more")
    tokens = document["tokens"]["prompt"] + document["tokens"]["completion"]
    sealed = "sealed" if document["sealed"] else "NOT sealed"
    flagged = "".join(f", flagged by the grader: {flag}" for flag in flags(document))
    steps = f"{document['steps']} step{'s' * (document['steps'] != 1)}"
    table.caption = f"{steps}, {document['wall_s']:.1f} s, {tokens} tokens, {cost}, {sealed}{flagged}"
    return table


def gain(document: Mapping[str, Any]) -> str:
    """The improvement over the baseline in words: noise is neither a gain nor a loss."""
    value, name = document["improvement"], document["primary_metric"]
    if value is None:
        return ""
    scores = document["scores"]
    score, error = scores["test"][name], scores["test_standard_error"].get(name, 0.0)
    if abs(value) <= ROUNDING * abs(score):
        return "none"
    return f"{value:+.3g}" + (" (noise)" if abs(value) < ERRORS * error else "")


def _number(value: float | None, error: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" + (f" ±{error:.1g}" if error is not None else "")


def _trouble(step: events.Step) -> str:
    """What went wrong with a step, in a few words."""
    info = step.info
    if info.get("status") == "timed_out":
        return "  [killed at its time limit]"
    if info.get("exit_code"):
        return f"  [exit code {info['exit_code']}]"
    if info.get("outcome", "scored") not in ("scored", "accepted") or "error" in info:
        return f"  [{_shorten(step.observation, 100)}]"
    return ""


def _action(tool: str, arguments: object) -> str:
    return str(arguments.get("command", tool)) if tool == "bash" and isinstance(arguments, Mapping) else tool


def _shorten(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
