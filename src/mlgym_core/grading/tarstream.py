"""Reads a hostile tar stream, one member at a time, in bounded memory.

The standard library's reader takes extension headers of any size into memory, follows sparse maps and passes
over damage; a stream that comes out of an agent's box needs a reader that refuses all three.
Format: POSIX.1-2017 ``pax`` interchange format, and the GNU long names and base-256 sizes seen in practice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from attrs import define, frozen

BLOCK = 512
MAX_EXTENSION = 64 * 1024  #: bytes of one extension header (long names)
_CHUNK = 1 << 20
_KINDS = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hard link",
    b"2": "symbolic link",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "named pipe",
    b"S": "sparse file",
}
_WITHOUT_CONTENT = ("hard link", "symbolic link", "device", "folder", "named pipe")


class DamagedArchiveError(Exception):
    """The stream is not a tar archive that this module reads; the message says where."""


@frozen
class Member:
    """One entry.

    Attributes:
        name: as written in the archive, undecoded.
        kind: ``file``, ``folder``, ``symbolic link``, ``hard link``, ``device``, ``named pipe``, ``sparse file``
            or ``special file``.
        size: bytes of content that the header promises.
        content: yields it in pieces of bounded size; what is not taken is skipped.
    """

    name: bytes
    kind: str
    size: int
    content: Iterator[bytes]


def members(stream: IO[bytes]) -> Iterator[Member]:
    """Walk the archive.

    Raises:
        DamagedArchiveError: it is cut short, a checksum is wrong, or an extension is too large or unknown.
    """
    reader = _Reader(stream)
    extended = _Extended()
    while (header := reader.block()) is not None:
        kind, size = header[156:157], _number(header[124:136])
        if kind in b"LKxg":
            extended.add(kind, reader.extension(size))
            continue
        name = extended.name or _name(header)
        size = size if extended.size is None else extended.size
        what = "sparse file" if extended.sparse else _KINDS.get(kind, "special file")
        content = reader.content(0 if what in _WITHOUT_CONTENT else size)
        yield Member(name, what, size, content)
        for _ in content:
            pass
        extended = _Extended()


@define
class _Extended:
    """What extension headers say about the member after them; it goes before what the member's own header says.

    A global header (``g``) and a long link name (``K``) are read and dropped: nothing that they say is used.
    """

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False

    def add(self, kind: bytes, data: bytes) -> None:
        if kind == b"L":
            self.name = data.split(b"\0")[0]
        elif kind == b"x":
            records = _pax_records(data)
            self.name = records.get(b"path", self.name)
            self.size = _decimal(records[b"size"]) if b"size" in records else self.size
            self.sparse = self.sparse or any(key.startswith(b"GNU.sparse") for key in records)


class _Reader:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def block(self) -> bytes | None:
        """The next header, checked; None at the end of the archive."""
        header = self._exactly(BLOCK, at_end=True)
        if not header or header == bytes(BLOCK):
            return None
        # The sum of all bytes, those of the checksum itself taken for blanks.
        total = sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
        if total != _number(header[148:156]):
            raise DamagedArchiveError("a header's checksum is wrong")
        return header

    def extension(self, size: int) -> bytes:
        if size > MAX_EXTENSION:
            raise DamagedArchiveError(f"an extension header has {size} bytes")
        return b"".join(self.content(size))

    def content(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._stream.read(min(left, _CHUNK))
            if not piece:
                raise DamagedArchiveError("the archive is cut short")
            left -= len(piece)
            yield piece
        self._exactly(-size % BLOCK)

    def _exactly(self, size: int, at_end: bool = False) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._stream.read(size - len(data))
            if not piece:
                if at_end and not data:
                    return b""
                raise DamagedArchiveError("the archive is cut short")
            data += piece
        return data


def _name(header: bytes) -> bytes:
    """Name in a member's own header; POSIX archives may have its beginning in a second field."""
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    posix = header[257:263] == b"ustar\0"
    return prefix + b"/" + name if posix and prefix else name


def _number(field: bytes) -> int:
    """A number: octal digits, or base 256 behind a first bit of 1 (the next one is its sign)."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        if field[0] & 0x40:
            raise DamagedArchiveError("a size is negative")
        return value
    text = field.split(b"\0")[0].strip()
    if text.strip(b"01234567"):
        raise DamagedArchiveError("a number in a header is damaged")
    return int(text or b"0", 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise DamagedArchiveError("a size is not a number")
    return int(text)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """The records of an extended header, each ``length key=value`` and a line feed; the length is that of all of it."""
    records: dict[bytes, bytes] = {}
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or len(length) > 6 or not len(length) + 3 <= int(length) <= len(data):
            raise DamagedArchiveError("an extension header is damaged")
        record, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise DamagedArchiveError("an extension header is damaged")
        records[key] = value[:-1]
    return records
