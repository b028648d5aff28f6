from __future__ import annotations

import os
import shutil
import socket
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlgym_core.authoring.testing.boxes import listed
from mlgym_core.errors import ExportError, InfrastructureError, UsageError
from mlgym_core.sandbox.base import Mount
from mlgym_core.sandbox.local import workspace


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../../b", "a\0b"])
def test_paths_stay_inside(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError):
        workspace.export(tmp_path, [path])


names = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(files=st.dictionaries(names, st.binary(max_size=2000), max_size=5))
def test_files_come_out_byte_for_byte(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("w")
    (folder / "out").mkdir()
    for name, data in files.items():
        (folder / "out" / name).write_bytes(data)
    members = listed(workspace.export(folder, ["out"]))
    assert {name.removeprefix("out/"): data for name, (member, data) in members.items() if member.isreg()} == files


def test_names_that_are_not_text(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")).write_bytes(b"x")
    assert list(listed(workspace.export(tmp_path, ["."]))) == ["bad\udcff"]


def test_everything_is_shown_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("outside")
    inside = tmp_path / "w"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "folder-link").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(inside)
        server.bind("socket")
    members = listed(workspace.export(inside, ["link", "folder-link/secret", "folder-link", "pipe", "socket", "none"]))
    assert {name: member.type for name, (member, _) in members.items()} == {
        "link": tarfile.SYMTYPE,
        "folder-link": tarfile.SYMTYPE,
        "pipe": tarfile.FIFOTYPE,
        "socket": tarfile.FIFOTYPE,
    }


def test_swapping_files_for_links_leaks_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    inside = tmp_path / "w"
    (inside / "d").mkdir(parents=True)
    (inside / "spare").write_text("harmless")
    stop = threading.Event()

    def swap() -> None:
        link, folder = inside / "l", inside / "d"
        while not stop.is_set():
            for step in (
                lambda: link.symlink_to(secret),
                lambda: link.replace(folder / "f"),
                lambda: os.link(inside / "spare", inside / "n"),
                lambda: (inside / "n").replace(folder / "f"),
                lambda: folder.rename(inside / "away"),
                lambda: folder.symlink_to(tmp_path),
                folder.unlink,
                lambda: (inside / "away").rename(folder),
            ):
                step()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            for _, data in listed(workspace.export(inside, ["d", "d/f", "d/secret"])).values():
                assert data in (b"", b"harmless")
    finally:
        stop.set()
        thread.join()


def test_a_file_that_shrinks_keeps_the_stream_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * (3 << 20))
    (tmp_path / "b").write_bytes(b"b")
    stream = workspace.export(tmp_path, ["a", "b"])
    stream.read(1024)
    os.truncate(tmp_path / "a", 5)
    rest = stream.read()
    assert len(rest) % tarfile.BLOCKSIZE == 0
    assert b"b" in rest[-4 * tarfile.BLOCKSIZE :]


def test_a_huge_sparse_file_costs_nothing_until_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with tarfile.open(fileobj=workspace.export(tmp_path, ["huge"]), mode="r|") as archive:
        member = archive.next()
        assert member is not None
        assert member.size == 1 << 40


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    for _ in range(70):
        folder = folder / "d"
    folder.mkdir(parents=True)
    with pytest.raises(ExportError, match="nested"):
        workspace.export(tmp_path, ["d"]).read()


def test_filling(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    data = tmp_path / "data"
    data.mkdir()
    folder = tmp_path / "w"
    workspace.fill(folder, {"bin/tool": tool, "plain": Path(__file__)}, [Mount(data, "data/train")], None, link=False)
    assert (folder / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (folder / "plain").stat().st_mode & 0o777 == 0o644
    assert list((folder / "data/train").iterdir()) == []


def test_filling_reports_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="nowhere"):
        workspace.fill(tmp_path / "w", {"file": tmp_path / "nowhere"}, [], None, link=False)


@pytest.mark.parametrize("trick", ["link", "parent-link", "gone"])
def test_places_of_mounts_are_checked(tmp_path: Path, trick: str) -> None:
    mounts = [Mount(tmp_path, "data/train")]
    workspace.fill(tmp_path / "w", {}, mounts, None, link=False)
    assert workspace.places_intact(tmp_path / "w", mounts)
    (tmp_path / "w/data/train").rmdir()
    if trick == "link":
        (tmp_path / "w/data/train").symlink_to("/etc")
    if trick == "parent-link":
        (tmp_path / "w/data").rmdir()
        (tmp_path / "w/data").symlink_to(tmp_path)
        (tmp_path / "train").mkdir()
    assert not workspace.places_intact(tmp_path / "w", mounts)


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder of an ordinary user, who this process is for the time being."""
    user = os.geteuid() or 61234
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, user, -1)
        before = os.geteuid()
        os.seteuid(user)
        try:
            yield Path(folder)
        finally:
            os.seteuid(before)


def test_a_workspace_that_its_owner_has_shut_is_opened(ordinary_user: Path) -> None:
    (ordinary_user / "file").write_text("kept")
    ordinary_user.chmod(0)
    assert listed(workspace.export(ordinary_user, ["file"]))["file"][1] == b"kept"


def test_a_workspace_below_a_shut_folder_is_an_export_error(ordinary_user: Path) -> None:
    (ordinary_user / "workspace").mkdir()
    ordinary_user.chmod(0)
    try:
        with pytest.raises(ExportError, match="cannot be read"):
            workspace.export(ordinary_user / "workspace", ["."]).read()
    finally:
        ordinary_user.chmod(0o700)


@pytest.mark.parametrize("instead", ["nothing", "file", "link"])
def test_a_workspace_that_is_gone_is_empty(tmp_path: Path, instead: str) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "file").touch()
    shutil.rmtree(folder)
    if instead == "file":
        folder.touch()
    elif instead == "link":
        folder.symlink_to("/etc")
    assert listed(workspace.export(folder, ["file", ".", "passwd"])) == {}
