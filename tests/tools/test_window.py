"""The open file and its window: open, goto, scroll_up, scroll_down, create, as real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from tools.toolbox import Toolbox, shown

from mlgym_core.tools.inside.agent_tools import state
from mlgym_core.tools.inside.agent_tools.command import Refused

ODD_NAMES = [
    "-x.txt",
    "two words",
    "quotes ' \"",
    "new\nline",
    "\u4e16 \u00e9",
    "\udcff\udcfe",
    "~",
    "a:b",
    "$(touch oops) `touch oops`",
    "*",
    "tab\tbell\a",
    "--json",
]


def numbers(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


def test_a_small_file_is_shown_whole(box: Toolbox) -> None:
    path = box.write("a.txt", "one\n\n  three\n")
    assert box.run("open", "a.txt") == (0, f"[File: {path} (3 lines total)]\n1:one\n2:\n3:  three\n")


@pytest.mark.parametrize(("content", "total"), [("", 0), ("\n", 1), ("x", 1), ("x\ny", 2), ("x\ny\n", 2)])
def test_lines_are_counted_with_and_without_a_final_newline(box: Toolbox, content: str, total: int) -> None:
    box.write("a", content)
    code, output = box.run("open", "a")
    assert code == 0
    assert output.startswith(f"[File: {box.workspace}/a ({total} lines total)]\n")
    assert len(shown(output)) == total


def test_a_window_shows_a_part_and_says_how_much_there_is(box: Toolbox) -> None:
    box.write("a", numbers(1000))
    _, output = box.run("open", "a")
    assert list(shown(output)) == list(range(1, 101))
    assert output.endswith("100:line 100\n(900 more lines below)\n")
    _, output = box.call("open", path="a", line=500)
    assert list(shown(output)) == list(range(484, 584))
    assert output.startswith(f"[File: {box.workspace}/a (1000 lines total)]\n(483 more lines above)\n484:line 484\n")
    assert output.endswith("583:line 583\n(417 more lines below)\n")


@pytest.mark.parametrize(("line", "first"), [(1, 1), (16, 1), (18, 2), (950, 901), (1000, 901)])
def test_goto_shows_a_line_with_some_above_it(box: Toolbox, line: int, first: int) -> None:
    box.write("a", numbers(1000))
    box.run("open", "a")
    code, output = box.run("goto", str(line))
    assert (code, next(iter(shown(output)))) == (0, first)
    assert shown(output)[line] == f"line {line}"


def test_scrolling_keeps_two_lines_in_sight_and_ends_at_the_ends(box: Toolbox) -> None:
    box.write("a", numbers(250))
    firsts = []
    for command in ("open a", "scroll_down", "scroll_down", "scroll_down", "scroll_up", "scroll_up", "scroll_up"):
        code, output = box.run(*command.split())
        assert code == 0
        firsts.append(next(iter(shown(output))))
        assert ("the end of" in output) == (command == "scroll_down" and firsts[-2:] == [151, 151])
    assert firsts == [1, 99, 151, 151, 53, 1, 1]
    assert "the beginning" in output


def test_the_height_of_the_window_can_be_set(box: Toolbox) -> None:
    box.write("a", numbers(50))
    box.env["MLGYM_WINDOW"] = "10"
    assert len(shown(box.run("open", "a")[1])) == 10
    for nonsense in ("x", "-1", "0"):
        box.env["MLGYM_WINDOW"] = nonsense
        assert box.run("open", "a")[0] == 0


def test_a_line_that_is_not_there(box: Toolbox) -> None:
    box.write("a", numbers(300))
    code, output = box.call("open", path="a", line=999)
    assert (code, max(shown(output))) == (0, 300)
    assert "no line 999" in output
    for line in (0, 301, -1):
        code, output = box.call("goto", line=line)
        assert (code, "has 300 lines" in output) == (1, True)
    assert list(shown(box.run("scroll_up")[1])) == list(range(103, 203)), "a refused goto moved the window"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(box: Toolbox, name: str) -> None:
    path = box.write(name, "one\ntwo\n")
    code, output = box.call("open", path=name)
    assert (code, shown(output)) == (0, {1: "one", 2: "two"})
    code, output = box.call("edit", start=2, end=2, text="2")
    assert (code, path.read_bytes()) == (0, b"one\n2\n")
    assert len(output.split("\n")[0]) < len(str(path)) + 60, "the header is one line"
    if name != "--json":
        assert box.run("open", os.fsencode(name))[0] == 0
    assert list(box.workspace.iterdir()) == [path]


def test_what_cannot_be_opened_is_said_clearly(box: Toolbox) -> None:
    os.mkfifo(box.workspace / "pipe")
    (box.workspace / "dangling").symlink_to("nowhere")
    (box.workspace / "loop").symlink_to("loop")
    box.write("binary", b"PK\x00\x01")
    with socket.socket(socket.AF_UNIX) as server:
        old = Path.cwd()
        os.chdir(box.workspace)  # a socket's path is short
        try:
            server.bind("socket")
        finally:
            os.chdir(old)
        for path, word in {
            "/proc/self/mem": "cannot be read",
            "missing": "does not exist",
            ".": "a directory",
            "pipe": "a pipe",
            "socket": "a socket",
            "dangling": "a link to a file that does not exist",
            "loop": "cannot be read",
            "binary": "a binary file",
            "binary/x": "does not exist",
            "/dev/zero": "a device",
            "": "is empty",
            "x\0y": "NUL",
            "n" * 300: "cannot be read",
            "\ud800": "lone surrogate",
        }.items():
            code, output = box.call("open", path=path)
            assert (code, word in output) == (1, True), (path, output)


def test_without_an_open_file_there_is_nothing_to_show(box: Toolbox) -> None:
    for words in (["goto", "1"], ["scroll_down"], ["scroll_up"]):
        code, output = box.run(*words)
        assert (code, "no file is open" in output) == (1, True)
    path = box.write("a", "x\n")
    box.run("open", "a")
    path.unlink()
    code, output = box.run("goto", "1")
    assert (code, "does not exist" in output) == (1, True)


def test_wrong_words_are_answered_with_the_usage(box: Toolbox) -> None:
    for words in (["open"], ["open", "a", "x"], ["goto"], ["goto", "x"], ["scroll_up", "1"], ["edit", "3"], ["edit"]):
        code, output = box.run(*words)
        assert (code, f"usage: {words[0]}" in output) == (2, True)
    for name, text in (("open", "no json"), ("open", "[]"), ("open", "{}"), ("open", '{"path": 1}'), ("goto", "{")):
        code, output = box.run(name, "--json", text=text)
        assert (code, f"usage: {name}" in output) == (2, True)


def test_the_state_is_a_short_line_of_ascii(box: Toolbox) -> None:
    path = box.write("\u4e16", numbers(500))
    box.call("open", path="\u4e16", line=300)
    line = box.state.read_bytes()
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"open": str(path), "line": 284}


def test_a_state_too_long_to_be_told_keeps_its_request_and_the_open_file(box: Toolbox) -> None:
    folder = "/".join(["\u4e16" * 60] * 7)
    path = box.write(f"{folder}/a", numbers(3))
    assert box.run("open", os.fsencode(path))[0] == 0
    assert box.run("submit")[0] == 0
    box.run("goto", "2")
    first, second = box.state.read_bytes().splitlines()
    request = json.loads(first)["request"]
    assert (len(first) <= 2048, request["tool"]) == (True, "submit")
    assert json.loads(second) == {"open": str(path), "line": 1, "request": request}
    assert box.run("edit", "2:2", text="two\n")[0] == 0
    assert path.read_text() == "line 1\ntwo\nline 3\n"
    box.write("b", "x")
    box.run("open", "b")
    assert box.state.read_bytes().count(b"\n") == 1


def test_the_state_can_be_read_whatever_the_agents_mask(box: Toolbox) -> None:
    box.state.parent.rename(box.workspace / "compiled")
    script = "umask 777; submit; umask 022; create new; stat -c %a new"
    done = subprocess.run(["sh", "-c", script], cwd=box.workspace, env=box.env, capture_output=True, check=False)
    assert done.stdout.endswith(b"\n644\n")
    assert [path.stat().st_mode & 0o777 for path in (box.state.parent, box.state)] == [0o700, 0o600]


@pytest.mark.parametrize(
    "spoilt",
    [
        *(b"", b"{", b"[]", b"\xff", b'{"open": 1}', b'{"open": "x", "line": "y"}', b"[" * 5000),
        *(b'{"open": "/a\\u0000b"}', b'{"open": "/\\ud800"}', b'{"request": {"id": [{}], "tool": "submit"}}'),
    ],
)
def test_a_spoilt_state_is_as_good_as_none(box: Toolbox, spoilt: bytes) -> None:
    box.write("a", "x\n")
    box.state.write_bytes(spoilt)
    assert box.run("goto", "1")[0] == 1
    assert box.run("open", "a")[0] == 0
    assert box.run("goto", "1")[0] == 0


def test_without_a_place_for_the_state_it_is_said(box: Toolbox) -> None:
    box.write("a", "x\n")
    box.env["MLGYM_TOOLS_STATE"] = "/proc/no/tools"
    code, output = box.run("open", "a")
    assert (code, "could not be kept" in output) == (1, True)
    del box.env["MLGYM_TOOLS_STATE"]
    code, output = box.run("open", "a")
    assert (code, "MLGYM_TOOLS_STATE is not set" in output) == (1, True)


@pytest.mark.parametrize("broken", ["/proc/no/tools", None])
def test_a_change_that_was_made_is_not_called_refused(box: Toolbox, broken: str | None) -> None:
    path = box.write("a", "x\n")
    if broken is None:
        del box.env["MLGYM_TOOLS_STATE"]
    else:
        box.env["MLGYM_TOOLS_STATE"] = broken
    for words in (["replace", "x", "y", "a"], ["create", "new"]):
        code, output = box.run(*words)
        assert (code, "the change was made, but" in output) == (0, True), output
    assert path.read_text() == "y\n"
    for name in ("validate", "submit"):
        code, output = box.run(name)
        assert (code, f"{name} could not be noted, and will not be done" in output) == (1, True)


def test_without_room_for_a_second_state_the_first_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLGYM_TOOLS_STATE", str(tmp_path / "tools"))
    state.save(open="/a/longer/path", line=7)
    (tmp_path / f"tools.{os.getpid()}").mkdir()  # the place of the second one is taken
    with pytest.raises(Refused):
        state.save(open="/a")
    (tmp_path / f"tools.{os.getpid()}").rmdir()
    (tmp_path / f"tools.{os.getpid()}").symlink_to("/dev/full")
    state.save(open="/a")
    assert state.load() == {"open": "/a", "line": 7}


def test_an_answer_that_cannot_be_written_is_no_traceback(box: Toolbox) -> None:
    path = box.write("a", "x\n")
    box.run("open", "a")
    script = "edit 1:1 <<E >/dev/full\ny\nE\necho $?; goto 9 >&-; echo $?"
    done = subprocess.run(
        ["bash", "-c", script], cwd=box.workspace, env=box.env, capture_output=True, text=True, check=False
    )
    assert (done.stdout, path.read_text()) == ("1\n1\n", "y\n")
    assert done.stderr.splitlines() == [
        "what was asked for is done, but the answer could not be written: No space left on device",
        "goto refused, and the answer could not be written: Bad file descriptor",
    ]


def test_a_pipe_that_another_process_made_nonblocking_is_waited_for(box: Toolbox) -> None:
    box.write("a", ("y" * 900 + "\n") * 100)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    os.set_blocking(reading, True)
    with subprocess.Popen([box.folder / "open", "a"], cwd=box.workspace, env=box.env, stdout=writing) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            output = file.read()
    assert (process.returncode, output.count(b"\n")) == (0, 101)


def test_a_fault_of_a_tool_is_one_line(box: Toolbox) -> None:
    library = box.own_scripts() / "lib" / "agent_tools" / "window.py"
    library.write_text("raise LookupError('two\\nlines')\n")
    code, output = box.run("goto", "1")
    assert (code, output.count("\n"), output.startswith("goto failed: LookupError: two lines;")) == (1, 1, True)


def test_without_python_it_is_said(box: Toolbox) -> None:
    box.env["PATH"] = str(box.folder)
    code, output = box.run("open", "a")
    assert (code, "needs python3" in output) == (127, True)


def test_a_reader_that_leaves_early_is_no_error(box: Toolbox) -> None:
    box.write("a", "x" * 900 + "\n" + ("y" * 900 + "\n") * 99)
    done = subprocess.run(
        ["bash", "-c", "open a | head -n 1; echo ${PIPESTATUS[0]}"],
        cwd=box.workspace,
        env=box.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


def test_lines_that_cannot_be_shown_as_they_are(box: Toolbox) -> None:
    box.write("a", b"x" * 5000 + b"\n\x1b[31mred\rblue\r\nplain \xff\n")
    _, output = box.run("open", "a")
    lines = shown(output)
    assert lines[1] == "x" * 1000 + "[... 4000 more characters]"
    assert lines[2] == "\u241b[31mred\u240dblue"
    assert lines[3] == "plain \udcff"
    for word in ("more than 1000 characters", "control characters", "not UTF-8"):
        assert word in output
    box.write("b", "plain\tand simple\r\n")
    assert box.run("open", "b")[1].endswith("\n1:plain\tand simple\n")


def test_a_file_of_50000_lines(box: Toolbox) -> None:
    path = box.write("a.csv", numbers(50_000))
    _, output = box.call("open", path="a.csv", line=49_990)
    assert list(shown(output)) == list(range(49_901, 50_001))
    code, output = box.call("edit", start=25_000, end=25_001, text="new\n")
    assert (code, shown(output)[25_000]) == (0, "new")
    lines = path.read_text().splitlines()
    assert (len(lines), lines[24_998:25_001]) == (49_999, ["line 24999", "new", "line 25002"])


def test_create(box: Toolbox) -> None:
    code, output = box.run("create", "deep/er/new.txt", text="one\ntwo\n")
    assert (code, shown(output)) == (0, {1: "one", 2: "two"})
    assert (box.workspace / "deep/er/new.txt").read_text() == "one\ntwo\n"
    assert box.run("create", "empty")[0] == 0
    code, output = box.call("edit", start=1, end=1, text="first\n")
    assert (code, (box.workspace / "empty").read_text()) == (0, "first\n")
    assert box.call("create", path="raw", text="no newline")[0] == 0
    assert (box.workspace / "raw").read_bytes() == b"no newline"


def test_create_refuses_what_exists_and_what_cannot_be(box: Toolbox) -> None:
    (box.workspace / "dangling").symlink_to("nowhere")
    box.write("a", "x")
    for path in ("a", "dangling", "."):
        code, output = box.call("create", path=path, text="y")
        assert (code, "exists" in output) == (1, True)
    code, output = box.call("create", path="a/b", text="y")
    assert (code, "cannot be made" in output) == (1, True)
    assert (box.workspace / "a").read_text() == "x"
    assert not (box.workspace / "nowhere").exists()


def test_create_checks_python(box: Toolbox) -> None:
    code, output = box.call("create", path="a.py", text="import os\nprint(osx)\n")
    assert (code, "line 2: undefined name 'osx'" in output) == (1, True)
    assert not (box.workspace / "a.py").exists()
    assert box.call("create", path="a.py", text="import os\nprint(os)\n")[0] == 0
