"""Options that several commands share, and the limits they override."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgym_core.errors import UsageError

if TYPE_CHECKING:
    from mlgym_core.models.base import ModelSettings

TaskArgument = Annotated[
    str, typer.Argument(help="Task id, published id, distribution:id, or path of a task.", show_default=False)
]
Model = Annotated[
    str, typer.Option(help="Model: baseline, scripted:<file>, litellm:<provider/model>, or one of a plugin.")
]
Agent = Annotated[str, typer.Option(help="Agent: default (tool calls) or text (fenced commands).")]
Backend = Annotated[str, typer.Option(help="Container backend: auto, local, or one of a plugin.")]
Size = Annotated[str, typer.Option(help="Size of the task's data: full or tiny.")]
Source = Annotated[str | None, typer.Option(help="Where the task's data comes from.", show_default="the task's")]
Network = Annotated[str, typer.Option(help="Network of the agent's sandbox: none or full.")]
Seed = Annotated[int, typer.Option(help="Seed of the run and its data; graders use secrets of their own.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder in which the run's folder is made.", show_default="$MLGYM_RUNS or runs")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]
Steps = Annotated[int | None, typer.Option(help="Limit: steps.", show_default="the task's")]
Cost = Annotated[float | None, typer.Option(help="Limit: US dollars; 0 lifts it.", show_default="the task's")]
Tokens = Annotated[int | None, typer.Option(help="Limit: tokens of all model calls.", show_default="the task's")]
Time = Annotated[float | None, typer.Option("--time", help="Limit: seconds in all.", show_default="the task's")]
ActionTime = Annotated[
    float | None, typer.Option("--action-time", help="Limit: seconds for one action.", show_default="the task's")
]
ValidateOn = Annotated[str, typer.Option(help="Split that validate scores; test is the published protocol.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the sandbox for debugging and say how to enter it.")]
NoBuild = Annotated[bool, typer.Option("--no-build", help="Fail if the task's image has not been built yet.")]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Let a remote model into a backend that does not isolate.")
]
Temperature = Annotated[
    str | None, typer.Option(help="Of the model; 'default' leaves it to the provider.", show_default="0")
]
TopP = Annotated[
    str | None, typer.Option("--top-p", help="Of the model; 'default' leaves it to the provider.", show_default="0.95")
]
MaxTokens = Annotated[int | None, typer.Option(help="Most tokens of one reply.", show_default="the provider's")]
BaseUrl = Annotated[str | None, typer.Option(help="Of the model service.", show_default="the provider's")]
PriceOption = Annotated[
    str | None, typer.Option("--price", help="Of the model: IN,OUT in US dollars for a million tokens.")
]


def limits(
    steps: int | None = None,
    cost: float | None = None,
    tokens: int | None = None,
    time: float | None = None,
    action_time: float | None = None,
) -> dict[str, Any]:
    """The overrides that were given, by field of :class:`~mlgym_core.task.Limits`."""
    given = {
        "steps": steps,
        "cost_usd": cost,
        "tokens": tokens,
        "wall_seconds": time,
        "action_seconds": action_time,
    }
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if cost == 0:
        chosen["cost_usd"] = None
    return chosen


def model_settings(
    temperature: str | None, top_p: str | None, max_tokens: int | None, base_url: str | None, price: str | None
) -> ModelSettings:
    """The settings that were given, the published defaults for the others.

    Raises:
        UsageError: one of them is no number, or makes no sense.
    """
    from mlgym_core.models.base import ModelSettings, Price

    given: dict[str, Any] = {"max_tokens": max_tokens, "base_url": base_url}
    for name, text in (("temperature", temperature), ("top_p", top_p)):
        if text is not None:
            given[name] = None if text == "default" else _number(f"--{name.replace('_', '-')}", text)
    if price is not None:
        parts = price.split(",")
        if len(parts) != 2:
            raise UsageError(f"--price takes two numbers, dollars for a million tokens in and out: 3,15; not {price!r}")
        given["price"] = Price(*(_number("--price", part) for part in parts))
    return ModelSettings(**given)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} takes a number, not {text!r}") from None
