"""``mlgym image build|list|remove``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlgym_core.cli import options

if TYPE_CHECKING:
    from mlgym_core.sandbox.base import Backend

app = typer.Typer(help="Build, list and remove the tasks' images.", no_args_is_help=True, rich_markup_mode=None)


@app.command("build")
def build(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Tasks; all installed ones if none.", show_default=False)
    ] = None,
    backend: options.Backend = "auto",
    build_arg: Annotated[list[str] | None, typer.Option(help="Build argument NAME=VALUE; may be repeated.")] = None,
    ca_bundle: Annotated[
        Path | None, typer.Option(help="Certificates that builds trust, for registries behind a proxy.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build anew what is there already.")] = False,
    as_json: options.Json = False,
) -> None:
    """Build the images of tasks, so that runs need no network."""
    from mlgym_core.plugins.loading import list_tasks
    from mlgym_core.runner.tasks import load_task

    if ca_bundle is not None:
        os.environ["MLGYM_CA_BUNDLE"] = str(ca_bundle)
    chosen = _backend(backend)
    store = _configured(_store(chosen), build_arg or []) if build_arg or rebuild else None
    built: dict[str, str] = {}
    for name in tasks or [task.id for task in list_tasks()]:
        task = load_task(name)
        if store is not None:
            built[task.id] = store.build(task.image, _say).reference
        else:
            for role in ("agent", "grader"):
                built[task.id] = chosen.prepare_image(task.image, role, _say).reference
        _say(f"{task.id}: {built[task.id]}")
    if as_json:
        typer.echo(json.dumps({"schema": 1, "images": built}))


@app.command("list")
def listing(backend: options.Backend = "auto", as_json: options.Json = False) -> None:
    """List the images that were built for tasks."""
    found = _store(_backend(backend)).listed()
    if as_json:
        typer.echo(json.dumps({"schema": 1, "images": found}))
        return
    for image in found:
        days = (time.time() - image["created"]) / 86400
        typer.echo(f"{image['tag']}  {image['bytes'] / 1e6:.0f} MB  {days:.1f} days old")
    if not found:
        typer.echo("no image has been built yet; build them with: mlgym image build", err=True)


@app.command("remove")
def remove(
    tags: Annotated[list[str] | None, typer.Argument(help="Tags from mlgym image list.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all of them.")] = False,
    backend: options.Backend = "auto",
    as_json: options.Json = False,
) -> None:
    """Remove images; runs build them again when they need them."""
    from mlgym_core.errors import UsageError

    if bool(tags) == everything:
        raise UsageError("name the tags to remove (see: mlgym image list), or pass --all")
    store = _store(_backend(backend))
    removed = tags or [image["tag"] for image in store.listed()]
    for tag in removed:
        store.remove(tag)
    if as_json:
        typer.echo(json.dumps({"schema": 1, "removed": removed}))
    else:
        typer.echo("\n".join([*removed, f"removed {len(removed)}"]))


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _backend(name: str) -> Backend:
    from mlgym_core.plugins.loading import Registry
    from mlgym_core.runner import backends

    choice = backends.choose(Registry(_say), name)
    _say(f"backend: {choice.why}")
    return choice.backend


def _store(backend: Backend) -> Any:
    from mlgym_core.errors import UsageError

    store = getattr(backend, "images", None)
    if store is None:
        raise UsageError(f"backend {backend.name} keeps no images; choose a container engine with --backend")
    return store


def _configured(store: Any, given: list[str]) -> Any:
    from attrs import evolve

    from mlgym_core.errors import UsageError

    if not all(item.partition("=")[0] and "=" in item for item in given):
        raise UsageError("--build-arg must have the form NAME=VALUE")
    arguments = {name: value for name, _, value in (item.partition("=") for item in given)}
    return evolve(store, options=evolve(store.options, arguments=arguments))
