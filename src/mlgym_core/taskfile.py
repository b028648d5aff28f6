"""Reads ``task.yaml`` into a :class:`~mlgym_core.task.Task`; every mistake names file, key and remedy."""

from __future__ import annotations

import difflib
import json
import math
import re
import types
import typing
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import yaml
from cattrs import Converter

from mlgym_core.errors import TaskSpecError
from mlgym_core.task import DEFAULT_SIZE, Capability, Limits, Resources, Task

SCHEMA = 1
_HOST_FIELDS = {"folder", "distribution", "version"}
_MAY_BE_ZERO = {"gpus", "validations"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load_task_folder(folder: Path, distribution: str = "", version: str = "") -> Task:
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


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that occurs twice, and numbers too long to be meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key occurs twice", node.start_mark)
        return found


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text("utf-8"), _StrictLoader)
        json.dumps(raw, allow_nan=False)
    except FileNotFoundError:
        raise TaskSpecError(f"{path} is missing; a task package needs one beside its __init__.py") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise TaskSpecError(f"{path} cannot be read: {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
        raise TaskSpecError(f"{path} may hold text, finite numbers, lists and mappings only: {reason}") from error
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

    def structure_capability(value: Any, _: type) -> Capability:
        if value not in list(Capability):
            raise ValueError(f"{value!r} is no capability; choose from {', '.join(Capability)}")
        return Capability(value)

    strict(str, (str,))
    converter.register_structure_hook(Capability, structure_capability)
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
        if type(error) is ValueError:
            return str(error)
        choices = typing.get_args(kind) if kind is not None else ()
        if choices and all(isinstance(choice, str) for choice in choices):
            return f"choose from {', '.join(choices)}"
        return format_exception(error, kind)

    lines = transform_error(error, path="task", format_exception=words)
    return "; ".join(
        f"{place.removeprefix('task.')}: {what}" for what, _, place in (x.rpartition(" @ ") for x in lines)
    )


def _problem(task: Task) -> str | None:
    """The first rule of the contract that the structured task breaks, in words."""
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
    try:
        task.description()
    except UnicodeDecodeError:
        return "description.md is not UTF-8; save it as UTF-8"
    if not _ID.fullmatch(task.id):
        return f"id {task.id!r} must be lower-case words joined by hyphens"
    if not task.metrics:
        return "metrics: at least one is needed; the first one is primary"
    for metric in task.metrics:
        if metric.tolerance is not None and not 0 <= metric.tolerance < 1:
            return f"metrics: the tolerance of {metric.name} is a share from 0 to 1, not {metric.tolerance:g}"
    if DEFAULT_SIZE not in task.sizes:
        return f"sizes: {DEFAULT_SIZE!r} is required; it is the size that published scores refer to"
    return _submission_problem(task) or _limits_problem(task)


def _submission_problem(task: Task) -> str | None:
    submission = task.submission
    if not submission.paths:
        return "submission.paths: name at least one file or folder"
    for path in submission.paths:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or path in ("", "."):
            return f"submission.paths: {path!r} must be a path inside the workspace"
    if submission.kind != "csv" and not submission.player:
        return f"submission.player: a {submission.kind} submission is run, so name the public file that runs it"
    problem = _include_problem(task)
    if problem:
        return problem
    if submission.player and submission.player not in task.public_files():
        return f"submission.player: {submission.player!r} is not among the public files"
    return None


def _include_problem(task: Task) -> str | None:
    for side, specs in (("public", task.include.public), ("private", task.include.private)):
        for index, spec in enumerate(specs):
            where = f"include.{side}[{index}]"
            package, separator, inside = spec.partition(":")
            if not separator or not inside:
                return f"{where}: {spec!r} must have the form package:path/inside/it"
            try:
                found = resources.files(package).joinpath(inside)
            except ModuleNotFoundError:
                return f"{where}: package {package!r} is not installed; make it a dependency of the task's package"
            if not found.is_file():
                return f"{where}: package {package!r} has no file {inside}"
            if (task.folder / side / Path(inside).name).exists():
                return f"{where}: the task has a file {Path(inside).name} of its own in {side}/; rename one of them"
    return None


def _limits_problem(task: Task) -> str | None:
    sizes = {"submission.max_bytes": task.submission.max_bytes, "submission.max_files": task.submission.max_files}
    for name, value in sizes.items():
        if value < 1:
            return f"{name}: {value} must be positive"
    return numbers_problem(task.limits) or numbers_problem(task.resources) or _baseline_problem(task)


def numbers_problem(section: Limits | Resources) -> str | None:
    """The first number of limits or resources that makes no sense, in words; ``None`` when all do."""
    hints = typing.get_type_hints(type(section))
    for a in attrs.fields(type(section)):
        value = getattr(section, a.name)
        if a.name == "required" or (value is None and type(None) in typing.get_args(hints[a.name])):
            continue
        name = f"{type(section).__name__.lower()}.{a.name}"
        whole = int in (hints[a.name], *typing.get_args(hints[a.name]))
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            return f"{name}: {value!r} is not a {'whole ' if whole else ''}number"
        if not math.isfinite(value) or value < 0 or (value == 0 and a.name not in _MAY_BE_ZERO):
            return f"{name}: {value} must be positive"
    return None


def _baseline_problem(task: Task) -> str | None:
    known = {metric.name for metric in task.metrics}
    for size, scores in task.baseline.scores.items():
        if size not in task.sizes:
            return f"baseline.scores: unknown size {size!r}; sizes: {', '.join(task.sizes)}"
        for metric in scores:
            if metric not in known:
                return f"baseline.scores.{size}: unknown metric {metric!r}; metrics: {', '.join(sorted(known))}"
    return None
