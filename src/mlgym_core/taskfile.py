"""Reads ``task.yaml`` into a :class:`~mlgym_core.task.Task`; every mistake names file, key and remedy."""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import yaml
from cattrs import Converter

from mlgym_core.errors import TaskSpecError
from mlgym_core.task import DEFAULT_SIZE, Task

SCHEMA = 1
_HOST_FIELDS = {"folder", "distribution", "version"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load_task(folder: Path, distribution: str = "", version: str = "") -> Task:
    """Read and check the task in ``folder``.

    Raises:
        TaskSpecError: a file is missing, or ``task.yaml`` breaks the schema.
    """
    folder = folder.resolve()
    path = folder / "task.yaml"
    raw = _read_yaml(path)
    _check_keys(raw, Task, str(path), "")
    try:
        task = _converter().structure(raw, Task)
    except Exception as error:
        raise TaskSpecError(f"{path}: {_explain(error)}") from error
    image = attrs.evolve(task.image, folder=folder / "image")
    task = attrs.evolve(task, folder=folder, image=image, distribution=distribution, version=version)
    problem = _problem(task)
    if problem:
        raise TaskSpecError(f"{path}: {problem}")
    return task


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise TaskSpecError(f"{path} is missing; a task package needs one beside its __init__.py") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise TaskSpecError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise TaskSpecError(f"{path} must be a mapping of keys to values, not {type(raw).__name__}")
    if raw.get("schema") != SCHEMA:
        raise TaskSpecError(
            f"{path}: schema is {raw.get('schema')!r}; this version of mlgym-core reads schema: {SCHEMA}"
        )
    return raw


def _check_keys(raw: object, wanted: Any, file: str, where: str) -> None:
    """Walk mapping and type side by side, so that an unknown key is named with its place and the nearest valid one."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        for option in arguments:
            if attrs.has(option):
                _check_keys(raw, option, file, where)
    elif attrs.has(wanted) and isinstance(raw, dict):
        hints = typing.get_type_hints(wanted)
        fields = [a.name for a in attrs.fields(wanted) if a.name not in _HOST_FIELDS]
        required = [a.name for a in attrs.fields(wanted) if a.default is attrs.NOTHING]
        for key in raw:
            if key not in fields:
                near = difflib.get_close_matches(str(key), fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(fields)}"
                raise TaskSpecError(f"{file}: unknown key {_join(where, key)!r}; {hint}")
        missing = [name for name in required if name not in raw]
        if missing:
            raise TaskSpecError(f"{file}: missing key {_join(where, missing[0])!r}")
        for key, value in raw.items():
            _check_keys(value, hints[key], file, _join(where, key))
    elif origin is tuple and isinstance(raw, list):
        for index, value in enumerate(raw):
            _check_keys(value, arguments[0], file, f"{where}[{index}]")
    elif isinstance(raw, dict) and len(arguments) == 2:
        for key, value in raw.items():
            _check_keys(value, arguments[1], file, _join(where, key))


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _converter() -> Converter:
    converter = Converter(detailed_validation=True)

    def strict(kind: type, accepted: tuple[type, ...]) -> None:
        def structure(value: Any, _: type) -> Any:
            if isinstance(value, bool) or not isinstance(value, accepted):
                raise ValueError(f"expected {kind.__name__}, got {value!r}")
            return kind(value)

        converter.register_structure_hook(kind, structure)

    strict(str, (str,))
    strict(int, (int,))
    strict(float, (int, float))

    def structure_list(value: Any, kind: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {value!r}")
        inner = typing.get_args(kind)[0]
        return tuple(converter.structure(item, inner) for item in value)

    def is_tuple(kind: Any) -> bool:
        return typing.get_origin(kind) is tuple

    converter.register_structure_hook_func(is_tuple, structure_list)
    return converter


def _explain(error: Exception) -> str:
    from cattrs import transform_error
    from cattrs.v import format_exception

    def words(error: BaseException, kind: type | None) -> str:
        return str(error) if type(error) is ValueError else format_exception(error, kind)

    lines = transform_error(error, path="task", format_exception=words)
    return "; ".join(
        f"{place.removeprefix('task.')}: {what}" for what, _, place in (x.rpartition(" @ ") for x in lines)
    )


def _problem(task: Task) -> str | None:
    """The first rule of the contract that the structured task breaks, in words."""
    submission = task.submission
    files = {
        "description.md": (task.folder / "description.md").is_file(),
        "private/grade.py": (task.folder / "private" / "grade.py").is_file(),
        "public/": (task.folder / "public").is_dir(),
    }
    if task.data is not None:
        files[task.data.module] = (task.folder / task.data.module).is_file()
    for name, present in files.items():
        if not present:
            return f"the package lacks {name}"
    if not _ID.fullmatch(task.id):
        return f"id {task.id!r} must be lower-case words joined by hyphens"
    if not task.metrics:
        return "metrics: at least one is needed; the first one is primary"
    if DEFAULT_SIZE not in task.sizes:
        return f"sizes: {DEFAULT_SIZE!r} is required; it is the size that published scores refer to"
    if not submission.paths:
        return "submission.paths: name at least one file or folder"
    for path in submission.paths:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or path in ("", "."):
            return f"submission.paths: {path!r} must be a path inside the workspace"
    if submission.kind != "csv" and not submission.player:
        return f"submission.player: a {submission.kind} submission is run, so name the public file that runs it"
    if submission.player and submission.player not in task.public_files():
        return f"submission.player: {submission.player!r} is not among the public files"
    return _limits_problem(task)


def _limits_problem(task: Task) -> str | None:
    for section in (task.limits, task.resources):
        for name, value in attrs.asdict(section).items():
            if name == "required":
                continue
            low = 0 if name in ("gpus", "validations") else 1e-9
            if value is not None and not (math.isfinite(value) and value >= low):
                return f"{type(section).__name__.lower()}.{name}: {value} must be positive"
    known = {metric.name for metric in task.metrics}
    for size, scores in task.baseline.scores.items():
        if size not in task.sizes:
            return f"baseline.scores: unknown size {size!r}; sizes: {', '.join(task.sizes)}"
        for metric in scores:
            if metric not in known:
                return f"baseline.scores.{size}: unknown metric {metric!r}; metrics: {', '.join(sorted(known))}"
    return None
