"""What the tools remember between calls: ASCII JSON in the file that ``MLGYM_TOOLS_STATE`` names.

The host is told the first line, if that is short enough. A longer state, of a file with a long path, is the second
line; the first one holds its request alone.
"""

from __future__ import annotations

import os

from .command import Refused
from .notation import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "MLGYM_TOOLS_STATE"
MOST_TOLD = 2048  #: characters of a line that the shell tells the host
_MOST_BYTES = 1 << 16
_MOST_OF_REQUEST = 64  #: characters of each of its texts


def load() -> dict[str, Any]:
    """The state, without what makes no sense; empty when there is none, or none that can be read."""
    try:
        with open(os.environ[VARIABLE], "rb") as file:
            state = loads(file.read(_MOST_BYTES).decode("ascii").rstrip("\n").rpartition("\n")[2])
    except (KeyError, OSError, ValueError):
        return {}
    if not isinstance(state, dict):
        return {}
    return {name: state[name] for name, fits in _KEPT.items() if fits(state.get(name))}


def _is_path(value: object) -> bool:
    try:
        return isinstance(value, str) and value.startswith("/") and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_request(value: object) -> bool:
    texts = [*value, *value.values()] if isinstance(value, dict) else [None]
    return all(isinstance(text, str) and len(text) <= _MOST_OF_REQUEST for text in texts) and len(texts) <= 4


_KEPT = {"open": _is_path, "line": lambda value: isinstance(value, int), "request": _is_request}


def save(**changes: Any) -> None:
    """Change some of the state.

    Raises:
        Refused: it cannot be kept.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise Refused(f"{VARIABLE} is not set, so the tools cannot remember anything; set it to a file's path")
    state = {**load(), **changes}
    text = dumps(state)
    if len(text) > MOST_TOLD:
        text = dumps({name: state[name] for name in ("request",) if name in state}) + "\n" + text
    # The shell has to read it, whatever the agent's own files are to be like.
    mask = os.umask(0o077)
    try:
        _write(path, text.encode("ascii") + b"\n")
    except OSError as error:
        raise Refused(f"the tools' state could not be kept in {path}: {error.strerror}; make room there") from error
    finally:
        os.umask(mask)


def _write(path: str, data: bytes) -> None:
    """Replace the file, or, where there is no room for two, its content."""
    beside = f"{path}.{os.getpid()}"
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        with open(beside, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except OSError:
        if os.path.lexists(beside):
            os.unlink(beside)
        if not os.path.isfile(path):
            raise
        with open(path, "r+b") as file:
            file.write(data)
            file.truncate()
