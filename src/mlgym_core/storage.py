"""Folders and files of our own: where they are, made once over all processes, written whole, removed whole.

A folder of the cache has two neighbours::

    <folder>.lock       held while it is made or removed
    <folder>.partial    being made; without a holder of the lock, a dead process left it
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from mlgym_core import settings
from mlgym_core.errors import InfrastructureError, UsageError

T = TypeVar("T")


def cache_folder() -> Path:
    """Where what can be made again is kept: ``MLGYM_CACHE``, else the platform's place, ``~/.cache/mlgym`` on Linux.

    Raises:
        UsageError: nobody says where the home folder is.
    """
    from platformdirs import user_cache_path

    return settings.CACHE.value() or _at_home(user_cache_path, settings.CACHE.name)


def state_folder() -> Path:
    """Where what a person has typed is kept: the platform's place, ``~/.local/state/mlgym`` on Linux.

    Raises:
        UsageError: nobody says where the home folder is.
    """
    from platformdirs import user_state_path

    return _at_home(user_state_path, "XDG_STATE_HOME")


def _at_home(place: Callable[..., Path], variable: str) -> Path:
    try:
        folder = place("mlgym", appauthor=False)
    except RuntimeError:
        folder = None
    if folder is None or not folder.is_absolute():  # by version, platformdirs leaves ~ as it is
        raise UsageError(
            f"there is no home folder: HOME is not set and user {os.getuid()} is not known here; set HOME or {variable}"
        )
    return folder


def home_folder() -> Path | None:
    """The home folder; ``None`` when nobody says where it is."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def expanded(path: str | Path) -> Path:
    """A path that a person has named, with ``~`` replaced by the home folder.

    Raises:
        UsageError: it begins with the home folder of nobody.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path} cannot be found: there is no such home folder; write the path without ~") from None


def build_once(
    folder: Path,
    find: Callable[[], T | None],
    build: Callable[[Path], None],
    *,
    waiting: Callable[[], None] = lambda: None,
    movable: bool = True,
) -> T:
    """What a folder holds, built by one process at a time where it is absent; others see it complete or not at all.

    Args:
        folder: of a cache.
        find: what is in ``folder``; ``None`` while it is absent, incomplete or damaged.
        build: fills the place it is given, which does not exist.
        waiting: called once when another process is at work.
        movable: build beside ``folder`` and rename. What cannot be moved is built in its place, and ``find`` must
            tell whether it is complete.

    Raises:
        InfrastructureError: the cache cannot be written.
    """
    with locked(folder, waiting):
        found = find()
        if found is not None:
            return found
        # The lock is ours, so whoever left a half-made folder is dead.
        place = _partial(folder) if movable else folder
        try:
            remove_tree(place)
            build(place)
            if movable:
                remove_tree(folder)
                place.rename(folder)
        except BaseException as error:
            remove_tree(place)
            if isinstance(error, OSError):
                raise unusable(folder, error) from error
            raise
        found = find()
    if found is None:
        raise InfrastructureError(f"{folder} was changed while it was made; try again")
    return found


@contextlib.contextmanager
def locked(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a folder, alone among all processes and threads of this machine.

    The lock lies beside the folder, never in it: boxes are shown what is inside, and two boxes could signal to each
    other through a lock that both can open.

    Args:
        folder: need not exist.
        waiting: called once when another process holds the lock.

    Raises:
        InfrastructureError: the cache cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(_lock(folder))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            waiting()
            lock.acquire()
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def forget(folder: Path) -> None:
    """Remove a folder of the cache, what a killed builder left of it, and its lock, which the caller holds."""
    remove_tree(folder)
    remove_tree(_partial(folder))
    _lock(folder).unlink(missing_ok=True)


def names(folder: Path) -> list[str]:
    """The folders in a folder of the cache, those that exist only as a lock or half-made included.

    Raises:
        InfrastructureError: it cannot be listed.
    """
    try:
        found = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unusable(folder, error) from error
    return sorted({name.removesuffix(_LOCK).removesuffix(_PARTIAL) for name in found})


_LOCK, _PARTIAL = ".lock", ".partial"


def _lock(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)


def _partial(folder: Path) -> Path:
    return folder.with_name(folder.name + _PARTIAL)


def unusable(folder: Path, error: OSError) -> InfrastructureError:
    """The error to raise when a folder of the cache cannot be written, with the remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = (
            f"free some (`mlgym data list`, `mlgym data remove`) or set {settings.CACHE.name} to a folder with more"
        )
        return InfrastructureError(f"no space is left in {folder.parent}; {remedy}")
    return InfrastructureError(
        f"the cache {folder.parent} cannot be used: {error}; set {settings.CACHE.name} to a folder you can write"
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_tree(folder: Path) -> None:
    """Remove a folder whose content may be anything: read-only, unreadable, nested without end.

    Nothing below it may still be changed by a running process. What cannot be removed is left.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists() or folder.is_symlink():
        return
    # Python's own tree functions recurse, and give up on a folder that cannot be listed.
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True, timeout=600)
