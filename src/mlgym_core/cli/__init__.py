"""The ``mlgym`` command: one module a command, nothing but parsing and printing.

Command modules import what they need inside the command, so that ``mlgym --help`` stays quick.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from mlgym_core.cli import baseline, check, clean, data, grade, image, new, options, pack, plugins, run, streams, tasks
from mlgym_core.cli.terminal import harmless
from mlgym_core.errors import MLGymError, UsageError


class _WithPlugins(TyperGroup):
    """Asks plugins for a command that is not ours; ``--help`` imports none of them."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; where a wrong value came from a setting, say from which one."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            configured = ctx.meta.get(options.CONFIGURED, {})
            named = [name for name, value in configured.items() if value in str(error) and name not in str(error)]
            if named:
                error.args = (f"{error} (set by {', '.join(named)})",)
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        from mlgym_core.plugins.loading import Registry

        registry = Registry(lambda text: typer.echo(text, err=True))
        offered = dict(registry.collect("mlgym_register_commands"))
        return typer.main.get_command(offered[cmd_name]) if cmd_name in offered else None


app = typer.Typer(
    name="mlgym",
    cls=_WithPlugins,
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
app.add_typer(data.app, name="data")
app.add_typer(image.app, name="image")
app.add_typer(new.app, name="new")
app.command("pack")(pack.command)
app.command("check")(check.command)
app.command("clean")(clean.command)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("mlgym-core"))
        raise typer.Exit
    _warn_of_unknown_variables()


def _warn_of_unknown_variables() -> None:
    from mlgym_core.settings import unknown

    try:
        for sentence in unknown():
            typer.echo(f"mlgym: {sentence}", err=True)
    except MLGymError:
        # A command that needs the settings says so; the others do not need them.
        return


def main() -> None:
    """Entry point: expected errors become one line on stderr, with ``--json`` a document too, and their exit code."""
    output = streams.install()
    code = _run()
    sys.stdout.flush()
    # Where nobody could read what was printed, that is told by the exit code, unless it has worse to tell.
    sys.exit(code or int(output.failed))


def _run() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except MLGymError as error:
        return _failed(type(error).__name__, str(error), error.exit_code)
    except _CLICK_ERROR as error:
        name = "help" if error.exit_code == 0 else "UsageError"
        return _failed(name, f"{error.format_message()} (see: mlgym --help)", error.exit_code)
    except _ABORT:
        return 130


# typer brings its own copy of click's exceptions or click itself, depending on its version.
_CLICK_ERROR: type[typer.BadParameter] = next(  # its base, really
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_ABORT = typer.Abort


def _failed(kind: str, message: str, code: int) -> int:
    if "--json" in sys.argv:
        typer.echo(json.dumps({"schema": 1, "error": {"type": kind, "message": message}}, ensure_ascii=False))
    typer.echo(f"mlgym: {harmless(message)}", err=True)
    return code
