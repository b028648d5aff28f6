"""Standard streams that nothing can break: a reader that goes away, a full disk, a closed descriptor end no command."""

from __future__ import annotations

import io
import os
import select
import sys
import warnings
from typing import Any

from mlgym_core.errors import DamagedPackageWarning


class Patient(io.RawIOBase):
    """Writes to a descriptor; what cannot be written is given up, and remembered.

    Attributes:
        failed: something could not be written.
    """

    def __init__(self, descriptor: int, failed: bool = False) -> None:
        self._descriptor = descriptor
        self.failed = failed

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person may be watching."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Write what can be written; claims that it was all."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and not self.failed:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                self.failed = True
        return size


def install() -> Patient:
    """Put patient streams in the place of standard output and standard error; returns that of standard output."""
    missing = [number for number in (0, 1, 2) if not _is_open(number)]
    while not all(map(_is_open, (0, 1, 2))):
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which no file of ours must get
    output, errors = (Patient(number, failed=number in missing) for number in (1, 2))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout, sys.stderr = (
        # What a terminal that knows only ASCII cannot show becomes a question mark.
        io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors="replace", line_buffering=True)
        for raw in (output, errors)
    )
    warnings.showwarning = _show
    return output


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


_python_shows = warnings.showwarning


def _show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    """What concerns whoever runs a command is one line; other warnings are shown as Python does."""
    if issubclass(category, DamagedPackageWarning):
        sys.stderr.write(f"mlgym: {message}\n")
    else:
        _python_shows(message, category, *rest, **more)
