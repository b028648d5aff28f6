"""``mlgym data prepare | list | verify | remove``."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mlgym_core.cli import options
from mlgym_core.errors import UsageError

if TYPE_CHECKING:
    from mlgym_core.data import Entry

app = typer.Typer(
    help="Prepare, list, check and remove the data of tasks.", no_args_is_help=True, rich_markup_mode=None
)
Seed = Annotated[int, typer.Option(help="Seed of the preparation; a run uses its own --seed.")]
MaybeTask = Annotated[str | None, typer.Argument(help="Only this task's data.", show_default="all tasks")]


@app.command("prepare")
def prepare(
    task: options.TaskArgument,
    size: options.Size = "full",
    source: options.Source = None,
    seed: Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Prepare a task's data now, as its next run would."""
    from mlgym_core import data
    from mlgym_core.cli.signals import interruptible
    from mlgym_core.runner.tasks import load_task

    loaded = load_task(task)
    with interruptible():
        found = data.prepare(loaded, source, size, seed, partial(typer.echo, err=True))
    if as_json:
        document = {
            "schema": 1,
            "task": loaded.id,
            "source": found.source or None,
            "size": size,
            "seed": seed,
            "public": str(found.public) if found.public else None,
            "private": str(found.private) if found.private else None,
            "files": dict(found.checksums),
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
    elif loaded.data is None:
        typer.echo(f"task {loaded.id} needs no data", err=True)
    else:
        folder = found.public or found.private
        typer.echo(f"{folder.parent if folder else 'nothing was prepared'}")


@app.command("list")
def listing(task: MaybeTask = None, as_json: options.Json = False) -> None:
    """List what has been prepared, with sizes and ages."""
    from mlgym_core import data

    entries = data.list_entries(_id(task))
    if as_json:
        typer.echo(json.dumps([_facts(entry) for entry in entries], ensure_ascii=False))
        return
    if not entries:
        typer.echo("no data has been prepared; try: mlgym data prepare <task>", err=True)
    for entry in entries:
        typer.echo(_line(entry))


@app.command("verify")
def verify(task: MaybeTask = None, as_json: options.Json = False) -> None:
    """Compare everything with its checksums; what is damaged is removed and prepared anew at its next use."""
    from mlgym_core import data

    found = data.verify(_id(task))
    intact = len(data.list_entries(_id(task)))
    if as_json:
        damaged = [{"task": one.task, "key": one.folder.name, "problems": list(one.problems)} for one in found]
        typer.echo(json.dumps({"schema": 1, "intact": intact, "damaged": damaged}, ensure_ascii=False))
    else:
        for one in found:
            typer.echo(f"{one.task} {one.folder.name} was damaged and is removed: {'; '.join(one.problems)}")
        typer.echo(f"{intact} intact, {len(found)} damaged", err=True)
    if found:
        raise typer.Exit(1)


@app.command("remove")
def remove(
    task: MaybeTask = None,
    everything: Annotated[bool, typer.Option("--all", help="The data of all tasks.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove a task's prepared data, or all. Not to be done while runs use it."""
    from mlgym_core import data

    if (task is None) != everything:
        raise UsageError("name a task, or pass --all to remove the data of all tasks")
    removed = data.remove(_id(task))
    if as_json:
        typer.echo(json.dumps([_facts(entry) for entry in removed], ensure_ascii=False))
    else:
        freed = sum(entry.bytes for entry in removed) / 1e6
        typer.echo(f"{len(removed)} removed, {freed:.1f} MB", err=True)


def _id(task: str | None) -> str | None:
    """The id behind an alias; data outlives its package, so an unknown name is taken as it stands."""
    from mlgym_core.errors import UnknownTaskError
    from mlgym_core.runner.tasks import load_task

    try:
        return load_task(task).id if task else None
    except UnknownTaskError as error:
        from mlgym_core.data import list_entries

        if any(entry.task == task for entry in list_entries()):
            return task
        raise error from None


def _facts(entry: Entry) -> dict[str, object]:
    return {
        "task": entry.task,
        "key": entry.key,
        "source": entry.source,
        "size": entry.size,
        "seed": entry.seed,
        "bytes": entry.bytes,
        "files": len(entry.files),
        "age_s": round(entry.age, 1),
        "folder": str(entry.folder),
    }


def _line(entry: Entry) -> str:
    days, hours, minutes = entry.age / 86400, entry.age / 3600, entry.age / 60
    age = f"{days:.0f} days" if days >= 2 else f"{hours:.0f} h" if hours >= 2 else f"{minutes:.0f} min"
    made = f"{entry.source}, size {entry.size}, seed {entry.seed}"
    return f"{entry.task:<20} {entry.bytes / 1e6:10.1f} MB  {age:>8} old  {made}  {entry.key}"
