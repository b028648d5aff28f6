"""Copies of a task that are changed for a check: a canary among the private files, a player that is seeded or spies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs

from mlgym_core.task.task import Include, Task

CANARY_FILE = "answers-canary.csv"  #: among the private files

_SEEDED = """\
import random

random.seed({seed})
try:
    import numpy
except ImportError:
    pass
else:
    numpy.random.seed({seed})
"""

# Looks at all that the player can see, before and in every call, and says where it found the needle. The needle is
# written in two parts, so that the search does not find itself.
_SPYING = """\
import os
import mlgym_peer

_NEEDLE = ({first!r} + {second!r}).encode()
_FOUND = []


def _look(path):
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= 1 << 26:
            with open(path, "rb") as file:
                if _NEEDLE in file.read():
                    _FOUND.append(path)
    except OSError:
        pass


def _look_around():
    skipped = {{"/proc", "/sys", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/var/lib"}}
    for folder, folders, names in os.walk("/"):
        folders[:] = [] if folder in skipped else folders
        for name in names + folders:
            if _NEEDLE.decode() in name:
                _FOUND.append(os.path.join(folder, name))
        for name in names:
            _look(os.path.join(folder, name))
    for process in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline", "mountinfo", "maps"):
            try:
                with open("/proc/" + process + "/" + name, "rb") as file:
                    if _NEEDLE in file.read():
                        _FOUND.append("/proc/" + process + "/" + name)
            except OSError:
                pass


def _spying(handler):
    def spy(header, buffers):
        if _NEEDLE.decode() in repr(header) or any(_NEEDLE in bytes(one.data) for one in buffers.values()):
            _FOUND.append("a message of the grader")
        if _FOUND:
            raise mlgym_peer.InvalidSubmission("found " + ", ".join(_FOUND[:5]))
        return handler(header, buffers)

    return spy


_look_around()
mlgym_peer.serve = lambda handler, serve=mlgym_peer.serve: serve(_spying(handler))
"""

_THEN = """
exec(compile({source!r}, {name!r}, "exec"), globals())
"""


def copied(task: Task, folder: Path, **changes: Any) -> Task:
    """A copy of the task's files in ``folder``, included ones among them, so that they can be changed.

    Args:
        task: stays as it is.
        folder: does not exist yet.
        changes: fields of the copy.
    """
    for part, files in (("public", task.public_files()), ("private", task.private_files())):
        (folder / part).mkdir(parents=True)
        for name, path in files.items():
            (folder / part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / part / name)
    (folder / "description.md").write_text(task.description(), "utf-8")
    image = task.image
    if image.folder.is_dir():
        shutil.copytree(image.folder, folder / "image")
        image = attrs.evolve(image, folder=folder / "image")
    if task.data is not None:
        stem = Path(task.data.module).stem
        for path in task.folder.glob(f"{stem}*"):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    return attrs.evolve(task, folder=folder, image=image, include=Include(), **changes)


def with_canary(task: Task, folder: Path, canary: str) -> Task:
    """A copy whose private part holds the canary, in a file of its own and in ``grade.py``."""
    copy = copied(task, folder)
    private = copy.folder / "private"
    (private / CANARY_FILE).write_text(f"id,label\n1,{canary}\n")
    with (private / "grade.py").open("a", encoding="utf-8") as file:
        file.write(f"\n# {canary}\n")
    return copy


def canary_beside(data: Path, folder: Path, canary: str) -> Path:
    """A copy of the private data with the canary in a file of its own; large files are linked, not copied."""
    shutil.copytree(data, folder, copy_function=_link_or_copy)
    (folder / CANARY_FILE).write_text(f"id,label\n1,{canary}\n")
    return folder


def _link_or_copy(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def seed_player(copy: Task, seed: int = 0) -> None:
    """Have the player of a copy seed ``random`` (and numpy's, where the image has it) before anything else."""
    _begin_player_with(copy, _SEEDED.format(seed=seed))


def let_player_spy(copy: Task, canary: str) -> None:
    """Have the player of a copy look for the canary; it refuses to play when it has found it."""
    half = len(canary) // 2
    _begin_player_with(copy, _SPYING.format(first=canary[:half], second=canary[half:]))


def _begin_player_with(copy: Task, text: str) -> None:
    if copy.submission.player is None:
        return
    path = copy.folder / "public" / copy.submission.player
    source = path.read_text("utf-8")
    path.write_text(text + _THEN.format(source=source, name=path.name), "utf-8")
