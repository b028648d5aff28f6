"""Reading checkpoints that somebody else has written."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from mlgym_core.errors import InvalidSubmissionError
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.inside.mlgym_frames import encode
from mlgym_core.task.task import Task
from mlgym_tasks_rl import checkpoints
from mlgym_tasks_rl.checkpoints import BadCheckpointError

FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
NAMED = st.dictionaries(
    st.text("abc/._ 0", min_size=1, max_size=8),
    st.sampled_from(list(checkpoints.DTYPES.values())).flatmap(
        lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    min_size=1,
    max_size=5,
)


@given(NAMED)
@FIXTURES
def test_what_is_written_is_read(tmp_path: Path, pack: Callable[..., bytes], arrays: dict[str, Any]) -> None:
    path = tmp_path / "0.safetensors"
    path.write_bytes(pack(arrays, __metadata__={"by": "a test"}))
    if all(np.isfinite(array).all() for array in arrays.values()):
        found = checkpoints.read(path)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(found[name], array)
    else:
        with pytest.raises(BadCheckpointError, match="nan or infinity"):
            checkpoints.read(path)


@given(st.binary(max_size=300), st.integers(0, 300), st.booleans())
@example(b"", 0, True)
@FIXTURES
def test_damage_is_reported_and_never_anything_else(
    tmp_path: Path, pack: Callable[..., bytes], noise: bytes, at: int, whole: bool
) -> None:
    good = pack({"w": np.arange(4, dtype="<f4"), "b": np.ones((2, 3), "<i8")})
    path = tmp_path / "0.safetensors"
    path.write_bytes(noise if whole else good[:at] + noise + good[at + len(noise) :])
    try:
        found = checkpoints.read(path)
    except BadCheckpointError as error:
        assert str(error)
    else:
        assert 1 <= len(found) <= 2
        assert all(np.isfinite(array).all() for array in found.values())


def described(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"dtype": "F32", "shape": [2]}, "must be described by"),
        ([], "must be described by"),
        (described(dtype="BF16"), "'BF16'; store one of"),
        (described(dtype=["F32"]), "is of type"),
        (described(shape=[-2]), "make no sense"),
        (described(shape=[2.0]), "make no sense"),
        (described(shape=[True, 2]), "make no sense"),
        (described(shape="2"), "make no sense"),
        (described(shape=[1] * 9), "make no sense"),
        (described(shape=[3]), "as many bytes"),
        (described(shape=[67108864] * 8), "too large"),
        (described(shape=[67108864, 67108864, 67108864, 0], data_offsets=[0, 0]), "too large"),
        (described(shape=[0] * 8), "as many bytes"),
        (described(shape=[10**400]), "make no sense"),
        (described(data_offsets=[8, 0]), "as many bytes"),
        (described(data_offsets=[8, 16]), "do not follow"),
        (described(shape=[1], data_offsets=[0, 4]), "belong to no array"),
        (described(data_offsets=[0, 8, 8]), "make no sense"),
        (described(shape=[4], data_offsets=[0, 16]), "beyond the file"),
    ],
)
def test_headers_that_make_no_sense(tmp_path: Path, pack: Callable[..., bytes], value: Any, message: str) -> None:
    path = tmp_path / "0.safetensors"
    path.write_bytes(pack({"w": np.zeros(2, "<f4")}, w=value))
    with pytest.raises(BadCheckpointError, match=message):
        checkpoints.read(path)


def test_limits(tmp_path: Path, pack: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.safetensors"
    for arrays in ({}, {"x" * 121: [1.0]}, {"ä": [1.0]}, {"a\n": [1.0]}, {f"{n}": [1.0] for n in range(201)}):
        path.write_bytes(pack(arrays))
        with pytest.raises(BadCheckpointError, match=r"arrays|name"):
            checkpoints.read(path)
    deep = b'{"a":' * 100_000
    for header in (deep, b'{"a":1,"a":1}', b"[1]", b"\xff\xfe", b"1"):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(BadCheckpointError, match=r"header|safetensors"):
            checkpoints.read(path)
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 100)
    path.write_bytes(bytes(101))
    with pytest.raises(BadCheckpointError, match="101 bytes"):
        checkpoints.read(path)


def zip_bomb() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", bytes(100_000_000))
    return content.getvalue()


@pytest.mark.parametrize("content", [pickle.dumps({"w": [1.0]}), zip_bomb(), b"", b"\0" * 8, json.dumps({}).encode()])
def test_other_formats_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadCheckpointError, match="not a safetensors file"):
        checkpoints.read(path)


def write(folder: Path, contents: list[bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"{number}.safetensors").write_bytes(content)
    return folder


def test_all_are_there_and_nothing_else(tmp_path: Path, pack: Callable[..., bytes]) -> None:
    folder = write(tmp_path / "c", [pack({"w": np.array([float(n)])}) for n in range(3)])
    assert [found["w"].item() for found in checkpoints.read_all(folder, 3)] == [0.0, 1.0, 2.0]
    with pytest.raises(BadCheckpointError, match=r"checkpoints/3\.safetensors is missing; 4 are needed"):
        checkpoints.read_all(folder, 4)
    with pytest.raises(BadCheckpointError, match=r"checkpoints/2\.safetensors is not one of"):
        checkpoints.read_all(folder, 2)
    with pytest.raises(BadCheckpointError, match="missing"):
        checkpoints.read_all(tmp_path / "nowhere", 3)
    (folder / "1.safetensors").write_bytes(pack({"w": np.array([np.nan])}))
    with pytest.raises(BadCheckpointError, match=r"checkpoints/1\.safetensors: 'w' holds nan"):
        checkpoints.read_all(folder, 3)


@pytest.mark.parametrize(
    "same",
    [
        {"a": np.float32([1, 0]), "b": np.float32([2])},
        {"b": np.float32([2]), "a": np.float32([1, 0])},
        {"a": np.float64([1, 0]), "b": np.float64([2])},
        {"a": np.float32([1, -0.0]), "b": np.float16([2])},
        {"a": np.int8([1, 0]), "b": np.uint64([2])},
        {"a": np.array([True, False]), "b": np.int64([2])},
    ],
)
def test_identical_checkpoints_are_refused(tmp_path: Path, pack: Callable[..., bytes], same: dict[str, Any]) -> None:
    first = pack({"a": np.float32([1, 0]), "b": np.float32([2])}, __metadata__={"seed": "0"})
    folder = write(tmp_path / "c", [first, pack({"a": np.float32([1, 1]), "b": np.float32([2])}), pack(same)])
    with pytest.raises(BadCheckpointError, match=r"2\.safetensors holds the same numbers as 0\.safetensors"):
        checkpoints.read_all(folder, 3)


def test_large_integers_that_differ_are_different() -> None:
    arrays = [{"a": np.array([one])} for one in (2**53, 2**53 + 1, 2**63 - 1, np.uint64(2**64 - 1), 2.0**63)]
    marks = [checkpoints.digest(one) for one in arrays]
    assert len(set(marks)) == len(marks)
    assert marks[0] == checkpoints.digest({"a": np.array([2.0**53])})


def test_near_copies_show() -> None:
    draw = np.random.default_rng(0)
    one, other = ({"a": draw.normal(size=(40, 50)), "b": draw.normal(size=9)} for _ in range(2))
    near = {"x": one["a"] + 1e-6, "y": one["b"]}  # names do not matter, shapes do
    copy = {name: array.astype("<f4") for name, array in one.items()}
    assert checkpoints.closest([one, other]) == pytest.approx(1, abs=0.1)
    assert 1e-8 < (checkpoints.closest([one, other, near]) or 0) < 1e-5
    assert (checkpoints.closest([other, one, copy]) or 0) < 1e-6
    assert checkpoints.closest([one, {"a": one["a"]}]) is None
    huge, zero = {"a": np.array([1e300, -1e300])}, {"a": np.zeros(2)}
    assert [checkpoints.closest(pair) for pair in ([huge, zero], [zero, zero], [{"a": np.zeros((0, 2))}] * 2)] == [
        1,
        0,
        0,
    ]


def test_whatever_goes_wrong_in_reading_is_the_files_fault(
    tmp_path: Path, pack: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise MemoryError("no more")

    monkeypatch.setattr(np, "frombuffer", fail)
    with pytest.raises(BadCheckpointError, match=r"0\.safetensors: it cannot be read: MemoryError: no more"):
        checkpoints.read_all(write(tmp_path / "c", [pack({"w": np.zeros(2)})]), 1)


def test_names_fit_into_the_header_of_a_message(tmp_path: Path, pack: Callable[..., bytes]) -> None:
    path = tmp_path / "0.safetensors"
    # Quotation marks take two characters in JSON.
    names = ['"' * 116 + f"{number:04d}" for number in range(200)]
    path.write_bytes(pack({name: np.zeros((1,) * 8, "<f4") for name in names}))
    with pytest.raises(BadCheckpointError, match="shorten the names"):
        checkpoints.read(path)
    path.write_bytes(pack({name.replace('"', "x"): np.zeros((1,) * 8, "<f4") for name in names}))
    assert len(encode({"do": "begin"}, checkpoints.read(path))) == 201


@pytest.mark.parametrize("link", ["0.safetensors", "checkpoints"])
def test_links_do_not_get_so_far(tmp_path: Path, tasks: dict[str, Task], pack: Callable[..., bytes], link: str) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "policy.py").write_text("x = 1\n")
    real = write(workspace / "real", [pack({"w": np.array([float(n)])}) for n in range(5)])
    if link == "checkpoints":
        (workspace / "checkpoints").symlink_to(real)
    else:
        (workspace / "checkpoints").mkdir()
        (workspace / "checkpoints" / link).symlink_to(real / link)
    with pytest.raises(InvalidSubmissionError, match="link"):
        freeze_folder(workspace, tasks["mountain_car"].submission, tmp_path / "archives")


def test_a_random_checkpoint_keeps_everything_but_what_was_learnt() -> None:
    draw = np.random.default_rng(0)
    arrays = {
        "kernel": draw.normal(size=(64, 32)).astype("<f4"),
        "variance": draw.uniform(0.5, 2, 50),
        "steps": np.arange(20),
        "mask": draw.random(30) < 0.5,
        "empty": np.zeros((0, 3), "<f2"),
        "one": np.float32(0.7),
    }
    mixed = checkpoints.randomised(arrays, np.random.default_rng(1))
    for name, array in arrays.items():
        assert (mixed[name].dtype, mixed[name].shape) == (np.asarray(array).dtype, np.shape(array))
        assert np.array_equal(np.sort(abs(mixed[name]), None), np.sort(abs(array), None)) or array.dtype == bool
    assert mixed["mask"].sum() == arrays["mask"].sum()
    assert (mixed["variance"] > 0).all()
    for name in ("kernel", "variance", "steps", "mask"):
        assert abs(np.corrcoef(mixed[name].reshape(-1), arrays[name].reshape(-1))[0, 1]) < 0.6
        assert not np.array_equal(mixed[name], arrays[name])
    again = checkpoints.randomised(arrays, np.random.default_rng(1))
    assert all(np.array_equal(mixed[name], again[name]) for name in arrays)
    other = checkpoints.randomised(arrays, np.random.default_rng(2))
    assert not np.array_equal(mixed["kernel"], other["kernel"])
