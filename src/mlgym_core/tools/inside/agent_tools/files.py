"""Reading and writing the files that are worked on."""

from __future__ import annotations

import errno
import os
import stat

from .command import Refused, encoded
from .lines import Lines, name

MOST_BYTES = 64 * 1024 * 1024

_KINDS = {
    stat.S_IFDIR: "a directory; look into it with `ls`, or for files below it with `find_file`",
    stat.S_IFIFO: "a pipe, which has no lines to show",
    stat.S_IFSOCK: "a socket, which has no lines to show",
    stat.S_IFCHR: "a device, which has no lines to show",
    stat.S_IFBLK: "a device, which has no lines to show",
}


def absolute(path: str) -> str:
    """The path from the root on.

    Raises:
        Refused: it is empty or no path at all, or this directory is gone.
    """
    encoded(path, "the path")
    if not path or "\0" in path:
        raise Refused("the path is empty or holds a NUL character; name a file")
    try:
        return os.path.abspath(os.path.expanduser(path) if path.startswith("~/") else path)
    except FileNotFoundError as error:
        raise Refused("the shell's directory no longer exists; change to another one with `cd`") from error


def read(path: str) -> Lines:
    """The lines of a text file.

    Raises:
        Refused: it is missing, closed to this user, not a regular file, binary or huge.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise Refused(_why_not(path, error)) from error
    try:
        found = os.fstat(descriptor)
        kind = _KINDS.get(stat.S_IFMT(found.st_mode))
        if kind:
            raise Refused(f"{name(path)} is {kind}")
        if found.st_size > MOST_BYTES:
            raise Refused(f"{name(path)} is larger than {MOST_BYTES >> 20} MiB; use `grep`, `head` or `sed -n` on it")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(_why_not(path, error)) from error
    finally:
        os.close(descriptor)
    if b"\0" in data:
        raise Refused(f"{name(path)} is a binary file (it holds NUL bytes); use a program for its format")
    return Lines(data)


def _why_not(path: str, error: OSError) -> str:
    shown = name(path)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if os.path.islink(path):
            return f"{shown} is a link to a file that does not exist"
        return f"{shown} does not exist; look for it with `find_file`, or make it with `create`"
    if error.errno == errno.EACCES:
        return f"{shown} cannot be read: permission denied; see `ls -l`"
    if error.errno == errno.ENXIO:
        return f"{shown} is {_KINDS[stat.S_IFSOCK]}"
    return f"{shown} cannot be read: {error.strerror}"


def check_writable(path: str) -> None:
    """Check that this user may change a file; root is held to the file's mode too.

    Raises:
        Refused: it is read-only.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise Refused(_why_not(path, error)) from error
    if not os.access(path, os.W_OK) or not mode & 0o222:
        raise Refused(f"{name(path)} is read-only; copy it and edit the copy, or `chmod u+w` it if it is yours")


def write(path: str, data: bytes) -> None:
    """Replace a file's content, at once where that can be; mode, owner, links stay.

    Raises:
        Refused: it cannot be written; the file is as it was unless the message says otherwise.
    """
    check_writable(path)
    target = os.path.realpath(path)
    found = os.stat(target)
    try:
        # A new file would belong to somebody else, part from the other names of this one, or has no place to be in.
        if found.st_uid != os.geteuid() or found.st_nlink > 1 or not os.access(os.path.dirname(target), os.W_OK):
            with open(target, "r+b") as file:
                file.write(data)
                file.truncate()
        else:
            _replace(target, data, stat.S_IMODE(found.st_mode))
    except OSError as error:
        raise Refused(f"{name(path)} could not be written: {error.strerror}; look at its content now") from error


def _replace(target: str, data: bytes, mode: int) -> None:
    beside = os.path.join(os.path.dirname(target), f".mlgym-{os.getpid()}")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(beside, target)
    except OSError:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def check_absent(path: str) -> None:
    """Check that nothing goes by this path.

    Raises:
        Refused: something does.
    """
    if os.path.lexists(path):
        raise Refused(f"{name(path)} exists; change it with `open` and `edit`, or choose another name")


def make(path: str, data: bytes) -> None:
    """Make a new file, and the folders above it.

    Raises:
        Refused: it cannot be made.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(data)
    except OSError as error:
        raise Refused(f"{name(path)} cannot be made: {error.strerror}") from error
