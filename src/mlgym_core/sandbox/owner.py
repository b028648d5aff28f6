"""The process that a box belongs to, told apart from any later one, on any machine or in any pid namespace."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

_PROC = Path("/proc")


def stat_fields(pid: int) -> list[bytes]:
    """Fields of ``/proc/<pid>/stat`` from the state on; empty when there is no such process."""
    try:
        raw = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return raw[raw.rfind(b")") + 2 :].split()  # the name may hold anything, parentheses and blanks included


@frozen
class Owner:
    """The process that a box belongs to, told apart from any later one with the same id.

    Attributes:
        machine: machine id and host name.
        boot: the kernel's boot id.
        pid_namespace: identity of the pid namespace that ``pid`` counts in.
        pid: process id.
        started: when the process began, in clock ticks since boot.
    """

    machine: str
    boot: str
    pid_namespace: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(*_here(), os.getpid(), _started(os.getpid()))

    def is_dead(self) -> bool:
        """True only when the owner is certainly gone; another machine or pid namespace cannot be judged from here."""
        machine, boot, pid_namespace = _here()
        if self.machine != machine:
            return False
        if self.boot != boot:
            return True
        return self.pid_namespace == pid_namespace and _started(self.pid) != self.started

    def to_dict(self) -> dict[str, str]:
        """As text, for a label or a file."""
        return {
            "machine": self.machine,
            "boot": self.boot,
            "pid_namespace": self.pid_namespace,
            "pid": str(self.pid),
            "started": str(self.started),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, str]) -> Owner:
        """Read what :meth:`to_dict` wrote; other keys are ignored.

        Raises:
            ValueError: a field is missing or not of its kind.
        """
        try:
            return cls(
                fields["machine"],
                fields["boot"],
                fields["pid_namespace"],
                int(fields["pid"]),
                int(fields["started"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an owner: {dict(fields)!r}") from error


def _started(pid: int) -> int:
    """Start of a living process in ticks, -1 when there is none."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else -1


@functools.lru_cache(maxsize=1)
def _machine() -> tuple[str, str]:
    def first_line(*paths: str) -> str:
        for path in paths:
            with contextlib.suppress(OSError):
                text = Path(path).read_text("ascii", "replace").strip()
                if text:
                    return text
        return "unknown"

    machine = first_line("/etc/machine-id", "/var/lib/dbus/machine-id")
    return f"{machine}/{socket.gethostname()}", first_line("/proc/sys/kernel/random/boot_id")


def _here() -> tuple[str, str, str]:
    try:
        namespace = str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        namespace = "unknown"
    return *_machine(), namespace
