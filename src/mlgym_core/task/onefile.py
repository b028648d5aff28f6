"""One-file tasks: a task's folder in one Python file, read, unpacked into the cache and loaded like any other.

The file begins with a block of comments that is the ``task.yaml`` (and ``requirements``) and a docstring that is the
description. After that a line ``# %% <path>`` begins each file of the folder::

    # /// mlgym-task
    # schema: 1
    # id: my-task
    # ///
    \"\"\"What the agent reads.\"\"\"

    # %% public/solution.py
    # %% private/grade.py
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from attrs import frozen

from mlgym_core import storage
from mlgym_core.authoring.scaffold.templates import image_files
from mlgym_core.errors import TaskSpecError
from mlgym_core.task.plainfile import PlainError, parse_yaml
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder

BEGIN, END = "# /// mlgym-task", "# ///"
_MARK = re.compile(r"# %%(?:[ \t]+(.*?))?[ \t]*")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_FOLDERS = ("public", "private", "image")
_GRADER = "private/grade.py"
_ALLOWED = "public/..., private/..., image/..., description.md, data.py or another module"


@frozen
class Section:
    """One file of the task.

    Attributes:
        line: of its first line in the one file, counted from 1.
        text: its content.
    """

    line: int
    text: str


@frozen
class OneFile:
    """A one-file task, taken apart.

    Attributes:
        path: of the file.
        header: the block, which is YAML.
        description: what the agent reads.
        requirements: lines of ``requirements.txt``.
        sections: path in the task's folder -> content.
    """

    path: Path
    header: Section
    description: str
    requirements: tuple[str, ...]
    sections: Mapping[str, Section]

    def files(self, in_place: bool = False) -> dict[str, bytes]:
        """The files of the task's folder, path -> content.

        Args:
            in_place: put blank lines before Python that the agent never sees, so that a traceback's line numbers are
                those of the one file.
        """
        files = {f"image/{name}": content for name, content in image_files().items()}
        if self.requirements:
            files["image/requirements.txt"] = "".join(f"{line}\n" for line in self.requirements).encode()
        files |= {"task.yaml": self.header.text.encode(), "description.md": self.description.encode()}
        for path, section in self.sections.items():
            moved = in_place and path.endswith(".py") and not path.startswith("public/")
            files[path] = (("\n" * (section.line - 1) if moved else "") + section.text).encode()
        return files


def load_one_file(path: Path) -> Task:
    """Unpack a one-file task into the cache and load it from there.

    Raises:
        TaskSpecError: it breaks the format or the contract of tasks; the message names file and line.
        InfrastructureError: the cache cannot be written.
    """
    one = read_one_file(path)
    folder = _unpacked(one)
    try:
        return load_task_folder(folder)
    except TaskSpecError as error:
        raise TaskSpecError(_in_words(one, folder, str(error))) from error


def read_one_file(path: Path) -> OneFile:
    """Take a one-file task apart.

    Raises:
        TaskSpecError: it cannot be read or breaks the format; the message names file and line.
    """
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # not splitlines: Python counts line feeds only
    except (OSError, UnicodeDecodeError) as error:
        raise TaskSpecError(f"{path} cannot be read: {error}") from error
    begin, end = _block(path, lines)
    marks = list(_marks(path, lines))
    if marks and marks[0][0] < end:
        raise _error(path, marks[0][0], f"the block {BEGIN!r} must come before the first '# %%' line")
    prelude = [*lines[: begin - 1], *[""] * (end - begin + 1), *lines[end : marks[0][0] - 1 if marks else None]]
    header, requirements = _header(path, begin, lines[begin : end - 1])
    sections = _sections(path, lines, marks)
    if requirements and "image/requirements.txt" in sections:
        line = sections["image/requirements.txt"].line - 1
        raise _error(path, line, "the block has requirements already; keep one of the two")
    if _GRADER not in sections:
        raise _error(path, len(lines), f"there is no grader; begin it with a line '# %% {_GRADER}'")
    return OneFile(path, header, _description(path, prelude, sections), requirements, sections)


def _error(path: Path, line: int, text: str) -> TaskSpecError:
    return TaskSpecError(f"{path}, line {line}: {text}")


def _block(path: Path, lines: Sequence[str]) -> tuple[int, int]:
    """The lines that begin and end the block, counted from 1."""
    begins = [number for number, line in enumerate(lines, 1) if line.rstrip() == BEGIN]
    if not begins:
        raise _error(path, 1, f"this is no one-file task: it lacks a block that begins with a line {BEGIN!r}")
    if len(begins) > 1:
        raise _error(path, begins[1], f"a second block {BEGIN!r}; one file holds one task")
    for number, line in enumerate(lines[begins[0] :], begins[0] + 1):
        if line.rstrip() == END:
            return begins[0], number
        if line.rstrip() != "#" and not line.startswith("# "):
            raise _error(path, number, f"each line of the block begins with '# '; the block ends with a line {END!r}")
    raise _error(path, begins[0], f"the block does not end; end it with a line {END!r}")


def _header(path: Path, begin: int, lines: Sequence[str]) -> tuple[Section, tuple[str, ...]]:
    """The block as YAML, without the requirements, which are no part of ``task.yaml``; every line keeps its number."""
    texts = [line[2:] for line in lines]
    try:
        whole = parse_yaml("\n".join(texts))
    except PlainError as error:
        raise _error(path, begin + (error.line or 1), f"the block cannot be read: {error.what}") from error
    root = yaml.compose("\n".join(texts), yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise _error(path, begin + 1, "the block must hold 'key: value' lines, as a task.yaml does")
    requirements: Any = whole.get("requirements", [])
    for key, value in root.value:
        if key.value == "requirements":
            line = begin + 1 + key.start_mark.line
            if not isinstance(requirements, list) or not all(isinstance(one, str) and one for one in requirements):
                raise _error(path, line, "requirements must be a list of texts: requirements: ['numpy>=1.26']")
            last = value.end_mark.line + (value.end_mark.column > 0)
            texts[key.start_mark.line : last] = [""] * (last - key.start_mark.line)
    return Section(begin + 1, "\n".join(texts).rstrip("\n") + "\n"), tuple(requirements)


def _marks(path: Path, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        found = _MARK.fullmatch(line)
        if not found:
            continue
        name = found[1] or ""
        problem = _path_problem(name, seen)
        if problem:
            raise _error(path, number, problem)
        seen[name] = number
        yield number, name


def _path_problem(name: str, seen: Mapping[str, int]) -> str | None:
    parts = name.split("/")
    if not all(_PART.fullmatch(part) for part in parts):
        return f"'# %%' must be followed by the path of a file of the task: {_ALLOWED}; not {name!r}"
    top = parts[0]
    module = top != "__init__.py" and (top.endswith(".py") or top.startswith("data_") or top == "description.md")
    if not (module if len(parts) == 1 else top in _FOLDERS):
        return f"{name!r} has no place in a task; choose from: {_ALLOWED}"
    for other, line in seen.items():
        pair = (PurePosixPath(name), PurePosixPath(other))
        if pair[0].is_relative_to(pair[1]) or pair[1].is_relative_to(pair[0]):
            return f"{name!r} clashes with {other!r} in line {line}"
    return None


def _sections(path: Path, lines: Sequence[str], marks: Sequence[tuple[int, str]]) -> dict[str, Section]:
    ends = [number - 1 for number, _ in marks[1:]] + [len(lines)]
    found: dict[str, Section] = {}
    for (number, name), end in zip(marks, ends, strict=True):
        first = number + 1
        while first < end and not lines[first - 1].strip():
            first += 1
        body = lines[first - 1 : end]
        text = "\n".join(body if name.endswith(".py") else _uncommented(path, first, body)).strip("\n") + "\n"
        if name.endswith(".py"):
            _check_python(path, first, text)
        found[name] = Section(first, text)
    return found


def _uncommented(path: Path, first: int, lines: Sequence[str]) -> Iterator[str]:
    """Text that is no Python stands in comments, so that the whole file is Python."""
    for number, line in enumerate(lines, first):
        if line and not line.startswith("#"):
            raise _error(path, number, "in a file that is not Python each line begins with '# '")
        yield line[2:] if line.startswith("# ") else line[1:]


def _check_python(path: Path, first: int, text: str) -> ast.Module:
    try:
        return ast.parse("\n" * (first - 1) + text, str(path))
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) and error.lineno else first
        raise _error(path, line, f"this is no Python: {getattr(error, 'msg', error)}") from error


def _description(path: Path, prelude: Sequence[str], sections: Mapping[str, Section]) -> str:
    body = _check_python(path, 1, "\n".join(prelude)).body
    text = ""
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        text = body.pop(0).value.value if isinstance(body[0].value.value, str) else ""  # type: ignore[attr-defined]
    if body:
        raise _error(path, body[0].lineno, f"this belongs to no file; put it below a line '# %% {_GRADER}' or the like")
    own = sections.get("description.md")
    if own is not None and text:
        raise _error(path, own.line - 1, "the docstring is the description already; keep one of the two")
    if own is None and not text.strip():
        raise _error(path, 1, "there is no description; write what the agent reads into a docstring after the block")
    return own.text if own is not None else inspect.cleandoc(text).strip() + "\n"


def _unpacked(one: OneFile) -> Path:
    """The task's folder in the cache, complete, with these contents and nothing else."""
    files = one.files(in_place=True)
    key = hashlib.sha256(json.dumps([[name, content.hex()] for name, content in sorted(files.items())]).encode())
    folder = storage.cache_folder() / "tasks" / f"{one.path.stem}-{key.hexdigest()[:20]}"
    if _holds(folder, files):
        return folder

    def unpack(place: Path) -> None:
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        (place / "public").mkdir(exist_ok=True)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    return storage.build_once(folder, lambda: folder if _holds(folder, files) else None, unpack)


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    try:
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        return present == set(files) and all((folder / name).read_bytes() == files[name] for name in files)
    except OSError:
        return False


def _in_words(one: OneFile, folder: Path, message: str) -> str:
    """An error of the unpacked task, told of the one file and, where it names a key, of that key's line."""
    file = str(folder / "task.yaml")
    what = message.replace(f"{file}: ", "").replace(file, "the block").replace(f"{folder}/", "")
    what = re.sub(r"^the package lacks (\S+)", r"there is no line '# %% \1'", what)
    named = re.search(r"^(?:unknown|missing) key '([^']+)'", what) or re.search(r"^([\w.\[\]-]+):", what)
    counted = re.search(r"cannot be read: .*line (\d+)", what, re.DOTALL)
    inside = int(counted[1]) - 1 if counted else _line_of(one.header.text, named[1] if named else "")
    line, what = one.header.line + inside, " ".join(what.split())
    return f"{one.path}, line {line}: {what}"


def _line_of(text: str, place: str) -> int:
    """Line, from 0, of the deepest part of ``metrics[0].name`` that is there."""
    node, line = yaml.compose(text, yaml.SafeLoader), 0
    for part in re.findall(r"[^.\[\]]+", place):
        if isinstance(node, yaml.MappingNode):
            inner = [(key, value) for key, value in node.value if key.value == part]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            inner = [(node.value[int(part)], node.value[int(part)])]
        else:
            break
        if not inner:
            break
        line, node = inner[0][0].start_mark.line, inner[0][1]
    return int(line)
