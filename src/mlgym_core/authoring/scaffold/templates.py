"""Renders the template files, strictly: a placeholder without a value is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"  # keeps linters and type checkers away from what is not Python yet


def render(*folders: str, values: Mapping[str, str]) -> dict[str, bytes]:
    """The files of some template folders, path -> content; a later folder's file takes the place of an earlier one's.

    Args:
        folders: below ``templates/``, as ``tasks/code``.
        values: of the placeholders; ``MODULE`` in a path stands for ``values["module"]``.

    Raises:
        KeyError: a template uses a placeholder that has no value.
        ValueError: a template has a stray dollar sign.
    """
    found: dict[str, bytes] = {}
    for name in folders:
        folder = _FOLDER / name
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target = path.relative_to(folder).as_posix().replace("MODULE", values["module"])
                text = path.read_text("utf-8")
                if target.endswith(_SUFFIX):
                    target, text = target.removesuffix(_SUFFIX), Template(text).substitute(values)
                found[target] = text.encode()
    return found


def licence() -> bytes:
    """The text of the Apache License 2.0, which new packages begin with."""
    return (_FOLDER / "LICENSE").read_bytes()


def image_files() -> dict[str, bytes]:
    """The Dockerfile and the empty ``requirements.txt`` of a new task, by name."""
    return render("tasks/common/src/MODULE/image", values={"module": ""})
