"""Changing the open file: edit, insert, replace. A change that breaks Python source is refused."""

from __future__ import annotations

from . import files
from .command import Command, Refused, content_of, counted, given_text, number_of, text_of
from .lines import Lines, name, numbered, of_text
from .window import View, around, current, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_CONTEXT = 5  #: lines around a refused change
_SNIPPET = 40  #: most lines of a snippet
_PROBLEMS = 10
_PLACES = 10
_SEPARATOR = "======="


def check(path: str, what: str, *, before: Lines, after: Lines, region: tuple[int, int], count: int) -> list[str]:
    """Look for errors that a change brings into a Python file; returns remarks for the agent.

    Args:
        path: of the file.
        what: word for the change.
        before, after: the content.
        region: first and last line that are replaced, of ``before``; the last is one less for an insertion.
        count: lines that come in their place.

    Raises:
        Refused: there are new errors; the text shows them, the file with the change, and as it is.
    """
    if not path.endswith(".py"):
        return []
    from .python import inspect

    problems, remarks = inspect(before.to_bytes(), after.to_bytes(), region, count)
    if not problems:
        return remarks
    start, end = region
    listed = [f"- line {problem.line}: {problem.text}" for problem in problems[:_PROBLEMS]]
    if len(problems) > _PROBLEMS:
        listed.append(f"- and {len(problems) - _PROBLEMS} more")
    plural = "an error" if len(problems) == 1 else f"{len(problems)} errors"
    text = [f"Refused: the {what} would bring {plural} into {name(path)}.", *listed]
    text += ["", f"This is how it would look with the {what}:", _snippet(after, start, start + count - 1)]
    if len(before):
        text += ["", "This is how it looks now:", _snippet(before, start, end)]
    text += ["", "Nothing was changed. Correct the line numbers or the text; the same again will fail again."]
    raise Refused("\n".join(text))


def _snippet(lines: Lines, start: int, end: int) -> str:
    """Some lines around a region, the middle of a long one left out."""
    first, last = max(1, start - _CONTEXT), min(len(lines), max(start - 1, end) + _CONTEXT)
    rows = numbered(lines.lines[first - 1 : last], first)
    if len(rows) > _SNIPPET:
        half = _SNIPPET // 2
        rows = [*rows[:half], b"(%d lines not shown)" % (len(rows) - 2 * half), *rows[-half:]]
    return b"\n".join(rows).decode("utf-8", "surrogateescape")


def _apply(view: View, what: str, start: int, end: int, new: Sequence[bytes]) -> bytes:
    """Put lines in the place of others, unless that breaks the file."""
    files.check_writable(view.path)
    after = view.lines.edited(start, end, new)
    remarks = check(view.path, what, before=view.lines, after=after, region=(start, end), count=len(new))
    files.write(view.path, after.to_bytes())
    count = f"{len(new)} line{'' if len(new) == 1 else 's'}"
    done = f"lines {start} to {end} became {count}" if end >= start else f"inserted {count} after line {end}"
    notes = [f"{done}; is this what you meant?", *remarks]
    return show(View(view.path, after, around(start, len(new))), notes, changed=True)


def _edit(arguments: Mapping[str, Any]) -> bytes:
    start, end = number_of(arguments, "start"), number_of(arguments, "end")
    new, view = of_text(content_of(arguments, "text", "")), current()
    total = len(view.lines)
    if not 1 <= start <= min(end, max(1, total)):
        raise Refused(f"there are no lines {start} to {end}: {name(view.path)} has {total}")
    return _apply(view, "edit", start, min(end, total), new)


def _insert(arguments: Mapping[str, Any]) -> bytes:
    line = number_of(arguments, "line")
    new, view = of_text(content_of(arguments, "text", "")), current()
    if not 0 <= line <= len(view.lines):
        raise Refused(f"there is no line {line} to insert after: {name(view.path)} has {len(view.lines)} lines")
    if not new:
        raise Refused("there is no text to insert; give at least one line, which may be empty")
    return _apply(view, "insert", line + 1, line, new)


def _replace(arguments: Mapping[str, Any]) -> bytes:
    view = _view(arguments)
    old, new = content_of(arguments, "old"), content_of(arguments, "new")
    if not old:
        raise Refused("the old text is empty; use `insert` to add text")
    files.check_writable(view.path)
    data = view.lines.to_bytes()
    if view.lines.returns:
        returned = [text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (old, new)]
        old, new = old if old in data else returned[0], returned[1]
    places = _places(data, old)
    if not places:
        raise Refused(_absent(view, old))
    if len(places) > 1 and arguments.get("all") is not True:
        listed = ", ".join(str(data.count(b"\n", 0, place) + 1) for place in places[:_PLACES])
        more = " and more" if len(places) > _PLACES else ""
        raise Refused(
            f"the old text occurs {len(places)} times in {name(view.path)} (lines {listed}{more}); "
            "give more of the text around it, or replace all"
        )
    return _substitute(view, data, old, new, places)


def _substitute(view: View, data: bytes, old: bytes, new: bytes, places: Sequence[int]) -> bytes:
    after = Lines(data.replace(old, new))
    start = data.count(b"\n", 0, places[0]) + 1
    end = data.count(b"\n", 0, places[-1] + len(old)) + 1
    count = end - start + 1 + len(after) - len(view.lines)
    region = (start, min(end, len(view.lines)))
    remarks = check(view.path, "replacement", before=view.lines, after=after, region=region, count=max(0, count))
    files.write(view.path, after.to_bytes())
    done = "replaced once" if len(places) == 1 else f"replaced {len(places)} times"
    return show(View(view.path, after, around(start)), [f"{done}, from line {start} on", *remarks], changed=True)


def _places(data: bytes, old: bytes) -> list[int]:
    """Where a text occurs, without overlaps."""
    found: list[int] = []
    place = data.find(old)
    while place >= 0:
        found.append(place)
        place = data.find(old, place + len(old))
    return found


def _absent(view: View, old: bytes) -> str:
    """Why a text was not found: the first of its lines that is there, if only with other blanks, is named."""
    advice = "copy it exactly, without line numbers"
    wanted = next((line.split() for line in old.split(b"\n") if line.strip()), [])
    near = [number for number, line in enumerate(view.lines.lines, 1) if wanted and line.split() == wanted]
    if near:
        advice = f"line {near[0]} is like it but for blanks or for what follows; {advice}"
    return f"the old text does not occur in {name(view.path)}; {advice}"


def _view(arguments: Mapping[str, Any]) -> View:
    if arguments.get("path") is None:
        return current()
    path = files.absolute(text_of(arguments, "path"))
    return View(path, files.read(path), 1)


def _edit_words(words: list[str]) -> Mapping[str, Any]:
    lines, *option = counted(words, 1, 2)
    if option not in ([], ["--delete"]):
        raise ValueError
    start, end = lines.split(":")
    text = "" if option else given_text(_HOW_TO.format("edit 3:7") + "; `edit 3:7 --delete` deletes the lines")
    return {"start": int(start), "end": int(end), "text": text}


def _insert_words(words: list[str]) -> Mapping[str, Any]:
    return {"line": int(counted(words, 1, 1)[0]), "text": given_text(_HOW_TO.format("insert 3"))}


def _replace_words(words: list[str]) -> Mapping[str, Any]:
    everywhere = words[:1] == ["--all"]
    rest = words[1:] if everywhere else words
    if len(rest) > 1:
        old, new, *path = counted(rest, 2, 3)
    else:
        path = list(rest)
        old, new = _halves(given_text(_HOW_TO_REPLACE))
    return {"old": old, "new": new, "all": everywhere, "path": path[0] if path else None}


def _halves(text: str) -> tuple[str, str]:
    rows = text.split("\n")
    if rows.count(_SEPARATOR) != 1:
        raise Refused(f"the text needs exactly one line {_SEPARATOR} between old and new; or give two words")
    at = rows.index(_SEPARATOR)
    new = rows[at + 1 :]
    return "\n".join(rows[:at]), "\n".join(new[:-1] if new and not new[-1] else new)


_HOW_TO = "write `{} <<'EOF'`, the text in the lines below, and a line EOF"
_HOW_TO_REPLACE = (
    f"give the old and the new text as two words, or with a line {_SEPARATOR} between them in a here-document"
)

COMMANDS = {
    "edit": Command(_edit_words, _edit),
    "insert": Command(_insert_words, _insert),
    "replace": Command(_replace_words, _replace),
}
