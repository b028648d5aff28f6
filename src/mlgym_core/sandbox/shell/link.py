"""The host's end of a shell's connection: requests out, output in, each with a deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from mlgym_core.errors import SandboxLostError
from mlgym_core.sandbox.base import Connection, ConnectionClosed
from mlgym_core.sandbox.shell.exchange import Exchange
from mlgym_core.sandbox.shell.output import HEAD_BYTES, Capture, new_token

_LAST_WORDS_SECONDS = 1.0


class ShellLink:
    """Requests to a supervisor and its shells. Deadlines are values of :func:`time.monotonic`.

    Args:
        connect: opens a connection to a fresh supervisor.

    Attributes:
        token: of the present supervisor's markers; new with every connection.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.token = b""
        self._connect = connect
        self._connection: Connection | None = None
        # What background children write between two actions.
        self._late = (Capture(tail=0), Capture(tail=0))

    def open(self) -> None:
        """Connect to a fresh supervisor.

        Raises:
            SandboxLostError: there is none.
        """
        try:
            self._connection = self._connect()
        except OSError as error:
            raise SandboxLostError(f"the sandbox's shell did not start: {error}") from error
        self.token = new_token()

    def close(self) -> None:
        """Close the connection; the supervisor ends with it. Harmless when repeated."""
        if self._connection is not None:
            self._connection.close()

    def exchange(self, captures: tuple[Capture, Capture] | None = None) -> Exchange:
        """A new exchange; its output goes to ``captures``, or is kept as usual."""
        return Exchange(self.token, captures or (Capture(), Capture()), self._late)

    def transfer(self, exchange: Exchange, request: bytes, deadline: float) -> None:
        """Send a request and wait until it is over.

        Raises:
            TimeoutError: the deadline passed.
            ConnectionClosed: the supervisor is gone.
        """
        self._connected().send(request, deadline)
        self.wait(exchange, lambda: exchange.over, deadline)

    def wait(self, exchange: Exchange, done: Callable[[], bool], deadline: float) -> None:
        """Take output until something has come.

        Raises:
            TimeoutError, ConnectionClosed: as in :meth:`transfer`.
        """
        connection = self._connected()
        while not done():
            # A flood never lets receive() run into its deadline.
            if time.monotonic() >= deadline:
                raise TimeoutError
            for stream, data in connection.receive(deadline):
                exchange.feed(stream, data)

    def drain(self, exchange: Exchange) -> None:
        """Take the last words of a connection that has failed."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            self.wait(exchange, lambda: False, deadline)

    def move_late(self, captures: tuple[Capture, Capture]) -> None:
        """Have captures begin with what background children wrote since the last action."""
        for late, capture in zip(self._late, captures, strict=True):
            if late.total:
                capture.feed(late.result().head)
        if self._late[0].total or self._late[1].total:
            self._late = (Capture(head=HEAD_BYTES, tail=0), Capture(head=HEAD_BYTES, tail=0))

    def _connected(self) -> Connection:
        if self._connection is None:
            raise ConnectionClosed("the shell is not connected")
        return self._connection
