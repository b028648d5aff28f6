"""Paths inside a box: where its own folders lie, and checking those that others name."""

from __future__ import annotations

from pathlib import PurePosixPath

from mlgym_core.errors import UsageError

# In boxes with a file system of their own; plain processes have all of it below a scratch folder.
WORKSPACE = "/workspace"
HOME = "/home/agent"
SHELL_STATE = "/dev/shm/.mlgym-shell"  #: what the shell saves after every action: in memory
PEER_WORKDIR = "/box"


def relative(path: str) -> PurePosixPath:
    """The path, checked to stay inside the working directory.

    Raises:
        UsageError: it is absolute, empty, or climbs out.
    """
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise UsageError(f"{path!r} must be a path inside the working directory")
    return pure
