"""validate and submit from inside a shell action: a note for whoever runs the box, who acts when the action ends."""

from __future__ import annotations

import os

from . import state
from .command import Command, Refused, nothing


def _request(tool: str) -> bytes:
    try:
        state.save(request={"id": os.urandom(8).hex(), "tool": tool})
    except Refused as refusal:
        raise Refused(f"{tool} could not be noted, and will not be done: {refusal}") from refusal
    return (
        f"{tool} is noted; it is done as soon as this action ends, with the files as they are then. "
        "Of several requests in one action only the newest counts."
    ).encode()


COMMANDS = {
    "validate": Command(nothing, lambda _: _request("validate")),
    "submit": Command(nothing, lambda _: _request("submit")),
}
