"""The host's end of one grading box: the boot program, files in, frames both ways, a bounded log.

A backend starts a peer as ``[python, "-I", "-c", BOOT, workdir]``; everything else goes over its standard
streams, so that no image needs anything of ours and no root file system has to be writable.
"""

from __future__ import annotations

import io
import struct
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from attrs import frozen

from mlgym_core.errors import InfrastructureError
from mlgym_core.grading.inside import mlgym_frames as wire
from mlgym_core.inside import program
from mlgym_core.sandbox.base import STDOUT, ConnectionClosed, Peer

#: The first program in a grading box.
BOOT = program(__package__, "boot.py")

LOG_TAIL = 32 * 1024  #: bytes of a box's log that are kept
PLAYER_LOG_LIMIT = 64 * 1024 * 1024  #: bytes a player may print before it is closed
_CHUNK = 1 << 20
_IN_MEMORY = 16 * 1024 * 1024
_SMALL = 64 * 1024


@frozen
class Frame:
    """One message, its buffers described in the header and not yet decoded."""

    header: Mapping[str, Any]
    payload: memoryview


class PeerLink:
    """Frames to and from one box. One thread at a time; deadlines are values of :func:`time.monotonic`.

    Args:
        peer: the box.
        log_limit: bytes it may print before that counts as a fault; ``None`` for no limit.
    """

    def __init__(self, peer: Peer, log_limit: int | None = None) -> None:
        self._peer = peer
        self._incoming = bytearray()
        self._log = bytearray()
        self._log_limit = log_limit
        self._logged = 0

    def start(self, role: Literal["grader", "player"], entry: str, files: Files, deadline: float) -> None:
        """Send the files, name the role and wait until the box has taken both.

        Raises:
            TimeoutError, ConnectionClosed, ProtocolError: the box did not come up.
        """
        for piece in files.pieces():
            self._peer.connection.send(piece, deadline)
        self.send({"type": "start", "role": role, "entry": entry}, b"", deadline)
        header = self.receive(deadline).header
        if header.get("type") != "booted":
            raise wire.ProtocolError(f"expected a booted frame, got {str(header)[:200]}")

    def send(self, header: Mapping[str, Any], payload: bytes | memoryview, deadline: float) -> None:
        """Write one frame; ``header`` describes the buffers that make up ``payload``.

        Raises:
            TimeoutError, ConnectionClosed: the other end does not read, or is gone.
        """
        head = wire.encode_header(header, len(payload))
        if len(payload) <= _SMALL:
            self._peer.connection.send(head + payload, deadline)
        else:
            self._peer.connection.send(head, deadline)
            self._peer.connection.send(payload, deadline)

    def receive(self, deadline: float) -> Frame:
        """Wait for one frame.

        Raises:
            TimeoutError, ConnectionClosed: none came.
            ProtocolError: what came is not a frame, or the box printed more than its limit.
        """
        self._fill(wire.PREFIX.size, deadline)
        header_size, payload_size = wire.frame_lengths(self._incoming)
        start = wire.PREFIX.size + header_size
        end = start + payload_size
        self._fill(end, deadline)
        taken, self._incoming = self._incoming, bytearray()
        if len(taken) > end:
            self._incoming = taken[end:]
        view = memoryview(taken)
        return Frame(wire.decode_header(view[wire.PREFIX.size : start], payload_size), view[start:end])

    @property
    def unread(self) -> bool:
        """Whether something has arrived that nobody asked for."""
        return bool(self._incoming)

    def log(self) -> str:
        """The end of what the box printed."""
        text = bytes(self._log).decode("utf-8", "replace")
        dropped = self._logged - len(self._log)
        return f"[{dropped} bytes before this are not kept]\n{text}" if dropped else text

    def drain(self, deadline: float) -> None:
        """Read what is left in the log of a box that has ended or is about to; never raises."""
        try:
            while True:
                self._take(self._peer.connection.receive(deadline))
        except (TimeoutError, ConnectionClosed, wire.ProtocolError, OSError):
            return

    def close(self) -> None:
        """End the box; harmless when repeated."""
        self._peer.close()

    def _fill(self, size: int, deadline: float) -> None:
        while len(self._incoming) < size:
            self._take(self._peer.connection.receive(deadline))

    def _take(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        for stream, data in pieces:
            if stream == STDOUT:
                self._incoming += data
                continue
            self._logged += len(data)
            self._log += data[-LOG_TAIL:]
            if len(self._log) > LOG_TAIL:
                del self._log[:-LOG_TAIL]
        if self._log_limit is not None and self._logged > self._log_limit:
            raise wire.ProtocolError(f"printed more than {self._log_limit >> 20} MiB")


class Files:
    """What a box finds in its working directory, packed once and sent to as many boxes as needed.

    Args:
        files: path inside -> content, or the host file that has it.
        archive: a canonical submission (:mod:`mlgym_core.grading.archive`) to add.
        prefix: where in the box the submission's files go (``submission/``, or empty).
        without: files and folders of the submission that stay out.

    Raises:
        InfrastructureError: one of them cannot be read.
    """

    def __init__(
        self,
        files: Mapping[str, bytes | Path],
        archive: Path | None = None,
        prefix: str = "",
        without: Sequence[str] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed in close()
        try:
            with tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT) as packed:
                if archive is not None:
                    _copy_members(archive, prefix, files, packed, [PurePosixPath(path) for path in without])
                for name, content in files.items():
                    data = content if isinstance(content, bytes) else content.read_bytes()
                    packed.addfile(_member(name, len(data)), io.BytesIO(data))
        except (OSError, tarfile.TarError) as error:
            self._file.close()
            raise InfrastructureError(f"cannot pack the files of a grading box: {error}") from error
        self._size = self._file.tell()

    def pieces(self) -> Iterator[bytes]:
        """Length and content, in pieces of bounded size."""
        yield struct.pack(">Q", self._size)
        offset = 0
        while piece := self._piece(offset):
            yield piece
            offset += len(piece)

    def _piece(self, offset: int) -> bytes:
        with self._lock:  # boxes are opened side by side
            self._file.seek(offset)
            return self._file.read(_CHUNK)

    def close(self) -> None:
        """Free the memory or the temporary file."""
        self._file.close()


def _copy_members(
    archive: Path,
    prefix: str,
    reserved: Mapping[str, object],
    packed: tarfile.TarFile,
    without: Sequence[PurePosixPath],
) -> None:
    with tarfile.open(archive, mode="r:") as submission:
        for member in submission:
            left_out = any(PurePosixPath(member.name).is_relative_to(path) for path in without)
            if prefix + member.name not in reserved and not left_out:
                packed.addfile(_member(prefix + member.name, member.size), submission.extractfile(member))


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member
