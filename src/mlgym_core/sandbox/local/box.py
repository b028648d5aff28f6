"""One box of the local backend: a namespace made by bubblewrap, or plain processes held together by a launcher."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import define

from mlgym_core.errors import InfrastructureError
from mlgym_core.inside import program
from mlgym_core.sandbox.base import STDERR, ConnectionClosed
from mlgym_core.sandbox.local import bubblewrap, processes, seccomp
from mlgym_core.sandbox.local.cgroups import Group
from mlgym_core.sandbox.local.pipes import PipeConnection, spawn

BOX_VARIABLE = "MLGYM_BOX"
_START_SECONDS = 20.0
_READY_BYTE = b"\x06"
_END_SECONDS = 10.0


@define(eq=False)
class Box:
    """A running box.

    Attributes:
        process: bubblewrap, or the launcher.
        connection: standard streams of the program inside.
        root: process id, on the host, below which everything of the box lives.
        namespace: whether the root is pid 1 of a namespace, so that its death is everybody's.
        name: value of the variable that marks the processes of a plain box.
        lifeline: descriptor whose closing ends the box.
        group: its control groups.
        watcher: process at the lifeline's other end, for a box of another user's processes.
    """

    process: subprocess.Popen[bytes]
    connection: PipeConnection
    root: int
    namespace: bool
    name: str
    lifeline: int
    group: Group
    watcher: subprocess.Popen[bytes] | None = None

    def kill_action(self, supervisor: int, shell: int, since: float) -> None:
        """Kill what an action has started; see :data:`~mlgym_core.sandbox.shell.life.KillAction`."""
        if self.process.poll() is not None:
            raise ProcessLookupError("the box is gone")
        if self.namespace:
            host_shell = processes.inner_pid_child(self.root, shell)
            processes.kill_action(self.root, (), host_shell, since)
        else:
            processes.kill_action(self.root, (supervisor,), shell, since)

    def kill(self) -> None:
        """End everything in the box and wait until it has ended; harmless when repeated."""
        if self.process.poll() is None:
            if self.namespace:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.root, signal.SIGKILL)
            self._cut_lifeline()
            try:
                self.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                processes.kill_below(self.process.pid)
                self.process.kill()
                self.process.wait(_END_SECONDS)
        self._cut_lifeline()
        self.connection.close()
        if not self.namespace:
            # The launcher is of the agent's own user: an agent that has killed it leaves orphans.
            processes.kill(processes.carrying(BOX_VARIABLE, self.name))
        processes.kill(self.group.members())

    def _cut_lifeline(self) -> None:
        if self.lifeline >= 0:
            if self.watcher is not None:
                with contextlib.suppress(OSError):
                    os.write(self.lifeline, b"over\n")
            os.close(self.lifeline)
            self.lifeline = -1
        if self.watcher is not None:
            self.watcher.wait(_END_SECONDS)

    def watch(self) -> None:
        """Have the box killed when this process dies; the kernel's signal does not reach another user's processes."""
        reading, self.lifeline = os.pipe()
        try:
            self.watcher = subprocess.Popen(
                ["/bin/sh", "-c", program(__package__, "watch.sh")],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
            os.write(self.lifeline, b"%d\n" % self.root)
        except OSError as error:
            raise InfrastructureError(f"the box could not be watched: {error}") from error
        finally:
            os.close(reading)


def open_isolated(
    layout: bubblewrap.Layout, argv: Sequence[str], env: Mapping[str, str], name: str, group: Group
) -> Box:
    """Start ``argv`` as pid 1 of a namespace.

    Raises:
        InfrastructureError: bubblewrap could not make the box; the message is its own.
    """
    ready = ["/bin/sh", "-c", program(__package__, "ready.sh"), "sh", *argv]
    reading, writing = os.pipe()
    try:
        try:
            with seccomp.descriptor() as calls:
                command = group.join(bubblewrap.command(layout, ready, calls, writing))
                process, connection = spawn(command, env=env, pass_fds=(calls, writing))
        except OSError as error:
            raise InfrastructureError(f"the box could not be started: {error}") from error
        finally:
            os.close(writing)
        root = _child_pid(reading)
    finally:
        os.close(reading)
    box = Box(process, connection, root, root > 0, name, -1, group)
    try:
        _await_ready(connection)
        if os.geteuid() == 0:
            box.watch()
    except InfrastructureError:
        box.kill()
        raise
    return box


def open_plain(argv: Sequence[str], env: Mapping[str, str], cwd: Path, name: str, group: Group) -> Box:
    """Start ``argv`` below a launcher that adopts its orphans and ends them all with this process.

    Raises:
        InfrastructureError: it could not be started.
    """
    source = program(__package__, "launcher.py")
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-I", "-S", "-c", source, str(reading), *argv]
        process, connection = spawn(group.join(command), env={**env, BOX_VARIABLE: name}, cwd=cwd, pass_fds=(reading,))
    except OSError as error:
        os.close(writing)
        raise InfrastructureError(f"the box could not be started: {error}") from error
    finally:
        os.close(reading)
    return Box(process, connection, process.pid, False, name, writing, group)


def _child_pid(descriptor: int) -> int:
    """What bubblewrap says on its information descriptor; 0 when it ends without a word."""
    deadline = time.monotonic() + _START_SECONDS
    text = b""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(descriptor, 4096)
        text += data
        with contextlib.suppress(ValueError):
            return int(json.loads(text)["child-pid"])
        if not data:
            break
    return 0


def _await_ready(connection: PipeConnection) -> None:
    """Wait until the box is complete and its program about to start; what came early is given back."""
    deadline = time.monotonic() + _START_SECONDS
    text = b""
    early: list[tuple[int, bytes]] = []
    try:
        while _READY_BYTE not in text:
            for stream, data in connection.receive(deadline):
                if stream == STDERR:
                    text += data
                else:
                    early.append((stream, data))
    except (ConnectionClosed, TimeoutError) as error:
        reason = text.decode("utf-8", "replace").strip()[-500:] or "no reason given"
        raise InfrastructureError(f"bubblewrap could not make the box: {reason}") from error
    rest = text.partition(_READY_BYTE)[2]
    connection.unread([*early, (STDERR, rest)] if rest else early)
