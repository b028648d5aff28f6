"""The part of the backend contract that is about the agent's tools. Needs pytest."""

# ruff: noqa: D102 - the names of the tests say what they promise

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from mlgym_core.authoring.testing.boxes import BoxFixtures, OpenSandbox
from mlgym_core.sandbox.base import ActionStatus, Sandbox
from mlgym_core.task.task import Capability

_TOOL = textwrap.dedent(
    """\
    #!/bin/sh
    cat "${0%/*}/lib/part/text"
    echo "$1:$MLGYM_TOOLS_STATE" | cut -c 1-7
    """
)


class ToolFilesContract(BoxFixtures):
    """Tools are at hand and cannot be changed; what they remember reaches the host."""

    @pytest.fixture
    def tools(self, tmp_path: Path) -> dict[str, Path]:
        """A tool that prints a file beside it, and a file that is no program."""
        tmp_path.chmod(0o755)
        found = {"some-tool": tmp_path / "some-tool", "lib/part/text": tmp_path / "text"}
        found["some-tool"].write_text(_TOOL)
        found["lib/part/text"].write_text("beside\n")
        return found

    def test_tools_are_on_the_path_and_stay_there(self, open_sandbox: OpenSandbox, tools: dict[str, Path]) -> None:
        sandbox = open_sandbox(tools=tools)
        for command in (":", "cd /", "exit 1", "kill -9 $$", "export A=1; exec true"):
            sandbox.run(command, 30)
            result = sandbox.run("some-tool x; command -v some-tool; python3 -c pass", 30)
            assert result.stdout.head == f"beside\nx:/dev/\n{sandbox.tools}/some-tool\n".encode(), command
        assert not sandbox.tools.startswith(sandbox.workdir)

    def test_tools_come_before_everything_else(self, open_sandbox: OpenSandbox, tools: dict[str, Path]) -> None:
        sandbox = open_sandbox(tools={**tools, "head": tools["some-tool"]})
        assert sandbox.run("command -v head", 30).stdout.head == f"{sandbox.tools}/head\n".encode()
        sandbox.write_file("file", b"x" * 100_000)  # the shell's own work takes the system's commands
        assert sandbox.read_file("file", 1 << 20) == b"x" * 100_000

    def test_the_agent_cannot_change_its_tools(
        self, open_sandbox: OpenSandbox, tools: dict[str, Path], require: Callable[[Capability], None]
    ) -> None:
        require(Capability.ISOLATION)
        sandbox = open_sandbox(tools=tools)
        folder = sandbox.tools
        for command in (
            f"echo > {folder}/some-tool",
            f"chmod 777 {folder}/some-tool",
            f"rm -f {folder}/some-tool",
            f"echo > {folder}/lib/part/new",
            f"mv {folder} {folder}-old",
            f"rm -rf {folder}/lib",
        ):
            assert sandbox.run(command, 30).exit_code != 0, command
        assert sandbox.run("some-tool x", 30).stdout.head.startswith(b"beside\n")

    def test_directory_and_state_of_the_tools_are_told(self, sandbox: Sandbox) -> None:
        result = sandbox.run("mkdir d; cd d", 30)
        assert (result.directory, result.state) == (f"{sandbox.workdir}/d", "")
        result = sandbox.run('echo \'{"open": "x"}\' > "$MLGYM_TOOLS_STATE"; cd /tmp', 30)
        assert (result.directory, result.state) == ("/tmp", '{"open": "x"}')
        for command in ("true", "exit", "kill -9 $$"):
            result = sandbox.run(command, 30)
            assert (result.directory, result.state) == ("/tmp", '{"open": "x"}'), command
        result = sandbox.run("echo new > $MLGYM_TOOLS_STATE; cd /; sleep 600", 0.5)
        assert result.status is ActionStatus.TIMED_OUT
        assert (result.directory, result.state) == ("/tmp", "new")
        result = sandbox.run("(sleep 0.1; echo late > $MLGYM_TOOLS_STATE) & :", 30)
        assert sandbox.run("wait", 30).state == "late"

    @pytest.mark.parametrize(
        "spoil",
        [
            "printf 'a\\036b' > $MLGYM_TOOLS_STATE",
            "printf 'a\\037b' > $MLGYM_TOOLS_STATE",
            "head -c 3000000 /dev/zero | tr '\\0' x > $MLGYM_TOOLS_STATE",
            "rm -f $MLGYM_TOOLS_STATE; mkfifo $MLGYM_TOOLS_STATE",
            "rm -rf $MLGYM_TOOLS_STATE; mkdir $MLGYM_TOOLS_STATE; PWD=$(printf '\\036')",
            "rm -rf $MLGYM_TOOLS_STATE; ln -s /dev/zero $MLGYM_TOOLS_STATE",
            "unset PWD; PWD=$(head -c 100000 /dev/zero | tr '\\0' x)",
        ],
    )
    def test_an_odd_state_or_directory_is_left_out(self, sandbox: Sandbox, spoil: str) -> None:
        for command in (spoil, "true", "exit", "echo fine"):
            result = sandbox.run(command, 30)
            assert (result.directory, result.state) == (sandbox.workdir, "")
        assert result.stdout.head == b"fine\n"
