"""What the tools remember between calls: a line of ASCII JSON in the file that ``MLGYM_TOOLS_STATE`` names."""

from __future__ import annotations

import os

from .command import Refused
from .notation import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEPT = ("open", "line", "request")
VARIABLE = "MLGYM_TOOLS_STATE"


def load() -> dict[str, Any]:
    """The state; empty when there is none, or none that can be read."""
    try:
        with open(os.environ[VARIABLE], "rb") as file:
            state = loads(file.read(1 << 16).decode("ascii"))
    except (KeyError, OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def save(**changes: Any) -> None:
    """Change some of the state.

    Raises:
        Refused: it cannot be kept.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise Refused(f"{VARIABLE} is not set, so the tools cannot remember anything; set it to a file's path")
    known = load()
    text = dumps({**{name: known[name] for name in _KEPT if name in known}, **changes}) + "\n"
    beside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(beside, "wb") as file:
            file.write(text.encode("ascii"))
        os.replace(beside, path)
    except OSError as error:
        raise Refused(f"the tools' state could not be kept in {path}: {error.strerror}; make room there") from error
