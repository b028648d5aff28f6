"""The ``MLGYM_*`` variables: one table, read from the process environment, else from ``.env`` in the current folder."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from attrs import frozen

from mlgym_core.errors import UsageError

PREFIX = "MLGYM_"
DOTENV = Path(".env")

T = TypeVar("T")


@frozen
class Setting(Generic[T]):
    """One variable.

    Attributes:
        name: in the environment.
        meaning: for people, one line.
        default: what holds without it, in words.
        expects: what its value must be, in words.
        parse: makes a value of its text; raises ``ValueError`` for one that makes no sense.
    """

    name: str
    meaning: str
    default: str
    expects: str
    parse: Callable[[str], T]

    def value(self) -> T | None:
        """The value; ``None`` when the variable is not set, or empty.

        Raises:
            UsageError: it makes no sense; the message names the variable and the value.
        """
        text = environment().get(self.name, "")
        if not text:
            return None
        try:
            return self.parse(text)
        except (ValueError, RuntimeError):  # the latter where ~ stands for a user that does not exist
            raise UsageError(f"{self.name} must be {self.expects}, not {text!r:.200}; correct or remove it") from None


def _text(text: str) -> str:
    if not text.isprintable():
        raise ValueError(text)
    return text


def _folder(text: str) -> Path:
    return Path(text).expanduser()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number


def _dollars(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number


def _flag(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_SECONDS = "a positive number of seconds"

RUNS = Setting("MLGYM_RUNS", "folder in which runs are kept", "runs", "a folder", _folder)
CACHE = Setting(
    "MLGYM_CACHE", "folder for environments, data and unpacked one-file tasks", "~/.cache/mlgym", "a folder", _folder
)
SCRATCH = Setting(
    "MLGYM_SCRATCH", "folder for the sandboxes of the local backend", "the temporary folder", "a folder", _folder
)
BACKEND = Setting("MLGYM_BACKEND", "default of --backend", "auto", "the name of a backend", _text)
MODEL = Setting("MLGYM_MODEL", "default of --model", "baseline", "a model", _text)
AGENT = Setting("MLGYM_AGENT", "default of --agent", "default", "an agent", _text)
SIZE = Setting("MLGYM_SIZE", "default of --size", "full", "a size of the task", _text)
COST = Setting(
    "MLGYM_COST_USD", "default of --cost; 0 lifts the limit", "the task's", "a number of US dollars, or 0", _dollars
)
TOKENS = Setting("MLGYM_TOKENS", "default of --tokens", "the task's", "a positive whole number", _count)
WALL = Setting("MLGYM_WALL_SECONDS", "default of --time", "the task's", _SECONDS, _seconds)
WORKING = Setting("MLGYM_WORKING_SECONDS", "default of --working-time", "the task's", _SECONDS, _seconds)
ACTION = Setting("MLGYM_ACTION_SECONDS", "default of --action-time", "the task's", _SECONDS, _seconds)
REQUEST = Setting("MLGYM_REQUEST_SECONDS", "default of --model-timeout", "600", _SECONDS, _seconds)
STRICT_PLUGINS = Setting("MLGYM_STRICT_PLUGINS", "a broken plugin raises at once", "0", "1 or 0", _flag)
PLUGIN_DEADLINE = Setting(
    "MLGYM_PLUGIN_DEADLINE", "seconds that one plugin may take to import in a run", "20", _SECONDS, _seconds
)
DOCKER_HOST = Setting(
    "MLGYM_DOCKER_HOST", "where the container engine is, before DOCKER_HOST", "found", "an address", _text
)
CA_BUNDLE = Setting(
    "MLGYM_CA_BUNDLE", "certificates that image builds trust, for registries behind a proxy", "none", "a file", _folder
)

SETTINGS = (
    *(RUNS, CACHE, SCRATCH, BACKEND, MODEL, AGENT, SIZE),
    *(COST, TOKENS, WALL, WORKING, ACTION, REQUEST),
    *(STRICT_PLUGINS, PLUGIN_DEADLINE, DOCKER_HOST, CA_BUNDLE),
)
# Of tests and of the processes in a sandbox: no settings, but nobody's typing mistakes either.
OTHERS = ("MLGYM_CI", "MLGYM_BOX", "MLGYM_TOOLS_STATE", "MLGYM_WINDOW")
TESTS = "MLGYM_TEST"


def environment() -> Mapping[str, str]:
    """The process environment, and behind it the ``MLGYM_*`` variables of ``.env``.

    Raises:
        UsageError: there is a ``.env`` that cannot be read.
    """
    filed = {name: value for name, value in read_dotenv().items() if name.startswith(PREFIX)}
    return {**filed, **{name: value for name, value in os.environ.items() if value or name not in filed}}


def read_dotenv(path: Path = DOTENV) -> dict[str, str]:
    """The variables in a ``.env`` file that have a value, as they stand there; none when there is no such file.

    Raises:
        UsageError: it cannot be read, or a variable is none that an environment could hold.
    """
    return _parsed(path)[0]


def _parsed(path: Path) -> tuple[dict[str, str], list[int]]:
    """Variables, and the numbers of the lines that are none."""
    if not path.is_file():
        return {}, []
    from dotenv.parser import parse_stream

    try:
        with path.open(encoding="utf-8-sig") as stream:
            bindings = list(parse_stream(stream))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; correct or remove it") from error
    variables = {b.key: b.value for b in bindings if b.key and b.value}
    for name, value in variables.items():
        if "\0" in name + value:
            raise UsageError(f"{path}: the variable {name!r:.80} holds a NUL character; correct or remove it")
    return variables, [b.original.line for b in bindings if b.error]


def unknown() -> list[str]:
    """What means nothing: a sentence for each line of ``.env`` and each ``MLGYM_*`` variable, with the nearest one."""
    known = [setting.name.removeprefix(PREFIX) for setting in SETTINGS]
    found = [f"line {number} of {DOTENV} is not NAME=value; it is ignored" for number in _parsed(DOTENV)[1]]
    for name in sorted(environment()):
        word = name.removeprefix(PREFIX)
        if word != name and word not in known and name not in OTHERS and not name.startswith(TESTS):
            near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else "see docs/settings.md"
            found.append(f"the variable {name} means nothing to mlgym; {hint}")
    return found


def runs_folder(out: Path | None = None) -> Path:
    """Where runs are kept: ``out``, else ``MLGYM_RUNS``, else ``runs`` in the current folder."""
    return out or RUNS.value() or Path("runs")
