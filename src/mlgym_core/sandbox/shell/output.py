"""Bounded output: what is kept of a stream, where a command's end is found in it, and what a model is shown."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from attrs import define

from mlgym_core.sandbox.base import Captured

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024
SPOOL_BYTES = 64 * 1024 * 1024
SPOOL_TOTAL_BYTES = 1024 * 1024 * 1024

_MARK = b"\x1e"
PAYLOAD_BYTES = 12_500  # a directory of 1,024 characters, a state of 2,048, and some numbers
_MARKER = re.compile(rb"\x1e([0-9a-f]{24}):([^\x1e]{0,%d})\x1e" % PAYLOAD_BYTES)
_UNFINISHED = re.compile(rb"\x1e(?:[0-9a-f]{0,24}|[0-9a-f]{24}:[^\x1e]{0,%d})\Z" % PAYLOAD_BYTES)
_MARKER_BYTES = 1 + 24 + 1 + PAYLOAD_BYTES + 1


def new_token() -> bytes:
    """A fresh 96-bit secret, fit for a marker."""
    return os.urandom(12).hex().encode()


@define
class Allowance:
    """What several captures may still write to their spool files together.

    Attributes:
        left: bytes.
    """

    left: int

    def take(self, wanted: int) -> int:
        """Use up to ``wanted`` bytes; returns how many were granted."""
        granted = min(wanted, self.left)
        self.left -= granted
        return granted


class Capture:
    """Keeps the first and the last bytes of a stream, counts all of them, and spools what memory does not hold.

    The spool file appears only when the output outgrows head and tail, and then holds it from the first byte on,
    up to its cap. A full disk ends the spool, never the action.

    Args:
        spool: file to create when the output does not fit in memory.
        head: bytes kept from the start.
        tail: bytes kept from the end.
        spool_cap: most bytes written to the spool file.
        allowance: shared with other captures; once it is used up, no spool file appears.
    """

    __slots__ = (
        "_allowance",
        "_cap",
        "_file",
        "_head",
        "_head_size",
        "_spool",
        "_spooled",
        "_tail",
        "_tail_size",
        "total",
    )

    def __init__(
        self,
        spool: Path | None = None,
        *,
        head: int = HEAD_BYTES,
        tail: int = TAIL_BYTES,
        spool_cap: int = SPOOL_BYTES,
        allowance: Allowance | None = None,
    ) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._head_size = head
        self._tail_size = tail
        self._spool = spool
        self._cap = spool_cap
        self._allowance = allowance or Allowance(spool_cap)
        self._file: BinaryIO | None = None
        self._spooled = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._spool is not None and self.total > self._head_size + self._tail_size:
            self._write(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._tail_size:
            self._tail = bytearray(data[len(data) - self._tail_size :])
        elif data:
            self._tail += data
            # Trimming on every call would make many small writes quadratic.
            if len(self._tail) > 4 * self._tail_size:
                del self._tail[: len(self._tail) - self._tail_size]

    def result(self) -> Captured:
        """Close the spool and return what was kept."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        tail = bytes(self._tail[max(0, len(self._tail) - self._tail_size) :])
        return Captured(bytes(self._head), tail, self.total, self._spool if self._spooled else None)

    def _write(self, data: bytes) -> None:
        assert self._spool is not None
        try:
            if not self._spooled and self._allowance.left:
                self._spool.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._spool.open("wb")
                self._spooled = True
                data = bytes(self._head + self._tail) + data
            if self._file is not None and self._cap > 0:
                granted = self._allowance.take(min(len(data), self._cap))
                self._file.write(data[:granted])
                self._cap -= granted
        except OSError:
            self._cap = 0


class MarkerScanner:
    """Splits a stream into output and end markers, ``\\x1e<token>:<payload>\\x1e``, in linear time and constant memory.

    Whatever is not a complete marker with one of the tokens reaches ``sink`` unchanged, wherever chunks are cut.

    Args:
        tokens: secrets that a marker may carry, from :func:`new_token`.
        sink: takes the output before the first marker; what follows it goes to ``late``.
        late: takes the output after the first marker (of background children); dropped by default.

    Attributes:
        found: payload by token, of the markers seen so far.
    """

    __slots__ = ("_late", "_pending", "_sink", "_tokens", "found")

    def __init__(
        self,
        tokens: Sequence[bytes],
        sink: Callable[[bytes], None],
        late: Callable[[bytes], None] | None = None,
    ) -> None:
        self.found: dict[bytes, bytes] = {}
        self._tokens = tokens
        self._sink = sink
        self._late = late
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Take the next chunk of the stream."""
        if self._pending:
            data, self._pending = self._pending + data, b""
        first = data.find(_MARK)
        if first < 0:
            self._emit(data)
            return
        start = 0
        while (marker := _MARKER.search(data, first)) is not None:
            token, payload = marker.groups()
            if token in self._tokens:
                self._emit(data[start : marker.start()])
                self.found.setdefault(token, payload)
                start = first = marker.end()
            else:
                first = marker.start() + 1
        unfinished = _UNFINISHED.search(data, max(first, len(data) - _MARKER_BYTES + 1))
        end = len(data) if unfinished is None else unfinished.start()
        self._emit(data[start:end])
        self._pending = data[end:]

    def keep_late(self) -> None:
        """What follows the first marker goes to ``sink`` too, from now on."""
        self._late = self._sink

    def flush(self) -> None:
        """The stream has ended: what looked like the beginning of a marker was output."""
        pending, self._pending = self._pending, b""
        self._emit(pending)

    def _emit(self, data: bytes) -> None:
        if not data:
            return
        if not self.found:
            self._sink(data)
        elif self._late is not None:
            self._late(data)


# Control sequences; operating-system commands (titles, links), which end at the latest with the line; other escapes.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)


def for_model(captured: Captured) -> str:
    """Text of a stream as a model is shown it.

    Invalid UTF-8 is replaced, escape sequences are removed, progress written with carriage returns is reduced to its
    last state, and a line between head and tail says how much was dropped.
    """
    if not captured.truncated:
        return _clean(captured.head + captured.tail)
    head, tail = _clean(captured.head), _clean(captured.tail)
    gap = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{gap}[... {captured.dropped} bytes dropped ...]\n{tail}"


def _clean(data: bytes) -> str:
    text = _ANSI.sub("", data.decode("utf-8", "replace"))
    if "\r" not in text:
        return text
    return "\n".join(_last_state(line) for line in text.split("\n"))


def _last_state(line: str) -> str:
    """What a terminal would still show of a line that was redrawn, near enough: its last non-empty state."""
    return next((state for state in reversed(line.split("\r")) if state), "")
