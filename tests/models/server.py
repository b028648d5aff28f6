"""A model service on 127.0.0.1 that answers as a test tells it to.

It speaks OpenAI's chat completions and, where the path says so, Anthropic's messages; in one piece or, where the
request says so, as a stream. A script is written in OpenAI's form and translated.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from types import TracebackType
from typing import Any, Self

from attrs import evolve, field, frozen
from models import wire


@frozen
class Answer:
    """One HTTP answer.

    Attributes:
        body: JSON, or bytes as they are.
        retry_in: seconds from now, sent as an HTTP date in ``retry-after``.
        delay: seconds until the first byte.
        trickle: seconds between the bytes of blank space that come before the body, for ever.
        hang_up: closes the connection instead.
        cut: of a stream, the events that are sent before it breaks off.
        cut_by: how it does: ``reset`` in the middle of the transfer, ``end`` as if it were over, or an error message,
            sent as an event.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    retry_in: float | None = None
    delay: float = 0.0
    trickle: float | None = None
    hang_up: bool = False
    cut: int | None = None
    cut_by: str = "reset"


@frozen
class Request:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body["messages"])

    @property
    def anthropic(self) -> bool:
        return self.path.endswith("/v1/messages")


def usage(prompt: int = 0, completion: int = 0, *, cost: float | None = None, **details: int) -> dict[str, Any]:
    """Figures as providers report them; ``cached``, ``written`` and ``reasoning`` go where they belong."""
    figures: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cost is not None:
        figures["cost"] = cost
    if "cached" in details:
        figures["prompt_tokens_details"] = {"cached_tokens": details["cached"]}
    if "written" in details:
        figures.setdefault("prompt_tokens_details", {})["cache_creation_tokens"] = details["written"]
    if "reasoning" in details:
        figures["completion_tokens_details"] = {"reasoning_tokens": details["reasoning"]}
    return figures


SOME = usage(100, 20)


def says(text: str | None, figures: Mapping[str, Any] | None = SOME, **options: Any) -> Answer:
    """A text reply."""
    return _completion({"content": text}, "stop", figures, **options)


def calls(*asked: tuple[str, Any], figures: Mapping[str, Any] | None = SOME, text: str | None = None) -> Answer:
    """Tool calls; arguments that are text are sent as they are."""
    wire = [
        {
            "id": f"call_{number}_{name}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(asked)
    ]
    return _completion({"content": text, "tool_calls": wire}, "tool_calls", figures)


def thinks(answer: Answer, thought: str, signature: str) -> Answer:
    """The same reply after some signed reasoning."""
    block = {"type": "thinking", "thinking": thought, "signature": signature}
    choice = answer.body["choices"][0]
    message = {**choice["message"], "reasoning_content": thought, "thinking_blocks": [block]}
    return evolve(answer, body={**answer.body, "choices": [{**choice, "message": message}]})


def bash(command: str, figures: Mapping[str, Any] | None = SOME) -> Answer:
    """One call of ``bash``."""
    return calls(("bash", {"command": command}), figures=figures)


def submit(figures: Mapping[str, Any] | None = SOME) -> Answer:
    """One call of ``submit``."""
    return calls(("submit", {}), figures=figures)


def empty(figures: Mapping[str, Any] | None = None) -> Answer:
    """A 200 without any content."""
    return says("", figures)


def fails(status: int, message: str, figures: Mapping[str, Any] | None = None, **options: Any) -> Answer:
    """An error in OpenAI's form; ``code`` and ``headers`` may be given."""
    error = {"message": message, "type": "error", "code": options.pop("code", None)}
    return Answer({"error": error, **({"usage": figures} if figures else {})}, status, **options)


def hangs_up() -> Answer:
    """The connection is closed without an answer."""
    return Answer(hang_up=True)


def _completion(message: dict[str, Any], finish: str, figures: Mapping[str, Any] | None, **options: Any) -> Answer:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    body = {"id": "cmpl-7", "object": "chat.completion", "created": 1, "model": "served-1", "choices": [choice]}
    return Answer({**body, "usage": figures} if figures else body, **options)


class ModelServer:
    """Plays its script, one answer a request; a request too many gets a 418, which no client repeats.

    Attributes:
        requests: as they came.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._script: list[Answer] = []
        self._always: Answer | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL; clients of Anthropic's find their way from it too."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def script(self, *answers: Answer, then: Answer | None = None) -> None:
        """Answer so from now on, and when that is over always with ``then``."""
        with self._lock:
            self._script, self._always = list(answers), then

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _next(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            if self._script:
                return self._script.pop(0)
            return self._always or fails(418, "the script is at its end")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                request = Request(self.path, dict(self.headers), body)
                answer = server._next(request)
                self.close_connection = True
                server._closing.wait(answer.delay)
                with suppress(OSError):  # the client may have gone
                    if body.get("stream") and answer.status == 200 and "choices" in (answer.body or ()):
                        server._stream(self, answer, request)
                    else:
                        server._send(self, answer, request)

        return Handler

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer, request: Request) -> None:
        if answer.hang_up:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if answer.retry_in is not None:
            answer = evolve(answer, headers={"retry-after": formatdate(time() + answer.retry_in, usegmt=True)})
        data = _written(answer, request)
        handler.send_response(answer.status)
        for name, value in {"content-type": "application/json", "connection": "close", **answer.headers}.items():
            handler.send_header(name, value)
        if answer.trickle is None:
            handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        while answer.trickle is not None and not self._closing.wait(answer.trickle):
            handler.wfile.write(b" ")
        handler.wfile.write(data)

    def _stream(self, handler: BaseHTTPRequestHandler, answer: Answer, request: Request) -> None:
        handler.send_response(200)
        for name, value in {"content-type": "text/event-stream", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        events = list(wire.anthropic_stream(answer.body) if request.anthropic else wire.openai_stream(answer.body))
        for data in events[: answer.cut]:
            _chunk(handler, data)
        while answer.trickle is not None and not self._closing.wait(answer.trickle):
            _chunk(handler, b": nothing yet\n\n")
        if answer.cut is not None and answer.cut_by == "reset":
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if answer.cut is not None and answer.cut_by != "end":
            error = {"error": {"message": answer.cut_by, "type": "server_error", "code": None}}
            data = wire.event(wire.anthropic_error(529, error), "error") if request.anthropic else wire.event(error)
            _chunk(handler, data)
        _chunk(handler, b"")


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _written(answer: Answer, request: Request) -> bytes:
    body = answer.body
    if isinstance(body, bytes):
        return body
    if request.anthropic and isinstance(body, dict) and body.get("choices"):
        body = wire.anthropic_message(body)
    elif request.anthropic and isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = wire.anthropic_error(answer.status, body)
    return json.dumps(body).encode()
