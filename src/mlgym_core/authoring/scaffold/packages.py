"""Makes packages from the templates: new tasks, new plugins, and existing tasks packed up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

from attrs import frozen

from mlgym_core.authoring.scaffold.templates import licence, render
from mlgym_core.errors import UsageError
from mlgym_core.task.onefile import read_one_file
from mlgym_core.task.task import SubmissionKind, Task
from mlgym_core.task.taskfile import load_task_folder

PluginKind = Literal["backend", "tool", "model"]
TASK_KINDS: tuple[str, ...] = get_args(SubmissionKind)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 60  #: characters of a name; file systems and package indexes end at 100 and more
_OWN = ("task.yaml", "description.md", "*.py", "data_*", "public/**/*", "private/**/*", "image/**/*")


@frozen
class NewPackage:
    """A package that was written.

    Attributes:
        folder: absolute path; holds ``pyproject.toml``.
        name: task id or name of the plugin.
        distribution: name to install it by.
    """

    folder: Path
    name: str
    distribution: str


def new_task(name: str, kind: str, out: Path | None = None) -> NewPackage:
    """Write the package of a new task.

    Args:
        name: the task's id.
        kind: of submission: ``csv``, ``code``, ``policy`` or ``model``.
        out: folder in which the package's folder is made; the current one when ``None``.

    Raises:
        UsageError: the name or the kind is none, or the folder exists.
    """
    if kind not in TASK_KINDS:
        raise UsageError(f"unknown kind {kind!r}; choose from: {', '.join(TASK_KINDS)}")
    values = _values("task", checked_name(name), _title(name))
    files = render("tasks/common", f"tasks/{kind}", values={**values, "aliases": ""})
    return _write(files, values, out)


def new_plugin(name: str, kind: PluginKind, out: Path | None = None) -> NewPackage:
    """Write the package of a new backend, tool or model.

    Args:
        name: what it is called on the command line.
        kind: which of the three.
        out: folder in which the package's folder is made; the current one when ``None``.

    Raises:
        UsageError: the name is none, or the folder exists.
    """
    values = _values(kind, checked_name(name), f"{_title(name)}, a {kind} for MLGym.")
    return _write(render("plugins/common", f"plugins/{kind}", values=values), values, out)


def pack(source: Path, out: Path | None = None) -> NewPackage:
    """Turn a one-file task, or a folder with a ``task.yaml``, into a package.

    Args:
        source: the file or folder.
        out: folder in which the package's folder is made; the current one when ``None``.

    Raises:
        UsageError: the folder exists, or the source is no task (:class:`~mlgym_core.errors.TaskSpecError`).
    """
    from mlgym_core.task.paths import load_task_path

    task = load_task_path(source)
    own = read_one_file(source).files() if source.is_file() and source.suffix == ".py" else _files_below(task.folder)
    values = _values("task", task.id, task.title)
    files = render("tasks/common", values={**values, "aliases": _alias_table(task, values["module"])})
    inside = {f"src/{values['module']}/{path}": content for path, content in own.items()}
    return _write({**files, **inside}, values, out)


def checked_name(name: str) -> str:
    """The name, which must be lower-case words joined by hyphens.

    Raises:
        UsageError: it is not; the message suggests one that is.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        words = [word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()) if word]
        near = "-".join(words)[:_LONGEST].strip("-")
        hint = f"; try {near!r}" if _NAME.fullmatch(near) else ""
        raise UsageError(f"name {name!r} must be lower-case words joined by hyphens, at most {_LONGEST} letters{hint}")
    return name


def _title(name: str) -> str:
    return name.replace("-", " ").capitalize()


def _values(what: str, name: str, title: str) -> dict[str, str]:
    """The values of the placeholders; a summary is one line of TOML."""
    distribution = f"mlgym-{what}-{name}"
    major, minor = version("mlgym-core").split(".")[:2]
    line = " ".join(title.split())
    return {
        "id": name,
        "title": line,
        "summary": json.dumps(f"{line} (MLGym task)." if what == "task" else line, ensure_ascii=False),
        "distribution": distribution,
        "module": distribution.replace("-", "_"),
        "core": f">={major}.{minor},<{int(major) + 1}",
    }


def _alias_table(task: Task, module: str) -> str:
    if not task.aliases:
        return ""
    lines = [f"{json.dumps(alias, ensure_ascii=False)} = {json.dumps(module)}" for alias in task.aliases]
    return "\n".join(["", '[project.entry-points."mlgym.task_aliases"]', *lines, ""])


def _files_below(folder: Path) -> dict[str, bytes]:
    """The files of a task's folder; what else lies there (runs, caches, a package's ``__init__.py``) stays."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for pattern in _OWN
        for path in sorted(folder.glob(pattern))
        if path.is_file() and "__pycache__" not in path.parts and path != folder / "__init__.py"
    }


def _write(files: Mapping[str, bytes], values: Mapping[str, str], out: Path | None) -> NewPackage:
    """Write everything or nothing, into a folder that was not there."""
    folder = ((out or Path()) / values["id"]).absolute()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{folder} exists and is left alone; choose another name, or a place with --out") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}; choose a place with --out") from error
    try:
        for name, content in {"LICENSE": licence(), **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if values["distribution"].startswith("mlgym-task-"):
            load_task_folder(folder / "src" / values["module"])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return NewPackage(folder, values["id"], values["distribution"])
