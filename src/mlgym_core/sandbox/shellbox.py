"""The agent's box as far as it is the same on every backend: what is done through its shell."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from mlgym_core.errors import SandboxLostError
from mlgym_core.sandbox import toolfiles
from mlgym_core.sandbox.base import ActionResult, BoxSpec, Connection, Sandbox
from mlgym_core.sandbox.closing import Closing
from mlgym_core.sandbox.shell.shell import Shell


class ShellSandbox(Closing, Sandbox):
    """A sandbox with a shell.

    A subclass makes the box, calls :meth:`_start_shell` (both inside ``with self._opening():``), and says how to
    connect, kill, export and end.
    """

    def __init__(self, spec: BoxSpec) -> None:
        self._spec = spec
        self._connected_before = False

    def _start_shell(self, env: Mapping[str, str], state_dir: str) -> None:
        """Open the shell, with the agent's tools first on the ``PATH`` of ``env``."""
        if self._spec.tools:
            env = toolfiles.first_on_path(self.tools, env)
        self._shell = Shell(self._reconnect, self._kill, env=env, workdir=self.workdir, state_dir=state_dir)

    def _reconnect(self) -> Connection:
        if self._closing:
            raise SandboxLostError("the sandbox is closed")
        connection = self._connect(again=self._connected_before)
        self._connected_before = True
        return connection

    @abc.abstractmethod
    def _connect(self, again: bool) -> Connection:
        """Start the shell's supervisor, ``again`` when an earlier one was lost.

        Raises:
            SandboxLostError: the box cannot be brought back.
        """

    @abc.abstractmethod
    def _kill(self, supervisor: int, shell: int, since: float) -> None:
        """Kill an action; see :data:`~mlgym_core.sandbox.shell.life.KillAction`."""

    @override
    def run(self, command: str, timeout: float, spool: Path | None = None) -> ActionResult:
        return self._shell.run(command, timeout, spool)

    @override
    def write_file(self, path: str, data: bytes) -> None:
        self._shell.write_file(path, data)

    @override
    def read_file(self, path: str, limit: int) -> bytes:
        return self._shell.read_file(path, limit)

    @override
    def stop_processes(self) -> None:
        self._shell.stop()
