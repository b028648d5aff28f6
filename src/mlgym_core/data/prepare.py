"""Prepares a task's data: looks in the cache, else runs the task's data module and keeps what it wrote."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from mlgym_core import storage
from mlgym_core.data import cache
from mlgym_core.data.source import LOCAL, Source, data_file, expectation, file_digest, fingerprint, parse_source
from mlgym_core.errors import InfrastructureError, MLGymError, TaskSpecError, UsageError
from mlgym_core.task.task import Data, Task

Progress = Callable[[str], None]


def _silent(text: str) -> None:
    del text


@frozen
class Prepared:
    """A task's data, ready to be mounted.

    Attributes:
        public: folder shown to agent and player; ``None`` when there is none.
        private: folder shown to the grader only; ``None`` when there is none.
        source: what it was made from: the kind, and for ``local`` the beginning of the content's SHA-256.
        checksums: file (``public/train.csv``) -> SHA-256, for the record.
    """

    public: Path | None = None
    private: Path | None = None
    source: str = ""
    checksums: Mapping[str, str] = field(factory=dict)


@frozen
class Out:
    """Where a task's ``prepare(source, size, seed, out)`` writes.

    Attributes:
        public: empty folder for what agent and player may see.
        private: empty folder for what only the grader may see.
        parameters: those of the size, from ``task.yaml``.
        progress: takes a line for the person who waits.
    """

    public: Path
    private: Path
    parameters: Mapping[str, Any]
    progress: Progress


def prepare(task: Task, source: str | None, size: str, seed: int, progress: Progress = _silent) -> Prepared:
    """The task's data for one source, size and seed; prepared when it is not in the cache.

    Args:
        task: whose data.
        source: ``hub``, ``local:<folder or file>``, ...; the task's default when ``None``.
        size: one of the task's sizes.
        seed: of the preparation.
        progress: told what takes time, and what was found damaged.

    Raises:
        UsageError: the source does not fit the task, or a local one does not hold what the task expects.
        InfrastructureError: the data could not be prepared; nothing is left behind.
    """
    if task.data is None:
        if source:
            raise UsageError(f"task {task.id} has no data, so --source {source} means nothing; leave it out")
        return Prepared()
    task.need_size(size)
    chosen = parse_source(task, task.data, source)
    request = _Request(task, task.data, chosen, size, seed, fingerprint(chosen.path) if chosen.path else "")
    return _result(_find(request, _silent) or _make(request, progress))


@frozen
class _Request:
    task: Task
    data: Data
    source: Source
    size: str
    seed: int
    content: str  #: fingerprint of a local source

    @property
    def module(self) -> Path:
        return data_file(self.task, self.data)

    @property
    def source_name(self) -> str:
        """For records: the path of a local source is the user's business, its content is not."""
        return f"{LOCAL}:{self.content[:16]}" if self.content else self.source.kind

    @property
    def folder(self) -> Path:
        return cache.data_folder() / self.task.id / self._key()

    def _key(self) -> str:
        # Files named like the module (data_split.json beside data.py) are taken to be part of it.
        beside = sorted(self.module.parent.glob(f"{self.module.stem}_*"))
        code = [[path.name, file_digest(path)] for path in (self.module, *beside) if path.is_file()]
        parameters = dict(self.task.sizes[self.size].parameters)
        facts = [self.task.id, self.task.version, code, self.size, parameters, self.seed]
        text = json.dumps([*facts, self.source.kind, self.content], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _result(entry: cache.Entry) -> Prepared:
    checksums = {name: mark.sha256 for name, mark in sorted(entry.files.items())}
    return Prepared(entry.part("public"), entry.part("private"), entry.source, checksums)


def _find(request: _Request, report: Progress) -> cache.Entry | None:
    entry = cache.read_entry(request.folder)
    if entry is None:
        return None
    problems = cache.damage(entry, full=False)
    if not problems:
        return entry
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    report(f"the prepared data of {request.task.id} is damaged ({problems[0]}{more}) and is prepared anew")
    return None


def _make(request: _Request, progress: Progress) -> cache.Entry:
    def waiting() -> None:
        progress(f"waiting: another process is preparing the data of {request.task.id}")

    def build(place: Path) -> None:
        progress(f"preparing the data of {request.task.id} from {request.source}, size {request.size}")
        for above in (request.folder.parent, request.folder.parent.parent):
            _open_to_all(above)
        _fill(request, place, progress)
        made = cache.read_entry(place)
        if made is not None:
            progress(f"the data of {request.task.id} is ready: {len(made.files)} files, {made.bytes / 1e6:.1f} MB")

    return storage.build_once(request.folder, lambda: _find(request, progress), build, waiting=waiting)


def _open_to_all(folder: Path) -> None:
    with contextlib.suppress(PermissionError):
        folder.chmod(folder.stat().st_mode | 0o055)


def _fill(request: _Request, folder: Path, progress: Progress) -> None:
    for part in cache.PARTS:
        (folder / part).mkdir(parents=True)
    parameters = request.task.sizes[request.size].parameters
    out = Out(folder / "public", folder / "private", parameters, progress)
    with _loaded(request.module) as module, _explained(request):
        module.prepare(request.source, request.size, request.seed, out)
    facts = {
        "task": request.task.id,
        "source": request.source_name,
        "size": request.size,
        "seed": request.seed,
    }
    cache.write_entry(folder, facts)


@contextlib.contextmanager
def _loaded(path: Path) -> Iterator[ModuleType]:
    """The module in a file, under a name of its own so that two tasks' ``data.py`` never meet; then forgotten."""
    module = ModuleType(f"_mlgym_data_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their own module up
    try:
        try:
            # Compiled here, for the import system may take a file of the same second and size from its bytecode cache.
            exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        except Exception as error:
            raise TaskSpecError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(getattr(module, "prepare", None)):
            raise TaskSpecError(f"{path} lacks a function prepare(source, size, seed, out)")
        yield module
    finally:
        sys.modules.pop(module.__name__, None)


@contextlib.contextmanager
def _explained(request: _Request) -> Iterator[None]:
    """What the task's code raises, in words; a local source that does not fit is the user's, all else is ours."""
    import errno

    try:
        yield
    except MLGymError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise storage.unusable(request.folder, error) from error
        if request.source.path and isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError, KeyError)):
            wanted = expectation(request.module)
            raise UsageError(f"the local source {request.source.path} does not fit: {error}; name {wanted}") from error
        kinds = [kind for kind in request.data.sources if kind != request.source.kind]
        hint = f"; other sources: {', '.join(kinds)}" if kinds else ""
        what = f"preparing the data of {request.task.id} from {request.source} failed"
        raise InfrastructureError(f"{what}: {type(error).__name__}: {error}{hint}") from error
