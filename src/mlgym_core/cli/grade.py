"""``mlgym grade <task> <folder>``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mlgym_core.cli import options


def command(
    task: options.TaskArgument,
    folder: Annotated[Path, typer.Argument(help="Folder that holds the submission's files.", show_default=False)],
    backend: options.Backend = "auto",
    size: options.Size = "full",
    source: options.Source = None,
    as_json: options.Json = False,
    no_build: options.NoBuild = False,
) -> None:
    """Grade the submission in a folder on the test split, with a fresh secret."""
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.errors import InvalidSubmissionError
    from mlgym_core.plugins import load_task
    from mlgym_core.result import EXIT_CODES
    from mlgym_core.runner import grade_folder

    loaded = load_task(task)
    document: dict[str, object] = {"schema": 1, "task": loaded.id, "protocol": loaded.protocol, "size": size}
    with interruptible():
        try:
            grade = grade_folder(loaded, folder, backend=backend, size=size, source=source, build=not no_build)
        except InvalidSubmissionError as error:
            document |= {"status": "invalid_submission", "scores": {"test": {}}, "message": str(error)}
        else:
            document |= {
                "status": grade.outcome,
                "scores": {"test": dict(grade.metrics), "test_standard_error": dict(grade.standard_error)},
                "primary_metric": loaded.primary.name,
                "message": grade.message,
                "details": dict(grade.details),
                "log": grade.log,
            }
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))
    else:
        _print(document)
    raise typer.Exit(EXIT_CODES[str(document["status"])])


def _print(document: dict[str, object]) -> None:
    scores = document["scores"]
    assert isinstance(scores, dict)
    errors = scores.get("test_standard_error", {})
    for name, value in scores["test"].items():
        error = f" ± {errors[name]:.4f}" if name in errors else ""
        typer.echo(f"{name}: {value:.4f}{error}")
    if document["status"] != "scored":
        typer.echo(f"mlgym: {document['status']}: {document['message']}", err=True)
        if document.get("log"):
            typer.echo(f"grader's log:\n{document['log']}", err=True)
