"""The open file, seen through a window of lines: open, goto, scroll_up, scroll_down, create."""

from __future__ import annotations

import os

from . import files, state
from .command import Command, Refused, content_of, counted, nothing, number_of, read_input, text_of
from .lines import MOST_CHARACTERS, Lines, name, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

OVERLAP = 2  #: lines that stay in sight when scrolling
_DEFAULT = 100
_MOST = 10_000


class View:
    """An open file.

    Attributes:
        path: absolute.
        lines: its content.
        top: number of the window's first line, from 1.
    """

    def __init__(self, path: str, lines: Lines, top: int) -> None:
        self.path = path
        self.lines = lines
        self.top = top


def size() -> int:
    """Lines in the window: ``MLGYM_WINDOW``, else 100."""
    try:
        return min(max(1, int(os.environ.get("MLGYM_WINDOW", _DEFAULT))), _MOST)
    except ValueError:
        return _DEFAULT


def current() -> View:
    """The open file as it is now.

    Raises:
        Refused: none is open, or it cannot be read any more.
    """
    known = state.load()
    path, top = known.get("open"), known.get("line", 1)
    if not isinstance(path, str):
        raise Refused("no file is open; open one with `open PATH`")
    return View(path, files.read(path), top if isinstance(top, int) else 1)


def show(view: View, notes: Sequence[str] = (), changed: bool = False) -> bytes:
    """Remember a view and return what the agent reads of it.

    Args:
        view: of the file.
        notes: what else to say.
        changed: the file has been changed, so that there is nothing to refuse any more.

    Raises:
        Refused: the view cannot be remembered.
    """
    total, height = len(view.lines), size()
    top = min(max(1, view.top), max(1, total - height + 1))
    try:
        state.save(open=view.path, line=top)
    except Refused as refusal:
        if not changed:
            raise
        notes = [
            *notes,
            f"the change was made, but this view is not remembered; `open` the file before the next one: {refusal}",
        ]
    part = view.lines.lines[top - 1 : top - 1 + height]
    below = max(0, total - top + 1 - height)
    text = [f"[File: {name(view.path)} ({total} lines total)]".encode("utf-8", "surrogateescape")]
    text += [b"(%d more lines above)" % (top - 1)] if top > 1 else []
    seen = set()
    for number, line in enumerate(part, top):
        readable, note = shown(line)
        text.append(b"%d:%b" % (number, readable))
        seen.add(note)
    text += [b"(%d more lines below)" % below] if below else []
    text += [f"[{note}]".encode("utf-8", "surrogateescape") for note in (*_remarks(part, seen), *notes)]
    return b"\n".join(text)


def _remarks(part: Sequence[bytes], seen: set[str]) -> list[str]:
    remarks = []
    if "long" in seen:
        remarks.append(f"lines of more than {MOST_CHARACTERS} characters are shown in part; use `replace` on them")
    if "control" in seen:
        remarks.append("control characters are shown as the pictures ␀ to ␡")
    try:
        b"\n".join(part).decode("utf-8")
    except UnicodeDecodeError:
        remarks.append("some bytes are not UTF-8; they are kept as they are")
    return remarks


def around(line: int, count: int = 1) -> int:
    """Top of a window that shows ``count`` lines from ``line`` on, in the middle if they leave room there."""
    height = size()
    return line - (height // 2 if count <= height // 2 else height // 6)


def _top_for(line: int, lines: Lines) -> int:
    """Top of a window in which a line has some others above it."""
    return min(line, len(lines)) - size() // 6


def _open(arguments: Mapping[str, Any]) -> bytes:
    path = files.absolute(text_of(arguments, "path"))
    lines = files.read(path)
    if arguments.get("line") is None:
        return show(View(path, lines, 1))
    line = number_of(arguments, "line")
    notes = [] if 1 <= line <= max(1, len(lines)) else [f"there is no line {line}; this is the nearest part"]
    return show(View(path, lines, _top_for(line, lines)), notes)


def _goto(arguments: Mapping[str, Any]) -> bytes:
    line, view = number_of(arguments, "line"), current()
    if not 1 <= line <= max(1, len(view.lines)):
        raise Refused(f"there is no line {line}: {name(view.path)} has {len(view.lines)} lines")
    return show(View(view.path, view.lines, _top_for(line, view.lines)))


def _scroll(direction: int) -> bytes:
    view = current()
    total, height = len(view.lines), size()
    if direction < 0 and view.top <= 1:
        return show(view, ["this is the beginning of the file"])
    if direction > 0 and view.top + height > total:
        return show(view, ["this is the end of the file"])
    return show(View(view.path, view.lines, view.top + direction * max(1, height - OVERLAP)))


def _create(arguments: Mapping[str, Any]) -> bytes:
    from .change import check

    path = files.absolute(text_of(arguments, "path"))
    data = content_of(arguments, "text", "")
    files.check_absent(path)
    lines = Lines(data)
    notes = check(path, "file", before=Lines(b""), after=lines, region=(1, 0), count=len(lines))
    files.make(path, data)
    return show(View(path, lines, 1), ["the file was created", *notes], changed=True)


def _open_words(words: list[str]) -> Mapping[str, Any]:
    path, *line = counted(words, 1, 2)
    return {"path": path, "line": int(line[0])} if line else {"path": path}


COMMANDS = {
    "open": Command(_open_words, _open),
    "goto": Command(lambda words: {"line": int(counted(words, 1, 1)[0])}, _goto),
    "scroll_up": Command(nothing, lambda _: _scroll(-1)),
    "scroll_down": Command(nothing, lambda _: _scroll(1)),
    "create": Command(
        lambda words: {"path": counted(words, 1, 1)[0], "text": read_input() or ""},
        _create,
    ),
}
