from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgym_core.authoring.testing.backends import BackendContract
from mlgym_core.errors import BackendUnavailableError, InfrastructureError, SandboxLostError, UsageError
from mlgym_core.sandbox.base import ActionStatus, BoxSpec, Mount
from mlgym_core.sandbox.local import bubblewrap, cgroups, seccomp
from mlgym_core.sandbox.local.backend import LocalBackend, LocalSandbox
from mlgym_core.sandbox.local.environments import base_image
from mlgym_core.task.task import Capability, Resources

SETUP = "from mlgym_core.sandbox.local.backend import LocalBackend; backend = LocalBackend(isolate={})"
needs_bubblewrap = pytest.mark.skipif(
    not bubblewrap.probe().works, reason=f"no bubblewrap boxes here: {bubblewrap.probe().reason}"
)


@pytest.mark.isolation
@needs_bubblewrap
class TestLocalIsolated(BackendContract):
    runner_setup = SETUP.format(True)

    @pytest.fixture
    def backend(self, private_scratch: Path) -> LocalBackend:
        return LocalBackend(isolate=True)

    def test_a_lost_box_is_opened_again_on_the_same_workspace(self, sandbox: LocalSandbox) -> None:
        sandbox.run("echo kept > file; export A=1", 30)
        lose(sandbox)
        result = sandbox.run("echo unseen", 30)
        assert result.status is ActionStatus.SHELL_ENDED
        assert any("lost" in note for note in result.notes)
        assert sandbox.run("cat file; echo $A; pwd", 30).stdout.head == b"kept\n\n/workspace\n"

    def test_a_lost_box_with_a_trap_in_its_workspace_is_not(
        self, backend: LocalBackend, private_scratch: Path, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o755)
        spec = BoxSpec("trap", "agent", base_image(), Resources(), mounts=[Mount(tmp_path, "data/train")])
        sandbox = backend.open_sandbox(spec)
        try:
            sandbox.run("mv data away && ln -s /oldroot/etc data", 30)
            lose(sandbox)
            with pytest.raises(SandboxLostError, match="tampered"):
                sandbox.run("echo", 30)
        finally:
            sandbox.close()

    def test_no_terminal_and_no_leaked_descriptors(self, sandbox: LocalSandbox) -> None:
        assert sandbox.run("echo > /dev/tty", 30).exit_code != 0
        # 0 to 2 are the action's own, and ls opens one to list them.
        assert sandbox.run("ls /proc/self/fd", 30).stdout.head.split() == [b"0", b"1", b"2", b"3"]

    def test_full_network_reaches_the_host(self, backend: LocalBackend, open_sandbox) -> None:
        sandbox = open_sandbox(network="full")
        with socket.create_server(("127.0.0.1", 0)) as server:
            code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 30)"
            assert sandbox.run(f'python -c "{code}"', 60).exit_code == 0

    def test_mounts_closed_to_others_are_refused(self, open_sandbox, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("without root a box has the same user")
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        with pytest.raises(InfrastructureError, match="chmod"):
            open_sandbox(mounts=[Mount(closed, "data")])

    def test_fork_bomb_is_survived(self, backend: LocalBackend, open_sandbox, require) -> None:
        require(Capability.PIDS)
        sandbox = open_sandbox(resources=Resources(memory_mb=512, pids=100))
        sandbox.run("export A=1", 30)
        result = sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 600", 1)
        assert result.status is ActionStatus.TIMED_OUT
        assert sandbox.run("echo $A", 30).stdout.head == b"1\n"


class TestLocalPlain(BackendContract):
    runner_setup = SETUP.format(False)

    @pytest.fixture
    def backend(self, private_scratch: Path) -> LocalBackend:
        return LocalBackend(isolate=False)

    def test_it_never_claims_to_isolate(self, backend: LocalBackend) -> None:
        assert not backend.capabilities() & {Capability.ISOLATION, Capability.NETWORK_NONE}
        assert "not isolated" in backend.describe()

    def test_orphans_of_a_killed_launcher_end_with_the_box(self, sandbox: LocalSandbox, backend: LocalBackend) -> None:
        sandbox.run("sleep 64209731 & :", 30)
        assert sandbox._box is not None
        os.kill(sandbox._box.process.pid, signal.SIGKILL)
        sandbox.close()
        assert not self.alive("64209731")


def lose(sandbox: LocalSandbox) -> None:
    assert sandbox._box is not None
    os.kill(sandbox._box.root, signal.SIGKILL)
    sandbox._box.process.wait(30)


def test_insisting_on_isolation_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "probe", lambda: bubblewrap.Probe("no luck today"))
    with pytest.raises(BackendUnavailableError, match="no luck today"):
        LocalBackend(isolate=True)
    assert not LocalBackend().isolates
    assert "no luck today" in LocalBackend().describe()


def test_closed_sandbox_is_lost(private_scratch: Path) -> None:
    sandbox = LocalBackend().open_sandbox(BoxSpec("closed", "agent", base_image(), Resources()))
    sandbox.close()
    with pytest.raises(SandboxLostError):
        sandbox.run("echo", 30)


def test_peers_take_no_files(private_scratch: Path) -> None:
    spec = BoxSpec("peer", "grader", base_image(), Resources(), files={"file": Path(__file__)})
    with pytest.raises(UsageError, match="standard input"):
        LocalBackend().open_peer(spec, "pass")


@needs_bubblewrap
@pytest.mark.isolation
def test_a_box_that_cannot_be_made_says_why(private_scratch: Path, tmp_path: Path) -> None:
    backend = LocalBackend(isolate=True)
    (tmp_path / "missing").mkdir(mode=0o755)
    mounts = [Mount(tmp_path / "missing", "data"), Mount(tmp_path / "missing", "../proc/nowhere")]
    spec = BoxSpec("broken", "grader", base_image(), Resources(), mounts=mounts)
    with pytest.raises(InfrastructureError, match=r"bubblewrap could not make the box: .*nowhere"):
        backend.open_peer(spec, "pass")
    assert list((private_scratch / f"mlgym-{os.geteuid()}").iterdir()) == []


class TestProbe:
    @pytest.fixture(autouse=True)
    def fresh(self) -> Iterator[None]:
        bubblewrap.probe.cache_clear()
        yield
        bubblewrap.probe.cache_clear()

    def test_no_filter_for_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seccomp, "machine", lambda: "riscv64")
        assert "riscv64" in bubblewrap.probe().reason
        backend = LocalBackend()
        assert not backend.capabilities() & {Capability.ISOLATION, Capability.NETWORK_NONE}
        assert "riscv64" in backend.describe()

    def test_no_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        assert "not installed" in bubblewrap.probe().reason

    @pytest.mark.parametrize(
        ("script", "reason"),
        [
            ("echo 'Creating new namespace failed' >&2; exit 1", "Creating new namespace failed"),
            ("echo 0; echo 0; echo 1", "keeps privileges"),
            (f"echo {bubblewrap.uid()}; echo 00000000a80425fb; echo 1; echo 2", "keeps privileges"),
            (f"echo {bubblewrap.uid()}; echo 0000000000000000; echo 1; echo 0", "keeps privileges"),
            (f"echo {bubblewrap.uid()}; echo 0000000000000000; echo 0", "keeps privileges"),
            ("echo nonsense", "keeps privileges"),
        ],
    )
    def test_what_it_sees_inside_decides(
        self, script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.pretend(script, tmp_path, monkeypatch)
        assert reason in bubblewrap.probe().reason

    def test_a_good_box(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(f"echo {bubblewrap.uid()}; echo 0000000000000000; echo 1; echo 2", tmp_path, monkeypatch)
        assert bubblewrap.probe().works

    def pretend(self, script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = folder / "bwrap"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def test_root_without_setpriv(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = shutil.which
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(
            shutil,
            "which",
            lambda name, **options: None if name == "setpriv" else real(name, **options) or "/bin/bwrap",
        )
        assert "setpriv" in bubblewrap.probe().reason


@needs_bubblewrap
@pytest.mark.isolation
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; others are tested by the contract")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs an interpreter that every user may read")
def test_box_of_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    user = 61234
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    script = (
        "id -u; grep CapEff /proc/self/status; touch /usr/x /x /dev/x 2>/dev/null; echo > /tmp/x && cat /etc/shadow"
    )
    with tempfile.TemporaryDirectory() as folder, seccomp.descriptor() as calls:
        Path(folder).chmod(0o755)
        bubblewrap.write_etc(Path(folder))
        layout = bubblewrap.Layout(etc=Path(folder), workdir="/box")
        argv = bubblewrap.command(layout, ["/bin/sh", "-c", script], calls)
        dropped = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        done = subprocess.run(
            [*dropped, *argv], check=False, cwd="/", capture_output=True, text=True, timeout=60, pass_fds=[calls]
        )
    assert done.stdout == f"{user}\nCapEff:\t0000000000000000\n"
    assert done.returncode != 0
    assert "/etc/shadow" in done.stderr


@needs_bubblewrap
@pytest.mark.isolation
def test_programs_of_another_architecture_end(private_scratch: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("needs a machine that runs two architectures")
    # keyctl by the i386 convention, whose numbers the filter does not compare.
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(b'\\xb8\\x20\\x01\\x00\\x00\\xcd\\x80\\xc3')\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
    )
    sandbox = LocalBackend(isolate=True).open_sandbox(BoxSpec("foreign", "agent", base_image(), Resources()))
    try:
        sandbox.write_file("foreign.py", code.encode())
        assert sandbox.run("python3 foreign.py", 60).exit_code == 128 + signal.SIGSYS
        x32 = "from ctypes import *; print(CDLL(None, use_errno=True).syscall(0x400000FA, 1, 0), get_errno())"
        assert sandbox.run(f'python3 -c "{x32}"', 60).stdout.head == f"-1 {errno.ENOSYS}\n".encode()
    finally:
        sandbox.close()


@pytest.mark.parametrize("isolate", [pytest.param(True, marks=[needs_bubblewrap, pytest.mark.isolation]), False])
@pytest.mark.parametrize("kind", ["sandbox", "peer"])
@pytest.mark.parametrize("step", ["mlgym_core.sandbox.local.box.Box.kill", "mlgym_core.sandbox.local.scratch.remove"])
def test_an_interrupted_close_can_be_repeated(
    private_scratch: Path, monkeypatch: pytest.MonkeyPatch, isolate: bool, kind: str, step: str
) -> None:
    backend = LocalBackend(isolate=isolate)
    if kind == "sandbox":
        box = backend.open_sandbox(BoxSpec("close", "agent", base_image(), Resources()))
    else:
        box = backend.open_peer(BoxSpec("close", "grader", base_image(), Resources()), "import time; time.sleep(600)")
    assert box._box is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            box.close()
    box.close()
    assert box._box.process.poll() is not None
    assert list((private_scratch / f"mlgym-{os.geteuid()}").iterdir()) == []
    box.close()


class TestMasks:
    def test_packages_and_sources_are_masked_and_the_standard_library_is_not(self) -> None:
        masked = bubblewrap.package_folders([Path("/usr"), Path(sys.base_prefix)])
        library = Path(os.__file__).parent
        assert all(not library.is_relative_to(path) for path in masked)
        for path in (library / "site-packages", Path("/usr/lib/python3/dist-packages"), Path("/usr/src")):
            assert path in masked or not path.is_dir()

    def test_whatever_is_importable_is_masked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = tmp_path / "project" / "src"
        source.mkdir(parents=True)
        monkeypatch.syspath_prepend(str(source))
        assert bubblewrap.package_folders([tmp_path]) == [source]


class TestGroups:
    def test_nothing_is_claimed_without_a_writable_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroups, "_can_make", lambda parent, limits: False)
        cgroups.parents.cache_clear()
        try:
            assert cgroups.available() == frozenset()
            group = cgroups.Group.create("none", Resources())
            assert group.join(["true"]) == ["true"]
            group.close()
        finally:
            cgroups.parents.cache_clear()

    def test_second_version(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Our own group has processes, so its children cannot be limited; the one above is delegated to us.
        own = tmp_path / "user" / "shell"
        own.mkdir(parents=True)
        (own / "cgroup.subtree_control").write_text("")
        (own.parent / "cgroup.subtree_control").write_text("memory pids\n")
        monkeypatch.setattr(cgroups, "_mounts", lambda: (tmp_path, {}))
        monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/user/shell"})
        monkeypatch.setattr(cgroups, "_can_make", lambda parent, limits: True)
        cgroups.parents.cache_clear()
        try:
            assert cgroups.parents() == {"memory": own.parent, "pids": own.parent}
            assert cgroups.available() == {Capability.MEMORY, Capability.PIDS}
        finally:
            cgroups.parents.cache_clear()

    def test_files_of_both_versions(self, tmp_path: Path) -> None:
        (tmp_path / "memory.max").touch()
        (tmp_path / "cpu.max").touch()
        (tmp_path / "pids.max").touch()
        for controller in ("memory", "cpu", "pids"):
            cgroups._apply(tmp_path, cgroups._limits(controller, 1.5, 1 << 20, 7))
        assert (tmp_path / "memory.max").read_text() == "1048576"
        assert (tmp_path / "cpu.max").read_text() == "150000 100000"
        assert (tmp_path / "pids.max").read_text() == "7"
        with pytest.raises(OSError, match="none of"):
            cgroups._apply(tmp_path / "elsewhere", cgroups._limits("cpu", 1.0, 1, 1))
