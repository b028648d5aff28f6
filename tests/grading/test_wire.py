"""The frame codec that host, grader and player share."""

from __future__ import annotations

import array
import contextlib
import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.grading.inside import mlgym_frames as wire

RANGES = {
    "|u1": (0, 2**8 - 1),
    "|i1": (-(2**7), 2**7 - 1),
    "<u2": (0, 2**16 - 1),
    "<i2": (-(2**15), 2**15 - 1),
    "<u4": (0, 2**32 - 1),
    "<i4": (-(2**31), 2**31 - 1),
    "<u8": (0, 2**64 - 1),
    "<i8": (-(2**63), 2**63 - 1),
}


@st.composite
def buffers(draw: st.DrawFn) -> wire.Buffer:
    dtype = draw(st.sampled_from(sorted(wire.DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    data = draw(st.binary(min_size=wire.byte_count(dtype, shape), max_size=wire.byte_count(dtype, shape)))
    return wire.Buffer(dtype, shape, data)


headers = st.dictionaries(
    st.text(max_size=5),
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5),
    max_size=3,
)


def decode(frame: bytes) -> tuple[dict[str, Any], dict[str, wire.Buffer]]:
    header, payload = wire.frame_lengths(frame)
    start = wire.PREFIX.size + header
    assert len(frame) == start + payload
    text = wire.decode_header(frame[wire.PREFIX.size : start], payload)
    return text, wire.unpack(text, frame[start:])


@given(headers, st.dictionaries(st.text(max_size=3), buffers(), max_size=4))
def test_frames_survive_the_round_trip(header: dict[str, Any], content: dict[str, wire.Buffer]) -> None:
    read_header, read = decode(b"".join(wire.encode({"header": header}, content)))
    assert read_header["header"] == header
    assert list(read) == list(content)
    for name, one in content.items():
        assert (read[name].dtype, read[name].shape, bytes(read[name].data)) == (one.dtype, one.shape, bytes(one.data))


@given(st.data(), st.sampled_from(sorted(RANGES)))
def test_numbers_survive_packing(data: st.DataObject, dtype: str) -> None:
    values = data.draw(st.lists(st.integers(*RANGES[dtype]), max_size=8))
    packed = wire.buffer(dtype, values)
    assert packed.tolist() == values
    assert list(packed.array()) == values
    assert wire.as_buffer(packed.array()).dtype == dtype


def test_lists_nest_like_the_shape() -> None:
    assert wire.buffer("<i2", range(6), (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert wire.buffer("<i2", [], (2, 0)).tolist() == [[], []]
    assert wire.buffer("<f8", [1.5], ()).tolist() == 1.5
    assert wire.buffer("|b1", [True, False]).tolist() == [True, False]


def test_numpy_arrays_survive_packing() -> None:
    import numpy

    grid = numpy.arange(12.0).reshape(3, 4)
    for values in (grid, grid[:, ::2], grid.astype(">f4"), grid > 3, numpy.zeros((0, 4)), numpy.float32(3.5)):
        packed = wire.as_buffer(values)
        assert packed.shape == numpy.shape(values)
        assert (packed.numpy() == values).all()
    with pytest.raises(ValueError, match="dtype"):
        wire.as_buffer(numpy.array([object()]))


def test_bytes_and_arrays_are_taken_as_they_are() -> None:
    assert wire.as_buffer(b"ab").tolist() == [97, 98]
    assert wire.as_buffer(array.array("d", [0.5])).dtype == "<f8"


@pytest.mark.parametrize(
    "described",
    [
        "x",
        [["a", "|u1"]],
        [["a", "|u1", [3]]],
        [["a", "|u1", [5]]],
        [["a", "|u1", [-4]]],
        [["a", "|u1", [4.0]]],
        [["a", "|u1", [True]]],
        [["a", "|O", [4]]],
        [["a", ["|u1"], [4]]],
        [[1, "|u1", [4]]],
        [["a", "|u1", [2]], ["a", "|u1", [2]]],
        [["a", "|u1", [2**62, 2**62]]],
        [["a", "|u1", [1] * 17 + [4]]],
        [["a", "|u1", [0]]] * 300,
    ],
)
def test_buffers_that_make_no_sense_are_refused(described: object) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.decode_header(json.dumps({"buffers": described}).encode(), 4)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b"\xff",
        b"[" * 60000,
        b"{} {}",
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_headers_that_are_not_a_strict_object_are_refused(text: bytes) -> None:
    with pytest.raises(wire.ProtocolError):
        wire.decode_header(text, 0)


@given(st.binary(max_size=200))
def test_arbitrary_headers_only_ever_raise_the_protocol_error(text: bytes) -> None:
    with contextlib.suppress(wire.ProtocolError):
        assert isinstance(wire.decode_header(text, 0), dict)


@pytest.mark.parametrize(
    ("header", "payload"), [(wire.MAX_HEADER + 1, 0), (0, wire.MAX_PAYLOAD + 1), (2**32 - 1, 2**64 - 1)]
)
def test_frames_over_the_limits_are_refused_before_they_are_read(header: int, payload: int) -> None:
    with pytest.raises(wire.ProtocolError, match="over the limit"):
        wire.frame_lengths(struct.pack(">IQ", header, payload))


def test_what_cannot_be_sent_is_refused_at_the_sender() -> None:
    with pytest.raises(ValueError, match="put numbers into buffers"):
        wire.encode({"x": "a" * wire.MAX_HEADER}, {})
    with pytest.raises(ValueError):
        wire.encode({"x": float("nan")}, {})
    with pytest.raises(ValueError, match="do not make"):
        wire.Buffer("<i4", (2,), b"1234")


def test_a_cut_stream_is_the_end() -> None:
    channel = wire.Channel(io.BytesIO(b"\0\0"), io.BytesIO())
    with pytest.raises(EOFError):
        channel.receive()
