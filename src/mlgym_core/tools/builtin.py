"""The tools that every agent has: ``bash``, ``validate``, ``submit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlgym_core.sandbox.base import ActionResult, ActionStatus
from mlgym_core.sandbox.output import for_model
from mlgym_core.tools.base import Tool, ToolArgumentError, ToolContext, ToolOutput


def bash(context: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    """Run shell text in the persistent session."""
    timeout = arguments.get("timeout")
    if timeout is not None and not timeout > 0:
        raise ToolArgumentError(f"bash: timeout must be a positive number of seconds, got {timeout!r}")
    result = context.run_command(arguments["command"], timeout)
    return ToolOutput(describe(result), {"status": str(result.status), "exit_code": result.exit_code})


def describe(result: ActionResult) -> str:
    """What the agent reads of an action: output, then anything unusual about how it ended."""
    parts = []
    stdout, stderr = for_model(result.stdout), for_model(result.stderr)
    if stdout:
        parts.append(stdout.rstrip("\n"))
    if stderr:
        parts.append(f"[stderr]\n{stderr.rstrip(chr(10))}")
    if result.status is ActionStatus.TIMED_OUT:
        parts.append(f"[killed after {result.seconds:.1f} s: the action reached its time limit]")
    elif result.exit_code:
        parts.append(f"[exit code {result.exit_code}]")
    parts.extend(f"[{note}]" for note in result.notes)
    return "\n".join(parts) or "[no output]"


BASH = Tool(
    name="bash",
    description=(
        "Run a command in a persistent bash session in your workspace. Directory, variables, functions and an "
        "activated environment persist between calls. Standard input is empty. Long output is cut in the middle."
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

VALIDATE = Tool(
    name="validate",
    description="Freeze the submission in your workspace and score it on the dev split. Counted; see your limits.",
    parameters={"type": "object", "properties": {}},
    run=lambda context, _: context.validate(),
)

SUBMIT = Tool(
    name="submit",
    description="Freeze the submission in your workspace, have it scored on the hidden test split, and finish.",
    parameters={"type": "object", "properties": {}},
    run=lambda context, _: context.submit(),
)

TOOLS = (BASH, VALIDATE, SUBMIT)
