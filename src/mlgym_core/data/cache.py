"""The cache of prepared data: one folder an entry, complete or absent, with a checksum for every file.

<cache>/data/<task id>/<key>/entry.json, public/, private/
<cache>/data/<task id>/<key>.lock       held while the entry is made or removed
<cache>/data/<task id>/<key>.partial/   being made; without a holder of the lock it is a dead preparer's
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from attrs import frozen

from mlgym_core.data.source import file_digest, files_below
from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.sandbox.local.environments import cache_folder
from mlgym_core.storage import remove_tree

MANIFEST = "entry.json"
SCHEMA = 1
PARTS = ("public", "private")


@frozen
class FileMark:
    """What is known of one file of an entry.

    Attributes:
        sha256: of its content, hexadecimal.
        size: bytes.
        mtime_ns: time of its last change, in nanoseconds.
    """

    sha256: str
    size: int
    mtime_ns: int


@frozen
class Entry:
    """Prepared data in the cache.

    Attributes:
        folder: holds ``public/`` and ``private/``.
        task: id of the task.
        source, size, seed: what it was made from.
        made: seconds since the epoch.
        files: path inside the folder -> what is known of it.
    """

    folder: Path
    task: str
    source: str
    size: str
    seed: int
    made: float
    files: Mapping[str, FileMark]

    @property
    def key(self) -> str:
        """Name of the entry."""
        return self.folder.name

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(mark.size for mark in self.files.values())

    @property
    def age(self) -> float:
        """Seconds since it was made."""
        return max(0.0, time.time() - self.made)

    def part(self, name: str) -> Path | None:
        """The folder ``public`` or ``private``; ``None`` when there is nothing in it."""
        return self.folder / name if any(path.startswith(f"{name}/") for path in self.files) else None


@frozen
class Damage:
    """An entry that is not what was prepared.

    Attributes:
        folder: the entry's.
        task: id of the task.
        problems: what is wrong, one sentence a file.
    """

    folder: Path
    task: str
    problems: tuple[str, ...]


def data_folder() -> Path:
    """Where prepared data is kept: ``data`` in ``MLGYM_CACHE``, else in ``~/.cache/mlgym``."""
    return cache_folder() / "data"


def read_entry(folder: Path) -> Entry | None:
    """The entry in a folder; ``None`` when there is none, or its description cannot be read."""
    try:
        raw = json.loads((folder / MANIFEST).read_text("utf-8"))
        if raw.pop("schema") != SCHEMA:
            return None
        files = {name: FileMark(*mark) for name, mark in raw.pop("files").items()}
        return Entry(folder=folder, files=files, **raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_entry(folder: Path, facts: Mapping[str, Any]) -> None:
    """Describe what has been prepared in ``folder``, opening it to other users' eyes.

    Raises:
        InfrastructureError: it holds something that is neither a file nor a folder.
    """
    files: dict[str, tuple[str, int, int]] = {}
    for part in PARTS:
        for path in (folder / part, *(folder / part).rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                odd = path.relative_to(folder)
                raise InfrastructureError(f"the task prepared {odd}, which is a link or a device; it must copy files")
            # The user of a box is another one than ours, and whatever umask we run under.
            path.chmod(0o755 if path.is_dir() else 0o644)
    for name, path in _present(folder).items():
        stat = path.stat()
        files[name] = (file_digest(path), stat.st_size, stat.st_mtime_ns)
    text = json.dumps({"schema": SCHEMA, **facts, "made": time.time(), "files": files})
    (folder / MANIFEST).write_text(text, "utf-8")
    folder.chmod(0o755)


def damage(entry: Entry, full: bool) -> list[str]:
    """What is wrong with an entry.

    Args:
        entry: to be looked at.
        full: read every file and compare its checksum; otherwise only those whose size or time has changed.
    """
    present = _present(entry.folder)
    problems = [f"{name} is missing" for name in entry.files if name not in present]
    problems += [f"{name} was added" for name in present if name not in entry.files]
    for name, mark in entry.files.items():
        if name not in present:
            continue
        try:
            stat = present[name].stat()
            same = stat.st_size == mark.size and stat.st_mtime_ns == mark.mtime_ns
            if (full or not same) and (stat.st_size != mark.size or file_digest(present[name]) != mark.sha256):
                problems.append(f"{name} has changed")
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
    return problems


def _present(folder: Path) -> dict[str, Path]:
    return {
        f"{part}/{name}": path
        for part in PARTS
        if (folder / part).is_dir()
        for name, path in files_below(folder / part)
    }


@contextlib.contextmanager
def locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of an entry, alone among all processes of this machine.

    Args:
        folder: the entry's.
        waiting: called once when another process holds it.

    Raises:
        InfrastructureError: the cache cannot be written.
    """
    lock = _acquire(folder.with_suffix(".lock"), waiting)
    try:
        yield
    finally:
        lock.close()


def _acquire(path: Path, waiting: Callable[[], None]) -> TextIO:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in (path.parent, path.parent.parent):
                _open_to_all(folder)
            lock = path.open("w")
        except OSError as error:
            raise unusable(error) from error
        try:
            _wait_for(lock, waiting)
        except BaseException:
            lock.close()
            raise
        # Whoever removes an entry removes its lock too; a lock without a name keeps nobody out.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        lock.close()


def _wait_for(lock: TextIO, waiting: Callable[[], None]) -> None:
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise unusable(error) from error


def _open_to_all(folder: Path) -> None:
    with contextlib.suppress(PermissionError):
        folder.chmod(folder.stat().st_mode | 0o055)


def unusable(error: OSError) -> InfrastructureError:
    """The error to raise when the cache cannot be written, with the remedy."""
    import errno

    place = data_folder()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some (`mlgym data list`, `mlgym data remove`) or set MLGYM_CACHE to a folder with more"
        return InfrastructureError(f"no space is left in {place}; {remedy}")
    return InfrastructureError(f"the cache {place} cannot be used: {error}; set MLGYM_CACHE to a folder you can write")


def list_entries(task: str | None = None) -> list[Entry]:
    """What is in the cache, by task and age (oldest first); of one task, or of all."""
    found = [entry for folder in _folders(task) if (entry := read_entry(folder)) is not None]
    return sorted(found, key=_order)


def verify(task: str | None = None) -> list[Damage]:
    """Read everything in the cache again and remove what is not as it was prepared; the next use prepares it anew.

    Args:
        task: id of a task; all when ``None``.

    Returns:
        The damaged entries, which are gone now.

    Raises:
        InfrastructureError: the cache cannot be written.
    """
    found: list[Damage] = []
    for folder in _folders(task):
        with locked(folder, lambda: None):
            entry = read_entry(folder)
            if entry is not None:
                problems = damage(entry, full=True)
            else:
                problems = [f"{MANIFEST} cannot be read"] if folder.is_dir() else []
            if problems:
                found.append(Damage(folder, folder.parent.name, tuple(problems)))
                _clear(folder)
    return found


def remove(task: str | None = None) -> list[Entry]:
    """Remove prepared data and what killed preparers left; waits for a preparer at work.

    Do not remove what a run is using: its boxes show the folders as they are.

    Args:
        task: id of a task; all when ``None``.

    Returns:
        What was removed.

    Raises:
        InfrastructureError: the cache cannot be written, or something withstands removal.
    """
    removed: list[Entry] = []
    for folder in _folders(task):
        with locked(folder, lambda: None):
            entry = read_entry(folder)
            _clear(folder)
            folder.with_suffix(".lock").unlink(missing_ok=True)
        if folder.exists():
            raise InfrastructureError(f"{folder} cannot be removed; remove it as its owner")
        if entry is not None:
            removed.append(entry)
    return sorted(removed, key=_order)


def _order(entry: Entry) -> tuple[str, float]:
    return entry.task, entry.made


def _clear(folder: Path) -> None:
    remove_tree(folder)
    remove_tree(folder.with_suffix(".partial"))


def _folders(task: str | None) -> list[Path]:
    """The entries' folders, those that exist only as a lock or a half-made folder included."""
    if task is not None and (not task or Path(task).name != task or task == ".."):
        raise UsageError(f"{task!r} is no task's id")
    tasks = [data_folder() / task] if task else _listed(data_folder())
    return sorted({path.with_suffix("") for one in tasks for path in _listed(one)})


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unusable(error) from error
