"""The system calls that a local box has no business with, as a filter for the kernel (``bwrap --seccomp``).

Keyrings belong to a user, not to a namespace: every box's agent has the same user id on the host, so a key that one
box leaves can be read in the next. The other calls are the kernel's least guarded doors.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

from attrs import frozen

# Classic BPF, <linux/bpf_common.h>; a filter's input is struct seccomp_data: call number, architecture, ...
_LOAD_WORD = 0x20
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_AT_LEAST = 0x35
_RETURN = 0x06
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4

# <linux/seccomp.h>
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_FAIL = 0x00050000

_X32_BIT = 0x40000000
_JOIN_SESSION_KEYRING = 1


@frozen
class _Abi:
    """Numbers of one architecture's system calls.

    Attributes:
        audit: the kernel's name for it, ``AUDIT_ARCH_*``.
        foreign_from: first number of another convention within the same architecture, 0 for none.
        keyctl: number of that call.
        denied: numbers of all calls that fail.
    """

    audit: int
    foreign_from: int
    keyctl: int
    denied: tuple[int, ...]


# add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, io_uring_setup
_ABIS = {
    "x86_64": _Abi(0xC000003E, _X32_BIT, 250, (248, 249, 250, 321, 298, 323, 425)),
    "aarch64": _Abi(0xC00000B7, 0, 219, (217, 218, 219, 280, 241, 282, 425)),
}


def machine() -> str:
    """The architecture that this machine's programs are of."""
    return platform.machine()


def is_known() -> bool:
    """Whether there is a filter for this machine."""
    return machine() in _ABIS


def program(architecture: str) -> bytes:
    """The filter, an array of ``struct sock_filter``.

    Denied calls fail with EPERM. A program of another architecture (i386 on x86_64) ends at its first call, and a call
    by another convention (x32) fails with ENOSYS, because the same numbers mean other calls there.

    Raises:
        KeyError: there is none for the architecture.
    """
    abi = _ABIS[architecture]
    lines = [
        (_LOAD_WORD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, abi.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD_WORD, 0, 0, _NUMBER_AT),
    ]
    if abi.foreign_from:
        lines += [(_JUMP_IF_AT_LEAST, 0, 1, abi.foreign_from), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
    # A jump counts the lines it skips: over the remaining comparisons and the line that allows.
    lines += [(_JUMP_IF_EQUAL, left, 0, number) for left, number in zip(_down(abi.denied), abi.denied, strict=True)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _FAIL | errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _down(numbers: tuple[int, ...]) -> range:
    return range(len(numbers), 0, -1)


@contextlib.contextmanager
def descriptor() -> Iterator[int]:
    """This machine's filter, ready to be read once from the yielded descriptor."""
    reading, writing = os.pipe()
    try:
        os.write(writing, program(machine()))
    finally:
        os.close(writing)
    try:
        yield reading
    finally:
        os.close(reading)


def leave_session_keyring() -> None:
    """Give the calling thread, and what it starts from now on, a session keyring of its own, empty and nameless.

    Harmless where the kernel has none or refuses.
    """
    if is_known():
        keyctl = ctypes.c_long(_ABIS[machine()].keyctl)
        ctypes.CDLL(None).syscall(keyctl, ctypes.c_int(_JOIN_SESSION_KEYRING), None)
