"""Every tool that is a program here, declared once: what the agent reads of it, its arguments, who does the work.

The host makes tool calls of it (``mlgym_core.tools.builtin``), the command line here finds its module and usage.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Declared:
    """One tool.

    Attributes:
        module: of this package, that has its ``Command``.
        about: for the agent; how to call it in the shell is added.
        usage: of its command line.
        arguments: JSON schema of each.
        optional: names of those that may be left out.
    """

    __slots__ = ("about", "arguments", "module", "optional", "usage")

    def __init__(
        self,
        module: str,
        about: str,
        usage: str,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        optional: Sequence[str] = (),
    ) -> None:
        self.module = module
        self.about = about
        self.usage = usage
        self.arguments = arguments or {}
        self.optional = optional


_CHECKED = "Python files are checked: a change that brings syntax errors or undefined names is refused and shown."
_TEXT = {"type": "string", "description": "whole lines, indented as they are to be, without line numbers"}
_TERM = {"type": "string", "description": "literal text within one line"}
_DIR = {"type": "string", "minLength": 1, "description": "folder to look below; the current one by default"}

TOOLS = {
    "open": Declared(
        "window",
        "Open a text file and show a window of its lines, from the beginning or around a line. It stays open for goto, "
        "scrolling, edit, insert, replace and search_file.",
        "open PATH [LINE]",
        {
            "path": {"type": "string", "description": "of the file"},
            "line": {"type": "integer", "description": "number of a line to show, from 1; the first by default"},
        },
        ["line"],
    ),
    "goto": Declared(
        "window",
        "Show the window of the open file around a line.",
        "goto LINE",
        {"line": {"type": "integer", "description": "number of a line, from 1"}},
    ),
    "scroll_up": Declared("window", "Move the window of the open file up by its height.", "scroll_up"),
    "scroll_down": Declared("window", "Move the window of the open file down by its height.", "scroll_down"),
    "create": Declared(
        "window",
        f"Make a new file, with the folders above it, and open it. Existing files are refused. {_CHECKED}",
        "create PATH <<'EOF', the text, EOF",
        {
            "path": {"type": "string", "description": "of the new file"},
            "text": {"type": "string", "description": "its content; empty by default"},
        },
        ["text"],
    ),
    "edit": Declared(
        "change",
        "Put text in the place of lines start to end of the open file, both included; empty text deletes them. "
        f"{_CHECKED}",
        "edit START:END <<'EOF', the text, EOF; or edit START:END --delete",
        {
            "start": {"type": "integer", "description": "first line to replace, from 1"},
            "end": {"type": "integer", "description": "last line to replace"},
            "text": _TEXT,
        },
    ),
    "insert": Declared(
        "change",
        f"Insert text after a line of the open file; 0 inserts at the top. {_CHECKED}",
        "insert LINE <<'EOF', the text, EOF",
        {"line": {"type": "integer", "description": "line after which it goes, 0 for the top"}, "text": _TEXT},
    ),
    "replace": Declared(
        "change",
        "Replace a text in the open file, or in the one that path names. The old text must match exactly, blanks and "
        f"line ends included, and occur once, unless all is set. {_CHECKED}",
        "replace [--all] 'OLD' 'NEW' [PATH]",
        {
            "old": {"type": "string", "description": "text to replace; may span lines"},
            "new": {"type": "string", "description": "text in its place"},
            "all": {"type": "boolean", "description": "replace every occurrence; false by default"},
            "path": {"type": "string", "minLength": 1, "description": "of the file; the open one by default"},
        },
        ["all", "path"],
    ),
    "search_dir": Declared(
        "find",
        "Find the files below a folder that hold a text, with the number of lines in each. Hidden and binary files are "
        "left out.",
        "search_dir TERM [DIR]",
        {"term": _TERM, "dir": _DIR},
        ["dir"],
    ),
    "search_file": Declared(
        "find",
        "Find the lines of a file that hold a text, with their numbers.",
        "search_file TERM [FILE]",
        {
            "term": _TERM,
            "file": {"type": "string", "minLength": 1, "description": "path of the file; the open one by default"},
        },
        ["file"],
    ),
    "find_file": Declared(
        "find",
        "Find files below a folder by name or by a pattern such as *.py.",
        "find_file NAME [DIR]",
        {"name": {"type": "string", "description": "name or shell pattern"}, "dir": _DIR},
        ["dir"],
    ),
    "filemap": Declared(
        "outline",
        "Show the outline of a Python file: its classes and functions with line numbers and signatures, without their "
        "bodies.",
        "filemap FILE",
        {"file": {"type": "string", "description": "path of the Python file"}},
    ),
    "validate": Declared(
        "request",
        "Freeze the submission in your workspace and score it on the dev split. Counted; see your limits.",
        "validate",
    ),
    "submit": Declared(
        "request",
        "Freeze the submission in your workspace, have it scored on the hidden test split, and finish.",
        "submit",
    ),
}
