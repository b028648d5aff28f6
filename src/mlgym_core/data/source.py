"""Where data comes from: ``hub``, ``local:<folder or file>``, ``synthetic``, or a kind that the task declares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from mlgym_core.errors import TaskSpecError, UsageError
from mlgym_core.storage import expanded
from mlgym_core.task.task import Data, Task

LOCAL = "local"


@frozen
class Source:
    """One source of data.

    Attributes:
        kind: one of those that the task declares in ``data.sources``.
        path: absolute path of the user's folder or file; only for ``local``.
    """

    kind: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}" if self.path else self.kind


def parse_source(task: Task, data: Data, text: str | None) -> Source:
    """Read a ``--source``; the first kind that the task declares when ``None``.

    Raises:
        UsageError: the task declares no such kind, or a path is missing, superfluous or leads nowhere.
    """
    if not data.sources:
        raise TaskSpecError(f"{task.folder / 'task.yaml'}: data.sources: name at least one kind of source")
    kind, colon, path = (text or data.sources[0]).partition(":")
    if kind not in data.sources:
        raise UsageError(f"task {task.id} has no source {kind!r}; choose from: {', '.join(map(_shown, data.sources))}")
    if kind != LOCAL:
        if colon:
            raise UsageError(f"source {kind} takes no path, so {text!r} means nothing; write --source {kind}")
        return Source(kind)
    if not path:
        raise UsageError(f"source local needs a place: --source {_shown(kind)}")
    found = expanded(path).absolute()
    if not found.exists():
        raise UsageError(f"the local source {found} does not exist; name {expectation(data_file(task, data))}")
    return Source(kind, found)


def _shown(kind: str) -> str:
    return "local:<folder or file>" if kind == LOCAL else kind


def data_file(task: Task, data: Data) -> Path:
    """The task's data module."""
    return task.folder / data.module


def expectation(module: Path) -> str:
    """What a local source has to be, from the string ``EXPECTS`` in the data module, which is read but not run."""
    import ast

    try:
        statements = ast.parse(module.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        statements = []
    for one in statements:
        if isinstance(one, ast.Assign) and [ast.unparse(target) for target in one.targets] == ["EXPECTS"]:
            return str(ast.literal_eval(one.value)) if isinstance(one.value, ast.Constant) else ""
    return "a folder or file in the form that the task's documentation describes"


def fingerprint(path: Path) -> str:
    """SHA-256 over the names and contents of a file, or of all files below a folder.

    Raises:
        UsageError: something there cannot be read.
    """
    total = hashlib.sha256()
    try:
        for name, file in files_below(path):
            total.update(f"{name}\0{file_digest(file)}\n".encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise UsageError(f"the local source {path} cannot be read: {error}") from error
    return total.hexdigest()


def files_below(path: Path) -> Iterator[tuple[str, Path]]:
    """Names (relative, with slashes) and paths of the files, sorted; a single file goes by its own name."""
    if not path.is_dir():
        yield path.name, path
        return
    found = ((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    yield from sorted(found)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
