"""``mlgym new task|backend|tool|model|agent <name>``."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlgym_core.cli import options

if TYPE_CHECKING:
    from mlgym_core.authoring.scaffold.packages import NewPackage, PluginKind

app = typer.Typer(help="Write a new task, backend, tool, model or agent.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(help="Lower-case words joined by hyphens.", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="Folder in which the package's folder is made.", show_default=".")]
Kind = Annotated[
    str, typer.Option(help="What is submitted: csv (predictions), code (a function), policy, or model (weights).")
]


@app.command("task")
def task(name: Name, kind: Kind = "csv", out: Out = None, as_json: options.Json = False) -> None:
    """Write a task that can be installed, run and tested at once: the shortest honest example of its kind."""
    from mlgym_core.authoring.scaffold.packages import new_task
    from mlgym_core.plugins.loading import list_tasks

    made = new_task(name, kind, out)
    claimed = [one.distribution for one in list_tasks() if one.id == name]
    if claimed:
        typer.echo(
            f"mlgym: {claimed[0]} is installed and has a task {name!r} too; where both are installed, "
            f"say {made.distribution}:{name}",
            err=True,
        )
    show_task(made, as_json)


@app.command("backend")
def backend(name: Name, out: Out = None, as_json: options.Json = False) -> None:
    """Write a container backend that keeps the contract of backends, for you to replace piece by piece."""
    _plugin(name, "backend", out, as_json)


@app.command("tool")
def tool(name: Name, out: Out = None, as_json: options.Json = False) -> None:
    """Write a tool for agents that runs on the host."""
    _plugin(name, "tool", out, as_json)


@app.command("model")
def model(name: Name, out: Out = None, as_json: options.Json = False) -> None:
    """Write a model backend."""
    _plugin(name, "model", out, as_json)


@app.command("agent")
def agent(
    name: Name,
    like: Annotated[str, typer.Option(help="Shipped agent to begin with.")] = "default",
    out: Out = None,
    as_json: options.Json = False,
) -> None:
    """Write an agent's configuration and templates, copied from a shipped agent, for you to change."""
    from mlgym_core.authoring.scaffold.agents import new_agent

    path = new_agent(name, like, out)
    relative = os.path.relpath(path)
    place = shlex.quote(str(path) if relative.startswith(os.pardir) else f"./{relative}")
    step = f"mlgym run battle-of-sexes --size tiny --agent {place}"
    if as_json:
        facts = {"schema": 1, "name": name, "folder": str(path.parent), "next": [step]}
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    typer.echo(f"{path.parent} holds {path.name} and its templates; try it with:", err=True)
    typer.echo(step)


def show_task(made: NewPackage, as_json: bool) -> None:
    """Print where a task was written and the three commands that come next."""
    _show(made, as_json, f"mlgym baseline {made.name}", f"mlgym check {made.name}")


def _plugin(name: str, kind: PluginKind, out: Path | None, as_json: bool) -> None:
    from mlgym_core.authoring.scaffold.packages import new_plugin

    made = new_plugin(name, kind, out)
    _show(made, as_json, "mlgym plugins", f"python -m pytest {_place(made)}")


def _show(made: NewPackage, as_json: bool, *commands: str) -> None:
    steps = [f"pip install -e {_place(made)}", *commands]
    if as_json:
        facts = {"name": made.name, "distribution": made.distribution, "folder": str(made.folder)}
        typer.echo(json.dumps({"schema": 1, **facts, "next": steps}, ensure_ascii=False))
        return
    typer.echo(f"{made.folder} holds {made.distribution}; next:", err=True)
    for step in steps:
        typer.echo(step)


def _place(made: NewPackage) -> str:
    """The path from here where the package lies below, else the absolute one, quoted for a shell."""
    relative = os.path.relpath(made.folder)
    short = str(made.folder) if relative.startswith(os.pardir) else relative
    return shlex.quote(short if os.sep in short else f"./{short}")
