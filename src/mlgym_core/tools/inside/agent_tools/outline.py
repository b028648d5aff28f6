"""The outline of a Python file: filemap."""

from __future__ import annotations

import ast
import warnings

from . import files
from .command import Command, Refused, counted, text_of
from .lines import Lines, name, numbered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_MOST_LINES = 500
_KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _filemap(arguments: Mapping[str, Any]) -> bytes:
    path = files.absolute(text_of(arguments, "file"))
    lines = files.read(path)
    if any(b"\r" in line[:-1] for line in lines.lines):
        raise Refused(
            f"{name(path)} has no outline: Python takes its carriage returns for line ends, the tools do not; "
            "convert it with `tr '\\r' '\\n'`"
        )
    tree = _parsed(path, lines)
    rows: list[bytes] = []
    for node in _definitions(tree):
        rows += _headline(node, lines)
    total = len(lines)
    text = [f"[Outline: {name(path)} ({total} lines total)]".encode("utf-8", "surrogateescape"), *rows[:_MOST_LINES]]
    if not rows:
        text.append(b"[no class or function; open the file to read it]")
    if len(rows) > _MOST_LINES:
        text.append(b"[and %d more lines of the outline]" % (len(rows) - _MOST_LINES))
    return b"\n".join(text)


def _parsed(path: str, lines: Lines) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(lines.to_bytes())
    except SyntaxError as error:
        raise Refused(
            f"{name(path)} has no outline, because it is not valid Python: line {error.lineno or 1}: {error.msg}"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"{name(path)} is nested too deeply for an outline; open it instead") from error


def _definitions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Classes and functions in the order of the source, those within others and within ifs and tries included."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _KINDS):
            yield node
        if not isinstance(node, ast.expr):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _headline(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: Lines) -> list[bytes]:
    """A definition's decorators and signature, and how long its body is."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    body = node.body[0].lineno
    # A decorated definition that comes first in a body begins at its decorator.
    for decorator in getattr(node.body[0], "decorator_list", ()):
        body = min(body, decorator.lineno)
    last = max(node.lineno, body - 1)
    while last > node.lineno and not lines.lines[last - 1].split(b"#")[0].strip():
        last -= 1
    rows = numbered(lines.lines[first - 1 : last], first)
    end = node.end_lineno or last
    if end > last:
        rows[-1] += b"  [to line %d]" % end
    return rows


COMMANDS = {
    "filemap": Command(lambda words: {"file": counted(words, 1, 1)[0]}, _filemap),
}
