"""edit, insert and replace: what they do to bytes, what they refuse, and what becomes of the file itself."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.toolbox import Toolbox, shown

from mlgym_core.tools.inside.agent_tools import change, window
from mlgym_core.tools.inside.agent_tools.command import Refused

PIECES = [b"a", b"\n", b"\r\n", b"\r", b"\xff\xfe", "\u00e9".encode(), b"  b", b"end_of_edit\n"]
content = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
texts = st.lists(st.sampled_from(["", "a", "  b", "\u00e9", "\udcff"]), max_size=4)


def model(data: bytes, start: int, end: int, new: list[bytes]) -> bytes:
    """The same edit, thought of in another way: pieces with their endings, which are then put right."""
    pieces = re.findall(rb"[^\n]*\n|[^\n]+", data)
    ended = [piece for piece in pieces if piece.endswith(b"\n")]
    ending = b"\r\n" if 2 * sum(piece.endswith(b"\r\n") for piece in ended) > len(ended) else b"\n"
    unended = bool(pieces) and not pieces[-1].endswith(b"\n")
    pieces[start - 1 : end] = [line + ending for line in new]
    if unended:
        for index, piece in enumerate(pieces[:-1]):
            if not piece.endswith(b"\n"):
                pieces[index] += b"\n" if piece.endswith(b"\r") else ending
        if pieces:
            pieces[-1] = re.sub(rb"(?<=.)\r?\n\Z", b"", pieces[-1]) if pieces[-1] != b"\r\n" else pieces[-1]
    return b"".join(pieces)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLGYM_TOOLS_STATE", str(tmp_path / "tools"))
    return tmp_path / "file"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content, st.data(), texts)
def test_an_edit_changes_these_lines_and_no_other_byte(
    place: Path, data: bytes, draw: st.DataObject, lines: list[str]
) -> None:
    place.write_bytes(data)
    window.COMMANDS["open"].run({"path": str(place)})
    total = len(re.findall(rb"[^\n]*\n|[^\n]+", data))
    start = draw.draw(st.integers(1, max(1, total)))
    end = draw.draw(st.integers(start, total + 2))
    output = change.COMMANDS["edit"].run({"start": start, "end": end, "text": "".join(f"{line}\n" for line in lines)})
    expected = model(data, start, min(end, total), [line.encode("utf-8", "surrogateescape") for line in lines])
    assert place.read_bytes() == expected
    assert b"(%d lines total)]" % len(re.findall(rb"[^\n]*\n|[^\n]+", expected)) in output


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content, st.data(), texts.filter(bool))
def test_an_insertion_changes_no_other_byte(place: Path, data: bytes, draw: st.DataObject, lines: list[str]) -> None:
    place.write_bytes(data)
    window.COMMANDS["open"].run({"path": str(place)})
    line = draw.draw(st.integers(0, len(re.findall(rb"[^\n]*\n|[^\n]+", data))))
    change.COMMANDS["insert"].run({"line": line, "text": "".join(f"{line}\n" for line in lines)})
    new = [line.encode("utf-8", "surrogateescape") for line in lines]
    assert place.read_bytes() == model(data, line + 1, line, new)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content, content.filter(bool), content)
def test_a_replacement_is_exact(place: Path, data: bytes, old: bytes, new: bytes) -> None:
    place.write_bytes(data)
    words = {"old": old.decode("utf-8", "surrogateescape"), "new": new.decode("utf-8", "surrogateescape")}
    arguments = {**words, "path": str(place)}
    if b"\r" in data + old + new or old not in data:
        try:
            change.COMMANDS["replace"].run({**arguments, "all": True})
        except Refused:
            assert place.read_bytes() == data
        return
    if data.count(old) > 1:
        with pytest.raises(Refused, match=f"occurs {data.count(old)} times"):
            change.COMMANDS["replace"].run(arguments)
        assert place.read_bytes() == data
        arguments["all"] = True
    change.COMMANDS["replace"].run(arguments)
    assert place.read_bytes() == data.replace(old, new)


# In the shell.


def test_the_text_comes_on_standard_input(box: Toolbox) -> None:
    path = box.write("a", "1\n2\n3\n4\n")
    box.run("open", "a")
    code, output = box.run("edit", "2:3", text="two\n  three\n")
    assert (code, shown(output)) == (0, {1: "1", 2: "two", 3: "  three", 4: "4"})
    assert box.run("insert", "0", text="top\n")[0] == 0
    assert box.run("insert", "5", text="bottom")[0] == 0
    assert box.run("edit", "2:2", text="one\n")[0] == 0
    assert path.read_text() == "top\none\ntwo\n  three\n4\nbottom\n"


def test_without_text_nothing_is_deleted_by_mistake(box: Toolbox) -> None:
    path = box.write("a", "1\n2\n3\n")
    box.run("open", "a")
    for words in (["edit", "1:2"], ["insert", "1"], ["replace"]):
        code, output = box.run(*words)
        assert (code, "no text was given" in output) == (1, True)
    assert path.read_text() == "1\n2\n3\n"
    assert box.run("edit", "1:2", "--delete")[0] == 0
    assert path.read_text() == "3\n"
    assert box.call("edit", start=1, end=1, text="")[0] == 0
    assert path.read_text() == ""


def test_lines_that_are_not_there(box: Toolbox) -> None:
    path = box.write("a", "1\n2\n3\n")
    box.run("open", "a")
    for start, end in ((0, 1), (4, 4), (3, 2), (-1, 1)):
        code, output = box.call("edit", start=start, end=end, text="x")
        assert (code, "has 3" in output) == (1, True)
    for line in (-1, 4):
        assert box.call("insert", line=line, text="x")[0] == 1
    assert path.read_text() == "1\n2\n3\n"
    assert box.call("edit", start=2, end=99, text="x")[0] == 0
    assert path.read_text() == "1\nx\n"


def test_an_edit_is_shown_in_the_middle_of_the_window(box: Toolbox) -> None:
    box.write("a", "".join(f"{number}\n" for number in range(1, 1001)))
    box.run("open", "a")
    _, output = box.call("edit", start=500, end=500, text="x\ny\n")
    assert list(shown(output)) == list(range(450, 550))
    _, output = box.call("insert", line=500, text="long\n" * 80)
    assert next(iter(shown(output))) == 501 - 16


def test_replace(box: Toolbox) -> None:
    path = box.write("a", "x = 1\ny = 1\n\n  z = 1\n")
    code, output = box.run("replace", "y = 1\n\n  z", "w\nz", "a")
    assert (code, path.read_text()) == (0, "x = 1\nw\nz = 1\n")
    assert shown(output) == {1: "x = 1", 2: "w", 3: "z = 1"}
    code, output = box.run("replace", "= 1", "= 2")
    assert (code, "occurs 2 times" in output, "lines 1, 3" in output) == (1, True, True)
    assert box.run("replace", "--all", "= 1", "= 2")[0] == 0
    assert box.run("replace", text="w\nz = 2\n=======\nv\n")[0] == 0
    assert path.read_text() == "x = 2\nv\n"


def test_a_text_that_is_not_there_is_looked_for(box: Toolbox) -> None:
    path = box.write("a", "if x:\n\tprint(  1 )\n")
    for old, word in (("  print( 1 )", "line 2 is like it"), ("nothing", "does not occur"), ("", "is empty")):
        code, output = box.call("replace", old=old, new="y", path="a")
        assert (code, word in output) == (1, True)
    assert path.read_text() == "if x:\n\tprint(  1 )\n"


def test_a_replacement_follows_the_files_line_ends(box: Toolbox) -> None:
    path = box.write("a", "one\r\ntwo\r\nthree\r\n")
    assert box.call("replace", old="one\ntwo", new="1\n2\n2b", path="a")[0] == 0
    assert box.call("replace", old="three", new="3\n4")[0] == 0
    assert path.read_bytes() == b"1\r\n2\r\n2b\r\n3\r\n4\r\n"


# The file itself.


def test_mode_links_and_owner_stay(box: Toolbox) -> None:
    path = box.write("real/script.sh", "1\n")
    path.chmod(0o751)
    (box.workspace / "link").symlink_to("real/script.sh")
    os.link(path, box.workspace / "other")
    inode = path.stat().st_ino
    box.run("open", "link")
    assert box.call("edit", start=1, end=1, text="2")[0] == 0
    assert (box.workspace / "link").is_symlink()
    assert (path.read_text(), (box.workspace / "other").read_text()) == ("2\n", "2\n")
    assert (path.stat().st_mode & 0o777, path.stat().st_ino) == (0o751, inode)
    (box.workspace / "other").unlink()
    assert box.call("edit", start=1, end=1, text="3")[0] == 0
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("3\n", 0o751)
    assert list(path.parent.iterdir()) == [path]


def test_read_only_files_are_refused(box: Toolbox) -> None:
    path = box.write("a", "1\n")
    path.chmod(0o444)
    box.run("open", "a")
    for name, arguments in (
        ("edit", {"start": 1, "end": 1, "text": "x"}),
        ("insert", {"line": 0, "text": "x"}),
        ("replace", {"old": "1", "new": "2"}),
    ):
        code, output = box.call(name, **arguments)
        assert (code, "is read-only" in output) == (1, True)
    assert path.read_text() == "1\n"


def test_a_text_that_no_file_can_hold_is_refused(box: Toolbox) -> None:
    path = box.write("a", "1\n")
    box.run("open", "a")
    for text, word in (("x\0y", "NUL"), ("\ud800", "lone surrogate")):
        code, output = box.call("edit", start=1, end=1, text=text)
        assert (code, word in output) == (1, True)
    assert path.read_text() == "1\n"


# Python.

SOURCE = "import os\n\n\ndef f(a):\n    return os.getcwd() + a\n"


def test_a_syntax_error_is_refused_with_both_snippets(box: Toolbox) -> None:
    path = box.write("a.py", SOURCE)
    box.run("open", "a.py")
    code, output = box.call("edit", start=5, end=5, text="    return (os.getcwd()\n")
    assert code == 1
    assert "- line 5: SyntaxError: '(' was never closed" in output
    after, _, before = output.partition("This is how it looks now:")
    assert "5:    return (os.getcwd()" in after
    assert "5:    return os.getcwd() + a" in before
    assert "Nothing was changed" in before
    assert path.read_text() == SOURCE


def test_names_that_an_edit_leaves_undefined_are_refused(box: Toolbox) -> None:
    path = box.write("a.py", SOURCE)
    box.run("open", "a.py")
    code, output = box.call("edit", start=1, end=1, text="")
    assert (code, "- line 4: undefined name 'os'" in output) == (1, True)
    code, output = box.call("replace", old="+ a", new="+ b")
    assert (code, "- line 5: undefined name 'b'" in output) == (1, True)
    code, output = box.call("insert", line=4, text="x = 1\n")
    assert (code, "IndentationError" in output) == (1, True)
    assert path.read_text() == SOURCE


@pytest.mark.parametrize(
    ("start", "end", "text", "code"),
    [
        (1, 1, "# a comment\n# and one more\nx = 1\n", 0),  # the old error moves down
        (3, 3, "print(unknown, other)", 1),  # one of two is new
        (3, 3, "print( unknown )", 0),  # the old one, in a line that is edited
        (3, 3, "print(unknown, unknown)", 1),  # a second use is new
        (4, 4, "print(unknown)", 1),  # the same name elsewhere is new
        (3, 3, "", 0),
    ],
)
def test_only_new_errors_count(box: Toolbox, start: int, end: int, text: str, code: int) -> None:
    box.write("a.py", "x = 1\ny = 2\nprint(unknown)\nprint(x, y)\n")
    box.run("open", "a.py")
    assert box.call("edit", start=start, end=end, text=text)[0] == code


def test_a_broken_file_can_be_mended_bit_by_bit(box: Toolbox) -> None:
    path = box.write("a.py", "def f(:\n    pass\n\nx = = 1\nprint(unknown)\n")
    box.run("open", "a.py")
    code, output = box.call("edit", start=2, end=2, text="    return 1")
    assert (code, "does not compile, as before: line 1" in output) == (0, True)
    code, output = box.call("edit", start=1, end=1, text="def f():")
    assert (code, "does not compile, as before: line 4" in output) == (0, True)
    assert box.call("edit", start=2, end=2, text="    return 1 +")[0] == 1, "a break elsewhere is new"
    code, output = box.call("edit", start=4, end=4, text="x = 1")
    assert (code, "with undefined names: unknown" in output) == (0, True)
    assert path.read_text() == "def f():\n    return 1\n\nx = 1\nprint(unknown)\n"


def test_other_files_are_not_checked(box: Toolbox) -> None:
    box.write("a.txt", "x\n")
    box.run("open", "a.txt")
    assert box.call("edit", start=1, end=1, text="def (:")[0] == 0


def test_without_the_checker_of_names_the_syntax_is_still_checked(box: Toolbox) -> None:
    shutil.rmtree(box.own_scripts() / "lib" / "pyflakes")
    path = box.write("a.py", SOURCE)
    box.run("open", "a.py")
    assert box.call("edit", start=5, end=5, text="    return (")[0] == 1
    code, output = box.call("edit", start=5, end=5, text="    return unknown")
    assert (code, "only the syntax was checked" in output) == (0, True)
    assert "unknown" in path.read_text()


def test_large_sources_are_checked_less(box: Toolbox) -> None:
    for lines, text, remark in (
        (30_000, "x = (", "SyntaxError"),
        (30_000, "unknown", "only the syntax was checked: the file is large"),
        (130_000, "x = (", "not checked: it is large"),
    ):
        box.write("a.py", "x = 'some text that is long enough'\n" * lines)
        box.run("open", "a.py")
        code, output = box.call("edit", start=1, end=1, text=text)
        assert (code, remark in output) == (1 if remark == "SyntaxError" else 0, True)


def test_sources_that_are_hard_to_read(box: Toolbox) -> None:
    box.write("latin.py", "# -*- coding: latin-1 -*-\nx = '\u00e9'\n".encode("latin-1"))
    box.run("open", "latin.py")
    assert box.call("insert", line=2, text="y = x")[0] == 0
    box.write("wrong.py", b"x = '\xff'\ny = 1\n")
    box.run("open", "wrong.py")
    code, output = box.call("edit", start=2, end=2, text="y = 2")
    assert (code, "as before" in output) == (0, True)
    box.write("deep.py", "x = 1\n")
    box.run("open", "deep.py")
    code, output = box.call("edit", start=1, end=1, text="x = " + "-" * 100_000 + "1")
    assert (code, "not checked" in output) == (0, True)
    box.write("windows.py", "import os\r\n\r\nprint(os)\r\n")
    box.run("open", "windows.py")
    assert box.call("edit", start=3, end=3, text="print(os.name)\n")[0] == 0
    assert (box.workspace / "windows.py").read_bytes() == b"import os\r\n\r\nprint(os.name)\r\n"
