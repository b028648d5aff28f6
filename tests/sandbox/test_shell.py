from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mlgym_core.authoring.testing.boxes import eventually
from mlgym_core.errors import SandboxLostError
from mlgym_core.sandbox.base import STDERR, STDOUT, ActionStatus, Connection
from mlgym_core.sandbox.local import processes
from mlgym_core.sandbox.local.pipes import spawn
from mlgym_core.sandbox.shell.environment import base_environment
from mlgym_core.sandbox.shell.life import supervisor_argv
from mlgym_core.sandbox.shell.shell import Shell

POSIX_TOOLS = ("sh", "setsid", "env", "mkdir", "head", "cat", "base64", "sha256sum", "sleep", "tr", "rm")


class Host:
    """Runs supervisors as plain children; remembers them and what it was asked to kill."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.path = path
        self.children: list[subprocess.Popen[bytes]] = []
        self.kills: list[float] = []

    def connect(self) -> Connection:
        child, connection = spawn(supervisor_argv(), env={"PATH": self.path}, cwd=self.folder)
        self.children.append(child)
        return connection

    def kill(self, supervisor: int, shell: int, since: float) -> None:
        self.kills.append(since)
        processes.kill_action(supervisor, (), shell, since)

    def shell(self, **changes: object) -> Shell:
        arguments = {
            "env": base_environment(str(self.folder), self.path),
            "workdir": str(self.folder),
            "state_dir": str(self.folder / "state"),
        }
        return Shell(self.connect, self.kill, **{**arguments, **changes})  # type: ignore[arg-type]


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(path: str = os.environ["PATH"]) -> Host:
        hosts.append(Host(tmp_path, path))
        return hosts[-1]

    yield make
    for host in hosts:
        for child in host.children:
            processes.kill_below(child.pid)
            child.kill()
            child.wait()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


@pytest.fixture(params=["posix", "busybox"])
def plain_host(request: pytest.FixtureRequest, make_host: Callable[..., Host], tmp_path: Path) -> Host:
    """A host without bash: whatever ``sh`` is here, or BusyBox for everything."""
    tools = tmp_path / "tools"
    tools.mkdir()
    busybox = shutil.which("busybox")
    if request.param == "busybox" and busybox is None:
        pytest.skip("busybox is not installed")
    for name in POSIX_TOOLS:
        target = busybox if request.param == "busybox" else shutil.which(name)
        assert target, name
        (tools / name).symlink_to(target)
    return make_host(str(tools))


def test_plain_shell_keeps_its_promises(plain_host: Host) -> None:
    shell = plain_host.shell()
    assert shell.run("echo out; echo err >&2; (exit 7)", 30).exit_code == 7
    shell.run('mkdir d; cd d; export A="x\'y"; B=plain', 30)
    assert shell.run("echo $A$B; cat; echo $?", 30).stdout.head == b"x'yplain\n0\n"
    ended = shell.run("exit 3", 30)
    assert (ended.status, ended.exit_code) == (ActionStatus.SHELL_ENDED, 3)
    assert not any("functions" in note for note in ended.notes)
    assert shell.run("pwd; echo $A$B", 30).stdout.head == f"{plain_host.folder}/d\nx'y\n".encode()
    assert shell.run("echo 'abc", 30).status in (ActionStatus.SHELL_ENDED, ActionStatus.COMPLETED)
    assert shell.run("echo before; sleep 600", 0.3).status is ActionStatus.TIMED_OUT
    assert shell.run("pwd; echo $A", 30).stdout.head == f"{plain_host.folder}/d\nx'y\n".encode()
    assert shell.run(f"x='{'e' * 100_000}'; echo ${{#x}}", 30).stdout.head == b"100000\n"


def test_plain_shell_tells_directory_and_state(plain_host: Host) -> None:
    shell = plain_host.shell()
    assert shell.run("echo '{1}' > $MLGYM_TOOLS_STATE; cd /", 30).state == "{1}"
    assert shell.run("true", 30).directory == "/"
    for command, state in (
        ("printf 'two\nlines' > $MLGYM_TOOLS_STATE", "two"),
        ("exit 1", "two"),
        ("printf 'a\036' > $MLGYM_TOOLS_STATE", ""),
        ("yes | head -c 3000000 | tr -d '\n' > $MLGYM_TOOLS_STATE", ""),
        ("exit 1", ""),
        ("echo '{2}' > $MLGYM_TOOLS_STATE; exit", "{2}"),
        ("rm $MLGYM_TOOLS_STATE; mkdir $MLGYM_TOOLS_STATE; exit", ""),
    ):
        result = shell.run(command, 30)
        assert (result.directory, result.state) == ("/", state), command
    odd = shell.run(f"mkdir {plain_host.folder}/\"$(printf 'x\\036y')\" && cd {plain_host.folder}/x*", 30)
    assert (odd.exit_code, odd.directory) == (0, "/")


def test_plain_shell_moves_files(plain_host: Host) -> None:
    shell, data = plain_host.shell(), os.urandom(300_000)
    shell.write_file("it's a file", data)
    assert shell.read_file("it's a file", 1 << 20) == data
    for path in ("missing/file", "/dev/full"):
        with pytest.raises(OSError, match=r"."):
            shell.write_file(path, data)
    assert shell.run("echo fine", 30).stdout.head == b"fine\n"


def test_interrupt_during_an_action(host: Host) -> None:
    shell = host.shell()
    shell.run("export A=1; sleep 600 & :", 30)
    previous = signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            shell.run("echo early; sleep 600", 60)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, previous)
    result = shell.run("echo $A", 30)
    assert result.stdout.head == b"1\n"
    assert any("interrupted" in note for note in result.notes)
    assert len(host.kills) == 1


def test_lost_supervisor_is_replaced_and_state_restored(host: Host) -> None:
    shell = host.shell()
    shell.run("mkdir d; cd d; export A=1", 30)
    result = shell.run("echo before; kill -9 $PPID; exit", 30)
    assert (result.status, result.exit_code) == (ActionStatus.SHELL_ENDED, None)
    assert any("lost" in note for note in result.notes)
    assert shell.run('basename "$PWD"; echo $A', 30).stdout.head == b"d\n1\n"
    assert len(host.children) == 2


def test_lost_for_good(host: Host) -> None:
    shell = host.shell()
    host.path = "/nonexistent"
    with pytest.raises(SandboxLostError, match="did not start"):
        shell.run("kill -9 $PPID; exit", 30)


def test_shell_that_does_not_start(host: Host) -> None:
    def connect() -> Connection:
        child, connection = spawn(["sh", "-c", "echo 'no such luck' >&2"], env={"PATH": host.path})
        host.children.append(child)
        return connection

    with pytest.raises(SandboxLostError, match="no such luck"):
        Shell(connect, host.kill, env={}, workdir="/", state_dir=str(host.folder))


def test_state_that_the_agent_removed(host: Host) -> None:
    shell = host.shell()
    shell.run("mkdir d; cd d; export A=1", 30)
    result = shell.run(f"rm -rf {host.folder}/state; exit", 30)
    assert any("could not be restored" in note for note in result.notes)
    assert shell.run("pwd; echo $A", 30).stdout.head == f"{host.folder}\n\n".encode()
    shell.run("export A=2; cd d", 30)
    shell.run("exit", 30)
    assert shell.run("echo $A", 30).stdout.head == b"2\n"


def test_state_that_makes_a_shell_end_is_given_up(host: Host) -> None:
    shell = host.shell()
    result = shell.run(f"trap - EXIT; for f in 0 1 b x; do echo exit >{host.folder}/state/$f; done; kill -9 $$", 30)
    assert result.status is ActionStatus.SHELL_ENDED
    assert any("could not be restored" in note for note in result.notes)
    assert shell.run("echo fine", 30).stdout.head == b"fine\n"


def test_late_output_belongs_to_the_next_action(host: Host) -> None:
    shell = host.shell()
    shell.run("(sleep 0.2; echo late) & :", 30)
    assert shell.run("wait; echo then", 30).stdout.head == b"late\nthen\n"


def test_umask_and_unset_variables_are_restored(host: Host) -> None:
    shell = host.shell()
    shell.run("umask 027; unset GIT_EDITOR", 30)
    shell.run("exit", 30)
    assert shell.run("umask; echo ${GIT_EDITOR-unset}", 30).stdout.head == b"0027\nunset\n"


def test_environment_is_only_what_was_given(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_TEST_SECRET", "secret")
    shell = host.shell(env={"PATH": host.path, "ODD": "it's\n$odd"})
    assert shell.run('echo ${MLGYM_TEST_SECRET-none} "$ODD"', 30).stdout.head == b"none it's\n$odd\n"


def test_lone_surrogates_are_refused(host: Host) -> None:
    assert host.shell().run("echo \ud800", 30).status is ActionStatus.REFUSED


def test_stop_kills_older_jobs_too_and_tells(host: Host) -> None:
    shell = host.shell()
    shell.run("export A=1; sleep 600 & echo $! > job", 30)
    job = int((host.folder / "job").read_text())
    shell.stop()
    assert job not in processes.processes()
    result = shell.run("echo $A", 30)
    assert result.stdout.head == b"1\n"
    assert any("stopped" in note for note in result.notes)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_impossible_paths(host: Host, path: str) -> None:
    shell = host.shell()
    with pytest.raises(OSError, match="path"):
        shell.write_file(path, b"x")
    with pytest.raises(OSError, match="path"):
        shell.read_file(path, 1)


def test_closing_ends_the_supervisor(host: Host) -> None:
    shell = host.shell()
    shell.close()
    shell.close()
    host.children[0].wait(30)


class Thief:
    """A connection whose other end is robbed of what would start a shell, and which then answers in its place."""

    def __init__(self, real: Connection, answer: bytes) -> None:
        self.real = real
        self.answer = answer
        self.nonce = b""

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        found = re.search(rb"036([0-9a-f]{24}):", bytes(data))
        if found is None:
            self.real.send(data, deadline)
        else:
            self.nonce = found[1]

    def receive(self, deadline: float) -> Sequence[tuple[int, bytes]]:
        if not self.nonce:
            return self.real.receive(deadline)
        marker = b"\x1e" + self.nonce + b":%b\x1e"
        return [(STDERR, marker % b""), (STDOUT, marker % self.answer)]

    def close(self) -> None:
        self.real.close()


FORGED = [b"", b":::", b"x:0:", b"-5:0:", b"\xff\xfe", b"1.5"]


@pytest.mark.parametrize("answer", FORGED)
def test_a_forged_answer_is_a_failed_start(host: Host, answer: bytes) -> None:
    shell = host.shell()
    shell.run("export A=1", 30)
    assert shell._link._connection is not None
    shell._link._connection = Thief(shell._link._connection, answer)
    result = shell.run("exit", 30)
    assert result.status is ActionStatus.SHELL_ENDED
    assert any("could not be restored" in note for note in result.notes)
    assert shell.run("echo fine", 30).stdout.head == b"fine\n"
    assert len(host.children) == 2


@pytest.mark.parametrize("answer", FORGED)
def test_forged_answers_for_good_lose_the_sandbox(host: Host, answer: bytes) -> None:
    with pytest.raises(SandboxLostError, match="something else"):
        Shell(lambda: Thief(host.connect(), answer), host.kill, env={}, workdir="/", state_dir=str(host.folder))


@pytest.mark.parametrize("greeting", [b"1", b"x:bash", b"1:zsh", b""])
def test_a_supervisor_that_speaks_otherwise_is_none(host: Host, greeting: bytes) -> None:
    program = "read -r t _; printf '\\036%s:\\036' $t >&2; printf '\\036%s:%s\\036' $t '" + greeting.decode() + "'; cat"

    def connect() -> Connection:
        child, connection = spawn(["sh", "-c", program], env={"PATH": host.path})
        host.children.append(child)
        return connection

    with pytest.raises(SandboxLostError, match="something else"):
        Shell(connect, host.kill, env={}, workdir="/", state_dir=str(host.folder))


def test_a_state_that_stops_every_shell_is_given_up_with_its_box(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = host.shell()
    shell.run("export A=1", 30)
    monkeypatch.setattr("mlgym_core.sandbox.shell.life._BOOT_SECONDS", 1.0)
    result = shell.run(
        f"trap - EXIT; for f in 0 1 b x; do echo 'while :; do :; done' >{host.folder}/state/$f; done; kill -9 $$", 30
    )
    assert any("could not be restored" in note for note in result.notes)
    assert shell.run("echo fine", 30).stdout.head == b"fine\n"


def test_a_state_that_was_not_saved_in_time_is_told(host: Host) -> None:
    shell = host.shell()
    shell.run("export A=1", 30)
    shell.run("export A=2", 30)
    newest = host.folder / "state" / shell._life.slots.current
    assert eventually(lambda: newest.exists() and newest.read_text().endswith(f"__m_k={shell._life.slots.current}\n"))
    newest.write_text("export A=half\n")
    result = shell.run("sleep 600", 0.3)
    assert result.status is ActionStatus.TIMED_OUT
    assert any("before the latest change" in note for note in result.notes)
    assert shell.run("echo $A", 30).stdout.head == b"1\n"
    shell.run("exit", 30)
    result = shell.run("sleep 600", 0.3)
    assert not any("before the latest change" in note for note in result.notes)


def test_spool_files_stop_at_the_shells_total(host: Host, tmp_path: Path) -> None:
    shell = host.shell(spool_bytes=700_000)
    spools = [shell.run("seq 100000", 30, spool=tmp_path / name).stdout.spool for name in ("1", "2", "3")]
    assert [spool.stat().st_size for spool in spools[:2] if spool is not None] == [588_895, 111_105]
    assert spools[2] is None
