"""A person's terminal: lines with editing and history where it is one, plain lines where the input is a pipe."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from mlgym_core import storage
from mlgym_core.errors import UsageError

HISTORY_LINES = 1000
# The operator, perhaps a dash, and the delimiter, which may be quoted.
_HERE_DOCUMENT = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_]\w*)\2")


class InputEnded(Exception):  # noqa: N818 - an event, not an error of anybody
    """There is no more input."""


class Terminal:
    """Where a person is asked. Nothing is written to stdout but the prompts of a real terminal.

    Args:
        source: of lines.
        out: for all that is shown.

    Attributes:
        interactive: whether a person sits at the other end.
    """

    def __init__(self, source: TextIO, out: TextIO) -> None:
        self._source = source
        self._out = out
        self.interactive = source.isatty()
        _tolerate(source)
        self._history = history_file()
        self._kept = 0
        self._readline = self._line_editing()

    def show(self, text: str) -> None:
        """Print a text and an end of line."""
        self._out.write(f"{text}\n")
        self._out.flush()

    def ask(self, prompt: str) -> str:
        """One line, without its end.

        Raises:
            InputEnded: there is none.
        """
        if self._readline is not None:
            try:
                return input(prompt)
            except EOFError:
                self.show("")
                raise InputEnded("end of input") from None
        if self.interactive:
            self._out.write(prompt)
            self._out.flush()
        line = self._source.readline()
        if not line:
            raise InputEnded("end of input")
        return line.removesuffix("\n").removesuffix("\r")

    def remember(self) -> None:
        """Keep what was typed since the last time in the history file; without it where that cannot be written."""
        if self._readline is None or self._history is None:
            return
        length = self._readline.get_current_history_length()
        with contextlib.suppress(OSError):
            self._history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._history.touch(mode=0o600)
            self._readline.append_history_file(max(0, length - self._kept), str(self._history))
        self._kept = length

    def _line_editing(self) -> Any:
        """The readline module, ready, where this is the process's own terminal."""
        if not self.interactive or self._source is not sys.stdin or not sys.stdout.isatty():
            return None
        try:
            readline = importlib.import_module("readline")
        except ImportError:
            return None
        if self._history is not None:
            with contextlib.suppress(OSError):
                readline.read_history_file(str(self._history))
        readline.set_history_length(HISTORY_LINES)
        self._kept = readline.get_current_history_length()
        return readline


def _tolerate(source: TextIO) -> None:
    """Bytes that are no text become replacement characters instead of ending the run."""
    if isinstance(source, io.TextIOWrapper) and source.errors != "replace":
        with contextlib.suppress(io.UnsupportedOperation):  # something has been read already
            source.reconfigure(errors="replace")


def history_file() -> Path | None:
    """Where the entries are kept; ``None`` where there is no home folder."""
    try:
        return storage.state_folder() / "human-history"
    except UsageError:
        return None


class Unfinished:
    """Reads a shell command line by line: it goes on after a backslash, in a quote or a here-document."""

    def __init__(self) -> None:
        self._quote = ""
        self._delimiters: list[tuple[str, bool]] = []

    def goes_on(self, line: str) -> bool:
        """Take in the command's next line, and say whether another one belongs to it."""
        if self._delimiters:
            word, dashed = self._delimiters[0]
            if (line.lstrip("\t") if dashed else line) == word:
                self._delimiters.pop(0)
        else:
            self._quote, self._delimiters = _scan(line, self._quote)
        return self._quote != "" or bool(self._delimiters)


def _scan(line: str, quote: str) -> tuple[str, list[tuple[str, bool]]]:
    """The quote (or backslash) that is open at the end of a line, and the here-documents that begin in it."""
    found: list[tuple[str, bool]] = []
    quote = "" if quote == "\\" else quote
    places = iter(range(len(line)))
    for at in places:
        char = line[at]
        if char == "\\" and quote != "'":
            if at == len(line) - 1:
                return quote or "\\", found
            next(places)
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1] in " \t;&|("):
            break
        elif char == "<":
            _here(line, at, places, found)
    return quote, found


def _here(line: str, at: int, places: Iterator[int], found: list[tuple[str, bool]]) -> None:
    """Take in a here-document's operator at this place, or step over a here-string's."""
    match = _HERE_DOCUMENT.match(line, at)
    if match and not line.startswith("<<<", at):
        found.append((match[3], match[1] == "-"))
    steps = match.end() - at - 1 if match else 2 if line.startswith("<<<", at) else 0
    for _ in range(steps):
        next(places)
