"""Programs that run elsewhere, in a box or a process of their own, lie in folders ``inside/`` beside the half that
runs here; each folder has a note of what they may use."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def program(package: str, name: str) -> str:
    """Text of a program.

    Args:
        package: whose folder ``inside/`` holds it.
        name: of its file.
    """
    return (files(package) / "inside" / name).read_text("utf-8")
