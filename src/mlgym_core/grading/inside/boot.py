"""The first program in a grading box: takes the box's files, then hands over to ``mlgym_peer`` among them.

Run as ``python -I -c <this> <workdir>``. Descriptors 0 and 1 become the protocol; what the box prints goes to the log,
standard error.
"""

import os
import struct
import sys
import tarfile
from typing import BinaryIO

_CHUNK = 1 << 18


class _Files:
    """The files' archive on standard input; its length comes before it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        (self.left,) = struct.unpack(">Q", source.read(8))

    def read(self, size: int) -> bytes:
        data = self._source.read(min(size, self.left))
        self.left -= len(data)
        return data


def _main() -> None:
    workdir = os.path.abspath(sys.argv[1])
    source, sink = os.fdopen(os.dup(0), "rb", _CHUNK), os.fdopen(os.dup(1), "wb", 1 << 16)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    os.chdir(workdir)
    files = _Files(source)
    # The filter came with 3.12 and was brought to older ones; the archive is the host's own.
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=files, mode="r|", bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
        archive.extractall(".", **safe)
    while files.left and files.read(_CHUNK):
        pass
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(workdir, "lib"))
    import mlgym_peer

    mlgym_peer.main(source, sink, workdir)


_main()
