"""Writes an agent's configuration with its templates beside it, ready to be changed."""

from __future__ import annotations

from pathlib import Path

from mlgym_core.agent.config import SHIPPED, load, shipped
from mlgym_core.agent.prompts import PLACEHOLDERS
from mlgym_core.authoring.scaffold.packages import checked_name
from mlgym_core.errors import UsageError


def new_agent(name: str, like: str = "default", out: Path | None = None) -> Path:
    """Write a folder with a configuration and copies of all templates.

    Args:
        name: of the folder and the file.
        like: shipped agent to begin with.
        out: folder in which the agent's folder is made; the current one when ``None``.

    Returns:
        The configuration's path.

    Raises:
        UsageError: the name is none, there is no such agent, or the folder exists or cannot be written.
    """
    checked_name(name)
    if like not in SHIPPED:
        raise UsageError(f"there is no shipped agent {like!r}; choose from: {', '.join(SHIPPED)}")
    folder = (out or Path()).resolve() / name
    config = load(shipped(like))
    templates = config.templates()
    lines = [
        "schema: 1",
        f"help: {like}, changed",
        f"format: {config.format}  # tools, fenced, xml or json",
        f"tools: [{', '.join(config.tools)}]  # all stands for every tool there is",
        "# Templates; each says what placeholders it uses, and docs/agents.md which there are.",
        *(f"{kind}: ./{kind}.txt" for kind in PLACEHOLDERS),
        "demonstrations: []  # files beside this one",
        "history: []  # for instance: [{keep: last_observations, count: 10}]",
        f"format_retries: {config.format_retries}",
        f"repeats: {config.repeats}",
        f"hardware: {str(config.hardware).lower()}",
    ]
    try:
        folder.mkdir(parents=True)
        (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n", "utf-8")
        for kind, template in templates.items():
            (folder / f"{kind}.txt").write_text(template.template, "utf-8")
    except FileExistsError:
        raise UsageError(f"{folder} exists; choose another name, or another folder with --out") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; choose another folder with --out") from error
    return folder / f"{name}.yaml"
