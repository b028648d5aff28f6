from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import time

import pytest

from mlgym_core.sandbox.base import STDOUT
from mlgym_core.sandbox.local import seccomp
from mlgym_core.sandbox.local.pipes import spawn

ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}
READ = {"x86_64": 0, "aarch64": 63}
DENIED = {"x86_64": [248, 249, 250, 298, 321, 323, 425], "aarch64": [217, 218, 219, 241, 280, 282, 425]}


def verdict(program: bytes, audit: int, number: int) -> int:
    """What the kernel's interpreter makes of a call."""
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    data = struct.pack("=iI", number if number < 2**31 else number - 2**32, audit)
    at, loaded = 0, 0
    while True:
        code, true, false, value = lines[at]
        if code == 0x06:
            return value
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == 0x15:
            at += true if loaded == value else false
        elif code == 0x35:
            at += true if loaded >= value else false
        else:
            raise AssertionError(f"no such instruction: {code:#x}")
        at += 1


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_denied_calls_fail_and_all_others_pass(machine: str) -> None:
    program = seccomp.program(machine)
    found = [number for number in range(600) if verdict(program, AUDIT[machine], number) != ALLOW]
    assert found == DENIED[machine]
    assert {verdict(program, AUDIT[machine], number) for number in found} == {FAIL | errno.EPERM}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_other_architectures_are_killed(machine: str) -> None:
    for name, audit in AUDIT.items():
        expected = ALLOW if name == machine else KILL
        assert verdict(seccomp.program(machine), audit, READ[machine]) == expected


def test_the_x32_convention_does_not_exist() -> None:
    for number in (0x40000000, 0x40000000 + 250, 2**32 - 1):
        assert verdict(seccomp.program("x86_64"), AUDIT["x86_64"], number) == FAIL | errno.ENOSYS


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "machine", lambda: "riscv64")
    assert not seccomp.is_known()
    seccomp.leave_session_keyring()
    with pytest.raises(KeyError), seccomp.descriptor():
        pass


def test_the_descriptor_yields_the_filter_and_is_closed() -> None:
    if not seccomp.is_known():
        pytest.skip("no filter for this machine")
    with seccomp.descriptor() as calls:
        assert os.read(calls, 4096) == seccomp.program(seccomp.machine())
        assert os.read(calls, 1) == b""
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(calls)


def test_children_have_a_session_keyring_of_their_own() -> None:
    if not seccomp.is_known():
        pytest.skip("no numbers of system calls for this machine")
    look = "import ctypes; print(ctypes.CDLL(None).syscall({}, 0, ctypes.c_int(-3), 0))".format(
        {"x86_64": 250, "aarch64": 219}[seccomp.machine()]
    )
    mine = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, timeout=60).stdout
    if mine == b"-1\n":
        pytest.skip("this process may not use kernel keyrings")
    process, connection = spawn([sys.executable, "-c", look], env={})
    try:
        process.wait(60)
        (piece,) = connection.receive(time.monotonic() + 60)
    finally:
        connection.close()
    assert piece[0] == STDOUT
    assert int(piece[1]) > 0
    assert piece[1] != mine
