"""Frames, the messages of the grading: what grader, player and host put on the wire, and how it is read back.

MLGym puts this file beside ``mlgym_peer`` into grader and player boxes, and the host uses the same code. It runs on
Python 3.9 or later with the standard library alone. See ``docs/grading.md`` for the protocol.
"""

from __future__ import annotations

import array
import json
import struct
import sys
import types
from typing import Any, BinaryIO, Iterable, Mapping, Sequence, Union  # noqa: UP035

MAX_HEADER = 64 * 1024  #: bytes
MAX_PAYLOAD = 256 * 1024 * 1024  #: bytes
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


class Channel:
    """Frames over two byte streams."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink

    def send(self, header: Mapping[str, Any], buffers: Mapping[str, BufferLike] = types.MappingProxyType({})) -> None:
        """Write one frame."""
        self.write(encode(header, buffers))

    def write(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a frame that is encoded already."""
        for piece in pieces:
            self._sink.write(piece)
        self._sink.flush()

    def receive(self) -> tuple[dict[str, Any], dict[str, Buffer]]:
        """Wait for one frame: header and buffers.

        Raises:
            EOFError: the other end is closed.
            ProtocolError: it is no frame.
        """
        header_size, payload_size = frame_lengths(self._read(PREFIX.size))
        header_text, payload = self._read(header_size), self._read(payload_size)
        header = decode_header(header_text, payload_size)
        return header, unpack(header, payload)

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) != size:
            raise EOFError("the host has closed the connection")
        return data
