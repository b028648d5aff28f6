"""Holds a plain box together: adopts every orphan of the command, and kills them all when its lifeline ends.

Run as ``python -I -S -c <this> <lifeline descriptor> <command> ...``.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_SET_CHILD_SUBREAPER = 36


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as stat:
                parents[int(name)] = int(stat.read().rsplit(b")", 1)[1].split()[1])
    found: set[int] = set()
    fresh = {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return list(found)


def _reap(main: int) -> bool:
    """Collect dead children; true while the command itself lives."""
    alive = True
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return alive
        alive = alive and pid != main


def _end(main: int) -> None:
    while True:
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap(main)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        time.sleep(0.001)


def _main() -> None:
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    main = os.fork()
    if main == 0:
        os.close(lifeline)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(command[0], command)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    waiting = select.poll()
    waiting.register(lifeline, select.POLLIN)
    waiting.register(wake, select.POLLIN)
    alive = True
    while alive:
        ready = [descriptor for descriptor, _ in waiting.poll()]
        if wake in ready:
            os.read(wake, 4096)
        alive = _reap(main) and lifeline not in ready
    _end(main)


_main()
