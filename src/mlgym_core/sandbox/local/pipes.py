"""Connections over pipes, and the one thread that starts every box of the local backend."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from typing_extensions import override

from mlgym_core.sandbox.base import STDERR, STDOUT, Connection, ConnectionClosed
from mlgym_core.sandbox.local.seccomp import leave_session_keyring
from mlgym_core.sandbox.streams import CHUNK, Backlog, milliseconds

_PIPE_BYTES = 256 * 1024
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class PipeConnection(Connection):
    """A connection over the three pipes of a child process.

    Takes ownership of the descriptors. While :meth:`send` waits, output is drained into a backlog of at most 64 MiB
    that :meth:`receive` returns first.

    Args:
        stdin: write end of the child's standard input.
        stdout, stderr: read ends of its output.
    """

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        self._stdin = stdin
        self._names = {stdout: STDOUT, stderr: STDERR}
        self._poll = select.poll()
        self._backlog = Backlog()
        for descriptor in (stdin, stdout, stderr):
            os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        for descriptor in (stdout, stderr):
            self._poll.register(descriptor, _READABLE)

    @override
    def send(self, data: bytes | memoryview, deadline: float) -> None:
        rest = memoryview(data).cast("B")
        while True:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                self._wait_writable(deadline)
                continue
            except OSError as error:  # EPIPE; EBADF after close()
                raise ConnectionClosed("the process no longer reads its standard input") from error
            if not rest:
                return

    @override
    def receive(self, deadline: float) -> Sequence[tuple[int, bytes]]:
        if self._backlog.pieces:
            return self._backlog.take()
        while self._names:
            ready = self._poll.poll(milliseconds(deadline))
            if not ready:
                raise TimeoutError("no output before the deadline")
            pieces = self._read(ready)
            if pieces:
                return pieces
        raise ConnectionClosed("both output streams have ended")

    def unread(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Give back what :meth:`receive` returned; it comes first next time."""
        self._backlog.put_back(pieces)

    @override
    def close(self) -> None:
        descriptors = [*self._names, self._stdin]
        for descriptor in self._names:
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(descriptor)
        self._names, self._stdin = {}, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def _read(self, ready: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
        pieces = []
        for descriptor, _ in ready:
            name = self._names.get(descriptor)
            if name is None:
                continue
            try:
                data = os.read(descriptor, CHUNK)
            except BlockingIOError:
                continue
            if data:
                pieces.append((name, data))
            else:
                self._poll.unregister(descriptor)
                del self._names[descriptor]
                os.close(descriptor)
        return pieces

    def _wait_writable(self, deadline: float) -> None:
        """Wait until the other end reads, draining its output meanwhile."""
        waiting = select.poll()
        waiting.register(self._stdin, select.POLLOUT)
        if not self._backlog.full:
            for descriptor in self._names:
                waiting.register(descriptor, _READABLE)
        ready = waiting.poll(milliseconds(deadline))
        if not ready or time.monotonic() >= deadline:
            raise TimeoutError("the process did not read its input before the deadline")
        self._backlog.add(self._read([event for event in ready if event[0] != self._stdin]))


def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, pass_fds: Sequence[int] = ()
) -> tuple[subprocess.Popen[bytes], PipeConnection]:
    """Start a child in a session of its own, from a thread that lives as long as this process.

    A parent-death signal follows the *thread* that started the child: a box opened from a worker thread would be
    killed when that thread ended.

    Raises:
        OSError: the program cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
            bufsize=0,
        )

    process = _spawner(os.getpid()).call(start)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ends = [os.dup(stream.fileno()) for stream in (process.stdin, process.stdout, process.stderr)]
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    process.stdin = process.stdout = process.stderr = None
    return process, PipeConnection(*ends)


_Start = Callable[[], "subprocess.Popen[bytes]"]


class _Spawner:
    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="mlgym-spawner", daemon=True).start()

    def call(self, start: _Start) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((start, future))
        return future.result()

    def _serve(self) -> None:
        leave_session_keyring()
        while True:
            start, future = self._requests.get()
            try:
                future.set_result(start())
            except BaseException as error:
                future.set_exception(error)
            del start, future


@functools.lru_cache(maxsize=1)
def _spawner(pid: int) -> _Spawner:  # noqa: ARG001 - a forked child has no threads but its own, so it gets a new one
    return _Spawner()
