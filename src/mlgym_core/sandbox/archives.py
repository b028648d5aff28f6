"""Tar archives of files on their way into and out of boxes."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from typing import Any

from typing_extensions import override


def add_folder(archive: tarfile.TarFile, path: str, uid: int) -> None:
    """Add a folder by its absolute path."""
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, 0o755, uid, uid
    archive.addfile(member)


def add_file(archive: tarfile.TarFile, path: str, content: bytes, uid: int, mode: int) -> None:
    """Add a file by its absolute path."""
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size, member.mode, member.uid, member.gid, member.mtime = len(content), mode, uid, uid, int(time.time())
    archive.addfile(member, io.BytesIO(content))


class Pieces(io.RawIOBase):
    """A readable file over an iterator of byte strings, which is asked for more only when more is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
