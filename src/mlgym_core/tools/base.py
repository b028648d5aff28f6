"""What a tool is. A tool acts on the episode through :class:`ToolContext` and answers in text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen

from mlgym_core.sandbox.base import ActionResult
from mlgym_core.tools.arguments import MisfitError, taken


@frozen
class ToolOutput:
    """What a tool answers.

    Attributes:
        text: for the agent.
        info: for records and callers of :meth:`Episode.step <mlgym_core.episode.episode.Episode.step>`.
    """

    text: str
    info: Mapping[str, Any] = field(factory=dict)


class ToolContext(Protocol):
    """The part of an episode that tools may use."""

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as the agent sees it."""

    def run_command(self, command: str, timeout: float | None = None) -> ActionResult:
        """Run shell text in the agent's sandbox; ``timeout`` is capped by the task's limit."""

    def run_script(self, name: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Run a tool's script in the sandbox; the arguments reach its standard input as a JSON object."""

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""

    def validate(self) -> ToolOutput:
        """Freeze the workspace's submission and score it on the dev split."""

    def submit(self) -> ToolOutput:
        """Freeze the workspace's submission, score it on the test split and end the episode."""


class ToolArgumentError(ValueError):
    """The arguments do not fit the schema; the text goes back to the agent."""


@frozen
class Script:
    """A program that is put on ``PATH`` in the sandbox under its tool's name.

    Called by the agent's own commands, it gets words, and long text on standard input; called as a tool, ``--json``
    alone and a JSON object on standard input. What it prints is what the agent reads; it ends with a code other than
    0 when it refuses. Anything that the sandbox's image can run will do.

    Attributes:
        path: of the program, on the host.
        libraries: what it imports: names of importable pure-Python packages of the host, or paths of Python files and
            folders. They lie in ``lib/`` beside the program.
    """

    path: Path
    libraries: tuple[str | Path, ...] = ()


@frozen
class Tool:
    """One tool.

    Attributes:
        name: what the agent calls.
        description: for the agent, one paragraph.
        parameters: JSON schema of the arguments (an object schema).
        run: does it; raises :class:`ToolArgumentError` for bad arguments.
        script: what its name stands for in the sandbox's shell, if anything.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[ToolContext, Mapping[str, Any]], ToolOutput]
    script: Script | None = None

    def check(self, arguments: object) -> dict[str, Any]:
        """Check arguments against the schema's ``properties``, ``required`` and types.

        Args:
            arguments: an object, or what can be taken for one, see :func:`~mlgym_core.tools.arguments.taken`.

        Returns:
            The arguments as the schema wants them, for ``run``.

        Raises:
            ToolArgumentError: naming the argument and what was expected.
        """
        try:
            return taken(self.parameters, arguments)
        except MisfitError as error:
            raise ToolArgumentError(f"{self.name}: {error}") from error
