"""What every backend must do, as tests: subclass :class:`BackendContract` and provide a ``backend`` fixture.

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self):
            return MyBackend()

Tests of something that the backend does not declare are skipped with the name of the capability. Needs pytest.
"""

# ruff: noqa: D102 - the names of the tests say what they promise

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tarfile
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgym_core.authoring.testing.boxes import (
    RUNNER,
    OpenPeer,
    OpenSandbox,
    ask,
    eventually,
    fresh_mark,
    listed,
    receive,
    seen,
)
from mlgym_core.authoring.testing.hostile import HostileContract
from mlgym_core.authoring.testing.toolfiles import ToolFilesContract
from mlgym_core.sandbox.base import ActionStatus, Backend, ConnectionClosed, Mount, Sandbox
from mlgym_core.sandbox.shell.output import HEAD_BYTES, TAIL_BYTES, for_model
from mlgym_core.task.task import Capability, Resources

_GRACE = 10.0


class BackendContract(ToolFilesContract, HostileContract):
    """The promises of the seam; every test opens boxes of its own.

    See :class:`~mlgym_core.authoring.testing.boxes.BoxFixtures` for what a subclass provides and may replace.
    """

    # The shell.

    def test_backend_describes_itself(self, backend: Backend) -> None:
        assert isinstance(backend, Backend)
        assert backend.name
        assert len(backend.describe().splitlines()) == 1
        assert backend.capabilities() <= set(Capability)

    def test_streams_and_exit_code_are_separate(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, Sandbox)
        result = sandbox.run("echo out; echo err >&2; (exit 7)", 30)
        assert seen(result) == (ActionStatus.COMPLETED, 7, b"out\n", b"err\n")
        assert sandbox.run("echo $?", 30).stdout.head == b"7\n"

    def test_state_persists_between_actions(self, sandbox: Sandbox) -> None:
        sandbox.run('mkdir d; cd d; export A="x\'y\nz"; B=plain; f() { echo "f:$1"; }', 30)
        result = sandbox.run('basename "$PWD"; echo "$A"; echo $B; f 1', 30)
        assert result.stdout.head == b"d\nx'y\nz\nplain\nf:1\n"

    def test_activated_environment_persists(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir -p v/bin; printf '#!/bin/sh\\necho mine' > v/bin/tool; chmod +x v/bin/tool", 30)
        sandbox.run('export PATH="$PWD/v/bin:$PATH"', 30)
        assert sandbox.run("tool", 30).stdout.head == b"mine\n"
        sandbox.run("exit", 30)
        assert sandbox.run("tool", 30).stdout.head == b"mine\n"

    @pytest.mark.parametrize(
        "command",
        ["cat", "read -r line", "python3 -c 'input()'", "read -p 'Do you want to continue? [Y/n] ' answer"],
    )
    def test_standard_input_is_empty(self, sandbox: Sandbox, command: str) -> None:
        result = sandbox.run(command, _GRACE)
        assert result.status is ActionStatus.COMPLETED
        assert result.seconds < _GRACE
        assert command == "cat" or result.exit_code != 0

    def test_an_editor_fails_at_once(self, sandbox: Sandbox) -> None:
        if sandbox.run("command -v git", 30).exit_code != 0:
            pytest.skip("the image has no git")
        result = sandbox.run("git init -q . && git commit --allow-empty", _GRACE)
        assert result.status is ActionStatus.COMPLETED
        assert result.exit_code != 0
        assert result.stderr.head

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ("exit 3", 3),
            ("exec false", 1),
            ("set -e; false; echo no", 1),
            ("kill -9 $$", 137),
            ("(sleep 600 &); exit 5", 5),
        ],
    )
    def test_ending_the_shell_ends_only_the_action(self, sandbox: Sandbox, command: str, code: int) -> None:
        sandbox.run("mkdir d; cd d; export A=1; f() { echo f; }; B=2", 30)
        result = sandbox.run(command, 30)
        assert (result.status, result.exit_code) == (ActionStatus.SHELL_ENDED, code)
        assert any("unexported" in note for note in result.notes)
        after = sandbox.run('basename "$PWD"; echo $A$B; f', 30)
        assert seen(after) == (ActionStatus.COMPLETED, 0, b"d\n1\nf\n", b"")
        assert after.notes == ()

    def test_exit_keeps_what_the_action_has_changed(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir d; cd d; export A=1; exit 4", 30)
        assert sandbox.run('basename "$PWD"; echo $A', 30).stdout.head == b"d\n1\n"

    def test_a_directory_that_is_gone_is_told(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir d; cd d; export A=1", 30)
        result = sandbox.run('rmdir "$PWD"; exit 1', 30)
        assert any("no longer exists" in note for note in result.notes)
        assert sandbox.run("pwd; echo $A", 30).stdout.head == f"{sandbox.workdir}\n1\n".encode()

    @pytest.mark.parametrize("command", ["if", "echo 'abc", 'echo "abc', "for do", "))", "cat <<EOF\nhello", "${"])
    def test_broken_syntax_is_reported(self, sandbox: Sandbox, command: str) -> None:
        sandbox.run("export A=1", 30)
        result = sandbox.run(command, _GRACE)
        assert result.status in (ActionStatus.COMPLETED, ActionStatus.SHELL_ENDED)
        assert sandbox.run("echo $A", 30).stdout.head == b"1\n"

    @pytest.mark.parametrize(
        "command",
        [
            "exec >/dev/null 2>&1; exec 7<&- 8>&- 9>&-",
            "set -x",
            "IFS=0123456789abcdef; set -f",
            "printf() { echo no; }; set() { :; }; export() { echo no; }",
        ],
    )
    def test_shell_settings_cannot_hide_later_output(self, sandbox: Sandbox, command: str) -> None:
        sandbox.run(command, 30)
        assert sandbox.run("echo visible", 30).stdout.head == b"visible\n"

    def test_markers_in_output_end_nothing(self, sandbox: Sandbox) -> None:
        forged = b"\x1e" + b"0" * 24 + b":0:1\x1e"
        sandbox.write_file("forged", forged)
        result = sandbox.run("cat forged forged >&2; cat forged; printf '\\036'; echo after", 30)
        assert seen(result) == (ActionStatus.COMPLETED, 0, forged + b"\x1eafter\n", forged + forged)

    def test_nul_is_refused(self, sandbox: Sandbox) -> None:
        result = sandbox.run("echo a\0b", 30)
        assert (result.status, result.exit_code) == (ActionStatus.REFUSED, None)
        assert result.notes

    @pytest.mark.parametrize("size", [0, 2000, 20_000, 1 << 20])
    def test_commands_of_any_size(self, sandbox: Sandbox, size: int) -> None:
        result = sandbox.run(f"x='{'e' * size}'; echo ${{#x}}", 60)
        assert seen(result) == (ActionStatus.COMPLETED, 0, f"{size}\n".encode(), b"")

    def test_bytes_pass_unchanged(self, sandbox: Sandbox) -> None:
        result = sandbox.run("printf %s 'h\u00e9 \u4e16 \udcff\udcfe'", 30)
        assert result.stdout.head == "h\u00e9 \u4e16 ".encode() + b"\xff\xfe"

    def test_background_child_does_not_hold_the_action(self, sandbox: Sandbox) -> None:
        result = sandbox.run("sleep 600 & (sleep 601 &); echo started", 30)
        assert seen(result)[:3] == (ActionStatus.COMPLETED, 0, b"started\n")
        assert result.seconds < _GRACE
        assert sandbox.run("kill %1 && echo killed", 30).stdout.head == b"killed\n"

    @pytest.mark.parametrize(
        "body",
        [
            "sleep @; echo no",
            "trap '' TERM INT HUP; sleep @ & while :; do :; done",
            "setsid sh -c 'trap \"\" TERM HUP; sleep @' & sleep @",
            "(setsid sh -c '(sleep @ &) ; sleep @' &) ; sleep @",
            "burst() { sleep @ & sleep 0.01; }; while :; do burst; done",
            "sleep @ & kill -STOP $$",
            "sleep @ & exec >&- 2>&-; while :; do :; done",
            "sleep @ & yes",
        ],
    )
    def test_deadline_kills_the_whole_action(self, sandbox: Sandbox, body: str) -> None:
        older, mark = fresh_mark(), fresh_mark()
        sandbox.run(f"mkdir d; cd d; export A=1; f() {{ echo f; }}; sleep {older} & :", 30)
        sandbox.run("sleep 0.1", 30)  # start times are counted in hundredths of a second
        result = sandbox.run("echo before; " + body.replace("@", mark), 0.7)
        assert (result.status, result.exit_code) == (ActionStatus.TIMED_OUT, None)
        assert result.stdout.head.startswith(b"before\n")
        assert result.seconds < 0.7 + _GRACE
        assert any("killed" in note for note in result.notes)
        assert not self.inside(sandbox, mark)
        assert self.inside(sandbox, older)
        assert sandbox.run('basename "$PWD"; echo $A; f', 30).stdout.head == b"d\n1\nf\n"

    def test_killing_everything_in_reach_is_survived(
        self, sandbox: Sandbox, require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        sandbox.run("echo kept > file", 30)
        sandbox.run("kill -9 -1; kill -9 $PPID; kill -9 0", 30)
        assert sandbox.run("cat file", 30).stdout.head == b"kept\n"

    # Files.

    @pytest.mark.parametrize("name", ["file", "-file", "with 'quotes' and\nnewline", "/tmp/@"])
    def test_file_round_trip(self, sandbox: Sandbox, name: str) -> None:
        mark = fresh_mark()
        name = name.replace("@", f"mlgym-contract-{mark}")
        for data in (b"", b"no newline", bytes(range(256)) * 40):
            sandbox.write_file(name, data)
            assert sandbox.read_file(name, 1 << 20) == data
        sandbox.run("rm -f /tmp/mlgym-contract-" + mark, 30)

    def test_large_files_are_byte_identical(self, sandbox: Sandbox) -> None:
        text = ("line with 'quotes' $and `ticks`\n" * 40_000).encode()[: 1 << 20]
        binary = os.urandom(3_000_000)
        sandbox.write_file("text", text)
        sandbox.write_file("binary", binary)
        assert sandbox.read_file("text", 1 << 20) == text
        assert sandbox.read_file("binary", 1 << 22) == binary

    def test_files_follow_the_shells_directory(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir d; cd d", 30)
        sandbox.write_file("file", b"x")
        assert sandbox.run("cat ../d/file", 30).stdout.head == b"x"

    def test_failed_write_is_reported(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir folder", 30)
        for path in ("missing/folder/file", "folder", "/proc/file", "/dev/full"):
            with pytest.raises(OSError, match=r"."):
                sandbox.write_file(path, b"data\n" * 30_000)
        assert sandbox.run("echo fine", 30).stdout.head == b"fine\n"

    def test_failed_read_is_reported(self, sandbox: Sandbox) -> None:
        sandbox.write_file("file", b"12345")
        assert sandbox.read_file("file", 5) == b"12345"
        for path, limit in (("file", 4), ("missing", 10), (".", 10), ("/dev/zero", 10)):
            with pytest.raises(OSError, match=r"."):
                sandbox.read_file(path, limit)

    def test_background_noise_never_gets_into_a_file(self, sandbox: Sandbox) -> None:
        data = os.urandom(100_000)
        sandbox.write_file("file", data)
        sandbox.run("(while sleep 0.01; do echo noise; done) &", 30)
        with contextlib.suppress(OSError):  # it may give up, but not lie
            assert sandbox.read_file("file", 1 << 20) == data

    # Output.

    @pytest.mark.parametrize("extra", [-1, 0, 1])
    def test_truncation_begins_beyond_the_limit(self, sandbox: Sandbox, extra: int) -> None:
        size = HEAD_BYTES + TAIL_BYTES + extra
        result = sandbox.run(f"head -c {size} /dev/zero", 30)
        assert (result.stdout.total, result.stdout.dropped) == (size, max(0, extra))
        assert result.stdout.truncated is (extra > 0)

    def test_flood_is_bounded_and_counted(self, sandbox: Sandbox, tmp_path: Path) -> None:
        command = f"echo first; head -c {self.flood_bytes} /dev/zero; head -c 1000000 /dev/zero >&2; echo last"
        tracemalloc.start()
        try:
            result = sandbox.run(command, 100, spool=tmp_path / "out" / "1")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (result.status, result.exit_code) == (ActionStatus.COMPLETED, 0)
        assert result.stdout.total == self.flood_bytes + 11
        assert result.stderr.total == 1_000_000
        assert result.stdout.head.startswith(b"first\n")
        assert result.stdout.tail.endswith(b"last\n")
        assert peak < 16 << 20
        assert result.stdout.spool is not None
        assert result.stdout.spool.stat().st_size <= 64 << 20
        assert f"[... {result.stdout.dropped} bytes dropped ...]" in for_model(result.stdout)

    def test_spool_holds_everything_from_the_first_byte(self, sandbox: Sandbox, tmp_path: Path) -> None:
        result = sandbox.run("seq 100000", 30, spool=tmp_path / "1")
        assert result.stdout.spool is not None
        assert result.stdout.spool.read_bytes() == b"".join(b"%d\n" % number for number in range(1, 100_001))
        assert result.stderr.spool is None
        assert sandbox.run("echo small", 30, spool=tmp_path / "2").stdout.spool is None

    # Isolation.

    def test_agent_has_no_privileges(self, sandbox: Sandbox, require: Callable[[Capability], None]) -> None:
        require(Capability.ISOLATION)
        assert sandbox.run("id -u", 30).stdout.head.strip() != b"0"
        status = sandbox.run("cat /proc/self/status", 30).stdout.head.decode()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert fields["NoNewPrivs"].strip() == "1"
        assert sandbox.run("cat /etc/shadow", 30).exit_code != 0

    def test_only_workspace_and_scratch_are_writable(
        self, sandbox: Sandbox, require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        for folder in ("/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/home", "/proc", "/dev"):
            assert sandbox.run(f"echo > {folder.rstrip('/')}/new", 30).exit_code != 0, folder
        for folder in (".", "/tmp", '"$HOME"', "/dev/shm"):
            assert sandbox.run(f"echo > {folder}/new", 30).exit_code == 0, folder

    def test_secrets_of_the_host_are_absent(
        self,
        open_sandbox: OpenSandbox,
        require: Callable[[Capability], None],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        require(Capability.ISOLATION)
        canary = f"canary-{secrets.token_hex(16)}"
        monkeypatch.setenv("MLGYM_TEST_CANARY", canary)
        (tmp_path / canary).write_text(canary)
        sandbox = open_sandbox()
        # The pattern's first character is bracketed, so that the search does not find itself.
        pattern = f"[c]{canary[1:]}"
        for command in (
            "env",
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo",
            "find / -path /proc -prune -o -print",
            "find / -xdev -type f -size -64k -not -path '/usr/*' -not -path '/proc/*' -exec cat {} +",
            f"ls -a {tmp_path}",
        ):
            found = sandbox.run(f"{{ {command}; }} 2>/dev/null | grep -a -c '{pattern}'", 100)
            assert found.stdout.head == b"0\n", command
        assert sandbox.run("python3 -c 'import mlgym_core'", 60).exit_code != 0

    def test_no_network(self, sandbox: Sandbox, require: Callable[[Capability], None]) -> None:
        require(Capability.NETWORK_NONE)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            assert sandbox.run(f'python3 -c "{code}"', 30).exit_code != 0
        routes = sandbox.run("tail -n +2 /proc/net/route", 30)
        assert routes.stdout.head.strip() == b""

    def test_sandboxes_do_not_see_each_other(
        self, open_sandbox: OpenSandbox, require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        first, second, mark = open_sandbox(), open_sandbox(), fresh_mark()
        first.run(f"sleep {mark} & echo > mine; echo > /tmp/mine", 30)
        assert not self.inside(second, mark)
        assert second.run("ls mine /tmp/mine", 30).stdout.total == 0

    def test_files_and_mounts(
        self, open_sandbox: OpenSandbox, require: Callable[[Capability], None], tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o755)
        data = tmp_path / "data"
        data.mkdir()
        (data / "train.csv").write_text("rows")
        start = tmp_path / "start.sh"
        start.write_text("echo started\n")
        start.chmod(0o755)
        sandbox = open_sandbox(files={"src/start.sh": start}, mounts=[Mount(data, "data/train")])
        assert sandbox.run("./src/start.sh; cat data/train/train.csv", 30).stdout.head == b"started\nrows"
        assert sandbox.run("echo more >> src/start.sh && echo > src/new", 30).exit_code == 0
        require(Capability.ISOLATION)
        assert sandbox.run("echo > data/train/train.csv || rm -rf data/train", 30).exit_code != 0
        assert (data / "train.csv").read_text() == "rows"

    def test_memory_limit(self, open_sandbox: OpenSandbox, require: Callable[[Capability], None]) -> None:
        require(Capability.MEMORY)
        sandbox = open_sandbox(resources=Resources(memory_mb=200))
        result = sandbox.run("python3 -c 'x = b\"1\" * (600 << 20); print(len(x))'", 60)
        assert result.stdout.head == b""
        assert sandbox.run("echo alive", 30).stdout.head == b"alive\n"

    def test_pids_limit(self, open_sandbox: OpenSandbox, require: Callable[[Capability], None]) -> None:
        require(Capability.PIDS)
        sandbox = open_sandbox(resources=Resources(memory_mb=512, pids=40))
        forks = textwrap.dedent(
            """
            import os, signal, time
            children = []
            try:
                while len(children) < 200:
                    child = os.fork()
                    if child == 0:
                        time.sleep(600)
                    children.append(child)
            except OSError:
                pass
            print(len(children) < 40)
            for child in children:
                os.kill(child, signal.SIGKILL)
            """
        )
        sandbox.write_file("forks.py", forks.encode())
        assert sandbox.run("python3 forks.py", 60).stdout.head == b"True\n"

    # Taking the workspace out, stopping, closing.

    def test_export_follows_no_link(self, sandbox: Sandbox) -> None:
        sandbox.run("mkdir -p out/deep; echo a > out/a; echo b > out/deep/b; chmod 640 out/a; mkfifo out/pipe", 30)
        sandbox.run("ln -s /etc/passwd out/link; ln -s out alias; echo not taken > other", 30)
        members = listed(sandbox.export(["out", "alias/a", "missing"]))
        kinds = {name: member.type for name, (member, _) in members.items()}
        assert kinds.pop("alias") == tarfile.SYMTYPE
        assert kinds == {
            "out": tarfile.DIRTYPE,
            "out/a": tarfile.REGTYPE,
            "out/deep": tarfile.DIRTYPE,
            "out/deep/b": tarfile.REGTYPE,
            "out/link": tarfile.SYMTYPE,
            "out/pipe": tarfile.FIFOTYPE,
        }
        assert members["out/a"][1] == b"a\n"
        assert members["out/a"][0].mode & 0o777 == 0o640

    def test_stop_processes_keeps_the_workspace(self, sandbox: Sandbox) -> None:
        mark = fresh_mark()
        sandbox.run(f"echo kept > file; export A=1; setsid sleep {mark} & sleep {mark} & :", 30)
        sandbox.stop_processes()
        assert not self.inside(sandbox, mark)
        assert sandbox.run("cat file; echo $A", 30).stdout.head == b"kept\n1\n"

    def test_close_leaves_nothing(self, open_sandbox: OpenSandbox) -> None:
        sandbox, mark = open_sandbox(), fresh_mark()
        sandbox.run(f"setsid sleep {mark} & (sleep {mark} &)", 30)
        assert sandbox.enter_hint()
        sandbox.close()
        sandbox.close()
        assert eventually(lambda: not self.alive(mark))

    @pytest.mark.parametrize("busy", ["", "trap '' TERM HUP; sleep 3210"])
    def test_killed_runner_leaves_nothing(
        self, busy: str, backend: Backend, image_folder: Path, open_sandbox: OpenSandbox
    ) -> None:
        if not self.runner_setup:
            pytest.skip("the subclass sets no runner_setup")
        beside, mark = open_sandbox(), fresh_mark()
        beside.run("echo kept > file", 30)
        code = RUNNER.format(setup=self.runner_setup, folder=str(image_folder), mark=mark, busy=busy)
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n"
            assert eventually(lambda: self.alive(mark))
            runner.kill()
        assert eventually(lambda: not self.alive(mark))
        backend.reap()
        assert not any("contract" in removed for removed in backend.reap())
        assert beside.run("cat file", 30).stdout.head == b"kept\n"

    # Peers.

    def test_peer_exchanges_large_messages(self, open_peer: OpenPeer) -> None:
        peer, data = open_peer(), os.urandom(1 << 23)
        deadline = time.monotonic() + 60
        # All is sent before anything is received: neither end may block the other.
        peer.connection.send(b"echo %d\n" % len(data), deadline)
        peer.connection.send(memoryview(data), deadline)
        assert receive(peer, len(data)) == data

    def test_peer_box_is_fresh_and_read_only(
        self, open_peer: OpenPeer, sandbox: Sandbox, require: Callable[[Capability], None]
    ) -> None:
        sandbox.write_file("agents-file", b"x")
        peer = open_peer("player")
        look = json.loads(ask(peer, b"look\n"))
        assert look["entries"] == []
        assert look["args"] == [peer.workdir]
        assert look["workdir"] is True
        require(Capability.ISOLATION)
        assert look["uid"] != 0
        assert (look["root"], look["usr"], look["workspace"]) == (False, False, False)

    def test_peer_mounts(self, open_peer: OpenPeer, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        folder = tmp_path / "private"
        folder.mkdir()
        (folder / "answer").write_text("42")
        assert ask(open_peer(mounts=[Mount(folder, "data/private")]), b"read data/private/answer\n") == b"42\n"

    def test_peer_that_floods_its_log(self, open_peer: OpenPeer) -> None:
        assert ask(open_peer(), b"flood\n") == b"done\n"

    def test_peer_that_never_answers(self, open_peer: OpenPeer) -> None:
        peer = open_peer()
        peer.connection.send(b"hang\n", time.monotonic() + 30)
        with pytest.raises(TimeoutError):
            receive(peer, 1, seconds=0.3)
        peer.close()
        peer.close()

    def test_peer_that_ends(self, open_peer: OpenPeer) -> None:
        peer = open_peer()
        peer.connection.send(b"end\n", time.monotonic() + 30)
        with pytest.raises(ConnectionClosed):
            receive(peer, 1)
