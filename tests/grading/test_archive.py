"""Freezing submissions: what is taken, what is refused and why, and that equal content is kept once."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.errors import InvalidSubmissionError, RecordError
from mlgym_core.grading import tarstream
from mlgym_core.grading.archive import freeze, freeze_folder, open_archive
from mlgym_core.task.task import Submission

Entry = tuple[tarfile.TarInfo, bytes]
ONE = Submission("code", ("strategy.py",), "player.py", max_bytes=10_000, max_files=4)
MANY = Submission("code", ("strategy.py", "weights"), "player.py", max_bytes=10_000, max_files=4)


def member(
    name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return io.BytesIO(stream.getvalue())


def refused(stream: io.BytesIO, store: Path, submission: Submission = ONE) -> str:
    with pytest.raises(InvalidSubmissionError) as caught:
        freeze(stream, submission, store)
    assert [path for path in store.iterdir() if path.suffix == ".tar" or path.is_dir()] == []
    return str(caught.value)


def test_a_submission_is_kept_by_content(tmp_path: Path) -> None:
    first = freeze(tar(member("strategy.py", b"a = 1\n", mtime=5, uid=7, uname="me", mode=0o777)), ONE, tmp_path)
    second = freeze(tar(member("./strategy.py", b"a = 1\n", mtime=9)), ONE, tmp_path)
    assert first == second == open_archive(first.path)
    assert (first.files, first.bytes, first.path) == (("strategy.py",), 6, tmp_path / f"{first.digest}.tar")
    assert list(tmp_path.iterdir()) == [first.path]
    with tarfile.open(first.path) as archive:
        (info,) = archive.getmembers()
    assert (info.mtime, info.uid, info.gid, info.uname, info.mode) == (0, 0, 0, "", 0o644)


def test_the_order_and_format_of_the_stream_do_not_matter(tmp_path: Path) -> None:
    files = [member("weights/" + "n" * 120, b"1"), member("strategy.py", b"2"), member("weights/é.bin", b"3")]
    folder = member("weights/", kind=tarfile.DIRTYPE)
    digests = {
        freeze(stream, MANY, tmp_path).digest
        for stream in (
            tar(*files),
            tar(*files[::-1], form=tarfile.GNU_FORMAT),
            tar(member("./", kind=tarfile.DIRTYPE), folder, *files),
        )
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            member("strategy.py", kind=tarfile.SYMTYPE, linkname="/etc/passwd"),
            "strategy.py is a symbolic link; submit a regular file",
        ),
        (member("strategy.py", kind=tarfile.LNKTYPE, linkname="x"), "strategy.py is a hard link"),
        (member("strategy.py", kind=tarfile.FIFOTYPE), "strategy.py is a named pipe"),
        (member("strategy.py", kind=tarfile.CHRTYPE), "strategy.py is a device"),
        (member("strategy.py", kind=tarfile.BLKTYPE), "strategy.py is a device"),
        (member("strategy.py", kind=tarfile.GNUTYPE_SPARSE), "strategy.py is a sparse file"),
        (member("strategy.py", kind=b"Z"), "strategy.py is a special file"),
        (member("strategy.py", kind=tarfile.DIRTYPE), "strategy.py is a folder; submit a regular file"),
        (member("strategy.py/x"), "strategy.py is a folder; submit a regular file"),
        (member("/strategy.py"), "absolute path"),
        (member("../strategy.py"), "leads out of the workspace"),
        (member("a/../strategy.py"), "leads out of the workspace"),
        (member("other.py"), "other.py is not part of the submission; submit only strategy.py"),
        (member("strategy.pyc"), "not part of the submission"),
        (member("other", kind=tarfile.DIRTYPE), "not part of the submission"),
        (member("strategy.py", b""), "strategy.py is empty"),
        (member("strategy.py", b"x" * 10_001), "larger than 10000 bytes"),
        (member("strat\negy.py"), "unprintable"),
        (member("weights/" + "n" * 256), "too long"),
        (member("weights/" + "n/" * 600), "too long"),
        (member("weights/\udcff"), "not UTF-8"),
    ],
)
def test_hostile_entries_are_refused_with_the_reason(
    tmp_path: Path, entry: tuple[tarfile.TarInfo, bytes], reason: str
) -> None:
    assert reason in refused(tar(entry, form=tarfile.GNU_FORMAT), tmp_path, ONE)


def test_sparse_maps_in_extensions_are_refused(tmp_path: Path) -> None:
    entry = member("strategy.py", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999999"})
    assert "sparse file" in refused(tar(entry), tmp_path)


def test_duplicates_are_refused(tmp_path: Path) -> None:
    assert "occurs twice" in refused(tar(member("strategy.py"), member("./strategy.py")), tmp_path)
    clash = [member("strategy.py"), member("weights/a"), member("weights/a/b")]
    assert "weights/a/b occurs twice" in refused(tar(*clash), tmp_path, MANY)
    clash = [member("strategy.py"), member("weights/a/b"), member("weights/a")]
    assert "weights/a occurs twice" in refused(tar(*clash), tmp_path, MANY)


def test_the_number_of_entries_is_limited(tmp_path: Path) -> None:
    files = [member("strategy.py"), *(member(f"weights/{i}") for i in range(3))]
    assert len(freeze(tar(*files), MANY, tmp_path / "a").files) == 4
    assert "more than 4 files" in refused(tar(*files, member("weights/4")), tmp_path / "b", MANY)
    folders = [member(f"weights/f{i}", kind=tarfile.DIRTYPE) for i in range(5)]
    assert "more than 4 files or folders" in refused(tar(*files, *folders), tmp_path / "b", MANY)


def test_the_total_size_is_limited_and_exact(tmp_path: Path) -> None:
    fits = [member("strategy.py", b"x" * 4_000), member("weights/a", b"x" * 6_000)]
    assert freeze(tar(*fits), MANY, tmp_path / "a").bytes == 10_000
    assert "larger than 10000" in refused(tar(*fits, member("weights/b", b"x")), tmp_path / "b", MANY)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    assert "strategy.py is missing" in refused(tar(), tmp_path)
    assert "strategy.py is missing" in refused(io.BytesIO(b""), tmp_path)
    assert "weights is missing" in refused(tar(member("strategy.py")), tmp_path, MANY)
    folder = member("weights", kind=tarfile.DIRTYPE)
    assert "weights is an empty folder" in refused(tar(member("strategy.py"), folder), tmp_path, MANY)


class Endless(io.RawIOBase):
    """A member that promises 8 EiB and goes on for ever; counts what is read."""

    def __init__(self, start: bytes) -> None:
        self.start, self.taken = start, 0

    def read(self, size: int = -1) -> bytes:
        self.taken += size
        piece, self.start = self.start[:size], self.start[size:]
        return piece or b"\0" * size


@pytest.mark.parametrize("name", ["strategy.py", "n" * 300], ids=["as content", "as a name"])
def test_a_promise_of_endless_content_is_refused_unread(tmp_path: Path, name: str) -> None:
    info = tarfile.TarInfo("strategy.py")
    info.size = 2**63 - 1
    if len(name) > 100:
        info.type = tarfile.GNUTYPE_LONGNAME
    stream = Endless(info.tobuf(tarfile.GNU_FORMAT))
    with pytest.raises(InvalidSubmissionError):
        freeze(stream, ONE, tmp_path)  # type: ignore[arg-type]
    assert stream.taken < 100_000


def test_a_header_that_promises_too_little_is_refused(tmp_path: Path) -> None:
    whole = bytearray(tar(member("strategy.py", b"y" * 2_000)).getvalue())
    info = tarfile.TarInfo("strategy.py")
    info.size = 10
    whole[:512] = info.tobuf()
    assert "could not be read" in refused(io.BytesIO(bytes(whole)), tmp_path)


@pytest.mark.parametrize("place", [108, 150, 263, 400])
def test_a_damaged_header_is_refused(tmp_path: Path, place: int) -> None:
    whole = bytearray(tar(member("strategy.py")).getvalue())
    whole[place] ^= 1
    assert "could not be read" in refused(io.BytesIO(bytes(whole)), tmp_path)


def test_a_truncated_stream_is_refused(tmp_path: Path) -> None:
    whole = tar(member("strategy.py", b"y" * 2_000)).getvalue()
    assert "cut short" in refused(io.BytesIO(whole[:1_000]), tmp_path)


@given(st.data())
def test_damage_is_either_harmless_or_refused(data: st.DataObject) -> None:
    whole = bytearray(tar(member("strategy.py", b"y" * 600), member("weights/a", b"z")).getvalue()[:4096])
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as store:
        try:
            archive = freeze(io.BytesIO(bytes(whole)), MANY, Path(store))
        except InvalidSubmissionError:
            return
        assert set(archive.files) == {"strategy.py", "weights/a"}


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and name not in (".", "..")
)


@given(
    st.dictionaries(names, st.binary(max_size=1500), min_size=1, max_size=4),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_content_survives_the_round_trip(files: dict[str, bytes], form: int) -> None:
    submission = Submission("model", ("out/",), "player.py")
    with tempfile.TemporaryDirectory() as store:
        archive = freeze(
            tar(*(member(f"out/{name}", data) for name, data in files.items()), form=form), submission, Path(store)
        )
        with tarfile.open(archive.path) as frozen:
            read = {info.name: frozen.extractfile(info).read() for info in frozen}  # type: ignore[union-attr]
        assert read == {f"out/{name}": data for name, data in files.items()}
        assert open_archive(archive.path) == archive


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
    | st.lists(st.sampled_from(["..", ".", "", "strategy.py", "/", "a"]), min_size=1).map("/".join)
)
def test_no_name_escapes(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        try:
            archive = freeze(tar(member(name)), ONE, store)
        except InvalidSubmissionError:
            pass
        else:
            assert archive.files == ("strategy.py",)
        assert [path.name for path in Path(folder).iterdir()] == ["store"]


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_only_ever_raise_the_archive_error(data: bytes) -> None:
    try:
        for one in tarstream.members(io.BytesIO(data)):
            assert one.size >= 0
    except tarstream.DamagedArchiveError:
        pass


def test_a_folder_is_frozen_by_the_same_rules(tmp_path: Path) -> None:
    work, store = tmp_path / "work", tmp_path / "store"
    (work / "weights").mkdir(parents=True)
    (work / "strategy.py").write_text("a = 1\n")
    (work / "weights" / "w.bin").write_bytes(b"1")
    (work / "notes.txt").write_text("not declared")
    archive = freeze_folder(work, MANY, store)
    assert archive.files == ("strategy.py", "weights/w.bin")
    assert archive == freeze(tar(member("weights/w.bin", b"1"), member("strategy.py", b"a = 1\n")), MANY, store)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link"),
        (lambda path: path.symlink_to("nowhere"), "is a symbolic link"),
        (lambda path: path.mkdir(), "is a folder"),
        (os.mkfifo, "is a named pipe"),
        (lambda path: path.write_bytes(b"x" * 10_001), "larger than 10000"),
        (lambda path: None, "is missing"),
    ],
)
def test_hostile_folders_are_refused(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    (tmp_path / "work").mkdir()
    make(tmp_path / "work" / "strategy.py")
    with pytest.raises(InvalidSubmissionError, match=reason):
        freeze_folder(tmp_path / "work", ONE, tmp_path / "store")


def test_an_archive_that_was_changed_is_not_opened(tmp_path: Path) -> None:
    archive = freeze(tar(member("strategy.py")), ONE, tmp_path)
    archive.path.write_bytes(archive.path.read_bytes() + b"\0")
    with pytest.raises(RecordError, match="has been changed"):
        open_archive(archive.path)
    with pytest.raises(RecordError, match="cannot open"):
        open_archive(tmp_path / "nothing.tar")


def test_a_store_that_cannot_be_written_is_not_the_agents_fault(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(RecordError):
        freeze(tar(member("strategy.py")), ONE, tmp_path / "store")
