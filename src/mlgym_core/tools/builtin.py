"""The tools that every agent has: ``bash``, and those that ``inside/agent_tools/declared.py`` declares."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlgym_core.tools.base import Script, Tool, ToolArgumentError, ToolContext, ToolOutput
from mlgym_core.tools.inside.agent_tools.declared import TOOLS as TABLE
from mlgym_core.tools.inside.agent_tools.declared import Declared
from mlgym_core.tools.scripted import describe, script_tool

_INSIDE = Path(__file__).parent / "inside"
SCRIPT = Script(_INSIDE / "launch.sh", (_INSIDE / "agent_tools", "pyflakes"))

# The form that published agents have learnt; without this the shell would run the text line by line.
_PUBLISHED_FORM = re.compile(
    r"\s*(edit[ \t]+\d+:\d+|insert[ \t]+\d+)[ \t]*\r?\n(.*?)^(?:end_of_edit|end_of_insert)[ \t]*\r?$(.*)",
    re.DOTALL | re.MULTILINE,
)


def bash(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    """Run shell text in the persistent session.

    Text that begins with a line ``edit 3:7`` or ``insert 3`` and ends with a line ``end_of_edit`` or ``end_of_insert``
    is taken for that command alone, with what is in between on its standard input.
    """
    timeout = arguments.get("timeout")
    if timeout is not None and not timeout > 0:
        raise ToolArgumentError(f"bash: timeout must be a positive number of seconds, got {timeout!r}")
    result = context.run_command(with_input(arguments["command"]), timeout)
    return ToolOutput(describe(result), {"status": str(result.status), "exit_code": result.exit_code})


def with_input(command: str) -> str:
    """A command in the published form as one that the shell understands; any other as it is.

    Raises:
        ToolArgumentError: it is not the only one, so that its text cannot be told from what follows.
    """
    match = _PUBLISHED_FORM.fullmatch(command)
    if match is None:
        return command
    if match[3].strip():
        raise ToolArgumentError(
            f"one {match[1].split()[0]} an action, and nothing after its end; nothing was done. Line numbers change "
            "with every edit: look at the new ones first. Text that holds the closing line itself needs a here-document"
        )
    if not match[2]:
        return f"{match[1]} --delete"
    end = f"end_{secrets.token_hex(8)}"
    return f"{match[1]} <<'{end}'\n{match[2]}{end}"


BASH = Tool(
    name="bash",
    description=(
        "Run a command in a persistent bash session in your workspace. Directory, variables, functions and an "
        "activated environment persist between calls. Standard input is empty. Long output is cut in the middle. "
        "The other tools are commands here too."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "shell text; may span lines"},
            "timeout": {"type": "number", "description": "seconds until it is killed; at most the task's limit"},
        },
        "required": ["command"],
    },
    run=bash,
)

_ON_HOST: Mapping[str, Callable[[ToolContext], ToolOutput]] = {
    "validate": lambda context: context.validate(),
    "submit": lambda context: context.submit(),
}


def _tool(name: str, declared: Declared) -> Tool:
    """The tool call that a declaration stands for."""
    properties = dict(declared.arguments)
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        parameters["required"] = [argument for argument in properties if argument not in declared.optional]
    about = f"{declared.about} In bash: {declared.usage}." if properties else declared.about
    on_host = _ON_HOST.get(name)
    if on_host is None:
        return script_tool(name, about, parameters, SCRIPT)
    return Tool(name, about, parameters, lambda context, _: on_host(context), SCRIPT)


_DECLARED = {name: _tool(name, declared) for name, declared in TABLE.items()}
VALIDATE, SUBMIT = _DECLARED["validate"], _DECLARED["submit"]
TOOLS = (BASH, *_DECLARED.values())
