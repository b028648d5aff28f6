from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest

from mlgym_core.sandbox.base import STDERR, STDOUT, ConnectionClosed
from mlgym_core.sandbox.local.pipes import PipeConnection, spawn

ENV = {"PATH": os.environ["PATH"]}


class Ends:
    """A connection and the child's ends of its pipes."""

    def __init__(self) -> None:
        self.input, stdin = os.pipe()
        stdout, self.output = os.pipe()
        stderr, self.errors = os.pipe()
        self.connection = PipeConnection(stdin, stdout, stderr)

    def close(self) -> None:
        self.connection.close()
        for descriptor in (self.input, self.output, self.errors):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = Ends()
    yield pair
    pair.close()


def soon(seconds: float = 30.0) -> float:
    return time.monotonic() + seconds


def test_pieces_name_their_stream(ends: Ends) -> None:
    os.write(ends.output, b"out")
    os.write(ends.errors, b"err")
    assert sorted(ends.connection.receive(soon())) == [(STDOUT, b"out"), (STDERR, b"err")]


def test_nothing_before_the_deadline(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.connection.receive(soon(0.01))
    with pytest.raises(TimeoutError):
        ends.connection.receive(soon(-1))


def test_what_is_there_is_returned_after_the_deadline_too(ends: Ends) -> None:
    os.write(ends.output, b"x")
    assert ends.connection.receive(soon(-1)) == [(STDOUT, b"x")]


def test_one_stream_may_end_before_the_other(ends: Ends) -> None:
    os.close(ends.output)
    os.write(ends.errors, b"still here")
    assert ends.connection.receive(soon()) == [(STDERR, b"still here")]
    os.close(ends.errors)
    with pytest.raises(ConnectionClosed):
        ends.connection.receive(soon())


def test_sending_to_nobody(ends: Ends) -> None:
    os.close(ends.input)
    with pytest.raises(ConnectionClosed):
        ends.connection.send(b"x", soon())


def test_sending_gives_up_at_the_deadline(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends.connection.send(bytes(1 << 22), soon(0.05))


def test_output_is_drained_while_sending(ends: Ends) -> None:
    size = 1 << 22

    def child() -> None:
        sent = 0
        while sent < size:  # writes all of its output before it reads anything
            sent += os.write(ends.output, bytes(min(1 << 16, size - sent)))
        taken = 0
        while taken < size:
            taken += len(os.read(ends.input, 1 << 16))

    thread = threading.Thread(target=child)
    thread.start()
    ends.connection.send(bytes(size), soon())
    thread.join()
    received = 0
    while received < size:
        received += sum(len(data) for _, data in ends.connection.receive(soon()))
    assert received == size


def test_closing_twice_and_using_afterwards(ends: Ends) -> None:
    ends.connection.close()
    ends.connection.close()
    with pytest.raises(ConnectionClosed):
        ends.connection.receive(soon())
    with pytest.raises(ConnectionClosed):
        ends.connection.send(b"x", soon())


def test_an_endless_deadline_is_accepted(ends: Ends) -> None:
    os.write(ends.output, b"x")
    assert ends.connection.receive(float("inf")) == [(STDOUT, b"x")]


def test_child_outlives_the_thread_that_asked_for_it() -> None:
    children = []
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); print('up', flush=True); "
        "sys.stdin.read(); sys.exit(5)"
    )
    thread = threading.Thread(target=lambda: children.append(spawn(["python3", "-c", code], env=ENV)))
    thread.start()
    thread.join()
    process, connection = children[0]
    assert connection.receive(soon()) == [(STDOUT, b"up\n")]
    connection.close()
    assert process.wait(30) == 5  # it was not killed, but ended at the end of its input


def test_program_that_does_not_exist() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["/nonexistent/program"], env=ENV)
