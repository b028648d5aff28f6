"""Files through a live shell, as the agent's user: what a request may not do to them, and what went wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import time

from mlgym_core.sandbox.base import ActionStatus
from mlgym_core.sandbox.shell.dialects import quote
from mlgym_core.sandbox.shell.exchange import message
from mlgym_core.sandbox.shell.output import Capture
from mlgym_core.sandbox.shell.session import Done, Request, Session

_SECONDS = 60.0
_BYTES_PER_SECOND = 1e6
_READ_ATTEMPTS = 5
_DIGEST_BYTES = 256  #: more than what stands before the content


def write(session: Session, path: str, data: bytes) -> None:
    """Write a file; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
    name = _quoted(path)
    done = _perform(session, lambda dialect, end: dialect.write(name, data, end), Capture(), len(data))
    _check(done, "written", path)


def read(session: Session, path: str, limit: int) -> bytes:
    """Read a file; see :class:`~mlgym_core.sandbox.base.Sandbox`."""
    name = _quoted(path)
    for _ in range(_READ_ATTEMPTS):
        content = Capture(head=limit + _DIGEST_BYTES, tail=0)
        done = _perform(session, lambda dialect, end: dialect.read(name, limit + 1, end), content, limit)
        _check(done, "read", path)
        digest, _, data = done.stdout.head.partition(b"  -\n")
        # Background children share the stream; a digest that fits proves that none of their output is in between.
        if hashlib.sha256(data).hexdigest().encode() == digest:
            if len(data) > limit:
                raise OSError(errno.EFBIG, f"the file is larger than {limit} bytes", path)
            return data
    raise OSError(errno.EIO, "background output kept mixing with the file; redirect it to a file and retry", path)


def _perform(session: Session, request: Request, stdout: Capture, size: int) -> Done:
    session.settle()
    done = session.perform(request, (stdout, Capture()), time.monotonic() + _SECONDS + size / _BYTES_PER_SECOND)
    session.tell_later(done.notes)
    return done


def _check(done: Done, deed: str, path: str) -> None:
    if done.status is not ActionStatus.COMPLETED:
        raise OSError(errno.EIO, f"the file could not be {deed}: the shell ended or hung meanwhile", path)
    if done.exit_code != 0:
        raise OSError(errno.EIO, message(done.stderr) or f"the file could not be {deed}", path)


def _quoted(path: str) -> bytes:
    """The path as one word, and never taken for an option."""
    raw = os.fsencode(path)
    if not raw or b"\0" in raw:
        raise OSError(errno.EINVAL, "a path must not be empty or hold a NUL byte", path)
    return quote(b"./" + raw if raw.startswith(b"-") else raw)
