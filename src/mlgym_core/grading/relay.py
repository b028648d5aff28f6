"""Carries frames between a grader and its players, and decides what a player that misbehaves amounts to.

A frame's origin is the box it came from, never what it says: nothing that a player writes is more than an answer.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from attrs import define, field, frozen

from mlgym_core.grading.grade import clean
from mlgym_core.grading.inside import mlgym_frames as wire
from mlgym_core.grading.link import Frame, PeerLink
from mlgym_core.sandbox.base import ConnectionClosed

MAX_PLAYERS = 8  #: open at the same time
SEND_SECONDS = 60.0  #: to deliver a call to a player
DRAIN_SECONDS = 0.5  #: to collect the last words of a player that died

FailureKind = Literal["timeout", "died", "protocol", "raised", "refused"]


class GraderFailedError(Exception):
    """The grader broke the protocol, raised, died or ran out of time."""


@frozen
class Failure:
    """Why a player has no answer."""

    kind: FailureKind
    message: str

    def frame(self) -> dict[str, Any]:
        """As the grader is told."""
        return {"type": "error", "kind": self.kind, "message": self.message}


@define
class RemotePlayer:
    """One player box, seen from the host."""

    link: PeerLink
    calls: int = 0
    busy_seconds: float = 0.0
    sent_at: float = 0.0
    failure: Failure | None = None

    def wait_ready(self, deadline: float, limit: str) -> Failure | None:
        """Wait until it has loaded the submission."""
        started = time.monotonic()
        answer = self._receive("ready", deadline, f"your submission was not loaded within {limit}")
        self.busy_seconds += time.monotonic() - started
        return answer if isinstance(answer, Failure) else None

    def send(self, frame: Frame, deadline: float) -> None:
        """Deliver a call; a failure is kept for :meth:`receive`."""
        if self.failure is not None:
            return
        self.calls += 1
        self.sent_at = time.monotonic()
        if self.link.unread:
            self._fail("protocol", "your code wrote to the connection without being asked")
            return
        header = {"type": "call", "id": self.calls, "header": frame.header["header"]}
        header["buffers"] = frame.header.get("buffers", [])
        try:
            self.link.send(header, frame.payload, min(deadline, self.sent_at + SEND_SECONDS))
        except TimeoutError:
            self._fail("timeout", "your code stopped reading")
        except ConnectionClosed:
            self._died()

    def receive(self, deadline: float, limit: str) -> Frame | Failure:
        """Wait for the answer to the last call."""
        if self.failure is not None:
            return self.failure
        answer = self._receive("reply", deadline, f"your code did not answer within {limit}")
        self.busy_seconds += time.monotonic() - self.sent_at
        return answer

    def _receive(self, wanted: str, deadline: float, late: str) -> Frame | Failure:
        try:
            frame = self.link.receive(deadline)
        except TimeoutError:
            return self._fail("timeout", late)
        except ConnectionClosed:
            return self._died()
        except wire.ProtocolError as error:
            return self._fail("protocol", f"no well-formed answer came from your code: {error}")
        header = frame.header
        if header.get("type") == "error":
            return self._reported(header)
        if header.get("type") != wanted or header.get("id", 0) != self.calls:
            return self._fail("protocol", "an answer came from your code that nobody had asked for")
        try:
            return _passed_on(frame)
        except (ValueError, RecursionError) as error:
            return self._fail("protocol", f"no well-formed answer came from your code: {error}")

    def _reported(self, header: Any) -> Failure:
        kind: FailureKind = "refused" if header.get("kind") == "refused" else "raised"
        message = header.get("message")
        message = clean(message) if isinstance(message, str) and message else "your code failed without saying why"
        if message.startswith("the submission raised SystemExit"):
            message = clean(f"{message.rstrip()}{self._last_words()}")
        if header.get("id") == self.calls and self.calls:
            return Failure(kind, message)
        return self._fail(kind, message)

    def _died(self) -> Failure:
        said = self._last_words()
        return self._fail("died", clean(f"the process that ran your code ended (exit, crash or out of memory){said}"))

    def _last_words(self) -> str:
        self.link.drain(time.monotonic() + DRAIN_SECONDS)
        tail = self.link.log().strip()[-500:]
        return f"; it last printed: {tail}" if tail else ""

    def _fail(self, kind: FailureKind, message: str) -> Failure:
        self.failure = Failure(kind, message)
        self.link.close()
        return self.failure


def _passed_on(frame: Frame) -> Frame:
    """A player's answer as the grader gets it, known to fit into a frame."""
    inner = frame.header.get("header", {})
    if not isinstance(inner, dict):
        raise ValueError("its header is not an object")
    header = {"type": "answer", "header": inner, "buffers": frame.header.get("buffers", [])}
    wire.encode_header(header, len(frame.payload))
    return Frame(header, frame.payload)


_NO_PLAYERS = "the grader asked for a player, but the submission is data; see submission.kind"


@define
class Relay:
    """Serves one grader until it has a result.

    Attributes:
        grader: its link.
        start_player: begins to open a player box, whose submission may still be loading when it is open; ``None`` if
            the task has no players.
        ahead: players being opened before the grader asks for them.
        deadline: for the whole grading.
        player_deadline: for anything a player does, earlier than ``deadline`` so that the grader can still tell.
        limit: seconds from the start to ``player_deadline``, for messages.
    """

    grader: PeerLink
    start_player: Callable[[], Future[PeerLink]] | None
    ahead: deque[Future[PeerLink]]
    deadline: float
    player_deadline: float
    limit: float
    players: dict[int, RemotePlayer] = field(factory=dict)
    last: PeerLink | None = None
    _opened: int = 0

    def run(self) -> bytes:
        """Relay until the end; returns the content of ``result.json``.

        Raises:
            GraderFailedError: there is none.
            InfrastructureError: a player box could not be opened.
        """
        while True:
            frame = self._next()
            kind = frame.header.get("type")
            try:
                if kind == "result":
                    return bytes(frame.payload)
                if kind == "failed":
                    raise GraderFailedError(f"the grader failed: {frame.header['message']}")
                self._serve(kind, frame)
            except (KeyError, TypeError, ValueError) as error:
                raise GraderFailedError(f"the grader sent a malformed {kind} frame: {error!r}") from error

    def _next(self) -> Frame:
        try:
            return self.grader.receive(self.deadline)
        except TimeoutError:
            raise GraderFailedError(f"the grader had not ended {self.limit:.0f} s after its start") from None
        except ConnectionClosed:
            raise GraderFailedError("the grader's process ended without a result") from None
        except wire.ProtocolError as error:
            raise GraderFailedError(f"the grader broke the protocol: {error}") from error

    def _serve(self, kind: object, frame: Frame) -> None:
        header = frame.header
        if kind == "prepare":
            self._prepare(header["count"])
        elif kind == "open":
            self._answer(self._open(*self._until(header["timeout"])))
        elif kind == "send":
            self.players[header["player"]].send(frame, self.player_deadline)
        elif kind == "receive":
            self._answer(self.players[header["player"]].receive(*self._until(header["timeout"])))
        elif kind == "close":
            self.players.pop(header["player"]).link.close()
        else:
            raise ValueError("unknown type")

    def _until(self, timeout: float) -> tuple[float, str]:
        if isinstance(timeout, bool) or not math.isfinite(timeout) or timeout <= 0:
            raise ValueError(f"timeout {timeout} is not a positive number of seconds")
        asked = time.monotonic() + timeout
        if asked <= self.player_deadline:
            return asked, f"{timeout:g} s"
        used = max((player.busy_seconds for player in self.players.values()), default=0.0)
        return self.player_deadline, f"the {self.limit:g} s of a grading (your code had used {used:.1f} s of them)"

    def _prepare(self, count: int) -> None:
        if self.start_player is None:
            raise GraderFailedError(_NO_PLAYERS)
        if isinstance(count, bool) or not 0 <= count <= MAX_PLAYERS - len(self.players):
            raise ValueError(f"{count} players cannot be prepared beside {len(self.players)} open ones")
        while len(self.ahead) < count:
            self.ahead.append(self.start_player())

    def _open(self, deadline: float, limit: str) -> Frame | Failure:
        if self.start_player is None:
            raise GraderFailedError(_NO_PLAYERS)
        if len(self.players) >= MAX_PLAYERS:
            raise GraderFailedError(f"the grader has {MAX_PLAYERS} players open; close one before opening another")
        link = (self.ahead.popleft() if self.ahead else self.start_player()).result()
        self.last = link
        player = RemotePlayer(link)
        failure = player.wait_ready(deadline, limit)
        if failure is not None:
            return failure
        self._opened += 1
        self.players[self._opened] = player
        return Frame({"type": "answer", "header": {"player": self._opened}}, memoryview(b""))

    def _answer(self, answer: Frame | Failure) -> None:
        if isinstance(answer, Failure):
            header, payload = answer.frame(), memoryview(b"")
        else:
            header, payload = dict(answer.header), answer.payload
        try:
            self.grader.send(header, payload, self.deadline)
        except TimeoutError:
            raise GraderFailedError("the grader stopped reading") from None
        except ConnectionClosed:
            raise GraderFailedError("the grader's process ended without a result") from None
