"""Tools made of scripts, seen from the host: what is put into a box, how it is called, what comes back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.authoring.testing.tools import StubContext, ToolContract
from mlgym_core.errors import UsageError
from mlgym_core.sandbox.base import ActionResult, ActionStatus, Captured
from mlgym_core.tools.base import Script, Tool, ToolArgumentError
from mlgym_core.tools.builtin import TOOLS, with_input
from mlgym_core.tools.scripted import ToolsState, describe, readable, script_command, script_tool, tool_files

ECHO = '#!/bin/sh\n[ "$*" = --json ] && exec cat\n'
NASTY = {
    "text": 'it\'s "quoted" $HOME `id` \\ \n\t\x1e \u00e9\udcff\nEOF\n',
    "number": 3,
    "flag": True,
    "nested": {"a": [1, None, 2.5]},
}


def made(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def tool(name: str, path: Path, *libraries: str | Path) -> Tool:
    return script_tool(name, "Does what its script does, for a test.", {"type": "object"}, Script(path, libraries))


class TestBuiltins(ToolContract):
    @pytest.fixture(params=[tool for tool in TOOLS if tool.name != "bash"], ids=lambda tool: tool.name)
    def tool(self, request: pytest.FixtureRequest) -> Tool:
        chosen: Tool = request.param
        return chosen

    @pytest.fixture
    def arguments(self, tool: Tool) -> dict[str, Any]:
        values = {"integer": 1, "string": "x", "boolean": True}
        return {name: values[one["type"]] for name, one in tool.parameters["properties"].items()}


@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])
@pytest.mark.parametrize("folder", ["plain", "odd ' \"name"])
def test_arguments_reach_a_script_unchanged(tmp_path: Path, shell: str, folder: str) -> None:
    made(tmp_path / folder / "echo", ECHO).chmod(0o755)
    command = script_command(str(tmp_path / folder), "echo", NASTY)
    argv = ["busybox", "sh", "-c", command] if shell == "busybox" else [shell, "-c", command]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert json.loads(done.stdout) == NASTY


def test_arguments_that_are_not_json_are_refused() -> None:
    for value in (object(), float("nan"), {1}):
        with pytest.raises(ToolArgumentError, match="not JSON"):
            script_command("/x", "echo", {"value": value})


def test_a_script_is_run_with_the_arguments_of_the_call(tmp_path: Path) -> None:
    context = StubContext()
    output = tool("echo", made(tmp_path / "echo")).run(context, {"a": 1})
    assert context.scripts == [("echo", {"a": 1})]
    assert output.info == {"status": "completed", "exit_code": 0}


@pytest.mark.parametrize("name", ["lib", "a/b", "", "1st", "a b", "."])
def test_names_that_are_no_commands_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        tool(name, tmp_path)


def test_programs_and_their_libraries_are_put_together(tmp_path: Path) -> None:
    script = made(tmp_path / "script.py")
    package = made(tmp_path / "package" / "__init__.py").parent
    made(package / "part" / "one.py")
    made(package / "tests" / "two.py")
    made(package / "data.bin")
    module = made(tmp_path / "module.py")
    found = tool_files([tool("one", script, package, module), tool("two", script, module, "pyflakes"), *TOOLS])
    assert found["one"] == found["two"] == script
    assert {name for name in found if name.startswith(("lib/package", "lib/module"))} == {
        "lib/package/__init__.py",
        "lib/package/part/one.py",
        "lib/module.py",
    }
    assert "lib/pyflakes/checker.py" in found
    assert "lib/pyflakes/test/harness.py" not in found
    assert {"open", "submit", "lib/agent_tools/window.py"} <= set(found)
    assert "bash" not in found


def test_what_is_missing_or_comes_twice_is_named(tmp_path: Path) -> None:
    first, second = made(tmp_path / "1" / "same.py"), made(tmp_path / "2" / "same.py")
    with pytest.raises(UsageError, match="two tools bring different files lib/same"):
        tool_files([tool("one", first, first), tool("two", first, second)])
    with pytest.raises(UsageError, match=r"one needs .*nothing, which is not a file"):
        tool_files([tool("one", tmp_path / "nothing")])
    for library in ("no_such_package", "no.such.package", "sys"):
        with pytest.raises(UsageError, match=f"one needs the package {library}"):
            tool_files([tool("one", first, library)])


@given(st.one_of(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps)))
def test_any_state_is_read(text: str) -> None:
    assert isinstance(ToolsState.parse(text), ToolsState)


def test_the_state_names_file_and_request() -> None:
    state = ToolsState.parse('{"open": "/w/\\u00e9\\udcff", "line": 3, "request": {"id": "ab12", "tool": "submit"}}')
    assert state == ToolsState("/w/\u00e9\ufffd", ("ab12", "submit"))
    for request in ('"submit"', '{"id": "a"}', '{"id": 1, "tool": "submit"}', '{"id": "", "tool": "submit"}'):
        assert ToolsState.parse(f'{{"request": {request}}}').request is None
    assert ToolsState.parse("[" * 100_000) == ToolsState()
    readable("\ud800").encode()


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("edit 1:2\na\nb\nend_of_edit\n", "edit 1:2 <<'END'\na\nb\nEND"),
        ("  insert 3\na\nend_of_insert", "insert 3 <<'END'\na\nEND"),
        ("edit 3:3\nend_of_edit\n", "edit 3:3 --delete"),
        ("edit 1:2\r\na\r\nend_of_edit\r\n", "edit 1:2 <<'END'\na\r\nEND"),
        ("edit 1:2\n end_of_edit\nend_of_edits\nend_of_edit", "edit 1:2 <<'END'\n end_of_edit\nend_of_edits\nEND"),
        ("edit 1:2 <<'EOF'\na\nEOF", None),
        ("cat <<'EOF'\nedit 1:2\na\nend_of_edit\nEOF", None),
        ("ls; edit 1:2\na\nend_of_edit", None),
    ],
)
def test_the_published_form_of_an_edit_is_understood(command: str, run: str | None) -> None:
    text = with_input(command)
    if run is None:
        assert text == command
    else:
        end = text.rpartition("\n")[2]
        assert text == run.replace("END", end)


@pytest.mark.parametrize("after", ["ls", "end_of_edit", "edit 5:5\nb\nend_of_edit", "insert 5\nb\nend_of_insert"])
def test_a_published_edit_is_alone_in_its_action(after: str) -> None:
    with pytest.raises(ToolArgumentError, match="one edit an action"):
        with_input(f"edit 1:2\na\nend_of_edit\n{after}")


def test_an_unusual_end_is_told() -> None:
    def result(status: ActionStatus, code: int | None) -> ActionResult:
        return ActionResult(status, code, Captured(b"out\n", total=4), Captured(b"err\n", total=4), 1.0, ("note",))

    assert describe(result(ActionStatus.COMPLETED, 0)) == "out\n[stderr]\nerr\n[note]"
    assert "[exit code 3]" in describe(result(ActionStatus.COMPLETED, 3))
    assert "exit code" not in describe(result(ActionStatus.COMPLETED, 3), frozenset({3}))
    assert "[killed after 1.0 s" in describe(result(ActionStatus.TIMED_OUT, None))
