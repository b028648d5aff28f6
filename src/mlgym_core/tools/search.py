"""Tools that look for files and in files; the work is done in ``inside/agent_tools``."""

from __future__ import annotations

from mlgym_core.tools.editor import SCRIPT
from mlgym_core.tools.scripted import script_tool

_TERM = {"type": "string", "description": "literal text within one line"}
_DIR = {"type": "string", "minLength": 1, "description": "folder to look below; the current one by default"}

SEARCH_DIR = script_tool(
    "search_dir",
    "Find the files below a folder that hold a text, with the number of lines in each. Hidden and binary files are "
    "left out. In bash: search_dir TERM [DIR].",
    {"type": "object", "properties": {"term": _TERM, "dir": _DIR}, "required": ["term"]},
    SCRIPT,
)
SEARCH_FILE = script_tool(
    "search_file",
    "Find the lines of a file that hold a text, with their numbers. In bash: search_file TERM [FILE].",
    {
        "type": "object",
        "properties": {
            "term": _TERM,
            "file": {"type": "string", "minLength": 1, "description": "path of the file; the open one by default"},
        },
        "required": ["term"],
    },
    SCRIPT,
)
FIND_FILE = script_tool(
    "find_file",
    "Find files below a folder by name or by a pattern such as *.py. In bash: find_file NAME [DIR].",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "name or shell pattern"}, "dir": _DIR},
        "required": ["name"],
    },
    SCRIPT,
)
FILEMAP = script_tool(
    "filemap",
    "Show the outline of a Python file: its classes and functions with line numbers and signatures, without their "
    "bodies. In bash: filemap FILE.",
    {
        "type": "object",
        "properties": {"file": {"type": "string", "description": "path of the Python file"}},
        "required": ["file"],
    },
    SCRIPT,
)

TOOLS = (SEARCH_DIR, SEARCH_FILE, FIND_FILE, FILEMAP)
