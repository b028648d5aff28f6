"""``mlgym baseline <task>``."""

from __future__ import annotations

from mlgym_core.cli import options


def command(
    task: options.TaskArgument,
    backend: options.Backend = "auto",
    size: options.Size = "full",
    source: options.Source = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.Json = False,
    no_build: options.NoBuild = False,
) -> None:
    """Run a task's shipped baseline and compare it with its known score."""
    from mlgym_core.cli.run import execute
    from mlgym_core.runner.config import RunConfig

    config = RunConfig(
        task=task, backend=backend, size=size, source=source, seed=seed, out=out, build=not no_build, model="baseline"
    )
    execute(config, as_json)
