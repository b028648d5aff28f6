"""``mlgym run <task>``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from mlgym_core.cli import options

if TYPE_CHECKING:
    from mlgym_core.runner import RunConfig


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
    action_time: options.ActionTime = None,
    validate_on: options.ValidateOn = "dev",
    keep: options.Keep = False,
    no_build: options.NoBuild = False,
    allow_unsafe: options.AllowUnsafe = False,
) -> None:
    """Run a task with a model and an agent, and score what it submits."""
    from mlgym_core.runner import RunConfig

    config = RunConfig(
        task=task,
        model=model,
        agent=agent,
        backend=backend,
        size=size,
        source=source,
        network=network,  # type: ignore[arg-type]
        seed=seed,
        out=out,
        limits=options.limits(steps, cost, tokens, time, action_time),
        validate_on=validate_on,  # type: ignore[arg-type]
        keep=keep,
        build=not no_build,
        allow_unsafe=allow_unsafe,
    )
    execute(config, as_json)


def execute(config: RunConfig, as_json: bool) -> None:
    """Run with progress on stderr, print the result and exit with its code."""
    from rich.console import Console

    from mlgym_core.cli.progress import RunProgress, result_table
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.runner import run

    err = Console(stderr=True)
    with interruptible(), RunProgress(err) as progress:
        result = run(config, progress.see)
    if as_json:
        typer.echo(json.dumps(result.document, ensure_ascii=False))
    else:
        Console().print(result_table(result))
    if result.document["message"]:
        typer.echo(f"mlgym: {result.document['message']}", err=True)
    typer.echo(f"record: {result.folder}", err=True)
    raise typer.Exit(result.exit_code)
