"""``mlgym tasks`` and ``mlgym tasks show <task>``."""

from __future__ import annotations

import json

import typer

from mlgym_core.cli import options

app = typer.Typer(help="List the installed tasks, or show one.", invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def listing(context: typer.Context, as_json: options.Json = False) -> None:
    """List the installed tasks. Reads metadata only, so a broken plugin cannot break it."""
    if context.invoked_subcommand:
        return
    from mlgym_core.plugins.loading import list_tasks

    found = list_tasks()
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"id": t.id, "distribution": t.distribution, "version": t.version, "summary": t.summary}
                    for t in found
                ],
                ensure_ascii=False,
            )
        )
        return
    if not found:
        typer.echo("no task is installed; try: pip install 'mlgym-tasks-gametheory[all]'", err=True)
        return
    ids = [task.id for task in found]
    names = [task.qualified if ids.count(task.id) > 1 else task.id for task in found]
    width = max(map(len, names))
    for name, task in zip(names, found, strict=True):
        typer.echo(f"{name:<{width}}  {task.summary or task.distribution}")


@app.command("show")
def show(task: options.TaskArgument, as_json: options.Json = False) -> None:
    """Show a task: metrics, limits, sizes, baseline, description."""
    import attrs

    from mlgym_core.record.strictjson import encode, plain
    from mlgym_core.runner.tasks import load_task

    loaded = load_task(task)
    facts = attrs.asdict(loaded)
    facts.pop("folder")
    facts["image"].pop("folder")
    if as_json:
        typer.echo(encode(plain({**facts, "description": loaded.description()})))
        return
    metrics = "; ".join(
        f"{m.name} ({'higher' if m.sign > 0 else 'lower'} is better){', ' + m.unit if m.unit else ''}"
        for m in loaded.metrics
    )
    scores = [
        f"{metric} {score.value:g} at {size} ({score.source})"
        for size, known in loaded.baseline.scores.items()
        for metric, score in known.items()
    ]
    limits = loaded.limits
    lines = {
        "task": f"{loaded.id} ({f'{loaded.distribution} {loaded.version}' if loaded.distribution else task})",
        "published as": ", ".join(loaded.aliases),
        "metrics": metrics,
        "submission": f"{loaded.submission.kind}: {', '.join(loaded.submission.paths)}",
        "sizes": "; ".join(f"{name}: {size.description}" for name, size in loaded.sizes.items()),
        "limits": f"{limits.steps} steps, ${limits.cost_usd:g}, {limits.action_seconds:g} s an action"
        if limits.cost_usd is not None
        else f"{limits.steps} steps, {limits.action_seconds:g} s an action",
        "baseline": "; ".join(scores) or "score not known",
    }
    for name, value in lines.items():
        if value:
            typer.echo(f"{name + ':':<14}{value}")
    typer.echo(f"\n{loaded.description().strip()}")
