"""Looking for files, for text in files, and at the outline of a Python file."""

from __future__ import annotations

import itertools
import os
import time

import pytest
from tools.toolbox import Toolbox, shown

from mlgym_core.tools.inside.agent_tools import find


@pytest.fixture
def tree(box: Toolbox) -> Toolbox:
    box.write("a.py", "import os\nneedle = 1\nprint(needle)\n")
    box.write("deep/b.py", "needle\n")
    box.write("deep/er/c.txt", "nothing\n")
    box.write("deep/.hidden/d.txt", "needle\n")
    box.write(".env", "needle\n")
    box.write("binary", b"needle\0needle\n")
    box.write("latin", b"\xe9 needle\r\n")
    (box.workspace / "deep" / "up").symlink_to("..")
    (box.workspace / "linked.py").symlink_to("deep/b.py")
    os.mkfifo(box.workspace / "pipe")
    return box


def listed(box: Toolbox, output: str) -> list[str]:
    prefix = f"{box.workspace}/"
    return [line.removeprefix(prefix) for line in output.splitlines() if line.startswith(prefix)]


def test_search_dir_counts_lines_in_each_file(tree: Toolbox) -> None:
    code, output = tree.run("search_dir", "needle")
    assert code == 0
    assert output.startswith(f"'needle' is in 5 lines of 4 files below {tree.workspace}:\n")
    assert listed(tree, output) == ["a.py (2 lines)", "latin (1 line)", "linked.py (1 line)", "deep/b.py (1 line)"]
    assert listed(tree, tree.run("search_dir", "needle", "deep")[1]) == ["deep/b.py (1 line)"]
    assert "is in no file below" in tree.call("search_dir", term="haystack")[1]


@pytest.mark.parametrize("term", ["a.b", "^x$", "[", "*", "-e", "it's", "\\n", "--json "])
def test_terms_are_taken_literally(box: Toolbox, term: str) -> None:
    box.write("hit", f"before {term} after\n")
    box.write("miss", "ab x e n\n")
    assert listed(box, box.run("search_dir", term)[1]) == ["hit (1 line)"]
    assert list(shown(box.run("search_file", term, "hit")[1])) == [1]


def test_many_hits_are_cut(box: Toolbox) -> None:
    for number in range(120):
        box.write(f"{number:03}", "x\n" * 150)
    for words in (["search_dir", "x"], ["search_file", "x", "000"], ["find_file", "*"]):
        code, output = box.run(*words)
        assert code == 0
        assert len(output.splitlines()) < 105
        assert "more; be more specific" in output


def test_search_file_takes_the_open_file_by_default(tree: Toolbox) -> None:
    assert tree.run("search_file", "needle")[0] == 1
    tree.run("open", "a.py")
    code, output = tree.run("search_file", "needle")
    assert code == 0
    assert [line for line in output.splitlines() if line[0].isdigit()] == ["2:needle = 1", "3:print(needle)"]
    code, output = tree.call("search_file", term="no such", file="deep/b.py")
    assert (code, "is in no line" in output) == (0, True)
    assert tree.call("search_file", term="x", file="binary")[0] == 1


@pytest.mark.parametrize("term", ["", "two\nlines", "\0"])
def test_terms_that_make_no_sense_are_refused(tree: Toolbox, term: str) -> None:
    for name in ("search_dir", "search_file"):
        assert tree.call(name, term=term)[0] == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("b.py", ["deep/b.py"]),
        ("*.py", ["a.py", "linked.py", "deep/b.py"]),
        ("deep/*.py", ["deep/b.py"]),
        ("d.txt", ["deep/.hidden/d.txt"]),
        ("A.PY", []),
        ("pipe", ["pipe"]),
    ],
)
def test_find_file_by_name_or_pattern(tree: Toolbox, name: str, found: list[str]) -> None:
    code, output = tree.run("find_file", name)
    assert (code, listed(tree, output)) == (0, found)


def test_find_file_below_a_folder(tree: Toolbox) -> None:
    assert listed(tree, tree.run("find_file", "*.txt", "deep/er")[1]) == ["deep/er/c.txt"]
    for words in (["find_file", "x", "missing"], ["search_dir", "x", "a.py"]):
        code, output = tree.run(*words)
        assert (code, "is not a directory" in output) == (1, True)
    assert tree.call("find_file", name="")[0] == 1


@pytest.mark.parametrize(("tool", "argument"), [("search_dir", "term"), ("find_file", "name")])
def test_the_deadline_holds_within_a_folder(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch, tool: str, argument: str
) -> None:
    for number in range(50):
        box.write(f"{number:02}", "needle\n")
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    text = {"term": "needle", "name": "*"}[argument]
    output = find.COMMANDS[tool].run({argument: text, "dir": str(box.workspace)}).decode()
    assert len(listed(box, output)) == 20
    assert output.splitlines()[21] == "[stopped after 20 s; search a smaller folder]"


def test_half_a_surrogate_pair_is_no_name(box: Toolbox) -> None:
    code, output = box.call("find_file", name="\ud800")
    assert (code, "lone surrogate" in output) == (1, True)


def test_odd_names_stay_on_one_line(box: Toolbox) -> None:
    for name in ("new\nline", "\udcff", "\u4e16"):
        box.write(name, "needle\n")
    _, output = box.run("search_dir", "needle")
    assert sorted(listed(box, output)) == ["new\u240aline (1 line)", "\u4e16 (1 line)", "\udcff (1 line)"]
    assert len(listed(box, box.run("find_file", "*")[1])) == 3


SOURCE = '''\
"""A module."""
import os


@decorator(
    1,
)
def f(a: int,
      *, b="def g():") -> str:
    # a comment
    """Doc."""
    def inner():
        return 1

    return a


class A(Base):
    x = 1

    @property
    def y(self): return self.x

    async def z(self):
        pass


if os:
    def g(): ...
else:
    try:
        class B: pass
    finally:
        pass
'''


def test_filemap_shows_definitions_with_their_signatures(box: Toolbox) -> None:
    box.write("a.py", SOURCE)
    code, output = box.run("filemap", "a.py")
    assert code == 0
    assert output.splitlines() == [
        f"[Outline: {box.workspace}/a.py (34 lines total)]",
        "5:@decorator(",
        "6:    1,",
        "7:)",
        "8:def f(a: int,",
        '9:      *, b="def g():") -> str:  [to line 15]',
        "12:    def inner():  [to line 13]",
        "18:class A(Base):  [to line 25]",
        "21:    @property",
        "22:    def y(self): return self.x",
        "24:    async def z(self):  [to line 25]",
        "29:    def g(): ...",
        "32:        class B: pass",
    ]
    assert not box.state.exists(), "an outline opens nothing"


def test_filemap_of_what_has_no_outline(box: Toolbox) -> None:
    box.write("empty.py", "")
    assert "no class or function" in box.run("filemap", "empty.py")[1]
    box.write("broken.py", "x = 1\ndef f(:\n")
    code, output = box.call("filemap", file="broken.py")
    assert (code, "not valid Python: line 2" in output) == (1, True)
    box.write("deep.py", "x = " + "-" * 100_000 + "1\n")
    code, output = box.call("filemap", file="deep.py")
    assert (code, "nested too deeply" in output) == (1, True)
    box.write("returns.py", b"x = 1\rdef f():\r    pass\rdef g(): pass\r")
    code, output = box.run("filemap", "returns.py")
    assert (code, "carriage returns" in output) == (1, True)
    box.write("both.py", b"x = 1\r\ndef f(): pass\r\n")
    assert shown(box.run("filemap", "both.py")[1]) == {2: "def f(): pass"}
    box.write("long.py", "def f(): pass\n" * 600)
    assert "100 more lines of the outline" in box.run("filemap", "long.py")[1]
    assert box.run("filemap", "missing.py")[0] == 1
