"""Tools that show and change one open file through a window of lines; the work is done in ``inside/agent_tools``."""

from __future__ import annotations

from pathlib import Path

from mlgym_core.tools.base import Script
from mlgym_core.tools.scripted import script_tool

SCRIPTS = Path(__file__).parent / "inside"
SCRIPT = Script(SCRIPTS / "launch.sh", (SCRIPTS / "agent_tools", "pyflakes"))

_LINE = {"type": "integer", "description": "number of a line, from 1"}
_TEXT = {"type": "string", "description": "whole lines, indented as they are to be, without line numbers"}
_CHECKED = "Python files are checked: a change that brings syntax errors or undefined names is refused and shown."

OPEN = script_tool(
    "open",
    "Open a text file and show a window of its lines, from the beginning or around a line. It stays open for goto, "
    "scrolling, edit, insert, replace and search_file. In bash: open PATH [LINE].",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "of the file"},
            "line": {"type": "integer", "description": "number of a line to show, from 1; the first by default"},
        },
        "required": ["path"],
    },
    SCRIPT,
)
GOTO = script_tool(
    "goto",
    "Show the window of the open file around a line. In bash: goto LINE.",
    {"type": "object", "properties": {"line": _LINE}, "required": ["line"]},
    SCRIPT,
)
SCROLL_UP = script_tool(
    "scroll_up", "Move the window of the open file up by its height.", {"type": "object", "properties": {}}, SCRIPT
)
SCROLL_DOWN = script_tool(
    "scroll_down", "Move the window of the open file down by its height.", {"type": "object", "properties": {}}, SCRIPT
)
CREATE = script_tool(
    "create",
    f"Make a new file, with the folders above it, and open it. Existing files are refused. {_CHECKED} "
    "In bash: create PATH <<'EOF', the text, EOF.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "of the new file"},
            "text": {"type": "string", "description": "its content; empty by default"},
        },
        "required": ["path"],
    },
    SCRIPT,
)
EDIT = script_tool(
    "edit",
    f"Put text in the place of lines start to end of the open file, both included; empty text deletes them. {_CHECKED} "
    "In bash: edit START:END <<'EOF', the text, EOF; or edit START:END --delete.",
    {
        "type": "object",
        "properties": {
            "start": {"type": "integer", "description": "first line to replace, from 1"},
            "end": {"type": "integer", "description": "last line to replace"},
            "text": _TEXT,
        },
        "required": ["start", "end", "text"],
    },
    SCRIPT,
)
INSERT = script_tool(
    "insert",
    f"Insert text after a line of the open file; 0 inserts at the top. {_CHECKED} "
    "In bash: insert LINE <<'EOF', the text, EOF.",
    {
        "type": "object",
        "properties": {"line": {"type": "integer", "description": "line after which it goes, 0 for the top"}}
        | {"text": _TEXT},
        "required": ["line", "text"],
    },
    SCRIPT,
)
REPLACE = script_tool(
    "replace",
    "Replace a text in the open file, or in the one that path names. The old text must match exactly, blanks and line "
    f"ends included, and occur once, unless all is set. {_CHECKED} In bash: replace [--all] 'OLD' 'NEW' [PATH].",
    {
        "type": "object",
        "properties": {
            "old": {"type": "string", "description": "text to replace; may span lines"},
            "new": {"type": "string", "description": "text in its place"},
            "all": {"type": "boolean", "description": "replace every occurrence; false by default"},
            "path": {"type": "string", "minLength": 1, "description": "of the file; the open one by default"},
        },
        "required": ["old", "new"],
    },
    SCRIPT,
)

TOOLS = (OPEN, GOTO, SCROLL_UP, SCROLL_DOWN, CREATE, EDIT, INSERT, REPLACE)
