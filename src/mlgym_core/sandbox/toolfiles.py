"""The agent's tools in a box: where they lie, and putting them there."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox import archives
from mlgym_core.sandbox.paths import relative

FOLDER = "/agent-tools"  #: in boxes with a file system of their own; below no folder that an image may bring along

_STATE = ".state"


def state_file(folder: str) -> str:
    """Path of the tools' state below the shell's own folder, as seen inside."""
    return f"{folder}/tools"


def first_on_path(folder: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the tools' folder first on its ``PATH``."""
    return {**env, "PATH": f"{folder}:{env['PATH']}"}


def copy(tools: Mapping[str, Path], folder: Path, state: str = "") -> None:
    """Make the tools' folder on this machine, readable for everybody.

    Args:
        tools: path inside -> host file.
        folder: to be made.
        state: path of the tools' state, as seen inside; written beside them. Without it they go by their variable.

    Raises:
        InfrastructureError: a file cannot be copied.
    """
    try:
        folder.mkdir(mode=0o755)
        for member in _members(tools):
            target = folder / member.path
            if member.source is None:
                target.mkdir()
            else:
                shutil.copyfile(member.source, target)
            target.chmod(member.mode)
        if state:
            (folder / _STATE).write_text(f"{state}\n", "utf-8")
            (folder / _STATE).chmod(0o644)
        folder.chmod(0o755)
    except OSError as error:
        raise InfrastructureError(f"the agent's tools could not be put into the box: {error}") from error


def pack(tools: Mapping[str, Path], archive: tarfile.TarFile, state: str) -> None:
    """Add the tools' folder to an archive that is unpacked at the root, owned by root.

    Args:
        tools: path inside -> host file.
        archive: written to.
        state: path of the tools' state, as seen inside; written beside them.

    Raises:
        InfrastructureError: a file cannot be read.
    """
    if tools:
        archives.add_folder(archive, FOLDER, 0)
        archives.add_file(archive, f"{FOLDER}/{_STATE}", f"{state}\n".encode(), 0, 0o644)
    for member in _members(tools):
        path = f"{FOLDER}/{member.path}"
        try:
            if member.source is None:
                archives.add_folder(archive, path, 0)
            else:
                archives.add_file(archive, path, member.source.read_bytes(), 0, member.mode)
        except OSError as error:
            raise InfrastructureError(f"the agent's tools could not be put into the box: {error}") from error


@frozen
class _Member:
    """A file, or a folder if it has no source."""

    path: str
    mode: int
    source: Path | None = None


def _members(tools: Mapping[str, Path]) -> Iterator[_Member]:
    """Files and the folders above them, those first."""
    folders: set[str] = set()
    for path, source in tools.items():
        for folder in reversed(relative(path).parents[:-1]):
            if str(folder) not in folders:
                folders.add(str(folder))
                yield _Member(str(folder), 0o755)
        yield _Member(path, 0o644 if "/" in path else 0o755, source)
