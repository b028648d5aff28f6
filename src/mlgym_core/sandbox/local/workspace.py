"""A workspace on the host: filling it beforehand, and reading it out while the agent may still change it."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from mlgym_core.errors import ExportError, InfrastructureError
from mlgym_core.sandbox.archives import Pieces
from mlgym_core.sandbox.base import Mount
from mlgym_core.sandbox.paths import relative

_CHUNK = 1 << 20
_MAX_DEPTH = 64
_MAX_NAMES = 100_000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def fill(folder: Path, files: Mapping[str, Path], mounts: Sequence[Mount], owner: int | None, link: bool) -> None:
    """Put the initial files and the mounts' places into a fresh workspace.

    Args:
        folder: the workspace on the host, made here.
        files: path inside -> host file.
        mounts: read-only folders.
        owner: user and group id that everything is given to, ``None`` for this user.
        link: show mounts as symbolic links, for a box without mounts of its own.

    Raises:
        InfrastructureError: a file cannot be copied.
    """
    try:
        _open_folder(folder)
        for inside, source in files.items():
            target = folder / relative(inside)
            _open_folder(target.parent)
            shutil.copyfile(source, target)
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
        for mount in mounts:
            target = folder / relative(mount.target)
            _open_folder(target.parent)
            if link:
                target.symlink_to(mount.source.resolve())
            elif mount.source.is_dir():
                _open_folder(target)
            else:
                target.touch()
        if owner is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, owner, owner, follow_symlinks=False)
    except OSError as error:
        raise InfrastructureError(f"the workspace could not be filled: {error}") from error


def _open_folder(folder: Path) -> None:
    """Make a folder and those above it, open to be read whatever the caller's umask is."""
    if not folder.is_dir():
        _open_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def check_readable(mounts: Sequence[Mount]) -> None:
    """Check that another user than this one can read the mounts.

    Raises:
        InfrastructureError: a folder or file is missing or closed to others.
    """
    for mount in mounts:
        try:
            mode = mount.source.stat().st_mode
        except OSError as error:
            raise InfrastructureError(f"{mount.source} cannot be shown in a box: {error}") from error
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        if mode & needed != needed:
            raise InfrastructureError(
                f"{mount.source} is closed to the unprivileged user of a box; open it with `chmod -R a+rX`"
            )


def places_intact(folder: Path, mounts: Sequence[Mount]) -> bool:
    """Whether mounts can be put in their places again without following a link that the agent has left there."""
    for mount in mounts:
        path = folder
        for part in relative(mount.target).parts:
            path = path / part
            if path.is_symlink() or not path.exists():
                return False
    return True


def export(folder: Path, paths: Sequence[str]) -> IO[bytes]:
    """A tar stream of workspace paths, made while it is read; see :class:`~mlgym_core.sandbox.base.Sandbox`.

    No symbolic link is ever followed and nothing but a regular file is ever opened, whatever the agent's processes
    do meanwhile.
    """
    wanted = [relative(path) for path in paths]
    return io.BufferedReader(Pieces(_entries(folder, wanted)), _CHUNK)


def _entries(folder: Path, paths: Sequence[PurePosixPath]) -> Iterator[bytes]:
    try:
        top = _top(folder)
        if top is not None:
            try:
                for path in paths:
                    yield from _path(top, path)
            finally:
                os.close(top)
    except OSError as error:
        raise ExportError(f"the workspace cannot be read: {error.strerror}") from error
    yield bytes(2 * tarfile.BLOCKSIZE)


def _top(folder: Path) -> int | None:
    """The workspace, opened, whatever its owner has made of its permissions; ``None`` when it is gone."""
    try:
        try:
            return os.open(folder, _FOLDER_FLAGS)
        except PermissionError:
            mode = folder.lstat().st_mode
            if not stat.S_ISDIR(mode):
                raise
            folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
            return os.open(folder, _FOLDER_FLAGS)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def _path(top: int, path: PurePosixPath) -> Iterator[bytes]:
    """One wanted path; a link on the way to it is put in its place, for the reader to refuse."""
    descriptors = [os.dup(top)]
    try:
        for index, part in enumerate(path.parts):
            name = "/".join(path.parts[: index + 1])
            last = index == len(path.parts) - 1
            info = _inspect(descriptors[-1], part, name)
            if info is None:
                return
            if last or not info.isdir():
                yield from _entry(descriptors[-1], part, info, 0)
                return
            child = _open(part, descriptors[-1], _FOLDER_FLAGS)
            if child is None:
                return
            descriptors.append(child)
        if not path.parts:  # the workspace itself
            yield from _children(top, "", 0)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _entry(parent: int, part: str, info: tarfile.TarInfo, depth: int) -> Iterator[bytes]:
    if info.isfile():
        yield from _file(parent, part, info)
    elif info.isdir():
        yield _header(info)
        child = _open(part, parent, _FOLDER_FLAGS)
        if child is not None:
            try:
                yield from _children(child, info.name + "/", depth + 1)
            finally:
                os.close(child)
    else:
        yield _header(info)


def _children(descriptor: int, prefix: str, depth: int) -> Iterator[bytes]:
    if depth > _MAX_DEPTH:
        raise ExportError(f"folders are nested deeper than {_MAX_DEPTH} levels at {prefix[:200]!r}")
    names = []
    with os.scandir(descriptor) as listing:
        for found in listing:
            names.append(found.name)
            if len(names) > _MAX_NAMES:
                raise ExportError(f"{prefix or 'the workspace'} holds more than {_MAX_NAMES} entries")
    for part in sorted(names):
        info = _inspect(descriptor, part, prefix + part)
        if info is not None:
            yield from _entry(descriptor, part, info, depth)


def _file(parent: int, part: str, info: tarfile.TarInfo) -> Iterator[bytes]:
    descriptor = _open(part, parent, _FILE_FLAGS)
    if descriptor is None:
        return
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):  # changed since it was looked at
            return
        info.size = found.st_size
        yield _header(info)
        left = info.size
        while left > 0:
            # A file that has shrunk meanwhile still fills the size that its header has promised.
            data = os.read(descriptor, min(left, _CHUNK)) or bytes(min(left, _CHUNK))
            left -= len(data)
            yield data
        yield bytes(-info.size % tarfile.BLOCKSIZE)
    finally:
        os.close(descriptor)


def _open(part: str, parent: int, flags: int) -> int | None:
    try:
        return os.open(part, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise ExportError(f"{part!r} cannot be read: {error.strerror}") from error


def _inspect(parent: int, part: str, name: str) -> tarfile.TarInfo | None:
    """What an entry is, without opening it."""
    try:
        found = os.stat(part, dir_fd=parent, follow_symlinks=False)
        info = tarfile.TarInfo(name)
        info.mode = stat.S_IMODE(found.st_mode)
        info.mtime = int(found.st_mtime)
        info.type = _TYPES.get(stat.S_IFMT(found.st_mode), tarfile.FIFOTYPE)  # sockets have no type of their own
        if info.issym():
            info.linkname = os.readlink(part, dir_fd=parent)
        elif info.ischr() or info.isblk():
            info.devmajor, info.devminor = os.major(found.st_rdev), os.minor(found.st_rdev)
    except OSError as error:
        if error.errno in (*_GONE, errno.EINVAL):
            return None
        raise ExportError(f"{name!r} cannot be read: {error.strerror}") from error
    return info


_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE,
    stat.S_IFBLK: tarfile.BLKTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
