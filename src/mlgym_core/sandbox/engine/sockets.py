"""Connections over an engine's attached socket, which multiplexes both streams into frames with eight-byte headers."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from mlgym_core.sandbox.base import Connection, ConnectionClosed
from mlgym_core.sandbox.streams import CHUNK, Backlog, milliseconds

_HEADER = 8


class SocketConnection(Connection):
    """A connection over an attach or exec socket without a terminal.

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
        self._backlog = Backlog()
        self._ended = False

    @override
    def send(self, data: bytes | memoryview, deadline: float) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait_writable(deadline)
            except OSError as error:
                raise ConnectionClosed("the box no longer reads its standard input") from error

    @override
    def receive(self, deadline: float) -> Sequence[tuple[int, bytes]]:
        if self._backlog.pieces:
            return self._backlog.take()
        while not self._ended:
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                if not self._poll.poll(milliseconds(deadline)):
                    raise TimeoutError("no output before the deadline") from None
                continue
            except OSError:
                data = b""
            self._ended = not data
            pieces = self._parse(data)
            if pieces:
                return pieces
        raise ConnectionClosed("the box has ended")

    @override
    def close(self) -> None:
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
        reading = 0 if self._backlog.full else select.POLLIN
        waiting = select.poll()
        waiting.register(self._socket, select.POLLOUT | reading)
        ready = waiting.poll(milliseconds(deadline))
        if not ready or time.monotonic() >= deadline:
            raise TimeoutError("the box did not read its input before the deadline")
        if ready[0][1] & select.POLLIN:
            with contextlib.suppress(BlockingIOError):
                data = self._socket.recv(CHUNK)
                if not data:
                    raise ConnectionClosed("the box has ended")
                self._backlog.add(self._parse(data))
