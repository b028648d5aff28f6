"""Options that several commands share, the settings behind them, and what they override."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgym_core.errors import UsageError

if TYPE_CHECKING:
    from mlgym_core.models.base import ModelSettings, Price

CONFIGURED = "mlgym_core.configured"  #: key of the context's ``meta``: the variables that defaults came from


def _setting(name: str) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """An option's callback: what was typed, else what the variable ``name`` of :mod:`mlgym_core.settings` says."""

    def choose(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        source = context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "DEFAULT":
            return value
        from mlgym_core import settings

        setting = getattr(settings, name)
        configured = setting.value()
        if configured is None:
            return value
        context.meta.setdefault(CONFIGURED, {})[setting.name] = str(configured)
        return configured

    return choose


TaskArgument = Annotated[
    str, typer.Argument(help="Task id, published id, distribution:id, or path of a task.", show_default=False)
]
Model = Annotated[
    str,
    typer.Option(
        help="Model: baseline, scripted:<file>, litellm:<provider/model>, replay:<run>, human, or one of a plugin.",
        callback=_setting("MODEL"),
    ),
]
Agent = Annotated[
    str,
    typer.Option(
        help="Agent: default, tools, gpu-info, text, xml, json, a configuration's path, or one of a plugin.",
        callback=_setting("AGENT"),
    ),
]
Backend = Annotated[
    str, typer.Option(help="Container backend: auto, docker, local, or one of a plugin.", callback=_setting("BACKEND"))
]
Size = Annotated[str, typer.Option(help="Size of the task's data: full or tiny.", callback=_setting("SIZE"))]
Source = Annotated[str | None, typer.Option(help="Where the task's data comes from.", show_default="the task's")]
Network = Annotated[str, typer.Option(help="Network of the agent's sandbox: none or full.")]
Seed = Annotated[int, typer.Option(help="Seed of the run and its data; graders use secrets of their own.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder in which the run's folder is made.", show_default="$MLGYM_RUNS or runs")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]
Steps = Annotated[int | None, typer.Option(help="Limit: steps.", show_default="the task's")]
Cost = Annotated[
    float | None,
    typer.Option(help="Limit: US dollars; 0 lifts it.", show_default="the task's", callback=_setting("COST")),
]
Tokens = Annotated[
    int | None,
    typer.Option(help="Limit: tokens of all model calls.", show_default="the task's", callback=_setting("TOKENS")),
]
Time = Annotated[
    float | None,
    typer.Option("--time", help="Limit: seconds in all.", show_default="the task's", callback=_setting("WALL")),
]
WorkingTime = Annotated[
    float | None,
    typer.Option(
        help="Limit: seconds without those spent waiting for the model.",
        show_default="the task's",
        callback=_setting("WORKING"),
    ),
]
ActionTime = Annotated[
    float | None,
    typer.Option(
        "--action-time", help="Limit: seconds for one action.", show_default="the task's", callback=_setting("ACTION")
    ),
]
ModelCalls = Annotated[int | None, typer.Option(help="Limit: requests to the model.", show_default="the task's")]
Validations = Annotated[int | None, typer.Option(help="Limit: accepted validations.", show_default="the task's")]
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
ReasoningEffort = Annotated[
    str | None, typer.Option(help="Of the model: low, medium, high, ...", show_default="the provider's")
]
Stop = Annotated[list[str] | None, typer.Option(help="Text that ends a reply; may be repeated.", show_default=False)]
ModelSeed = Annotated[int | None, typer.Option(help="Sent to the model service.", show_default=False)]
Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Have replies sent in pieces.")]
Cache = Annotated[bool, typer.Option("--cache/--no-cache", help="Mark prompts for a cache that must be asked for.")]
ModelTimeout = Annotated[
    float | None, typer.Option(help="Seconds for one request.", show_default="600", callback=_setting("REQUEST"))
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(help="KEY=VALUE, a further argument of the request; may be repeated.", show_default=False),
]
BaseUrl = Annotated[str | None, typer.Option(help="Of the model service.", show_default="the provider's")]
PriceOption = Annotated[
    str | None, typer.Option("--price", help="Of the model: IN,OUT in US dollars for a million tokens.")
]


def limits(*, cost: float | None = None, **given: float | None) -> dict[str, Any]:
    """The overrides that were given, by field of :class:`~mlgym_core.task.task.Limits`.

    Args:
        cost: US dollars; 0 lifts the limit.
        **given: ``steps``, ``tokens``, ``model_calls``, ``validations``, and in seconds ``time``, ``working_time``,
            ``action_time``.
    """
    fields = {"time": "wall_seconds", "working_time": "working_seconds", "action_time": "action_seconds"}
    chosen: dict[str, Any] = {fields.get(name, name): value for name, value in given.items() if value is not None}
    if cost is not None:
        chosen["cost_usd"] = cost or None
    return chosen


def model_settings(
    *,
    temperature: str | None = None,
    top_p: str | None = None,
    price: str | None = None,
    stop: list[str] | None = None,
    extra: list[str] | None = None,
    **given: Any,
) -> ModelSettings:
    """The settings that were given, the published defaults for the others.

    Args:
        temperature, top_p: a number, or ``default`` for the provider's.
        price: two numbers with a comma.
        stop: texts that end a reply.
        extra: ``KEY=VALUE`` each; the value is JSON where it can be read as such, else text.
        **given: further fields of :class:`~mlgym_core.models.base.ModelSettings`.

    Raises:
        UsageError: one of them has not the form it must have, or makes no sense.
    """
    from mlgym_core.models.base import ModelSettings

    chosen = {name: value for name, value in given.items() if value is not None}
    for name, text in (("temperature", temperature), ("top_p", top_p)):
        if text is not None:
            chosen[name] = None if text == "default" else _number(f"--{name.replace('_', '-')}", text)
    if price is not None:
        chosen["price"] = _price(price)
    return ModelSettings(**chosen, stop=tuple(stop or ()), extra=_extra(extra or []))


def _price(text: str) -> Price:
    from mlgym_core.models.base import Price

    parts = text.split(",")
    if len(parts) != 2:
        raise UsageError(f"--price takes two numbers, dollars for a million tokens in and out: 3,15; not {text!r}")
    return Price(*(_number("--price", part) for part in parts))


def _extra(items: list[str]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not name or not equals:
            raise UsageError(f"--model-option takes KEY=VALUE, not {item!r}")
        try:
            extra[name] = json.loads(text)
        except ValueError:
            extra[name] = text
    return extra


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option} takes a number, not {text!r}") from None
