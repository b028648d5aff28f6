"""Looking for files by name and for text in files: find_file, search_dir, search_file."""

from __future__ import annotations

import fnmatch
import os
import time

from . import files
from .command import Command, Refused, content_of, counted, encoded, text_of
from .lines import name, numbered
from .window import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_MOST_RESULTS = 100
_MOST_BYTES = 16 * 1024 * 1024  #: of a file that is searched
_SECONDS = 20.0
_PROBE_BYTES = 8192


class _Walk:
    """Files below a folder, in order; links to folders are not followed, so that it ends.

    Attributes:
        closed: folders and files that could not be read.
        large: files that were passed over.
        late: whether time ran out.
    """

    def __init__(self, top: str, hidden: bool) -> None:
        self.closed = 0
        self.large = 0
        self.late = False
        self._top = top
        self._hidden = hidden
        self._deadline = time.monotonic() + _SECONDS

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        folders = [self._top]
        while folders:
            below = []
            for entry, is_folder in self._listed(folders.pop()):
                if time.monotonic() > self._deadline:
                    self.late = True
                    return
                if is_folder:
                    below.append(entry.path)
                else:
                    yield entry
            folders += reversed(below)  # the last one in is the first one out

    def _listed(self, folder: str) -> list[tuple[os.DirEntry[str], bool]]:
        """What lies in a folder, and whether each is a folder itself."""
        try:
            with os.scandir(folder) as listing:
                kept = [entry for entry in listing if self._hidden or not entry.name.startswith(".")]
                kept.sort(key=lambda entry: entry.name)
                return [(entry, entry.is_dir(follow_symlinks=False)) for entry in kept]
        except OSError:
            self.closed += 1
            return []

    def remarks(self) -> list[str]:
        """What the agent should know about the result."""
        found = []
        if self.closed:
            found.append(f"[{self.closed} folders or files could not be read]")
        if self.large:
            found.append(
                f"[{self.large} files larger than {_MOST_BYTES >> 20} MiB were passed over; use `grep` on them]"
            )
        if self.late:
            found.append(f"[stopped after {_SECONDS:g} s; search a smaller folder]")
        return found


def _folder(arguments: Mapping[str, Any]) -> str:
    path = files.absolute(text_of(arguments, "dir", "."))
    if not os.path.isdir(path):
        raise Refused(f"{name(path)} is not a directory; `ls` shows those that are there")
    return path


def _answer(headline: str, rows: list[str], remarks: list[str]) -> bytes:
    more = len(rows) - _MOST_RESULTS
    shown = rows[:_MOST_RESULTS] + ([f"[and {more} more; be more specific]"] if more > 0 else [])
    return "\n".join([headline, *shown, *remarks]).encode("utf-8", "surrogateescape")


def _count(number: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{number} {what}" if number == 1 else f"{number} {what}{plural}"


def _find_file(arguments: Mapping[str, Any]) -> bytes:
    pattern, top = text_of(arguments, "name"), _folder(arguments)
    encoded(pattern, "the name")
    if not pattern:
        raise Refused("the name is empty; give a file's name or a pattern such as '*.py'")
    walk = _Walk(top, hidden=True)
    offset = len(top.rstrip("/")) + 1
    found = [
        name(entry.path)
        for entry in walk
        if entry.name == pattern or fnmatch.fnmatchcase(entry.path[offset:] if "/" in pattern else entry.name, pattern)
    ]
    headline = f"{_count(len(found), 'file') if found else 'No file'} named {name(pattern)} below {name(top)}"
    return _answer(headline + (":" if found else ""), found, walk.remarks())


def _search_dir(arguments: Mapping[str, Any]) -> bytes:
    term, top = _term(arguments), _folder(arguments)
    walk = _Walk(top, hidden=False)
    found: list[str] = []
    total = 0
    for entry in walk:
        count = _occurrences(entry, term, walk)
        if count:
            total += count
            found.append(f"{name(entry.path)} ({_count(count, 'line')})")
    wanted = name(text_of(arguments, "term"))
    headline = f"{wanted!r} is in {_count(total, 'line')} of {_count(len(found), 'file')} below {name(top)}:"
    if not found:
        headline = f"{wanted!r} is in no file below {name(top)}"
    return _answer(headline, found, [*walk.remarks(), "[hidden and binary files were left out]"])


def _occurrences(entry: os.DirEntry[str], term: bytes, walk: _Walk) -> int:
    """Lines of a text file that hold the term."""
    try:
        if not entry.is_file():
            return 0
        if entry.stat().st_size > _MOST_BYTES:
            walk.large += 1
            return 0
        with open(entry.path, "rb") as file:
            data = file.read(_PROBE_BYTES)
            if b"\0" in data:
                return 0
            data += file.read(_MOST_BYTES)
    except OSError:
        walk.closed += 1
        return 0
    return sum(term in line for line in data.split(b"\n")) if term in data else 0


def _search_file(arguments: Mapping[str, Any]) -> bytes:
    term = _term(arguments)
    if arguments.get("file") is None:
        view = current()
        path, lines = view.path, view.lines
    else:
        path = files.absolute(text_of(arguments, "file"))
        lines = files.read(path)
    places = [number for number, line in enumerate(lines.lines, 1) if term in line]
    wanted = name(text_of(arguments, "term"))
    if not places:
        return f"{wanted!r} is in no line of {name(path)}".encode("utf-8", "surrogateescape")
    rows = [numbered([lines.lines[number - 1]], number)[0].decode("utf-8", "surrogateescape") for number in places]
    return _answer(f"{wanted!r} is in {_count(len(places), 'line')} of {name(path)}:", rows, [])


def _term(arguments: Mapping[str, Any]) -> bytes:
    term = content_of(arguments, "term")
    if not term or b"\n" in term:
        raise Refused("the term must be some text within one line")
    return term


def _two(first: str, second: str, words: list[str]) -> Mapping[str, Any]:
    given = counted(words, 1, 2)
    return {first: given[0], second: given[1] if len(given) == 2 else None}


COMMANDS = {
    "find_file": Command(lambda words: _two("name", "dir", words), _find_file),
    "search_dir": Command(lambda words: _two("term", "dir", words), _search_dir),
    "search_file": Command(lambda words: _two("term", "file", words), _search_file),
}
