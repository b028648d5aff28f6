"""One persistent shell in a box, whatever the backend: actions and files.

An action is one ``eval`` in a long-lived shell, so that directory, variables, functions, jobs and an activated virtual
environment simply persist. The walk of an action: :meth:`Shell.run` says what is asked, ``session`` sees it end and
enforces its deadline, ``life`` replaces a shell that did not survive it, ``link`` moves the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mlgym_core.sandbox import toolfiles
from mlgym_core.sandbox.base import ActionResult, ActionStatus, Captured, Connection
from mlgym_core.sandbox.shell import files
from mlgym_core.sandbox.shell.dialects import Initial
from mlgym_core.sandbox.shell.life import KillAction, Life
from mlgym_core.sandbox.shell.link import ShellLink
from mlgym_core.sandbox.shell.output import SPOOL_TOTAL_BYTES, Allowance, Capture
from mlgym_core.sandbox.shell.session import Session


class Shell:
    """A persistent shell in a box; what happens to one action never ends the session.

    Not for use by several threads at once.

    Args:
        connect: opens a connection to a fresh supervisor (see
            :func:`~mlgym_core.sandbox.shell.life.supervisor_argv`); called again when the connection breaks. It may
            raise :class:`~mlgym_core.errors.SandboxLostError`.
        kill: ends an action, see :data:`~mlgym_core.sandbox.shell.life.KillAction`. An :class:`OSError` means that
            the box is lost.
        env: initial environment; nothing else is set.
        workdir: initial directory, as seen inside.
        state_dir: folder inside that the agent's user can create and write, best on a tmpfs.
        spool_bytes: most bytes that all spool files of this shell take together.

    Raises:
        SandboxLostError: no shell could be started.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        kill: KillAction,
        *,
        env: Mapping[str, str],
        workdir: str,
        state_dir: str,
        spool_bytes: int = SPOOL_TOTAL_BYTES,
    ) -> None:
        self._allowance = Allowance(spool_bytes)
        self._link = ShellLink(connect)
        env = {**env, "MLGYM_TOOLS_STATE": toolfiles.state_file(state_dir)}
        self._life = Life(self._link, kill, Initial(env, workdir, state_dir))
        self._session = Session(self._link, self._life, workdir)

    def run(self, command: str, timeout: float, spool: Path | None = None) -> ActionResult:
        """Run one action; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        started = time.monotonic()
        try:
            text = command.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return self._refused("the command is not valid text: it holds a lone surrogate; nothing was run")
        if b"\0" in text:
            return self._refused("the command holds a NUL byte, which no shell accepts; nothing was run")
        self._session.settle()
        captures = self._captures(spool)
        self._link.move_late(captures)
        notes = self._session.take_news()
        done = self._session.perform(lambda dialect, end: dialect.action(text, end), captures, started + timeout)
        if done.status is ActionStatus.TIMED_OUT:
            notes = (f"the action was killed after {timeout:g} s, with everything it had started", *notes)
        return ActionResult(
            status=done.status,
            exit_code=done.exit_code,
            stdout=done.stdout,
            stderr=done.stderr,
            seconds=time.monotonic() - started,
            notes=(*notes, *done.notes),
            directory=done.place.directory,
            state=done.place.state,
        )

    def _captures(self, spool: Path | None) -> tuple[Capture, Capture]:
        out = spool and spool.with_name(f"{spool.name}.stdout")
        err = spool and spool.with_name(f"{spool.name}.stderr")
        return Capture(out, allowance=self._allowance), Capture(err, allowance=self._allowance)

    def _refused(self, note: str) -> ActionResult:
        place = self._session.place
        refused = ActionStatus.REFUSED
        return ActionResult(refused, None, Captured(), Captured(), 0.0, (note,), place.directory, place.state)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        files.write(self._session, path, data)

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        return files.read(self._session, path, limit)

    def stop(self) -> None:
        """Kill everything in the box and start a fresh shell with directory, exports and functions restored."""
        self._session.stop()

    def close(self) -> None:
        """Close the connection; the supervisor ends with it. Harmless when repeated."""
        self._session.close()
