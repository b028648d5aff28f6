"""Connections over an engine's attached socket, which multiplexes both streams into frames with eight-byte headers."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from mlgym_core.sandbox.base import ConnectionClosed

_CHUNK = 256 * 1024
_BACKLOG = 64 * 1024 * 1024
_HEADER = 8


class SocketConnection:
    """A :class:`~mlgym_core.sandbox.base.Connection` over an attach or exec socket without a terminal.

    While :meth:`send` waits, output is drained into a backlog of at most 64 MiB that :meth:`receive` returns first.

    Args:
        attached: what ``attach_socket`` or ``exec_start(socket=True)`` of the Docker SDK returned.
    """

    def __init__(self, attached: Any) -> None:
        self._attached = attached  # closes the socket when it is collected
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        self._header = b""
        self._stream = 0
        self._left = 0
        self._backlog: list[tuple[int, bytes]] = []
        self._backlog_bytes = 0
        self._ended = False

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Write all of ``data``; see :class:`~mlgym_core.sandbox.base.Connection`."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait_writable(deadline)
            except OSError as error:
                raise ConnectionClosed("the box no longer reads its standard input") from error

    def receive(self, deadline: float) -> Sequence[tuple[int, bytes]]:
        """Wait for output; see :class:`~mlgym_core.sandbox.base.Connection`."""
        if self._backlog:
            pieces, self._backlog, self._backlog_bytes = self._backlog, [], 0
            return pieces
        while not self._ended:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                if not self._poll.poll(_milliseconds(deadline)):
                    raise TimeoutError("no output before the deadline") from None
                continue
            except OSError:
                data = b""
            self._ended = not data
            pieces = self._parse(data)
            if pieces:
                return pieces
        raise ConnectionClosed("the box has ended")

    def close(self) -> None:
        """Close the socket; harmless when repeated."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # The answer first: it holds a buffer over the socket, and complains when that is closed beneath it.
        for part in (getattr(self._attached, "_response", None), self._attached, self._socket):
            if part is not None:
                with contextlib.suppress(OSError, ValueError):
                    part.close()

    def _parse(self, data: bytes) -> list[tuple[int, bytes]]:
        pieces = []
        at = 0
        while at < len(data):
            if self._left == 0:
                needed = _HEADER - len(self._header)
                self._header += data[at : at + needed]
                at += needed
                if len(self._header) < _HEADER:
                    break
                self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
                self._header = b""
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            pieces.append((self._stream, piece))
        return pieces

    def _wait_writable(self, deadline: float) -> None:
        reading = select.POLLIN if self._backlog_bytes < _BACKLOG else 0
        waiting = select.poll()
        waiting.register(self._socket, select.POLLOUT | reading)
        ready = waiting.poll(_milliseconds(deadline))
        if not ready or time.monotonic() >= deadline:
            raise TimeoutError("the box did not read its input before the deadline")
        if ready[0][1] & select.POLLIN:
            with contextlib.suppress(BlockingIOError):
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise ConnectionClosed("the box has ended")
                pieces = self._parse(data)
                self._backlog += pieces
                self._backlog_bytes += sum(len(piece) for _, piece in pieces)


def _milliseconds(deadline: float) -> int:
    left = deadline - time.monotonic()
    return int(min(left * 1000 + 1, 2**31 - 1)) if left > 0 else 0
