"""Tools that are programs in the sandbox: making them, calling them, and what they leave behind for the host."""

from __future__ import annotations

import importlib.util
import json
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from mlgym_core.errors import UsageError
from mlgym_core.sandbox.base import ActionResult, ActionStatus
from mlgym_core.sandbox.shell.output import for_model
from mlgym_core.tools.base import Script, Tool, ToolArgumentError, ToolContext, ToolOutput

REFUSALS = frozenset({0, 1, 2})  #: exit codes that go without saying: done, refused, wrong usage
_LEFT_OUT = frozenset({"test", "tests", "__pycache__"})
_SURROGATES = re.compile("[\ud800-\udfff]")
_REQUEST_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def script_tool(name: str, description: str, parameters: Mapping[str, Any], script: Script) -> Tool:
    """A tool whose work is done by its script, however it is called.

    Args:
        name: what the agent calls, and the script's name on ``PATH``.
        description: for the agent.
        parameters: JSON schema of the arguments.
        script: the program.

    Raises:
        UsageError: the name cannot be that of a program on ``PATH``.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) or name == "lib":
        raise UsageError(f"a tool with a script cannot be called {name!r}; use letters, digits, _ and -, and not lib")

    def run(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        result = context.run_script(name, arguments)
        info = {"status": str(result.status), "exit_code": result.exit_code}
        return ToolOutput(describe(result, REFUSALS), info)

    return Tool(name, description, parameters, run, script)


def script_command(folder: str, name: str, arguments: Mapping[str, Any]) -> str:
    """The shell text that calls a script as a tool; no argument is ever read by the shell.

    Args:
        folder: of the tools, as seen inside.
        name: of the tool.
        arguments: JSON values.

    Raises:
        ToolArgumentError: they are not.
    """
    try:
        text = json.dumps(dict(arguments), allow_nan=False)  # one line of ASCII
    except (TypeError, ValueError) as error:
        raise ToolArgumentError(f"{name}: the arguments are not JSON: {error}") from error
    end = f"end_{secrets.token_hex(8)}"
    return f"{shlex.quote(f'{folder}/{name}')} --json <<'{end}'\n{text}\n{end}"


def describe(result: ActionResult, expected: frozenset[int] = frozenset({0})) -> str:
    """What the agent reads of an action: output, then anything unusual about how it ended."""
    parts = []
    stdout, stderr = for_model(result.stdout), for_model(result.stderr)
    if stdout:
        parts.append(stdout.rstrip("\n"))
    if stderr:
        parts.append(f"[stderr]\n{stderr.rstrip(chr(10))}")
    if result.status is ActionStatus.TIMED_OUT:
        parts.append(f"[killed after {result.seconds:.1f} s: the action reached its time limit]")
    elif result.exit_code is not None and result.exit_code not in expected:
        parts.append(f"[exit code {result.exit_code}]")
    parts.extend(f"[{note}]" for note in result.notes)
    return "\n".join(parts) or "[no output]"


def tool_files(tools: Iterable[Tool]) -> dict[str, Path]:
    """What the tools need in a sandbox: path below the tools' folder -> host file; programs lie directly in it.

    Raises:
        UsageError: a file is missing, or two tools bring different ones of the same name.
    """
    found: dict[str, Path] = {}
    known: set[Script] = set()
    for tool in tools:
        if tool.script is None:
            continue
        libraries = _library_files(tool.name, tool.script) if tool.script not in known else ()
        known.add(tool.script)
        for inside, path in ((tool.name, tool.script.path), *libraries):
            if not path.is_file():
                raise UsageError(f"the tool {tool.name} needs {path}, which is not a file; reinstall its plugin")
            if found.setdefault(inside, path) != path:
                raise UsageError(f"two tools bring different files {inside}: {found[inside]} and {path}")
    return found


def _library_files(tool: str, script: Script) -> Iterator[tuple[str, Path]]:
    for library in script.libraries:
        source = library if isinstance(library, Path) else _installed(tool, library)
        if not source.is_dir():
            yield f"lib/{source.name}", source
            continue
        for path in sorted(source.rglob("*.py")):
            inside = path.relative_to(source)
            if not _LEFT_OUT.intersection(inside.parts):
                yield f"lib/{source.name}/{inside.as_posix()}", path


def _installed(tool: str, name: str) -> Path:
    """Where a package of this Python lies, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.has_location:
        raise UsageError(f"the tool {tool} needs the package {name}, which is not installed; install it with pip")
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin


@frozen
class ToolsState:
    """What scripts tell the host: the first line, JSON, of the file that ``MLGYM_TOOLS_STATE`` names in the sandbox.

    The agent may write anything there, and gains nothing by it: a request does what a call of the tool does.

    Attributes:
        open_file: path of the open file; not told where it is too long.
        request: id and tool of the newest request to the host.
    """

    open_file: str | None = None
    request: tuple[str, str] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a state; whatever makes no sense is left out."""
        try:
            state = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(state, dict):
            return cls()
        path, request = state.get("open"), state.get("request")
        return cls(readable(path) if isinstance(path, str) else None, _request(request))


def _request(request: Any) -> tuple[str, str] | None:
    if not isinstance(request, dict):
        return None
    name, tool = request.get("id"), request.get("tool")
    if not isinstance(name, str) or not isinstance(tool, str) or not _REQUEST_ID.fullmatch(name):
        return None
    return name, tool


def readable(path: str) -> str:
    """A path of the sandbox as text for people and records: what is not UTF-8 is replaced."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", path)
