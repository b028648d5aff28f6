"""Shell dialects: how a start, an action and a file are put into words that bash or a plain POSIX shell understands.

The words themselves lie in ``inside/``. Every request ends with a marker that carries its nonce, and saves the shell's
state to a slot.
"""

from __future__ import annotations

import abc
import base64
import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from attrs import frozen
from typing_extensions import override

from mlgym_core.inside import program

_INLINE_BYTES = 16 * 1024


@frozen
class End:
    """How a request ends.

    Attributes:
        nonce: of its marker, from :func:`~mlgym_core.sandbox.shell.output.new_token`.
        slot: name of the file that takes the shell's state then.
    """

    nonce: bytes
    slot: bytes


@frozen
class Initial:
    """How a session begins.

    Attributes:
        env: environment; nothing else is set.
        workdir: directory, as seen inside.
        folder: of the slots, as seen inside.
    """

    env: Mapping[str, str]
    workdir: str
    folder: str


class Dialect(abc.ABC):
    """What one family of shells understands."""

    name: ClassVar[str]  #: as the supervisor calls it

    def start(self, token: bytes, nonce: bytes, saved: Sequence[str], initial: Initial) -> bytes:
        """What the supervisor and then a new shell read first.

        Args:
            token: the supervisor's.
            nonce: of the marker that answers.
            saved: slots to restore from, the best first.
            initial: how it begins, unless a slot is restored.
        """
        files = [quote(f"{initial.folder}/{slot}".encode()) for slot in saved]
        exports = [f"export {name}={shlex.quote(value)}" for name, value in initial.env.items()]
        begin = _blank("start") % {
            b"RESTORE": b"".join(_blank("restore") % {b"FILE": file} for file in files),
            b"ENVIRONMENT": "\n".join(exports).encode(),
            b"WORKDIR": quote(initial.workdir.encode()),
        }
        machinery = _blank(self.name) % {b"STATE": quote(initial.folder.encode()), b"NONCE": nonce}
        # A killed shell may have left an unfinished line behind.
        return b"\ngo %b\n%b%b" % (token, begin, machinery)

    def action(self, command: bytes, end: End) -> bytes:
        """The request that runs a command."""
        return _blank("action") % {b"COMMAND": quote(command), b"NONCE": end.nonce, b"SLOT": end.slot}

    @abc.abstractmethod
    def write(self, path: bytes, data: bytes, end: End) -> bytes:
        """The request that writes a file; ``path`` is quoted already."""

    def read(self, path: bytes, size: int, end: End) -> bytes:
        """The request that prints the digest of a file's first ``size`` bytes, and then those bytes."""
        return self.action(_blank("read") % {b"PATH": path, b"SIZE": b"%d" % size}, end)


@frozen
class Bash(Dialect):
    """Requests to bash. It reads its input byte by byte, so raw data may follow a request."""

    name = "bash"

    @override
    def action(self, command: bytes, end: End) -> bytes:
        if len(command) <= _INLINE_BYTES:
            return Dialect.action(self, command, end)
        size = b"%d" % (len(command) + 1)
        return _blank("bash_action") % {b"SIZE": size, b"NONCE": end.nonce, b"SLOT": end.slot} + command + b"\n"

    @override
    def write(self, path: bytes, data: bytes, end: End) -> bytes:
        values = {b"PATH": path, b"SIZE": b"%d" % len(data), b"NONCE": end.nonce, b"SLOT": end.slot}
        return _blank("bash_write") % values + data


@frozen
class Ash(Dialect):
    """Requests to BusyBox ash and plain POSIX shells, which read ahead: data must be part of the text."""

    name = "ash"

    @override
    def write(self, path: bytes, data: bytes, end: End) -> bytes:
        text = base64.encodebytes(data)
        return _blank("ash_write") % {b"PATH": path, b"DATA": text, b"NONCE": end.nonce, b"SLOT": end.slot}


DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (Bash(), Ash())}


def quote(text: bytes) -> bytes:
    """The text as one word of a shell."""
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


@functools.cache
def _blank(name: str) -> bytes:
    """A script of ``inside/`` as a format: its blanks, ``@LIKE_THIS@``, are keys of the values that fill them in."""
    # Comments stay here: a shell may read slowly.
    lines = program(__package__, f"{name}.sh").encode().replace(b"%", b"%%").splitlines(keepends=True)
    return re.sub(rb"@([A-Z]+)@", rb"%(\1)b", b"".join(line for line in lines if not line.lstrip().startswith(b"#")))
