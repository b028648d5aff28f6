"""A file's content as lines. Bytes in, bytes out: whatever is not touched stays as it is, endings included."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_CHARACTERS = 1000  #: of a line that is shown
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) != "\t"}
_PICTURES[127] = 0x2421


class Lines:
    """The lines of a file.

    Attributes:
        lines: without the line feed; a carriage return before it stays, so that mixed endings survive.
        final: whether the last line is ended by a line feed.
        returns: whether most lines end in carriage return and line feed; new ones will.
    """

    def __init__(self, data: bytes) -> None:
        self.lines = data.split(b"\n")
        self.final = not self.lines[-1]
        if self.final:
            self.lines.pop()
        ended = len(self.lines) if self.final else len(self.lines) - 1
        self.returns = 2 * sum(line.endswith(b"\r") for line in self.lines[:ended]) > ended

    def __len__(self) -> int:
        return len(self.lines)

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return b"\n".join(self.lines) + (b"\n" if self.final and self.lines else b"")

    def edited(self, start: int, end: int, new: Sequence[bytes]) -> Lines:
        """A copy in which ``new`` stands in place of lines ``start`` to ``end``, counted from 1, both included.

        ``end`` is ``start - 1`` for an insertion before ``start``.
        """
        copy = Lines(b"")
        copy.final, copy.returns = self.final, self.returns
        ending = b"\r" if self.returns else b""
        copy.lines = [*self.lines[: start - 1], *(line + ending for line in new), *self.lines[end:]]
        if self.final or end < len(self) or copy.lines == self.lines or not copy.lines:
            return copy
        # The line without a line feed is gone or no longer the last; whichever is the last now has none.
        if start > len(self) and not self.lines[-1].endswith(b"\r"):
            copy.lines[start - 2] += ending
        last = copy.lines[-1][:-1] if copy.lines[-1].endswith(b"\r") else copy.lines[-1]
        if last:
            copy.lines[-1] = last
        else:
            copy.final = True  # an empty line is nothing without one
        return copy


def of_text(text: bytes) -> list[bytes]:
    """The lines that a text stands for; the file it goes into says how they end."""
    if not text:
        return []
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def shown(line: bytes) -> tuple[bytes, str]:
    """A line as the agent reads it, and what was left out or replaced, if anything."""
    text = (line[:-1] if line.endswith(b"\r") else line).decode("utf-8", "surrogateescape")
    note = ""
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}[... {len(text) - MOST_CHARACTERS} more characters]"
        note = "long"
    pictured = text.translate(_PICTURES)
    return pictured.encode("utf-8", "surrogateescape"), note if pictured == text else "control"


def name(path: str) -> str:
    """A path on one line, whatever characters it has."""
    return path.translate(_PICTURES)


def numbered(lines: Sequence[bytes], first: int) -> list[bytes]:
    """Lines with their numbers, ``first`` being that of the first one."""
    return [b"%d:%b" % (number, shown(line)[0]) for number, line in enumerate(lines, first)]
