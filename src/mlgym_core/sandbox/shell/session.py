"""One request to the shell after the other: each ends by itself, at its deadline or with its shell, never the session.

A small supervisor (``inside/supervisor.sh``) holds the box's standard streams and starts one long-lived shell. A
request's end is a marker with a fresh nonce on *both* streams, for either may overtake the other. When the shell ends,
the supervisor says so with a marker of its own, and a new shell takes over (:mod:`~mlgym_core.sandbox.shell.life`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import frozen

from mlgym_core.sandbox.base import ActionStatus, Captured, ConnectionClosed
from mlgym_core.sandbox.shell.dialects import Dialect, End
from mlgym_core.sandbox.shell.exchange import Exchange, Place, number
from mlgym_core.sandbox.shell.life import Life, NewShell
from mlgym_core.sandbox.shell.link import ShellLink
from mlgym_core.sandbox.shell.output import Capture

_SAVE_SECONDS = 5.0

Request = Callable[[Dialect, End], bytes]
"""Makes the text of a request."""


def _nothing(dialect: Dialect, end: End) -> bytes:
    return dialect.action(b"", end)


@frozen
class Done:
    """How a request ended.

    Attributes:
        status, exit_code: as in :class:`~mlgym_core.sandbox.base.ActionResult`.
        place: where the shell stands that takes the next request.
        notes: what the agent must know.
        stdout, stderr: what was printed.
    """

    status: ActionStatus
    exit_code: int | None
    place: Place
    notes: tuple[str, ...]
    stdout: Captured
    stderr: Captured


class Session:
    """Requests to shells that follow one another.

    Args:
        link: to the supervisor.
        life: of the shells below it.
        workdir: initial directory.

    Raises:
        SandboxLostError: no shell could be started.

    Attributes:
        place: where the shell stands now.
    """

    def __init__(self, link: ShellLink, life: Life, workdir: str) -> None:
        self._link = link
        self._life = life
        self._in_flight: float | None = None
        self._news: tuple[str, ...] = ()
        self.place = life.open(Place(workdir)).place

    def perform(self, request: Request, captures: tuple[Capture, Capture], deadline: float) -> Done:
        """Send a request and see it end.

        This is where a deadline is enforced: what has not ended by then is killed, with everything it has started.

        Args:
            request: what is asked of the shell.
            captures: take what it prints.
            deadline: a :func:`time.monotonic` value.

        Raises:
            SandboxLostError: the box died and could not be brought back.
        """
        started = self._in_flight = time.monotonic()
        exchange = self._link.exchange(captures)
        slot = self._life.slots.turn()
        end = End(exchange.nonce, slot.encode())
        code: int | None = None
        try:
            self._link.transfer(exchange, request(self._life.dialect, end), deadline)
        except TimeoutError:
            status, new = ActionStatus.TIMED_OUT, self._life.end(exchange, started, self.place)
        except ConnectionClosed:
            status, new = ActionStatus.SHELL_ENDED, self._life.reopen(self.place).after("the action was cut short")
        else:
            status, code, new = self._ended(exchange, slot)
        self._in_flight, self.place = None, new.place
        return Done(status, code, new.place, new.notes, *exchange.results())

    def _ended(self, exchange: Exchange, slot: str) -> tuple[ActionStatus, int | None, NewShell]:
        """A request came to an end before its deadline; perhaps its shell did too."""
        place = exchange.place(self.place)
        if exchange.shell_ended and not exchange.eval_broken:
            code = number(exchange.payload()[0])
            reason = f"the action ended the shell itself (exit code {code}); a new shell was started"
            return ActionStatus.SHELL_ENDED, code, self._life.restart(place).after(reason)
        self._life.slots.note(slot)
        new = NewShell(place)
        if exchange.eval_broken:
            reason = (
                "the action replaced or disabled the shell's eval, which runs your commands; a new shell was started"
            )
            new = self._life.outlive(exchange, place).after(reason)
        return ActionStatus.COMPLETED, number(exchange.own()[0]), new

    def settle(self) -> None:
        """Get rid of a request that an exception (Ctrl-C) left running."""
        if self._in_flight is not None:
            self._kill(self._in_flight, "the previous action was interrupted and killed")

    def stop(self) -> None:
        """Kill everything in the box and go on with a fresh shell, directory, exports and functions restored."""
        if self._in_flight is None:
            # An action's end is told before its state is saved; when the next one has ended, the save is complete.
            done = self.perform(_nothing, (Capture(), Capture()), time.monotonic() + _SAVE_SECONDS)
            self.tell_later(done.notes)
        self._kill(-float("inf"), "everything that was still running was stopped")

    def _kill(self, since: float, reason: str) -> None:
        self._in_flight = since  # until it has succeeded
        nobody = (Capture(tail=0), Capture(tail=0))
        new = self._life.end(self._link.exchange(nobody), since, self.place)
        self._in_flight, self.place = None, new.place
        self.tell_later((reason, *new.notes))

    def tell_later(self, notes: tuple[str, ...]) -> None:
        """Keep notes for the result of the next action."""
        self._news += notes

    def take_news(self) -> tuple[str, ...]:
        """The notes that were kept."""
        news, self._news = self._news, ()
        return news

    def close(self) -> None:
        """Close the connection; the supervisor ends with it. Harmless when repeated."""
        self._link.close()
