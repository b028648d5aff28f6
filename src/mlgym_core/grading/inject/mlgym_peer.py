"""The one file that MLGym puts into grader and player boxes: frames, the grader's API, the player's API.

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

import array
import json
import math
import os
import struct
import sys
import traceback
import types
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union  # noqa: UP035

PROTOCOL = 1
MAX_HEADER = 64 * 1024  #: bytes
MAX_PAYLOAD = 256 * 1024 * 1024  #: bytes
MAX_RESULT = 1024 * 1024  #: bytes of result.json
MAX_MESSAGE = 4000  #: characters
RESULT = "result.json"
PREFIX = struct.Struct(">IQ")

#: numpy-style dtype -> (struct format, bytes an item)
DTYPES: dict[str, tuple[str, int]] = {
    "|b1": ("?", 1),
    "|u1": ("B", 1),
    "|i1": ("b", 1),
    "<u2": ("H", 2),
    "<i2": ("h", 2),
    "<u4": ("I", 4),
    "<i4": ("i", 4),
    "<u8": ("Q", 8),
    "<i8": ("q", 8),
    "<f2": ("e", 2),
    "<f4": ("f", 4),
    "<f8": ("d", 8),
}
_MAX_BUFFERS = 256
_MAX_DIMENSIONS = 16
_MAX_NESTING = 32  # far below what any interpreter can decode, so that both ends agree


class ProtocolError(Exception):
    """The other end sent something that is not a frame of this protocol."""


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


# --- frames ----------------------------------------------------------------------------------------------------------


class Buffer:
    """Raw numbers with a type and a shape, row-major and little-endian.

    Attributes:
        dtype: numpy-style type, one of ``DTYPES``.
        shape: sizes of the dimensions.
        data: the bytes.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, dtype: str, shape: Iterable[int], data: bytes | bytearray | memoryview) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.data = memoryview(data).cast("B")
        if self.data.nbytes != byte_count(dtype, self.shape):
            raise ValueError(f"{self.data.nbytes} bytes do not make a {dtype} of shape {self.shape}")

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def flat(self) -> tuple[Any, ...]:
        """All numbers in row-major order."""
        code, size = DTYPES[self.dtype]
        return struct.unpack(f"<{self.data.nbytes // size}{code}", self.data)

    def tolist(self) -> Any:
        """The numbers as lists nested like the shape; a plain number for shape ``()``."""
        values: list[Any] = list(self.flat())
        if 0 in self.shape:
            return _empty(self.shape)
        for size in reversed(self.shape):
            values = [values[i : i + size] for i in range(0, len(values), size)]
        return values[0]

    def array(self) -> array.array[Any]:
        """The numbers in row-major order as an :class:`array.array` (booleans as bytes; not for ``<f2``)."""
        code = DTYPES[self.dtype][0].replace("?", "B")
        values = array.array(code)
        values.frombytes(self.data)
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def numpy(self) -> Any:
        """The numbers as a read-only numpy array of this shape; needs numpy in the task's image."""
        import numpy  # type: ignore[import-not-found, unused-ignore]

        return numpy.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


BufferLike = Union[Buffer, bytes, bytearray, memoryview, "array.array[Any]", Any]
Answer = Tuple[Mapping[str, Any], Mapping[str, BufferLike]]  # noqa: UP006 - evaluated on 3.9
Handler = Callable[[Dict[str, Any], Dict[str, Buffer]], Answer]  # noqa: UP006


def _empty(shape: Sequence[int]) -> Any:
    return [_empty(shape[1:]) for _ in range(shape[0])] if shape else None


def byte_count(dtype: object, shape: Iterable[object]) -> int:
    """Bytes that ``shape`` numbers of ``dtype`` take.

    Raises:
        ValueError: an unknown dtype or a size that is not a count.
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r:.40} is not one of {' '.join(DTYPES)}")
    total = DTYPES[dtype][1]
    for size in shape:
        if type(size) is not int or not 0 <= size <= MAX_PAYLOAD:
            raise ValueError(f"{size!r:.40} is not the size of a dimension")
        total *= size
    return total


def buffer(dtype: str, values: Iterable[Any], shape: Iterable[int] | None = None) -> Buffer:
    """Pack numbers, given in row-major order, into a buffer; one dimension unless ``shape`` says more."""
    flat = list(values)
    packed = struct.pack(f"<{len(flat)}{DTYPES[dtype][0]}", *flat)
    return Buffer(dtype, (len(flat),) if shape is None else shape, packed)


def as_buffer(value: BufferLike) -> Buffer:
    """Take a Buffer, an :class:`array.array`, bytes (as ``|u1``) or anything numpy understands."""
    if isinstance(value, Buffer):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = memoryview(value).cast("B")
        return Buffer("|u1", (data.nbytes,), data)
    if isinstance(value, array.array):
        return buffer(_dtype_of(value), value)
    import numpy

    values = numpy.ascontiguousarray(value)
    values = values.astype(values.dtype.newbyteorder("<"), copy=False).reshape(numpy.shape(value))
    return Buffer(values.dtype.str, values.shape, values.tobytes())


def _dtype_of(values: array.array[Any]) -> str:
    kind = "f" if values.typecode in "fd" else "u" if values.typecode.isupper() else "i"
    order = "|" if values.itemsize == 1 else "<"
    return f"{order}{kind}{values.itemsize}"


def encode(header: Mapping[str, Any], buffers: Mapping[str, BufferLike]) -> list[bytes | memoryview]:
    """One frame as pieces to be written in order.

    Raises:
        ValueError: the header is too long or not JSON, or a buffer cannot be sent.
    """
    packed = {name: as_buffer(value) for name, value in buffers.items()}
    described = [[name, one.dtype, list(one.shape)] for name, one in packed.items()]
    payload = sum(one.data.nbytes for one in packed.values())
    return [encode_header({**header, "buffers": described}, payload), *(one.data for one in packed.values())]


def encode_header(header: Mapping[str, Any], payload: int) -> bytes:
    """Prefix and header of a frame whose payload has ``payload`` bytes; ``header`` describes the buffers."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(text) > MAX_HEADER:
        raise ValueError(f"the header has {len(text)} bytes; the limit is {MAX_HEADER}: put numbers into buffers")
    if payload > MAX_PAYLOAD:
        raise ValueError(f"the buffers have {payload} bytes; the limit is {MAX_PAYLOAD} a frame")
    return PREFIX.pack(len(text), payload) + text


def frame_lengths(prefix: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Header and payload length that the first ``PREFIX.size`` bytes announce.

    Raises:
        ProtocolError: one of them is over its limit.
    """
    header, payload = PREFIX.unpack_from(prefix)
    if header > MAX_HEADER or payload > MAX_PAYLOAD:
        raise ProtocolError(f"a frame of {header} + {payload} bytes is over the limit")
    return header, payload


def decode_header(text: bytes | bytearray | memoryview, payload: int) -> dict[str, Any]:
    """Read a header and check that its buffers fill the payload exactly.

    Raises:
        ProtocolError: it is not a strict JSON object, or its buffers make no sense.
    """
    try:
        header = json.loads(bytes(text).decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the header is not JSON: {str(error)[:200]}") from None
    if not isinstance(header, dict) or _deeper(header, _MAX_NESTING):
        raise ProtocolError(f"the header is not a JSON object of at most {_MAX_NESTING} levels")
    _layout(header, payload)
    return header


def _deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deeper(item, levels - 1) for item in inner)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _layout(header: Mapping[str, Any], payload: int) -> list[tuple[str, str, list[int], int]]:
    described = header.get("buffers", [])
    if not isinstance(described, list) or len(described) > _MAX_BUFFERS:
        raise ProtocolError(f"buffers must be a list of at most {_MAX_BUFFERS}")
    layout: list[tuple[str, str, list[int], int]] = []
    for item in described:
        if not (isinstance(item, list) and len(item) == 3 and isinstance(item[0], str) and isinstance(item[2], list)):
            raise ProtocolError(f"a buffer is described by [name, dtype, shape], not {item!r:.100}")
        if len(item[2]) > _MAX_DIMENSIONS:
            raise ProtocolError(f"a buffer has more than {_MAX_DIMENSIONS} dimensions")
        try:
            layout.append((item[0], item[1], item[2], byte_count(item[1], item[2])))
        except ValueError as error:
            raise ProtocolError(f"buffer {item[0]!r:.100}: {error}") from None
    if len({name for name, *_ in layout}) != len(layout):
        raise ProtocolError("two buffers have the same name")
    if sum(size for *_, size in layout) != payload:
        raise ProtocolError(f"the buffers described do not fill the payload of {payload} bytes")
    return layout


def unpack(header: Mapping[str, Any], payload: bytes | bytearray | memoryview) -> dict[str, Buffer]:
    """The buffers of a frame, by name."""
    view, offset, found = memoryview(payload), 0, {}
    for name, dtype, shape, size in _layout(header, len(payload)):
        found[name] = Buffer(dtype, shape, view[offset : offset + size])
        offset += size
    return found


class _Channel:
    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def send(self, header: Mapping[str, Any], buffers: Mapping[str, BufferLike] = types.MappingProxyType({})) -> None:
        for piece in encode(header, buffers):
            self._sink.write(piece)
        self._sink.flush()

    def receive(self) -> tuple[dict[str, Any], dict[str, Buffer]]:
        header_size, payload_size = frame_lengths(self._read(PREFIX.size))
        header_text, payload = self._read(header_size), self._read(payload_size)
        header = decode_header(header_text, payload_size)
        return header, unpack(header, payload)

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) != size:
            raise EOFError("the host has closed the connection")
        return data


class _Box:
    """What this process is; set once by :func:`main`."""

    channel: _Channel
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

    def send(self, header: Mapping[str, Any] | None = None, /, **buffers: BufferLike) -> None:
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

    def call(self, header: Mapping[str, Any] | None = None, /, timeout: float = 60.0, **buffers: BufferLike) -> Reply:
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
            pieces = encode({"type": "reply", "id": call["id"], "header": dict(header)}, answers)
        except BaseException as error:  # the submission may raise SystemExit or KeyboardInterrupt
            pieces = encode({"type": "error", "id": call["id"], **_describe(error)}, {})
        for piece in pieces:
            channel._sink.write(piece)
        channel._sink.flush()


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, InvalidSubmission):
        return {"kind": "refused", "message": str(error)[:MAX_MESSAGE]}
    box = f"{_Box.workdir}{os.sep}"
    ours = {__file__, f"{box}{_Box.entry}"}
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(box) and frame.filename not in ours]
    summary = "".join(traceback.format_exception_only(type(error), error)).strip().replace(box, "")[:1000]
    where = f" ({own[-1].filename.replace(box, '')}, line {own[-1].lineno})" if own else ""
    shown = "".join(traceback.format_list(frames[frames.index(own[0]) :] if own else frames)).replace(box, "")
    return {"kind": "raised", "message": f"the submission raised {summary}{where}\n{shown[-2000:]}"}


# --- start -----------------------------------------------------------------------------------------------------------


def main(source: BinaryIO, sink: BinaryIO, workdir: str) -> None:
    """Play the role that the host's first frame names; called once, by the boot program."""
    _Box.channel = _Channel(source, sink)
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
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
