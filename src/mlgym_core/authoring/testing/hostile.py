"""The part of the backend contract that is about agents which work against their box. Needs pytest."""

# ruff: noqa: D102 - the names of the tests say what they promise

from __future__ import annotations

import errno
import json
import os
import textwrap
from collections.abc import Callable

import pytest

from mlgym_core.authoring.testing.boxes import BoxFixtures, OpenPeer, OpenSandbox, ask, listed
from mlgym_core.sandbox.base import ActionStatus, Sandbox
from mlgym_core.task.task import Capability, Resources

_KEY_CALLS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}

_TRY_KEYS = textwrap.dedent(
    """
    import ctypes, json, sys
    add, request, control = {numbers}
    kernel = ctypes.CDLL(None, use_errno=True)

    def attempt(*arguments):
        arguments = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
        return [kernel.syscall(*arguments), ctypes.get_errno()]

    print(json.dumps([
        attempt(add, b"user", b"mlgym-contract", b"secret", 6, -3),
        attempt(add, b"user", b"mlgym-contract", b"secret", 6, -4),
        attempt(request, b"user", b"mlgym-contract", None, 0),
        attempt(control, 10, -4, b"user", b"mlgym-contract", 0),
        attempt(control, 1, None),
    ]))
    """
)


class HostileContract(BoxFixtures):
    """What a box must bear."""

    # Kernel keyrings: they belong to a user, whatever the namespace.

    @pytest.fixture
    def try_keys(self) -> str:
        """A program that prints result and error number of each attempt at a keyring."""
        numbers = _KEY_CALLS.get(os.uname().machine)
        if numbers is None:
            pytest.skip(f"numbers of system calls are not known here for {os.uname().machine}")
        return _TRY_KEYS.format(numbers=numbers)

    def test_kernel_keyrings_join_no_boxes(
        self, open_sandbox: OpenSandbox, require: Callable[[Capability], None], try_keys: str
    ) -> None:
        require(Capability.ISOLATION)
        for sandbox in (open_sandbox(), open_sandbox()):
            sandbox.write_file("keys.py", try_keys.encode())
            attempts = json.loads(sandbox.run("python3 keys.py", 60).stdout.head)
            assert all(result == -1 and code in (errno.EPERM, errno.ENOSYS) for result, code in attempts), attempts

    def test_no_keys_are_listed(self, sandbox: Sandbox, require: Callable[[Capability], None]) -> None:
        require(Capability.ISOLATION)
        assert sandbox.run("cat /proc/keys", 30).stdout.head == b""

    # Memory.

    def test_full_folders_in_memory_end_nothing(
        self, open_sandbox: OpenSandbox, require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        sandbox = open_sandbox(resources=Resources(memory_mb=256))
        sandbox.run("export A=1; mkdir d; cd d", 30)
        fill = 'for d in /dev/shm /tmp "$HOME"; do head -c 400M /dev/zero >$d/fill; done'
        result = sandbox.run(fill, 100)
        assert (result.status, result.exit_code) == (ActionStatus.COMPLETED, 1)
        written = sandbox.run('cat /dev/shm/fill /tmp/fill "$HOME/fill" | wc -c', 100)
        assert 0 < int(written.stdout.head) <= 128 << 20
        sandbox.run("exit", 60)
        assert sandbox.run("echo alive", 60).stdout.head == b"alive\n"

    def test_folders_in_memory_of_a_peer_leave_half_of_it(
        self, open_peer: OpenPeer, require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        assert 0 < json.loads(ask(open_peer(), b"space\n")) <= 256 << 20

    # The shell's own files and words.

    @pytest.mark.parametrize("make", ["mkfifo", "mkdir", "ln -s /dev/zero", "ln -s /dev/full"])
    def test_state_files_of_another_kind_do_no_harm(self, sandbox: Sandbox, make: str) -> None:
        sandbox.run("export A=1", 30)
        spoil = f'for f in 0 1 x b c; do rm -rf "$__m_D/$f"; {make} "$__m_D/$f"; done'
        assert sandbox.run(spoil, 30).status is ActionStatus.COMPLETED
        for command in ("echo alive", f"echo alive #{'x' * 20_000}"):
            result = sandbox.run(command, 10)
            assert (result.status, result.stdout.head) == (ActionStatus.COMPLETED, b"alive\n")
        sandbox.run(f"{spoil}; exit", 10)
        result = sandbox.run("echo alive", 10)
        assert (result.status, result.stdout.head) == (ActionStatus.COMPLETED, b"alive\n")

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("enable -n eval", "eval"),
            ("eval() { echo no; }", "eval"),
            ("enable -n builtin", "ended the shell"),
            ("builtin() { echo no; }", "ended the shell"),
            ("enable -n printf declare local", ""),
            ("shopt -s expand_aliases; alias eval='echo no'", ""),
            ("function [ { false; }; function . { false; }; mkdir() { false; }; unset() { false; }; exit", ""),
        ],
    )
    def test_actions_work_after_words_of_the_shell_were_replaced(
        self, sandbox: Sandbox, command: str, told: str
    ) -> None:
        sandbox.run("export A=1", 30)
        result = sandbox.run(command, 5)
        assert any(told in note for note in result.notes) or not told
        assert sandbox.run("echo $A", 30).stdout.head == b"1\n"

    # Taking the workspace out.

    def test_a_shut_workspace_is_taken_out(self, sandbox: Sandbox) -> None:
        sandbox.run("echo kept > file; chmod 000 .", 30)
        assert listed(sandbox.export(["file"]))["file"][1] == b"kept\n"

    def test_a_removed_workspace_is_empty(self, sandbox: Sandbox) -> None:
        sandbox.run('echo > file; rm -rf "$PWD"', 30)
        assert "file" not in listed(sandbox.export(["file", "."]))
