"""``mlgym grade <task> <folder>``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mlgym_core.cli import options
from mlgym_core.cli.terminal import harmless


def command(
    task: options.TaskArgument,
    folder: Annotated[Path, typer.Argument(help="Folder that holds the submission's files.", show_default=False)],
    backend: options.Backend = "auto",
    size: options.Size = "full",
    source: options.Source = None,
    seed: Annotated[int, typer.Option(help="Seed of the data that the submission was made for.")] = 0,
    as_json: options.Json = False,
    no_build: options.NoBuild = False,
) -> None:
    """Grade the submission in a folder on the test split, with a fresh secret."""
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.record.strictjson import encode, plain
    from mlgym_core.runner.document import EXIT_CODES
    from mlgym_core.runner.execution import graded_document
    from mlgym_core.runner.tasks import load_task

    with interruptible():
        document = graded_document(
            load_task(task),
            folder,
            backend=backend,
            size=size,
            source=source,
            seed=seed,
            build=not no_build,
            progress=partial(typer.echo, err=True),
        )
    if as_json:
        typer.echo(encode(plain(document)))
    else:
        _print(document)
    raise typer.Exit(EXIT_CODES[str(document["status"])])


def _print(document: dict[str, Any]) -> None:
    from mlgym_core.runner.document import flags

    scores = document["scores"]
    errors = scores["test_standard_error"]
    for name, value in scores["test"].items():
        error = f" ±{errors[name]:.2g}" if name in errors else ""
        known = document["baseline"].get(name)
        beside = f"  (baseline {known['value']:g}, {known['source']})" if known else ""
        typer.echo(f"{name}: {value:.5g}{error}{beside}")
    for flag in flags(document):
        typer.echo(f"flagged by the grader: {flag}")
    if not document["sealed"]:
        typer.echo("not sealed: this backend does not isolate", err=True)
    if document["status"] != "scored":
        typer.echo(harmless(f"mlgym: {document['status']}: {document['message']}"), err=True)
        if document["log"]:
            typer.echo(harmless(f"grader's log:\n{document['log']}"), err=True)
