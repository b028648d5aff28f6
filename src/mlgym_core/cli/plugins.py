"""``mlgym plugins``: every plugin, imported in a child process of its own with a deadline."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from mlgym_core.cli import options

_EXAMINE = (
    "import json, os, sys; out = os.dup(1); os.dup2(2, 1); from mlgym_core.plugins.loading import examine; "
    "os.write(out, json.dumps(examine(*sys.argv[1:])).encode()); os._exit(0)"
)


def command(
    as_json: options.Json = False,
    deadline: Annotated[float, typer.Option(help="Seconds that one plugin may take to import.")] = 10.0,
) -> None:
    """List the installed plugins and say which are broken, and why."""
    from mlgym_core.plugins.loading import damaged_packages, installed_plugins

    plugins = list(installed_plugins())
    with ThreadPoolExecutor(4) as pool:
        causes = list(pool.map(lambda p: _examine(p[0], p[1].name, p[2], deadline), plugins))
    rows = [
        {
            "name": point.name,
            "kind": "task" if group == "mlgym.tasks" else "behaviour",
            "distribution": distribution,
            "version": version,
            "module": point.value,
            "broken": cause,
        }
        for (group, point, distribution, version), cause in zip(plugins, causes, strict=True)
    ]
    rows += [
        {
            "name": one.name,
            "kind": "package",
            "distribution": one.name,
            "version": one.version,
            "module": str(one.folder),
            "broken": one.reason,
        }
        for one in damaged_packages()
    ]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    if not rows:
        typer.echo("no plugin is installed", err=True)
    for row in rows:
        state = f"BROKEN: {row['broken']}" if row["broken"] else "ok"
        typer.echo(f"{row['name']:<20} {row['kind']:<10} {row['distribution']} {row['version']}  {state}")
    if any(row["broken"] and row["kind"] == "behaviour" for row in rows):
        typer.echo("\nuninstall or mend the broken ones to see what can be chosen")
    else:
        _show_choices()


def _show_choices() -> None:
    """What ``--backend``, ``--model`` and ``--agent`` take, and the tools, the core's own included."""
    from mlgym_core.plugins.loading import Registry

    registry = Registry(lambda text: typer.echo(text, err=True))
    for kind in ("backend", "model", "agent", "tool"):
        typer.echo(f"\n{kind}s")
        for entry in registry.collect(f"mlgym_register_{kind}s"):
            about = getattr(entry, "help", "") or getattr(entry, "description", "").partition(".")[0]
            typer.echo(f"  {entry.name:<18} {about}".rstrip())


def _examine(group: str, name: str, distribution: str, deadline: float) -> str | None:
    arguments = [sys.executable, "-c", _EXAMINE, group, name, distribution]
    try:
        done = subprocess.run(arguments, capture_output=True, stdin=subprocess.DEVNULL, timeout=deadline, check=False)
    except subprocess.TimeoutExpired:
        return f"importing it did not finish within {deadline:g} s"
    try:
        cause: str | None = json.loads(done.stdout)
    except ValueError:
        return f"the process that imported it ended with exit code {done.returncode}"
    return cause
