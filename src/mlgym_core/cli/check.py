"""``mlgym check <task>``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mlgym_core.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from mlgym_core.authoring.checking import Report


def command(
    task: options.TaskArgument,
    backend: options.Backend = "auto",
    size: Annotated[
        str | None, typer.Option(help="Size of the task's data.", show_default="tiny where the task has it")
    ] = None,
    source: options.Source = None,
    seed: options.Seed = 0,
    attacks: Annotated[
        str, typer.Option(help="Attacks: generic (all that suit the submission), specific (to the task) or none.")
    ] = "generic",
    only: Annotated[list[str] | None, typer.Option(help="Do this check only; may be repeated.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Leave this check out; may be repeated.")] = None,
    as_json: options.Json = False,
) -> None:
    """Prove a task's contract: spec, data, baseline, grader, secrets, and a red team of scripted attacks."""
    from rich.console import Console

    from mlgym_core.authoring.checking import check_named
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.plugins.loading import Registry
    from mlgym_core.record.strictjson import encode, plain

    say = partial(typer.echo, err=True)
    with interruptible():
        report = check_named(
            task,
            backend=backend,
            size=size,
            source=source,
            seed=seed,
            attacks=attacks,
            only=tuple(only or ()),
            skip=tuple(skip or ()),
            registry=Registry(say),
            progress=say,
            on_finding=lambda finding: say(f"{finding.outcome:8}{finding.name} ({finding.seconds:.1f} s)"),
        )
    if as_json:
        typer.echo(encode(plain(report.to_json())))
    else:
        Console().print(_table(report))
        typer.echo(_summary(report))
    raise typer.Exit(report.exit_code)


def _table(report: Report) -> Table:
    """Every check, but of the attacks only those that were not simply repelled."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{report.task}  {report.status}")
    for column in ("check", "outcome", "what to do, why it was skipped, what was measured"):
        table.add_column(column, overflow="fold")
    styles = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
    repelled = 0
    for one in report.findings:
        if one.outcome == "passed" and one.name.startswith("attack-"):
            repelled += 1
            continue
        said = f"{one.about}: {one.message}" if one.outcome == "failed" else one.message
        table.add_row(one.name, Text(one.outcome, styles[one.outcome]), Text(said))
    if repelled:
        table.add_row("attacks", Text("passed", styles["passed"]), f"{repelled} attacks gained nothing")
    return table


def _summary(report: Report) -> str:
    text = f"{report.count('passed')} passed, {report.count('failed')} failed, {report.count('skipped')} skipped"
    if report.infrastructure:
        text += f"\nnot finished: {report.infrastructure}"
    return text
