"""Reads submitted checkpoints without believing them: safetensors, a header of JSON and then raw numbers.

Runs in the grader box. A file of this format is as large as what it holds and is never run or unpickled, so that
nothing can be hidden or blown up in it. The format: an ``u64`` with the header's length, the header as a JSON object
``{name: {"dtype", "shape", "data_offsets"}}``, and the numbers, little-endian, one array after the other.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]

MAX_BYTES = 64 * 1024 * 1024  #: of one checkpoint; a message to the player may have four times as many
MAX_HEADER = 1024 * 1024  #: bytes
MAX_ARRAYS = 200
MAX_NAME = 120  #: characters
MAX_DESCRIPTIONS = 48 * 1024  #: characters of all names, types and shapes, which go into the header of a message
MAX_DIMENSIONS = 8
METADATA = "__metadata__"  #: a key of the format that names no array

#: dtypes of the format that a message to the player can carry
DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


class BadCheckpointError(Exception):
    """A checkpoint cannot be used; the message tells the agent why."""


def read_all(folder: Path, count: int) -> list[Arrays]:
    """The checkpoints ``0.safetensors``, ``1.safetensors`` and so on of a folder, and nothing beside them.

    Returns:
        name -> array for each; no two hold the same numbers.

    Raises:
        BadCheckpointError: one is missing, too many, malformed, not finite or the same as another one.
    """
    wanted = [f"{number}.safetensors" for number in range(count)]
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder.is_dir() else []
    for name in wanted:
        if not (folder / name).is_file():
            raise BadCheckpointError(f"checkpoints/{name} is missing; {count} are needed: {', '.join(wanted)}")
    if set(found) != set(wanted):
        other = next(name for name in found if name not in wanted)
        raise BadCheckpointError(f"checkpoints/{other:.100} is not one of {', '.join(wanted)}; remove it")
    checkpoints = []
    for name in wanted:
        try:
            checkpoints.append(read(folder / name))
        except BadCheckpointError as error:
            raise BadCheckpointError(f"checkpoints/{name}: {error}") from None
    marks = [digest(arrays) for arrays in checkpoints]
    for number, mark in enumerate(marks):
        if mark in marks[:number]:
            raise BadCheckpointError(
                f"checkpoints/{wanted[number]} holds the same numbers as {wanted[marks.index(mark)]}; "
                f"train {count} policies from different seeds"
            )
    return checkpoints


def read(path: Path) -> Arrays:
    """The arrays of one file.

    Raises:
        BadCheckpointError: it is not a well-formed file of the format, or a number in it is not finite.
    """
    try:
        return _read(path)
    except BadCheckpointError:
        raise
    except Exception as error:  # whatever a parser or numpy did not expect is the file's fault
        raise BadCheckpointError(f"it cannot be read: {type(error).__name__}: {error!s:.100}") from None


def _read(path: Path) -> Arrays:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise BadCheckpointError(f"it has {size} bytes; at most {MAX_BYTES} are allowed")
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise BadCheckpointError("it is not a safetensors file; write it with safetensors.numpy.save_file")
    described = _header(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    arrays, end = {}, 0
    for begin, stop, name, dtype, shape in sorted(described):
        if begin != end or stop > len(body):
            raise BadCheckpointError(f"the numbers of {name!r} do not follow those before, or end beyond the file")
        arrays[name] = np.frombuffer(body[begin:stop], dtype).reshape(shape)
        end = stop
        if arrays[name].dtype.kind == "f" and not np.isfinite(arrays[name]).all():
            raise BadCheckpointError(f"{name!r} holds nan or infinity")
    if end != len(body):
        raise BadCheckpointError(f"{len(body) - end} bytes at its end belong to no array")
    return arrays


def _header(text: bytes) -> list[tuple[int, int, str, str, list[int]]]:
    """Begin, end, name, dtype and shape of every array."""
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise BadCheckpointError(f"its header is not JSON: {error!s:.100}") from None
    if not isinstance(header, dict):
        raise BadCheckpointError("its header is not a JSON object")
    header.pop(METADATA, None)
    if not 1 <= len(header) <= MAX_ARRAYS:
        raise BadCheckpointError(f"it holds {len(header)} arrays; 1 to {MAX_ARRAYS} are allowed")
    described = [_described(name, value) for name, value in header.items()]
    if sum(len(json.dumps([name, dtype, shape])) for _, _, name, dtype, shape in described) > MAX_DESCRIPTIONS:
        raise BadCheckpointError(
            f"its names and shapes take more than {MAX_DESCRIPTIONS} characters; shorten the names"
        )
    return described


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _described(name: str, value: Any) -> tuple[int, int, str, str, list[int]]:
    if not (0 < len(name) <= MAX_NAME and name.isascii() and name.isprintable()):
        raise BadCheckpointError(f"the name {name!r:.150} is not of 1 to {MAX_NAME} printable ASCII characters")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise BadCheckpointError(f"{name!r} must be described by dtype, shape and data_offsets")
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise BadCheckpointError(f"{name!r} is of type {value['dtype']!r:.40}; store one of {', '.join(DTYPES)}")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _counts(shape) or len(shape) > MAX_DIMENSIONS or not _counts(offsets) or len(offsets) != 2:
        raise BadCheckpointError(f"shape and data_offsets of {name!r} make no sense")
    if math.prod(size for size in shape if size) > MAX_BYTES:
        raise BadCheckpointError(f"the shape {shape} of {name!r} is too large")
    if offsets[1] > MAX_BYTES or offsets[1] - offsets[0] != math.prod(shape) * np.dtype(dtype).itemsize:
        raise BadCheckpointError(f"{name!r} does not have as many bytes as its shape and type need")
    return offsets[0], offsets[1], name, dtype, shape


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MAX_BYTES for n in value)


def digest(arrays: Mapping[str, Any]) -> str:
    """A mark of the numbers and shapes, whatever type, order or sign of zero they are stored with."""
    mark = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        plain = np.ascontiguousarray(array, "<f8" if _survives(array) else array.dtype) + 0
        mark.update(json.dumps([name, array.shape]).encode() + plain.tobytes())
    return mark.hexdigest()


def _survives(array: Any) -> bool:
    """Whether a float64 holds each of the numbers exactly."""
    if array.dtype.kind in "bf" or array.dtype.itemsize < 8:
        return True
    cast = array.astype("<f8")
    # Above the type's range, which rounding can lead to, casting back is undefined.
    return bool((cast <= np.nextafter(float(np.iinfo(array.dtype).max), 0)).all()) and bool(
        (cast.astype(array.dtype) == array).all()
    )


def closest(checkpoints: Sequence[Mapping[str, Any]]) -> float | None:
    """The smallest relative distance between two checkpoints, so that near-copies show.

    The arrays of both, in the order of their names, are taken as one vector each: ``|a - b| / hypot(|a|, |b|)`` is 0
    for copies and about 1 for vectors that have nothing to do with each other.

    Returns:
        ``None`` when no two have the same shapes.
    """
    ordered = [[array for _, array in sorted(arrays.items())] for arrays in checkpoints]
    pairs = itertools.combinations(ordered, 2)
    found = [_distance(*pair) for pair in pairs if [one.shape for one in pair[0]] == [one.shape for one in pair[1]]]
    return min(found, default=None)


def _distance(first: Sequence[Any], second: Sequence[Any]) -> float:
    largest = max((float(np.abs(array.astype("<f8")).max()) for array in (*first, *second) if array.size), default=0.0)
    if not largest:
        return 0.0
    difference = norms = 0.0
    for one, other in zip(first, second, strict=True):
        # Scaled, since the squares of large numbers are none.
        a, b = (np.ravel(array.astype("<f8")) / largest for array in (one, other))
        difference += float(((a - b) ** 2).sum())
        norms += float(a @ a + b @ b)
    return math.sqrt(difference / norms)


def randomised(arrays: Mapping[str, Any], draw: np.random.Generator) -> Arrays:
    """The same names, shapes and types with nothing of what was learnt.

    The numbers of each array are put into a random order, which keeps their scale, and what must be positive stays
    positive. Where an array has both signs, each number gets a random one.
    """
    found = {}
    for name, array in sorted(arrays.items()):
        mixed = draw.permutation(array.reshape(-1)).reshape(array.shape)
        if array.dtype.kind == "f" and (array < 0).any() and (array > 0).any():
            mixed = (mixed * draw.choice([-1, 1], array.shape)).astype(array.dtype)
        found[name] = mixed
    return found
