"""``mlgym run <task>``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import typer

from mlgym_core.cli import options
from mlgym_core.cli.terminal import harmless

if TYPE_CHECKING:
    from mlgym_core.runner.config import RunConfig
    from mlgym_core.runner.document import RunResult
    from mlgym_core.sandbox.base import Network
    from mlgym_core.task.task import Split


def command(
    task: options.TaskArgument,
    model: options.Model = "baseline",
    agent: options.Agent = "default",
    backend: options.Backend = "auto",
    size: options.Size = "full",
    source: options.Source = None,
    network: options.Network = "none",
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.Json = False,
    steps: options.Steps = None,
    cost: options.Cost = None,
    tokens: options.Tokens = None,
    time: options.Time = None,
    working_time: options.WorkingTime = None,
    action_time: options.ActionTime = None,
    model_calls: options.ModelCalls = None,
    validations: options.Validations = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    max_tokens: options.MaxTokens = None,
    reasoning_effort: options.ReasoningEffort = None,
    stop: options.Stop = None,
    model_seed: options.ModelSeed = None,
    stream: options.Stream = False,
    cache: options.Cache = True,
    model_timeout: options.ModelTimeout = None,
    base_url: options.BaseUrl = None,
    price: options.PriceOption = None,
    model_option: options.ModelOption = None,
    validate_on: options.ValidateOn = "dev",
    keep: options.Keep = False,
    no_build: options.NoBuild = False,
    allow_unsafe: options.AllowUnsafe = False,
) -> None:
    """Run a task with a model and an agent, and score what it submits."""
    from mlgym_core.runner.config import RunConfig

    used = options.limits(steps=steps, cost=cost, tokens=tokens, model_calls=model_calls, validations=validations)
    seconds = options.limits(time=time, working_time=working_time, action_time=action_time)
    sampling: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "stop": stop}
    service: dict[str, Any] = {"stream": stream, "cache": cache, "timeout": model_timeout, "base_url": base_url}
    config = RunConfig(
        *(task, model, agent, backend, size, source),
        network=cast("Network", network),
        seed=seed,
        out=out,
        limits=used | seconds,
        validate_on=cast("Split", validate_on),
        keep=keep,
        build=not no_build,
        allow_unsafe=allow_unsafe,
        settings=options.model_settings(
            **sampling, **service, seed=model_seed, reasoning_effort=reasoning_effort, price=price, extra=model_option
        ),
    )
    execute(config, as_json)


def execute(config: RunConfig, as_json: bool) -> None:
    """Run with progress on stderr, print the result and exit with its code."""
    from rich.console import Console

    from mlgym_core.cli.progress import RunProgress
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.plugins.loading import Registry
    from mlgym_core.runner.document import RunResult
    from mlgym_core.runner.execution import run

    registry = Registry(lambda text: typer.echo(text, err=True))
    name = config.model.partition(":")[0] if isinstance(config.model, str) else ""
    interactive = any(e.interactive for e in registry.collect("mlgym_register_models") if e.name == name)
    progress = RunProgress(Console(stderr=True), quiet=interactive)
    try:
        with interruptible(), progress:
            result = run(config, progress.see, registry)
    except typer.Exit:
        interrupted = RunResult.read(progress.folder) if progress.folder else None
        if interrupted is not None:
            _show(interrupted, as_json)
        raise
    _show(result, as_json)
    raise typer.Exit(result.exit_code)


def _show(result: RunResult, as_json: bool) -> None:
    from rich.console import Console

    from mlgym_core.cli.progress import result_table

    if as_json:
        typer.echo(json.dumps(result.document, ensure_ascii=False))
    else:
        Console().print(result_table(result))
    if result.document["message"]:
        typer.echo(f"mlgym: {harmless(result.document['message'])}", err=True)
    typer.echo(f"record: {result.folder}", err=True)
