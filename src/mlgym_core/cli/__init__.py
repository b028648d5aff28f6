"""The ``mlgym`` command: one module a command, nothing but parsing and printing.

Command modules import what they need inside the command, so that ``mlgym --help`` stays quick.
"""

from __future__ import annotations

import json
import os
import sys

import typer

from mlgym_core.cli import baseline, clean, grade, plugins, run, tasks
from mlgym_core.errors import MLGymError

app = typer.Typer(
    name="mlgym",
    help="Real machine-learning tasks for AI research agents: isolated sandboxes, fast steps, sealed scores.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("run")(run.command)
app.add_typer(tasks.app, name="tasks")
app.command("plugins")(plugins.command)
app.command("baseline")(baseline.command)
app.command("grade")(grade.command)
app.command("clean")(clean.command)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("mlgym-core"))
        raise typer.Exit


def main() -> None:
    """Entry point: expected errors become one line on stderr and the exit code that they carry."""
    try:
        app()
    except MLGymError as error:
        if "--json" in sys.argv:
            typer.echo(json.dumps({"schema": 1, "error": {"type": type(error).__name__, "message": str(error)}}))
        typer.echo(f"mlgym: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone (mlgym tasks | head); there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
