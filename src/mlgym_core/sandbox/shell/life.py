"""The life of a session's shells: each is started, ends or is killed, and hands its state to the next one.

After each request the shell saves its directory, exports and functions to one of two alternating slots, files in a
folder of the box; slot ``b`` is saved when it starts and slot ``x`` when it ends by itself. A new shell is restored
from the newest slot that is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
from attrs import define, frozen

from mlgym_core.errors import SandboxLostError
from mlgym_core.inside import program
from mlgym_core.sandbox.base import ConnectionClosed
from mlgym_core.sandbox.shell.dialects import DIALECTS, Bash, Dialect, Initial
from mlgym_core.sandbox.shell.exchange import Exchange, Place, message, number
from mlgym_core.sandbox.shell.link import ShellLink

_BOOT_SECONDS = 20.0
_GRACE_SECONDS = 5.0  #: from the killing of a shell to its supervisor's word, or to the end of one that cannot go on
_AT_EXIT = "x"
_AT_START = "b"

KillAction = Callable[[int, int, float], None]
"""``kill(supervisor, shell, since)``: kill the shell and everything that began at or after ``since``.

The first two are process ids as seen inside the box; ``since`` is a :func:`time.monotonic` value, ``-inf`` for
everything. Processes that setsid'd or were orphaned are included, older background jobs and their children are not,
and the supervisor never is.
"""


def supervisor_argv() -> list[str]:
    """The command a backend runs in the box; its standard streams become the shell's connection."""
    return ["sh", "-c", program(__package__, "supervisor.sh"), "mlgym-shell"]


@define
class Slots:
    """Where a shell's state is saved.

    Attributes:
        current: the slot of the newest request.
        saved: those that hold a state, the newest first.
    """

    current: str = "0"
    saved: tuple[str, ...] = ()

    def turn(self) -> str:
        """The slot for the next request; the other one keeps the state before."""
        self.current = "1" if self.current == "0" else "0"
        return self.current

    def note(self, slot: str) -> None:
        """A slot has been saved, or will be at once."""
        if self.saved[:1] != (slot,):
            self.saved = (slot, *(name for name in self.saved if name != slot))


@frozen
class NewShell:
    """What a request left behind: the shell that takes the next one.

    Attributes:
        place: where it stands.
        notes: what the agent must know of it; none while it is the same shell.
    """

    place: Place
    notes: tuple[str, ...] = ()

    def after(self, *reasons: str) -> NewShell:
        """The same, with notes put before the others."""
        return attrs.evolve(self, notes=(*reasons, *self.notes))


class Life:
    """Shells, one at a time.

    Args:
        link: to the supervisor that has them.
        kill: see :data:`KillAction`; an :class:`OSError` means that the box is lost.
        initial: how the first one begins, and one whose state is lost.

    Attributes:
        dialect: what the shell understands.
        slots: where it is saved.
    """

    def __init__(self, link: ShellLink, kill: KillAction, initial: Initial) -> None:
        self.dialect: Dialect = Bash()
        self.slots = Slots()
        self._link = link
        self._kill = kill
        self._initial = initial
        self._supervisor = self._shell = 0

    # How a shell comes into being.

    def open(self, before: Place) -> NewShell:
        """Connect to a fresh supervisor and start a shell.

        Raises:
            SandboxLostError: one of them did not start.
        """
        self._link.open()
        exchange = self._link.exchange()
        try:
            greeting = b"%b %b\n" % (self._link.token, self._initial.folder.encode())
            self._link.transfer(exchange, greeting, time.monotonic() + _BOOT_SECONDS)
        except (TimeoutError, ConnectionClosed) as error:
            self._link.drain(exchange)
            reason = message(exchange.results()[1]) or str(error) or "no answer"
            raise SandboxLostError(f"the sandbox's shell did not start: {reason}") from error
        supervisor, dialect = [*exchange.payload(), ""][:2]
        pid = number(supervisor)
        if pid is None or dialect not in DIALECTS:
            raise SandboxLostError("the sandbox's shell did not start: something else answered in its place")
        self._supervisor, self.dialect = pid, DIALECTS[dialect]
        return self._start(before)

    def reopen(self, before: Place) -> NewShell:
        """The supervisor is gone: connect to a new one, once, and once more without the state if that fails.

        Raises:
            SandboxLostError: nothing helps.
        """
        lost = "the sandbox's processes were lost, background jobs included; it was started again"
        self._link.close()
        try:
            return self.open(before).after(lost)
        except SandboxLostError:
            if not self.slots.saved:
                raise
        self.slots.saved = ()
        self._link.close()
        return self.open(before).after(lost, self._unrestored())

    def restart(self, before: Place) -> NewShell:
        """Start a shell under the living supervisor, else under a new one.

        Raises:
            SandboxLostError: nothing helps.
        """
        try:
            return self._start(before)
        except SandboxLostError:
            self.slots.saved = ()
            new = self.reopen(before)
            return attrs.evolve(new, notes=(*new.notes, self._unrestored()))

    def _start(self, before: Place) -> NewShell:
        """Start a shell under the living supervisor.

        Raises:
            SandboxLostError: neither a restored nor a bare shell starts.
        """
        attempts = ((_AT_EXIT, *self.slots.saved), ()) if self.slots.saved else ((),)
        for saved in attempts:
            exchange = self._link.exchange()
            request = self.dialect.start(self._link.token, exchange.nonce, saved, self._initial)
            try:
                self._link.transfer(exchange, request, time.monotonic() + _BOOT_SECONDS)
            except (TimeoutError, ConnectionClosed) as error:
                raise SandboxLostError("the sandbox's shell did not come back") from error
            if exchange.completed and not exchange.shell_ended:
                return self._started(exchange, before)
        raise SandboxLostError("the sandbox's shell ends as soon as it is started")

    def _started(self, exchange: Exchange, before: Place) -> NewShell:
        shell, slot, gone = [*exchange.payload(), "", ""][:3]
        pid = number(shell)
        if pid is None:
            raise SandboxLostError("something else answered in the place of the sandbox's shell")
        self._shell = pid
        earlier = self.slots.saved
        self.slots.note(_AT_START)
        notes = (self._restored(slot, gone, slot in (_AT_EXIT, *earlier[:1])),) if earlier else ()
        return NewShell(exchange.place(before), notes)

    # How one ends.

    def end(self, exchange: Exchange, since: float, before: Place) -> NewShell:
        """Kill the shell, and everything in the box that began at or after ``since``; start another.

        Raises:
            SandboxLostError: nothing helps.
        """
        exchange.keep_late()
        deadline = time.monotonic() + _GRACE_SECONDS
        try:
            self._kill(self._supervisor, self._shell, since)
            self._link.wait(exchange, lambda: exchange.shell_ended, deadline)
        except (TimeoutError, ConnectionClosed, OSError):
            return self.reopen(before)
        return self.restart(before)

    def outlive(self, exchange: Exchange, before: Place) -> NewShell:
        """Wait for the end of a shell that has noticed that it can run no further command; start another.

        Raises:
            SandboxLostError: nothing helps.
        """
        deadline = time.monotonic() + _GRACE_SECONDS
        try:
            self._link.wait(exchange, lambda: exchange.shell_ended, deadline)
        except (TimeoutError, ConnectionClosed):
            return self.reopen(before)
        return self.restart(before)

    # What the agent is told.

    def _unrestored(self) -> str:
        return (
            f"its state could not be restored: it starts in {self._initial.workdir} with the initial environment, "
            "without your variables and functions"
        )

    def _restored(self, slot: str, gone: str, newest: bool) -> str:
        if not slot:
            return self._unrestored()
        kept = "exported variables and functions" if self.dialect.name == "bash" else "exported variables"
        where = (
            f"its directory no longer exists, so it starts in {self._initial.workdir}; {kept} were restored"
            if gone
            else f"its directory, {kept} were restored"
        )
        older = "" if newest else ", but as they were before the latest change, which had not been saved yet"
        return f"{where}{older}; unexported variables, shell options and the list of background jobs were lost"
