"""Renders the prompts in ``templates/``, strictly: an unknown placeholder is an error, braces are just text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template

from mlgym_core.episode import Episode
from mlgym_core.errors import UsageError
from mlgym_core.task import Limits, Task


def render(name: str, values: Mapping[str, object]) -> str:
    """Fill in template ``name``; values are inserted as they are and never looked at again.

    Raises:
        UsageError: the template uses a placeholder that has no value.
    """
    try:
        return _template(name).substitute(values)
    except (KeyError, ValueError) as error:
        raise UsageError(f"prompt template {name!r}: {error}; available: {', '.join(sorted(values))}") from error


def task_prompt(episode: Episode) -> str:
    """The first user message."""
    task = episode.task
    return render(
        "task",
        {
            "title": task.title,
            "description": task.description().strip(),
            "workdir": episode.workdir,
            "files": ", ".join(sorted(task.public_files())) or "nothing yet",
            "submission": ", ".join(task.submission.paths),
            "baseline": _baseline(task, episode.size),
            "limits": _limits(episode.limits),
        },
    ).strip()


def _baseline(task: Task, size: str) -> str:
    score = task.baseline_score(size, task.primary.name)
    command = f"The shipped baseline runs with: {task.baseline.command}"
    better = "higher" if task.primary.direction == "up" else "lower"
    known = f" It scores {score.value:g}." if score else ""
    return f"{command}\nYou are scored by {task.primary.name} ({better} is better).{known}"


def _limits(limits: Limits) -> str:
    lines = [
        f"- {limits.steps} steps, {limits.validations} of them may be validate",
        f"- {limits.action_seconds:g} seconds for one action",
    ]
    if limits.wall_seconds is not None:
        lines.append(f"- {limits.wall_seconds:g} seconds in all")
    if limits.tokens is not None:
        lines.append(f"- {limits.tokens} tokens in all")
    return "\n".join(lines)


@cache
def _template(name: str) -> Template:
    return Template(files("mlgym_core.agent").joinpath("templates", f"{name}.txt").read_text("utf-8"))
