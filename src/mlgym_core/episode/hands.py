"""What a tool acts through during one action of an episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from mlgym_core.episode.clock import Clock
from mlgym_core.sandbox.base import ActionResult, Sandbox
from mlgym_core.tools.base import ToolOutput
from mlgym_core.tools.scripted import script_command


@define
class Hands:
    """A :class:`~mlgym_core.tools.base.ToolContext` for one action.

    Attributes:
        sandbox: acted in.
        clock: gives every command its deadline.
        spool: stem of the files that take output beyond memory.
        last: what the newest command has left, the shell's directory and the tools' state with it.
    """

    sandbox: Sandbox
    clock: Clock
    spool: Path
    _validate: Callable[[], ToolOutput]
    _submit: Callable[[], ToolOutput]
    last: ActionResult | None = field(default=None, init=False)

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as the agent sees it."""
        return self.sandbox.workdir

    def run_command(self, command: str, timeout: float | None = None) -> ActionResult:
        """Run shell text in the sandbox; the timeout is capped by the task's and the run's limits."""
        self.last = self.sandbox.run(command, self.clock.action_seconds(timeout), self.spool)
        return self.last

    def run_script(self, name: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Run a tool's script in the sandbox, with the arguments as JSON on its standard input."""
        return self.run_command(script_command(self.sandbox.tools, name, arguments))

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file of the sandbox as the agent's user."""
        return self.sandbox.read_file(path, limit)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file of the sandbox as the agent's user."""
        self.sandbox.write_file(path, data)

    def validate(self) -> ToolOutput:
        """Freeze and score on the dev split."""
        return self._validate()

    def submit(self) -> ToolOutput:
        """Freeze, score on the test split and end the episode."""
        return self._submit()
