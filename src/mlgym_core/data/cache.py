"""The cache of prepared data: one folder an entry, complete or absent, with a checksum for every file.

<cache>/data/<task id>/<key>/entry.json, public/, private/
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from mlgym_core import storage
from mlgym_core.data.source import file_digest, files_below
from mlgym_core.errors import InfrastructureError, UsageError

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
    """Where prepared data is kept: ``data`` in the cache."""
    return storage.cache_folder() / "data"


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
        with storage.locked(folder):
            entry = read_entry(folder)
            if entry is not None:
                problems = damage(entry, full=True)
            else:
                problems = [f"{MANIFEST} cannot be read"] if folder.is_dir() else []
            if problems:
                found.append(Damage(folder, folder.parent.name, tuple(problems)))
                storage.forget(folder)
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
        with storage.locked(folder):
            entry = read_entry(folder)
            storage.forget(folder)
        if folder.exists():
            raise InfrastructureError(f"{folder} cannot be removed; remove it as its owner")
        if entry is not None:
            removed.append(entry)
    return sorted(removed, key=_order)


def _order(entry: Entry) -> tuple[str, float]:
    return entry.task, entry.made


def _folders(task: str | None) -> list[Path]:
    """The entries' folders, those that exist only as a lock or a half-made folder included."""
    if task is not None and (not task or Path(task).name != task or task == ".."):
        raise UsageError(f"{task!r} is no task's id")
    tasks = [task] if task else storage.names(data_folder())
    return [data_folder() / one / name for one in tasks for name in storage.names(data_folder() / one)]
