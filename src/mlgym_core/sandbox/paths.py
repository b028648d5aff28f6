"""Paths inside a box, checked."""

from __future__ import annotations

from pathlib import PurePosixPath

from mlgym_core.errors import UsageError


def relative(path: str) -> PurePosixPath:
    """The path, checked to stay inside the working directory.

    Raises:
        UsageError: it is absolute, empty, or climbs out.
    """
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise UsageError(f"{path!r} must be a path inside the working directory")
    return pure
