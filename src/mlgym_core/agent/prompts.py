"""Renders prompts strictly: an unknown placeholder is an error before the run starts, braces are just text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from mlgym_core.errors import UsageError
from mlgym_core.task.task import Limits, Resources, Task
from mlgym_core.tools.base import Tool

if TYPE_CHECKING:
    from mlgym_core.episode.episode import Episode, StepResult

#: What each template may use, as ``$name``; ``$$`` is a dollar sign.
PLACEHOLDERS: Mapping[str, tuple[str, ...]] = {
    "system": ("format", "tools"),
    "task": ("title", "description", "workdir", "files", "submission", "baseline", "hardware", "limits"),
    "step": ("observation", "step", "steps", "steps_left", "open_file", "directory"),
    "malformed": ("problem", "retries_left"),
    "demonstration": ("title",),
}
_PROBE_SECONDS = 20.0
_GPUS = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null"


def read_template(kind: str, name: str, folder: Path) -> Template:
    """A template: one that is shipped, by its name, or a file, by a path with a slash or an ending.

    Args:
        kind: key of :data:`PLACEHOLDERS`.
        name: as the configuration has it.
        folder: that relative paths start from.

    Raises:
        UsageError: it cannot be read, or uses a placeholder that does not exist.
    """
    shipped = "/" not in name and "." not in name
    if shipped and name not in PLACEHOLDERS:
        raise UsageError(
            f"there is no shipped prompt template {name!r}; there are: {', '.join(PLACEHOLDERS)}; "
            f"a file beside the configuration is ./{name}"
        )
    try:
        text = _shipped(name) if shipped else (folder / name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"prompt template {folder / name} cannot be read: {error}") from error
    template = Template(text)
    known = PLACEHOLDERS[kind]
    unknown = [each for each in template.get_identifiers() if each not in known]
    if unknown or not template.is_valid():
        what = f"unknown placeholder ${unknown[0]}" if unknown else "a $ stands alone; write $$ for a dollar sign"
        available = ", ".join(f"${each}" for each in known)
        raise UsageError(f"prompt template {name!r}: {what}; {kind} may use: {available}")
    return template


def shipped_text(name: str) -> str:
    """Text of a shipped file that has no placeholders."""
    return _shipped(name).strip()


def system_values(format_name: str, native: bool, tools: Sequence[Tool]) -> dict[str, str]:
    """For the system message. Services describe native tools themselves."""
    described = "" if native else "\n" + "\n".join(describe(tool) for tool in tools)
    return {"format": shipped_text(f"format_{format_name}"), "tools": described}


def describe(tool: Tool) -> str:
    """A tool for a prompt: its arguments with their types, and what it does."""
    properties: Mapping[str, Mapping[str, object]] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    lines = [f"- {tool.name}: {' '.join(tool.description.split())}"]
    for name, schema in properties.items():
        kind = schema.get("type", "any")
        optional = "" if name in required else ", optional"
        text = f": {schema['description']}" if "description" in schema else ""
        lines.append(f"    {name} ({kind}{optional}){text}")
    return "\n".join(lines)


def task_values(episode: Episode, hardware: bool) -> dict[str, str]:
    """For the first user message.

    Args:
        episode: reset.
        hardware: say what the sandbox has; looks for GPUs in it, which is no step.
    """
    task = episode.task
    return {
        "title": task.title,
        "description": task.description().strip(),
        "workdir": episode.workdir,
        "files": ", ".join(sorted(task.public_files())) or "nothing yet",
        "submission": ", ".join(task.submission.paths),
        "baseline": _baseline(task, episode.size),
        "hardware": f"\n# Your hardware\n\n{_hardware(episode)}\n" if hardware else "",
        "limits": f"{_resources(task.resources)}\n{_limits(episode.limits)}",
    }


def step_values(result: StepResult, steps: int) -> dict[str, object]:
    """For one observation."""
    return {
        "observation": result.observation,
        "step": result.step,
        "steps": steps,
        "steps_left": steps - result.step,
        "open_file": result.open_file or "none",
        "directory": result.directory,
    }


def _baseline(task: Task, size: str) -> str:
    score = task.baseline_score(size, task.primary.name)
    command = f"The shipped baseline runs with: {task.baseline.command_for(size)}"
    better = "higher" if task.primary.direction == "up" else "lower"
    known = f" It scores {score.value:g}." if score else ""
    return f"{command}\nYou are scored by {task.primary.name} ({better} is better).{known}"


def _resources(resources: Resources) -> str:
    cores = f"{resources.cpus:g} processor core{'s' * (resources.cpus != 1)}"
    return f"- {cores}, {resources.memory_mb} MB of memory, {resources.pids} processes"


def _limits(limits: Limits) -> str:
    lines = [
        f"- {limits.steps} steps, {limits.validations} of them may be validate",
        f"- {limits.action_seconds:g} seconds for one action",
    ]
    optional = (
        (limits.wall_seconds, "seconds in all"),
        (limits.working_seconds, "seconds in all, not counting the time you take to reply"),
        (limits.tokens, "tokens in all"),
        (limits.model_calls, "replies in all"),
    )
    lines.extend(f"- {value:.12g} {what}" for value, what in optional if value is not None)
    return "\n".join(lines)


def _hardware(episode: Episode) -> str:
    resources = episode.task.resources
    found = episode.run_command(_GPUS, _PROBE_SECONDS)
    gpus = found.stdout.head.decode("utf-8", "replace").strip() if found.exit_code == 0 else ""
    lines = [f"- {resources.cpus:g} CPU cores, {resources.memory_mb} MiB of memory"]
    lines.extend(f"- GPU: {line.strip()}" for line in gpus.splitlines())
    return "\n".join(lines if gpus else [*lines, "- no GPU"])


@cache
def _shipped(name: str) -> str:
    return files("mlgym_core.agent").joinpath("templates", f"{name}.txt").read_text("utf-8")
