"""One persistent shell over a connection, whatever the backend: actions, deadlines, restarts, files.

How it works. A small supervisor (``inside/supervisor.sh``) holds the box's standard streams and starts one long-lived
shell. An action is one ``eval`` in that shell, so that directory, variables, functions, jobs and an activated virtual
environment simply persist. Its end is a marker with a fresh nonce on *both* streams, for either may overtake the
other. After each action the shell saves its directory, exports and functions to one of two alternating files; when
the shell ends, the supervisor says so with its own marker, and a new shell is started from the newest complete file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen

from mlgym_core.errors import SandboxLostError
from mlgym_core.sandbox import toolfiles
from mlgym_core.sandbox.base import ActionResult, ActionStatus, Captured, Connection, ConnectionClosed
from mlgym_core.sandbox.shell.dialects import DIALECTS, Ash, Bash, inline, quote, read_command, script
from mlgym_core.sandbox.shell.exchange import Exchange
from mlgym_core.sandbox.shell.output import HEAD_BYTES, SPOOL_TOTAL_BYTES, Allowance, Capture, new_token

_BOOT_SECONDS = 20.0
_GRACE_SECONDS = 5.0
_FILE_SECONDS = 60.0
_FILE_BYTES_PER_SECOND = 1e6
_READ_ATTEMPTS = 5

KillAction = Callable[[int, int, float], None]
"""``kill(supervisor, shell, since)``: kill the shell and everything that began at or after ``since``.

The first two are process ids as seen inside the box; ``since`` is a :func:`time.monotonic` value, ``-inf`` for
everything. Processes that setsid'd or were orphaned are included, older background jobs and their children are not,
and the supervisor never is.
"""


def supervisor_argv() -> list[str]:
    """The command a backend runs in the box; its standard streams become the shell's connection."""
    return ["sh", "-c", script("supervisor"), "mlgym-shell"]


def base_environment(home: str, path: str, user: str = "agent") -> dict[str, str]:
    """Environment of an agent's shell; whatever would ask a person fails at once instead."""
    return {
        "PATH": path,
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "EDITOR": "false",
        "VISUAL": "false",
        "GIT_EDITOR": "false",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": user,
        "GIT_AUTHOR_EMAIL": f"{user}@localhost",
        "GIT_COMMITTER_NAME": user,
        "GIT_COMMITTER_EMAIL": f"{user}@localhost",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
    }


@define
class _Life:
    """What is known of the shell that runs now."""

    supervisor: int = 0
    pid: int = 0
    dialect: Bash | Ash = field(factory=Bash)


class Shell:
    """A persistent shell in a box; what happens to one action never ends the session.

    Not for use by several threads at once.

    Args:
        connect: opens a connection to a fresh supervisor (see :func:`supervisor_argv`); called again when the
            connection breaks. It may raise :class:`~mlgym_core.errors.SandboxLostError`.
        kill: ends an action, see :data:`KillAction`. An :class:`OSError` means that the box is lost.
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
        self._connect = connect
        self._kill = kill
        self._env = {**env, "MLGYM_TOOLS_STATE": toolfiles.state_file(state_dir)}
        self._workdir = self._directory = workdir
        self._tools_state = ""
        self._state_dir = state_dir
        self._allowance = Allowance(spool_bytes)
        self._saved: tuple[str, ...] = ()
        self._slot = "0"
        self._token = b""
        self._life = _Life()
        self._in_flight: float | None = None
        self._news: tuple[str, ...] = ()
        self._late = (Capture(tail=0), Capture(tail=0))
        self._connection: Connection | None = None
        self._open()

    def run(self, command: str, timeout: float, spool: Path | None = None) -> ActionResult:
        """Run one action; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        started = time.monotonic()
        try:
            text = command.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return self._refused("the command is not valid text: it holds a lone surrogate; nothing was run")
        if b"\0" in text:
            return self._refused("the command holds a NUL byte, which no shell accepts; nothing was run")
        self._settle()
        notes, self._news = self._news, ()
        captures = self._take_late(spool)
        exchange, ending = self._perform(
            lambda nonce: self._life.dialect.action(text, nonce, self._slot), captures, started + timeout
        )
        notes += ending.notes
        if ending.status is ActionStatus.TIMED_OUT:
            notes = (f"the action was killed after {timeout:g} s, with everything it had started", *notes)
        out, err = exchange.results()
        seconds = time.monotonic() - started
        place = (self._directory, self._tools_state)
        return ActionResult(ending.status, ending.exit_code, out, err, seconds, notes, *place)

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        name = _path_argument(path)
        self._settle()
        exchange, ending = self._perform(
            lambda nonce: self._life.dialect.write(name, data, nonce, self._slot),
            (Capture(), Capture()),
            time.monotonic() + _FILE_SECONDS + len(data) / _FILE_BYTES_PER_SECOND,
        )
        if ending.status is not ActionStatus.COMPLETED:
            self._news += ending.notes
            raise OSError(errno.EIO, "the file could not be written: the shell ended or hung meanwhile", path)
        if ending.exit_code != 0:
            raise OSError(errno.EIO, _message(exchange.results()[1]) or "the file could not be written", path)

    def read_file(self, path: str, limit: int) -> bytes:
        """Read a file as the agent's user; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
        name = _path_argument(path)
        self._settle()
        for _ in range(_READ_ATTEMPTS):
            exchange, ending = self._perform(
                lambda nonce: inline(read_command(name, limit + 1), nonce, self._slot),
                (Capture(head=limit + 256, tail=0), Capture()),
                time.monotonic() + _FILE_SECONDS + limit / _FILE_BYTES_PER_SECOND,
            )
            if ending.status is not ActionStatus.COMPLETED:
                self._news += ending.notes
                raise OSError(errno.EIO, "the file could not be read: the shell ended or hung meanwhile", path)
            out, err = exchange.results()
            if ending.exit_code != 0:
                raise OSError(errno.EIO, _message(err) or "the file could not be read", path)
            digest, _, data = out.head.partition(b"  -\n")
            # Background children share the stream; a digest that fits proves that none of their output is in between.
            if hashlib.sha256(data).hexdigest().encode() == digest:
                if len(data) > limit:
                    raise OSError(errno.EFBIG, f"the file is larger than {limit} bytes", path)
                return data
        raise OSError(errno.EIO, "background output kept mixing with the file; redirect it to a file and retry", path)

    def stop(self) -> None:
        """Kill everything in the box and start a fresh shell with directory, exports and functions restored."""
        if self._in_flight is None:
            # An action's end is told before its state is saved; when the next one has ended, the save is complete.
            request, captures = (lambda nonce: inline(b"", nonce, self._slot)), (Capture(), Capture())
            self._news += self._perform(request, captures, time.monotonic() + _GRACE_SECONDS)[1].notes
        self._in_flight = -float("inf")
        self._settle("everything that was still running was stopped")

    def close(self) -> None:
        """Close the connection; the supervisor ends with it. Harmless when repeated."""
        if self._connection is not None:
            self._connection.close()

    # One exchange and how it ends.

    def _perform(
        self, request: Callable[[str], bytes], captures: tuple[Capture, Capture], deadline: float
    ) -> tuple[Exchange, _Ending]:
        started = time.monotonic()
        nonce = new_token()
        exchange = Exchange(nonce, self._token, captures, self._late)
        self._slot = "1" if self._slot == "0" else "0"
        self._in_flight = started
        try:
            self._transfer(request(nonce.decode()), exchange, deadline)
        except TimeoutError:
            ending = self._expired(exchange, started)
        except ConnectionClosed:
            ending = self._lost()
        else:
            ending = self._ended(exchange)
        self._in_flight = None
        return exchange, ending

    def _transfer(self, request: bytes, exchange: Exchange, deadline: float) -> None:
        self._connected().send(request, deadline)
        self._await(exchange, deadline, lambda: exchange.completed or exchange.shell_ended)

    def _await(self, exchange: Exchange, deadline: float, done: Callable[[], bool]) -> None:
        connection = self._connected()
        while not done():
            # A flood never lets receive() run into its deadline.
            if time.monotonic() >= deadline:
                raise TimeoutError
            for stream, data in connection.receive(deadline):
                exchange.feed(stream, data)

    def _refused(self, note: str) -> ActionResult:
        place = (self._directory, self._tools_state)
        return ActionResult(ActionStatus.REFUSED, None, Captured(), Captured(), 0.0, (note,), *place)

    def _note_place(self, exchange: Exchange) -> None:
        directory, state = exchange.place
        self._directory = directory or self._directory
        self._tools_state = self._tools_state if state is None else state

    def _ended(self, exchange: Exchange) -> _Ending:
        self._note_place(exchange)
        if exchange.eval_broken or not exchange.shell_ended:
            if self._saved[0] != self._slot:
                self._saved = (self._slot, *(name for name in self._saved if name != self._slot))
            notes = self._renew(exchange) if exchange.eval_broken else ()
            return _Ending(ActionStatus.COMPLETED, _number(exchange.own()[0]), notes)
        code = _number(exchange.payload()[0])
        notes = (f"the action ended the shell itself (exit code {code}); a new shell was started", *self._restart())
        return _Ending(ActionStatus.SHELL_ENDED, code, notes)

    def _renew(self, exchange: Exchange) -> tuple[str, ...]:
        """The shell has noticed that it can run no further command, and ends."""
        reason = "the action replaced or disabled the shell's eval, which runs your commands; a new shell was started"
        try:
            self._await(exchange, time.monotonic() + _GRACE_SECONDS, lambda: exchange.shell_ended)
        except (TimeoutError, ConnectionClosed):
            return (reason, *self._reopen())
        return (reason, *self._restart())

    def _expired(self, exchange: Exchange, since: float) -> _Ending:
        notes = self._kill_and_restart(exchange, since)
        return _Ending(ActionStatus.TIMED_OUT, None, notes)

    def _kill_and_restart(self, exchange: Exchange, since: float) -> tuple[str, ...]:
        deadline = time.monotonic() + _GRACE_SECONDS
        try:
            self._kill(self._life.supervisor, self._life.pid, since)
            self._await(exchange, deadline, lambda: exchange.shell_ended)
        except (TimeoutError, ConnectionClosed, OSError):
            return self._reopen()
        return self._restart()

    def _lost(self) -> _Ending:
        return _Ending(ActionStatus.SHELL_ENDED, None, ("the action was cut short", *self._reopen()))

    def _settle(self, reason: str = "the previous action was interrupted and killed") -> None:
        """Get rid of an action that an exception (Ctrl-C) left running."""
        if self._in_flight is None:
            return
        exchange = Exchange(new_token(), self._token, (Capture(tail=0), Capture(tail=0)), self._late)
        notes = self._kill_and_restart(exchange, self._in_flight)
        self._in_flight = None
        self._news += (reason, *notes)

    # The life of a shell.

    def _connected(self) -> Connection:
        if self._connection is None:
            raise ConnectionClosed("the shell is not connected")
        return self._connection

    def _open(self) -> tuple[str, ...]:
        """Connect to a fresh supervisor and start a shell; returns what the agent must know."""
        try:
            self._connection = self._connect()
        except OSError as error:
            raise SandboxLostError(f"the sandbox's shell did not start: {error}") from error
        self._token = new_token()
        exchange = Exchange(new_token(), self._token, (Capture(), Capture()), self._late)
        try:
            greeting = b"%b %b\n" % (self._token, self._state_dir.encode())
            self._transfer(greeting, exchange, time.monotonic() + _BOOT_SECONDS)
        except (TimeoutError, ConnectionClosed) as error:
            self._drain(exchange)
            reason = _message(exchange.results()[1]) or str(error) or "no answer"
            raise SandboxLostError(f"the sandbox's shell did not start: {reason}") from error
        supervisor, dialect = [*exchange.payload(), ""][:2]
        pid = _number(supervisor)
        if pid is None or dialect not in DIALECTS:
            raise SandboxLostError("the sandbox's shell did not start: something else answered in its place")
        self._life = _Life(pid, 0, DIALECTS[dialect])
        return self._start()

    def _drain(self, exchange: Exchange) -> None:
        """Take the last words of a connection that has failed."""
        deadline = time.monotonic() + 1.0
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            self._await(exchange, deadline, lambda: False)

    def _reopen(self) -> tuple[str, ...]:
        """The supervisor is gone: connect to a new one, once, and once more without the state if that fails."""
        lost = "the sandbox's processes were lost, background jobs included; it was started again"
        self.close()
        try:
            return (lost, *self._open())
        except SandboxLostError:
            if not self._saved:
                raise
        self._saved = ()
        self.close()
        self._open()
        return (lost, self._unrestored())

    def _restart(self) -> tuple[str, ...]:
        """Start a shell under the living supervisor, else a new supervisor; returns what the agent must know.

        Raises:
            SandboxLostError: nothing helps.
        """
        try:
            return self._start()
        except SandboxLostError:
            self._saved = ()
            return (*self._reopen(), self._unrestored())

    def _start(self) -> tuple[str, ...]:
        """Start a shell under the living supervisor.

        Raises:
            SandboxLostError: neither a restored nor a bare shell starts.
        """
        fresh = not self._saved
        for candidates in (("x", *self._saved), ()) if not fresh else ((),):
            nonce = new_token()
            exchange = Exchange(nonce, self._token, (Capture(), Capture()), self._late)
            try:
                self._transfer(self._boot(candidates, nonce.decode()), exchange, time.monotonic() + _BOOT_SECONDS)
            except (TimeoutError, ConnectionClosed) as error:
                raise SandboxLostError("the sandbox's shell did not come back") from error
            if exchange.completed and not exchange.shell_ended:
                pid, slot, gone = [*exchange.payload(), "", ""][:3]
                number = _number(pid)
                if number is None:
                    raise SandboxLostError("something else answered in the place of the sandbox's shell")
                self._life.pid = number
                self._note_place(exchange)
                newest = slot in ("x", *self._saved[:1])
                self._saved = ("b", *(name for name in self._saved if name != "b"))
                return () if fresh else self._restored(slot, gone, newest)
        raise SandboxLostError("the sandbox's shell ends as soon as it is started")

    def _boot(self, candidates: Sequence[str], nonce: str) -> bytes:
        """What a new shell reads first: restore, define the machinery, save once, answer."""
        state = self._state_dir
        lines = ["", f"go {self._token.decode()}", "exec 6>/dev/null 7</dev/null 8>&1 9>&2", "{"]
        # Once a state is in, the agent's functions may go by any name, "[" included; keywords they cannot take.
        lines += [f'case $__m_k in "") [ ! -f {state}/{name} ] || . {state}/{name};; esac' for name in candidates]
        lines.append('case $__m_k in "")')
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self._env.items()]
        lines += [f"cd -- {shlex.quote(self._workdir)}", ";; esac", "} >/dev/null 2>&1 </dev/null"]
        lines.append(script(self._life.dialect.name).replace("@STATE@", shlex.quote(state)).replace("@NONCE@", nonce))
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    def _unrestored(self) -> str:
        return (
            f"its state could not be restored: it starts in {self._workdir} with the initial environment, "
            "without your variables and functions"
        )

    def _restored(self, slot: str, gone: str, newest: bool) -> tuple[str, ...]:
        if not slot:
            return (self._unrestored(),)
        kept = "exported variables and functions" if self._life.dialect.name == "bash" else "exported variables"
        where = (
            f"its directory no longer exists, so it starts in {self._workdir}; {kept} were restored"
            if gone
            else f"its directory, {kept} were restored"
        )
        older = "" if newest else ", but as they were before the latest change, which had not been saved yet"
        return (f"{where}{older}; unexported variables, shell options and the list of background jobs were lost",)

    def _take_late(self, spool: Path | None) -> tuple[Capture, Capture]:
        """Captures for an action, beginning with what background children wrote since the last one."""
        stems = (None, None) if spool is None else (_with_suffix(spool, ".stdout"), _with_suffix(spool, ".stderr"))
        captures = (Capture(stems[0], allowance=self._allowance), Capture(stems[1], allowance=self._allowance))
        for late, capture in zip(self._late, captures, strict=True):
            if late.total:
                capture.feed(late.result().head)
        if self._late[0].total or self._late[1].total:
            self._late = (Capture(head=HEAD_BYTES, tail=0), Capture(head=HEAD_BYTES, tail=0))
        return captures


@frozen
class _Ending:
    status: ActionStatus
    exit_code: int | None
    notes: tuple[str, ...] = ()


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _message(stderr: Captured) -> str:
    text = (stderr.head + stderr.tail).decode("utf-8", "replace").strip()[-500:]
    return re.sub(r"^\S+: line \d+: ", "", text)


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _path_argument(path: str) -> bytes:
    """The path, quoted, and never taken for an option."""
    raw = os.fsencode(path)
    if not raw or b"\0" in raw:
        raise OSError(errno.EINVAL, "a path must not be empty or hold a NUL byte", path)
    return quote(b"./" + raw if raw.startswith(b"-") else raw)
