"""Process trees on Linux, seen from the host through ``/proc``: who began when, below whom, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from attrs import frozen

from mlgym_core.sandbox.owner import stat_fields

_PROC = Path("/proc")
_PRECISE_ROUNDS = 6
_ALL_ROUNDS = 60
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.002
_QUIET_LOOKS = 2  #: in a row that find nothing: one that was being born during a look is seen by the next


@frozen
class Process:
    """One living process.

    Attributes:
        parent: process id of its parent.
        started: clock ticks since boot.
    """

    parent: int
    started: int


def processes() -> dict[int, Process]:
    """All living processes by id, zombies left out."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of entries, several times a kill
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields and _lives(name, fields[0]):
                table[int(name)] = Process(int(fields[1]), int(fields[19]))
    return table


def _lives(pid: str, state: bytes) -> bool:
    """Whether anything of it runs: one whose first thread has ended looks like a zombie while others go on."""
    if state == b"X":
        return False
    if state != b"Z":
        return True
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208
    return False


def below(root: int, table: Mapping[int, Process]) -> set[int]:
    """Every descendant of ``root``."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    fresh = [root]
    while fresh:
        fresh = [child for pid in fresh for child in children.get(pid, ()) if child not in found]
        found.update(fresh)
    return found


def ticks_at(moment: float) -> float:
    """A :func:`time.monotonic` value as clock ticks since boot, the unit of :attr:`Process.started`."""
    age = time.monotonic() - moment
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - age) * os.sysconf("SC_CLK_TCK")


def inner_pid_child(parent: int, inner: int) -> int | None:
    """The child of ``parent`` whose id in its own pid namespace is ``inner``; ``None`` when it is gone."""
    for pid, process in processes().items():
        if process.parent == parent and _inner_pid(pid) == inner:
            return pid
    return None


def _inner_pid(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def victims(
    table: Mapping[int, Process], root: int, spare: Collection[int], shell: int | None, cutoff: float
) -> set[int]:
    """What an action has started below ``root``: the shell, and all that began at ``cutoff`` ticks or later.

    A process with an older ancestor (other than root, shell and those of ``spare``) belongs to an older background
    job and is left alone, however new it is.
    """
    neutral = {root, *spare} | ({shell} if shell is not None else set())
    chosen = set()
    for pid in below(root, table):
        if pid == shell:
            chosen.add(pid)
        elif pid not in neutral and table[pid].started >= int(cutoff):
            parent = table[pid].parent
            while parent not in neutral and parent in table and table[parent].started >= int(cutoff):
                parent = table[parent].parent
            if parent in neutral:
                chosen.add(pid)
    return chosen


def kill_action(root: int, spare: Collection[int], shell: int | None, since: float) -> None:
    """Kill what an action that began at ``since`` (:func:`time.monotonic`) has started below ``root``.

    Looks again until nothing is left. A tree that grows faster than it is killed costs the older background jobs
    their life too, and in the end the root its own.
    """
    cutoff = ticks_at(since) if since > float("-inf") else 0.0
    deadline = time.monotonic() + _PATIENCE_SECONDS
    killed: dict[int, Process] = {}
    rounds = quiet = 0
    while rounds < _PRECISE_ROUNDS and time.monotonic() < deadline:
        table = processes()
        found = victims(table, root, spare, shell, cutoff)
        # One whose parent died first may have been adopted elsewhere, and is dying there.
        dying = any(pid in table and table[pid].started == process.started for pid, process in killed.items())
        if not found and not dying:
            quiet += 1
            if quiet == _QUIET_LOOKS:
                return
            continue
        quiet = 0
        if found <= killed.keys():  # dying, not breeding: on a busy machine that takes a moment
            time.sleep(_PAUSE_SECONDS)
            continue
        kill(sorted(found, key=lambda pid: pid != shell))  # it must not go on when what it waits for is gone
        killed |= {pid: table[pid] for pid in found}
        rounds += 1
    kill_below(root, spare)


def kill_below(root: int, spare: Collection[int] = ()) -> None:
    """Kill every descendant of ``root`` but those of ``spare``, and ``root`` too when they keep coming back."""
    quiet = 0
    for _ in range(_ALL_ROUNDS):
        found = below(root, processes()) - set(spare)
        quiet = 0 if found else quiet + 1
        if quiet == _QUIET_LOOKS:
            return
        kill(found)
    kill([root])


def kill(pids: Iterable[int]) -> None:
    """SIGKILL each; those that are gone or out of reach are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def carrying(variable: str, value: str) -> set[int]:
    """Processes whose initial environment holds ``variable=value``, as far as this user may look."""
    wanted = f"{variable}={value}".encode()
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (_PROC / name / "environ").read_bytes().split(b"\0"):
                    found.add(int(name))
    return found - {os.getpid()}
