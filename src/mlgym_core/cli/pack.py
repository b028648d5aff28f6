"""``mlgym pack <task.py>``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlgym_core.cli import options
from mlgym_core.cli.new import Out, show_task


def command(
    task: Annotated[Path, typer.Argument(help="One-file task, or folder with a task.yaml.", show_default=False)],
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """Turn a one-file task, or a task's folder, into an installable package."""
    from mlgym_core.authoring.scaffold.packages import pack

    show_task(pack(task, out), as_json)
