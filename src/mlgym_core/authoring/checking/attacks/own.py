"""Attacks that a task brings along in its folder ``attacks/``: hostile submissions, and scripts of hostile agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from mlgym_core.authoring.checking.attacks.base import EVERY_KIND, Arena
from mlgym_core.authoring.checking.report import BrokenError
from mlgym_core.episode.episode import Action
from mlgym_core.errors import UsageError
from mlgym_core.task.plainfile import read_plain
from mlgym_core.task.task import SubmissionKind, Task

FOLDER = "attacks"


@frozen
class HandedIn:
    """``attacks/<name>/`` is a submission; files of the baseline's complete it."""

    name: str
    folder: Path
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = True

    @property
    def about(self) -> str:
        """What it tries."""
        return f"hands in {FOLDER}/{self.folder.name}"

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        files = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        return arena.judge(arena.hand_in({**arena.honest, **files}))


@frozen
class Scripted:
    """``attacks/<name>.yaml`` is a list of actions, as for ``--model scripted``; the honest submission is in place."""

    name: str
    path: Path
    kinds: Sequence[SubmissionKind] = EVERY_KIND
    specific: bool = True

    @property
    def about(self) -> str:
        """What it tries."""
        return f"plays {FOLDER}/{self.path.name}"

    def run(self, arena: Arena) -> str:
        """See :class:`~mlgym_core.authoring.checking.attacks.base.Attack`."""
        played = arena.play([_action(item, self.path) for item in _items(self.path)])
        return str(played.episode.outcome)


def _items(path: Path) -> list[Any]:
    try:
        items = read_plain(path, UsageError)
    except UsageError as error:
        raise BrokenError(str(error)) from error
    if not isinstance(items, list):
        raise BrokenError(f"{FOLDER}/{path.name} must be a list of shell commands and {{tool: ...}} mappings")
    return items


def _action(item: Any, path: Path) -> str | Action:
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and isinstance(item.get("tool"), str):
        return Action(item["tool"], item.get("arguments", {}))
    raise BrokenError(f"{FOLDER}/{path.name}: {item!r:.100} is neither a shell command nor a {{tool: ...}} mapping")


def attacks(task: Task) -> Iterator[HandedIn | Scripted]:
    """The task's own attacks, by name."""
    folder = task.folder / FOLDER
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield HandedIn(f"own-{path.name}", path)
        elif path.suffix in (".yaml", ".yml"):
            yield Scripted(f"own-{path.stem}", path)
