"""Reads ``task.yaml`` into a :class:`~mlgym_core.task.task.Task`; every mistake names file, key and remedy."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from mlgym_core.errors import TaskSpecError, UsageError
from mlgym_core.task import yamlfile
from mlgym_core.task.task import DEFAULT_SIZE, Limits, Resources, Task

_HOST_FIELDS = frozenset({"folder", "distribution", "version"})
_MAY_BE_ZERO = {"gpus", "validations"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load_task_folder(folder: Path, distribution: str = "", version: str = "") -> Task:
    """Read and check the task in ``folder``.

    Raises:
        TaskSpecError: a file is missing, or ``task.yaml`` breaks the schema.
    """
    folder = folder.resolve()
    path = folder / "task.yaml"
    if not path.exists():
        raise TaskSpecError(f"{path} is missing; a task package needs one beside its __init__.py")
    task = yamlfile.load(path, Task, TaskSpecError, hidden=_HOST_FIELDS)
    image = attrs.evolve(task.image, folder=folder / "image")
    task = attrs.evolve(task, folder=folder, image=image, distribution=distribution, version=version)
    problem = _problem(task)
    if problem:
        raise TaskSpecError(f"{path}: {problem}")
    return task


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
    for path in submission.withheld:
        if path not in submission.paths:
            return f"submission.withheld: {path!r} is not among submission.paths"
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
    return _numbers_problem(task.limits) or _numbers_problem(task.resources) or _baseline_problem(task)


def _numbers_problem(section: Limits | Resources) -> str | None:
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


def checked_limits(limits: Limits, overrides: Mapping[str, Any]) -> Limits:
    """Limits with some replaced.

    Raises:
        UsageError: there is no such limit, or its value makes no sense.
    """
    known = {a.name for a in attrs.fields(Limits)}
    for name in overrides:
        if name not in known:
            raise UsageError(f"unknown limit {name!r}; limits: {', '.join(sorted(known))}")
    found = attrs.evolve(limits, **overrides)
    problem = _numbers_problem(found)
    if problem:
        raise UsageError(problem)
    return found


def _baseline_problem(task: Task) -> str | None:
    known = {metric.name for metric in task.metrics}
    for size in task.baseline.commands:
        if size not in task.sizes:
            return f"baseline.commands: unknown size {size!r}; sizes: {', '.join(task.sizes)}"
    for size, scores in task.baseline.scores.items():
        if size not in task.sizes:
            return f"baseline.scores: unknown size {size!r}; sizes: {', '.join(task.sizes)}"
        for metric in scores:
            if metric not in known:
                return f"baseline.scores.{size}: unknown metric {metric!r}; metrics: {', '.join(sorted(known))}"
    return None
