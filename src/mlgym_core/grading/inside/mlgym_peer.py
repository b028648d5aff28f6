"""What MLGym puts into grader and player boxes: the grader's API and the player's, on top of ``mlgym_frames``.

It runs on Python 3.9 or later with the standard library alone. See ``docs/grading.md`` for the protocol
and for examples. A grader (``private/grade.py``)::

    import mlgym_peer as peer

    job = peer.job()
    with peer.open_player() as player:
        reply = player.call({"round": 1}, timeout=60, history=peer.buffer("|u1", [0, 1]))
    peer.scored({"Score": 1.5}, standard_error={"Score": 0.01})

A player (a public file named by ``submission.player``)::

    import mlgym_peer as peer

    peer.serve(lambda header, buffers: ({}, {"moves": b"..."}))
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Mapping, NamedTuple, Tuple  # noqa: UP035

if __package__:  # on the host
    from mlgym_core.grading.inside import mlgym_frames as frames
else:
    import mlgym_frames as frames  # type: ignore[no-redef, unused-ignore]

PROTOCOL = 1
MAX_RESULT = 1024 * 1024  #: bytes of result.json
MAX_MESSAGE = 4000  #: characters
RESULT = "result.json"

Buffer = frames.Buffer
ProtocolError = frames.ProtocolError
buffer = frames.buffer
as_buffer = frames.as_buffer

__all__ = [
    "Buffer",
    "InvalidSubmission",
    "Job",
    "Player",
    "PlayerError",
    "ProtocolError",
    "Reply",
    "as_buffer",
    "buffer",
    "invalid",
    "job",
    "main",
    "open_player",
    "scored",
    "serve",
]


class InvalidSubmission(Exception):  # noqa: N818 - reads as what it says in grade.py
    """Raise it in ``grade.py`` or in the player's handler: the message is the reason given to the agent."""


class PlayerError(Exception):
    """The player could not answer; left uncaught in ``grade.py`` it makes the submission invalid.

    Attributes:
        kind: ``timeout``, ``died``, ``protocol`` (no well-formed answer), ``raised`` (the submission's code
            raised) or ``refused`` (the public player found the answer invalid).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


Answer = Tuple[Mapping[str, Any], Mapping[str, frames.BufferLike]]  # noqa: UP006 - evaluated on 3.9
Handler = Callable[[Dict[str, Any], Dict[str, Buffer]], Answer]  # noqa: UP006


class _Box:
    """What this process is; set once by :func:`main`."""

    channel: frames.Channel
    workdir = Path()
    entry = ""
    served = False


# --- grader ----------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """What ``job.json`` says.

    Attributes:
        schema: 1.
        task: id of the task.
        split: ``dev`` or ``test``.
        seed: secret of this task and split, 32 hexadecimal digits.
        size: name of the task's size.
        parameters: of that size, from ``task.yaml``.
        paths: absolute paths: ``submission``, and ``data`` and ``public_data`` where the task has data.
    """

    schema: int
    task: str
    split: str
    seed: str
    size: str
    parameters: dict[str, Any]
    paths: dict[str, Path]


def job() -> Job:
    """Read ``job.json``."""
    text = json.loads((_Box.workdir / "job.json").read_text("utf-8"))
    text["paths"] = {name: _Box.workdir / path for name, path in text["paths"].items()}
    return Job(**{name: text[name] for name in Job._fields})


class Reply(NamedTuple):
    """The player's answer to one call."""

    header: dict[str, Any]
    buffers: dict[str, Buffer]


class Player:
    """The grader's end of one player box; one call at a time is under way."""

    def __init__(self, number: int) -> None:
        self._number, self._waiting = number, False

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, header: Mapping[str, Any] | None = None, /, **buffers: frames.BufferLike) -> None:
        """Start a call; a failure to deliver it is reported by :meth:`receive`."""
        if self._waiting:
            raise RuntimeError("receive the answer to the last call before sending the next one")
        self._waiting = True
        _Box.channel.send({"type": "send", "player": self._number, "header": dict(header or {})}, buffers)

    def receive(self, timeout: float = 60.0) -> Reply:
        """Wait for the answer.

        Args:
            timeout: seconds from now until the player is closed; the host caps it by the task's grading limit.

        Raises:
            PlayerError: there is no answer; after any kind but ``raised`` and ``refused`` the player is closed.
        """
        if not self._waiting:
            raise RuntimeError("send a call before receiving its answer")
        self._waiting = False
        return Reply(*_ask({"type": "receive", "player": self._number, "timeout": timeout}))

    def call(
        self, header: Mapping[str, Any] | None = None, /, timeout: float = 60.0, **buffers: frames.BufferLike
    ) -> Reply:
        """Send and receive."""
        self.send(header, **buffers)
        return self.receive(timeout)

    def close(self) -> None:
        """End the player's box; harmless when repeated."""
        if self._number:
            _Box.channel.send({"type": "close", "player": self._number})
            self._number = 0


def open_player(timeout: float = 120.0) -> Player:
    """A fresh player box that has loaded the submission.

    Args:
        timeout: seconds that loading may take.

    Raises:
        PlayerError: the submission could not be loaded.
    """
    header, _ = _ask({"type": "open", "timeout": timeout})
    return Player(header["player"])


def prepare_players(count: int) -> None:
    """Begin to start players side by side, so that the next ``count`` calls of :func:`open_player` find them ready."""
    _Box.channel.send({"type": "prepare", "count": count})


def _ask(request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Buffer]]:
    _Box.channel.send(request)
    answer, buffers = _Box.channel.receive()
    if answer["type"] == "error":
        raise PlayerError(answer["kind"], answer["message"])
    return answer["header"], buffers


def scored(
    metrics: Mapping[str, float],
    standard_error: Mapping[str, float] | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Write the result: the submission was scored. Only once in a grading."""
    _write_result("scored", dict(metrics), dict(standard_error or {}), "", dict(details or {}))


def invalid(message: str, details: Mapping[str, Any] | None = None) -> None:
    """Write the result: the submission is invalid, for a reason that the agent can act on."""
    _write_result("invalid_submission", {}, {}, str(message)[:MAX_MESSAGE], dict(details or {}))


def _write_result(
    outcome: str, metrics: dict[str, float], error: dict[str, float], message: str, details: dict[str, Any]
) -> None:
    result = {
        "schema": PROTOCOL,
        "outcome": outcome,
        "metrics": metrics,
        "standard_error": error,
        "message": message,
        "details": details,
    }
    for name, value in {**metrics, **error}.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}; a score must be finite")
    if (_Box.workdir / RESULT).exists():
        raise RuntimeError("a result has been written already; call peer.scored or peer.invalid once")
    (_Box.workdir / RESULT).write_text(json.dumps(result, allow_nan=False, default=_plain), encoding="utf-8")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written to {RESULT}")


def _grade() -> None:
    try:
        _run_entry()
    except (PlayerError, InvalidSubmission) as error:
        invalid(str(error))
    except SystemExit as error:
        if error.code:
            raise
    path = _Box.workdir / RESULT
    if not path.is_file():
        raise RuntimeError(f"{_Box.entry} ended without a result; call peer.scored or peer.invalid")
    with path.open("rb") as file:
        content = file.read(MAX_RESULT + 1)
    if len(content) > MAX_RESULT:
        raise RuntimeError(f"{RESULT} is larger than {MAX_RESULT} bytes")
    _Box.channel.send({"type": "result"}, {"content": content})


# --- player ----------------------------------------------------------------------------------------------------------


def serve(handler: Handler) -> None:
    """Answer calls until the host closes the box.

    Args:
        handler: gets a call's header and buffers, returns those of the answer. What it raises goes back as an
            error: :class:`InvalidSubmission` by its message, anything else with a bounded traceback.
    """
    channel = _Box.channel
    _Box.served = True
    channel.send({"type": "ready"})
    while True:
        try:
            call, buffers = channel.receive()
        except EOFError:
            return
        try:
            header, answers = handler(call["header"], buffers)
            pieces = frames.encode({"type": "reply", "id": call["id"], "header": dict(header)}, answers)
        except BaseException as error:  # the submission may raise SystemExit or KeyboardInterrupt
            pieces = frames.encode({"type": "error", "id": call["id"], **_describe(error)}, {})
        channel.write(pieces)


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, InvalidSubmission):
        return {"kind": "refused", "message": str(error)[:MAX_MESSAGE]}
    box = f"{_Box.workdir}{os.sep}"
    ours = {__file__, frames.__file__, f"{box}{_Box.entry}"}
    calls = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in calls if frame.filename.startswith(box) and frame.filename not in ours]
    summary = "".join(traceback.format_exception_only(type(error), error)).strip().replace(box, "")[:1000]
    where = f" ({own[-1].filename.replace(box, '')}, line {own[-1].lineno})" if own else ""
    shown = "".join(traceback.format_list(calls[calls.index(own[0]) :] if own else calls)).replace(box, "")
    return {"kind": "raised", "message": f"the submission raised {summary}{where}\n{shown[-2000:]}"}


# --- start -----------------------------------------------------------------------------------------------------------


def main(source: BinaryIO, sink: BinaryIO, workdir: str) -> None:
    """Play the role that the host's first frame names; called once, by the boot program."""
    _Box.channel = frames.Channel(source, sink)
    _Box.workdir = Path(workdir)
    start, _ = _Box.channel.receive()
    _Box.entry = start["entry"]
    folder = (_Box.workdir / _Box.entry).parent
    sys.path.insert(1, str(folder))
    _Box.channel.send({"type": "booted"})
    try:
        if start["role"] == "grader":
            _grade()
        else:
            _play()
    except BaseException as error:
        if start["role"] == "grader":
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            _Box.channel.send({"type": "failed", "message": text[-MAX_MESSAGE:]})
        else:
            _Box.channel.send({"type": "error", "id": 0, **_describe(error)})


def _play() -> None:
    _run_entry()
    if not _Box.served:
        raise RuntimeError(f"{_Box.entry} ended without serving; it must call peer.serve")


def _run_entry() -> None:
    path = _Box.workdir / _Box.entry
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.argv = [str(path)]  # a program without arguments, for whatever reads them while it is imported
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
