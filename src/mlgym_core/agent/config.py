"""An agent's configuration: a YAML file, shipped, a plugin's or one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

import attrs
from attrs import field, frozen

from mlgym_core.agent.base import Agent, AgentContext
from mlgym_core.agent.formats import FORMATS
from mlgym_core.agent.history import HistoryRule
from mlgym_core.agent.prompts import PLACEHOLDERS, read_template
from mlgym_core.errors import UsageError
from mlgym_core.plugins.hookspecs import AgentEntry
from mlgym_core.task import yamlfile
from mlgym_core.tools.base import Tool, ToolArgumentError
from mlgym_core.tools.builtin import TOOLS

SHIPPED = ("default", "tools", "gpu-info", "text", "xml", "json")
ALL = "all"
_HOST_FIELDS = frozenset({"folder"})


@frozen
class DemonstrationStep:
    """One step of a demonstration: a call of a tool, why, and what came of it."""

    tool: str
    arguments: Mapping[str, Any]
    observation: str
    thought: str = ""


@frozen
class Demonstration:
    """A worked example, written once and shown in whatever format the agent uses."""

    schema: int
    title: str
    steps: tuple[DemonstrationStep, ...]


@frozen
class AgentConfig:
    """How the ReAct agent works.

    Attributes:
        schema: version of this schema, 1.
        help: one line for people.
        format: how the model says what to do, see :mod:`mlgym_core.agent.formats`.
        tools: names in the order in which they are offered, those of the core if none are given; ``all`` stands for
            all that are registered.
        system, task, step, malformed, demonstration: templates: names of shipped ones, or files beside the
            configuration.
        demonstrations: files beside the configuration, each a :class:`Demonstration`.
        history: rules in the order in which they are applied.
        format_retries: malformed replies in a row that are answered with a corrective message.
        repeats: the same action with the same failure so many times in a row ends the run like malformed replies.
        hardware: the prompt says what the sandbox has.
        folder: of the file; filled in when it is loaded.

    Raises:
        ValueError: a number or the format makes no sense.
    """

    schema: int = yamlfile.SCHEMA
    help: str = ""
    format: Literal["tools", "fenced", "xml", "json"] = "tools"
    tools: tuple[str, ...] = tuple(tool.name for tool in TOOLS)
    system: str = "system"
    task: str = "task"
    step: str = "step"
    malformed: str = "malformed"
    demonstration: str = "demonstration"
    demonstrations: tuple[str, ...] = ()
    history: tuple[HistoryRule, ...] = ()
    format_retries: int = 3
    repeats: int = 10
    hardware: bool = False
    folder: Path = field(default=Path())

    def __attrs_post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        for name in ("format_retries", "repeats"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0")

    def templates(self) -> dict[str, Template]:
        """All templates, read and checked.

        Raises:
            UsageError: one cannot be read or uses a placeholder that does not exist.
        """
        return {kind: read_template(kind, getattr(self, kind), self.folder) for kind in PLACEHOLDERS}

    def offered(self, registered: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that the agent may call.

        Raises:
            UsageError: one is not registered.
        """
        known = {tool.name: tool for tool in registered}
        if not self.tools:
            raise UsageError("the agent's configuration offers no tools; name some, or leave the key out")
        names = [each for name in self.tools for each in (known if name == ALL else [name])]
        for name in names:
            if name not in known:
                raise UsageError(f"the agent's configuration names a tool {name!r}; there are: {', '.join(known)}")
        return tuple(known[name] for name in dict.fromkeys(names))

    def examples(self, offered: Sequence[Tool]) -> list[Demonstration]:
        """The demonstrations, read and checked against the tools.

        Raises:
            UsageError: one cannot be read, or shows a call that the agent could not make.
        """
        known = {tool.name: tool for tool in offered}
        found = []
        for name in self.demonstrations:
            path = self.folder / name
            example = yamlfile.load(path, Demonstration, UsageError)
            for step in example.steps:
                if step.tool not in known:
                    raise UsageError(f"{path}: the agent has no tool {step.tool!r}; it has: {', '.join(known)}")
                try:
                    known[step.tool].check(step.arguments)
                except ToolArgumentError as error:
                    raise UsageError(f"{path}: {error}") from error
            found.append(example)
        return found

    def recorded(self) -> dict[str, Any]:
        """For the manifest: the settings and the templates' text."""
        settings = attrs.asdict(self, filter=lambda a, _: a.name not in _HOST_FIELDS)
        return settings | {"templates": {kind: each.template for kind, each in self.templates().items()}}


def load(path: Path) -> AgentConfig:
    """Read a configuration; relative paths in it start from its folder.

    Raises:
        UsageError: the file cannot be read or breaks the schema.
    """
    return attrs.evolve(yamlfile.load(path, AgentConfig, UsageError, hidden=_HOST_FIELDS), folder=path.parent)


def entry(path: Path, name: str | None = None) -> AgentEntry:
    """An agent on offer, for plugins; its name is the file's unless another is given.

    Raises:
        UsageError: the file cannot be read or breaks the schema.
    """
    named = name or path.stem

    def create(argument: str, context: AgentContext) -> Agent:
        if argument:
            raise UsageError(f"the agent {named!r} takes no argument, got {argument!r}; use --agent {named}")
        return from_file(path, context, named)

    return AgentEntry(named, create, load(path).help)


def from_file(path: Path, context: AgentContext, name: str | None = None) -> Agent:
    """The ReAct agent with the configuration in ``path``.

    Raises:
        UsageError: the configuration is wrong, or the run has no model.
    """
    from mlgym_core.agent.react import ReactAgent

    named = name or str(path)
    if context.model is None:
        raise UsageError(f"the agent {named!r} needs a model; say which with --model")
    return ReactAgent(named, context.model, load(path), context.tools)


def shipped(name: str) -> Path:
    """Path of a shipped configuration."""
    return Path(__file__).parent / "configs" / f"{name}.yaml"
