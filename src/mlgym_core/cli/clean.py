"""``mlgym clean``: remove what dead runs left behind."""

from __future__ import annotations

import json

import typer

from mlgym_core.cli import options


def command(backend: options.Backend = "auto", as_json: options.Json = False) -> None:
    """Remove sandboxes whose run is dead or expired. Runs in progress and records are not touched."""
    from mlgym_core.errors import BackendUnavailableError
    from mlgym_core.plugins.loading import Registry
    from mlgym_core.runner import backends

    registry = Registry()
    if backend == backends.AUTO:
        names = [entry.name for entry in registry.collect("mlgym_register_backends")]
    else:
        names = [backend]
    removed: list[str] = []
    for name in names:
        try:
            removed += backends.choose(registry, name).backend.reap()
        except BackendUnavailableError as error:
            if backend != backends.AUTO:
                raise
            typer.echo(f"{name}: {error}", err=True)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "removed": removed}))
    else:
        typer.echo("\n".join([*removed, f"removed {len(removed)}"]))
