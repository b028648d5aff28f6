"""From a model's reply to actions, or to a message that tells the model what was wrong with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlgym_core.episode import Action
from mlgym_core.models.base import Reply
from mlgym_core.tools.base import Tool

_FENCE = re.compile(r"^```[ \t]*([\w+-]*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_SHELL_TAGS = {"", "bash", "sh", "shell"}


class MalformedReplyError(ValueError):
    """The reply holds no usable action; the text is the corrective message."""


def tool_actions(reply: Reply, tools: Sequence[Tool]) -> list[tuple[str, Action]]:
    """The reply's native tool calls as ``(call id, action)``, in order.

    Raises:
        MalformedReplyError: no call, an unknown tool, or arguments that are no JSON object.
    """
    names = [tool.name for tool in tools]
    if not reply.tool_calls:
        raise MalformedReplyError(f"Your reply called no tool. Call one of: {', '.join(names)}.")
    actions = []
    for call in reply.tool_calls:
        if call.name not in names:
            raise MalformedReplyError(f"There is no tool {call.name!r}. Call one of: {', '.join(names)}.")
        if call.arguments is None:
            raise MalformedReplyError(f"The arguments of {call.name} were not a JSON object. Send them again.")
        actions.append((call.id, Action(call.name, call.arguments)))
    return actions


def fenced_action(reply: Reply) -> Action:
    """The one fenced command of a text reply; ``validate`` and ``submit`` alone in the fence mean those tools.

    Raises:
        MalformedReplyError: no fenced block, more than one, or an empty one.
    """
    blocks = [body for tag, body in _FENCE.findall(reply.text) if tag.lower() in _SHELL_TAGS]
    if len(blocks) != 1:
        found = "no fenced block" if not blocks else f"{len(blocks)} fenced blocks"
        raise MalformedReplyError(
            f"Your reply held {found}. Give exactly one action, between a line ```bash and a line ```."
        )
    command = blocks[0].rstrip("\n")
    word = command.strip()
    if not word:
        raise MalformedReplyError("The fenced block was empty. Put one shell command, validate or submit into it.")
    return Action(word) if word in ("validate", "submit") else Action("bash", {"command": command})
