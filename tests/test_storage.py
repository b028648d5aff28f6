"""Folders of our own: where they are, what is built once, what a dead builder leaves, what is removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgym_core import storage
from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.storage import remove_tree

#: Builds ``folder`` in a process of its own, which a named pipe holds up in the middle.
BUILDER = """
import sys
from pathlib import Path
from mlgym_core import storage
folder, gate, movable = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "movable"

def find():
    return (folder / "whole").read_text() if (folder / "whole").exists() else None

def build(place):
    place.mkdir()
    (place / "half").touch()
    print("half", flush=True)
    gate.read_text()
    (place / "whole").write_text(sys.argv[4])

def waiting():
    print("waiting", flush=True)

print(storage.build_once(folder, find, build, waiting=waiting, movable=movable))
"""


class Builders:
    def __init__(self, folder: Path) -> None:
        self.gate, self.folder = folder / "gate", folder / "cache" / "built.v1"
        os.mkfifo(self.gate)
        self.running: list[subprocess.Popen[str]] = []

    def start(self, until: str, kind: str, text: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILDER, str(self.folder), str(self.gate), kind, text]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == f"{until}\n"
        return child

    def find(self) -> str | None:
        whole = self.folder / "whole"
        return whole.read_text() if whole.exists() else None


@pytest.fixture
def builders(tmp_path: Path) -> Iterator[Builders]:
    found = Builders(tmp_path)
    yield found
    for child in found.running:
        child.kill()
        child.communicate()


def build(place: Path) -> None:
    place.mkdir()
    (place / "whole").write_text("by the test")


@pytest.mark.parametrize("kind", ["movable", "in place"])
def test_of_two_processes_one_builds_and_the_other_takes_what_it_finds(kind: str, builders: Builders) -> None:
    first = builders.start("half", kind, "by the first")
    second = builders.start("waiting", kind, "by the second")
    assert builders.find() is None
    builders.gate.write_text("go")
    assert [child.communicate(timeout=60)[0] for child in (first, second)] == ["by the first\n"] * 2


@pytest.mark.parametrize("kind", ["movable", "in place"])
def test_what_a_killed_builder_left_is_built_anew(kind: str, builders: Builders) -> None:
    child = builders.start("half", kind, "never")
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    waited: list[str] = []
    found = storage.build_once(
        builders.folder, builders.find, build, waiting=lambda: waited.append("waiting"), movable=kind == "movable"
    )
    assert (found, waited) == ("by the test", [])
    assert [path.name for path in builders.folder.iterdir()] == ["whole"]
    assert storage.names(builders.folder.parent) == ["built.v1"]
    assert [path.name for path in builders.folder.parent.iterdir() if path.is_dir()] == ["built.v1"]


@pytest.mark.parametrize("movable", [True, False])
@pytest.mark.parametrize(
    ("error", "raised"), [(KeyError("a"), KeyError), (OSError("disk"), InfrastructureError), (SystemExit(), SystemExit)]
)
def test_a_failure_leaves_no_folder(
    error: BaseException, raised: type[BaseException], movable: bool, tmp_path: Path
) -> None:
    def fail(place: Path) -> None:
        build(place)
        raise error

    with pytest.raises(raised):
        storage.build_once(tmp_path / "it", lambda: None, fail, movable=movable)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_is_not_found_after_its_build_is_said(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="was changed while it was made; try again"):
        storage.build_once(tmp_path / "it", lambda: None, build)


def test_threads_are_kept_apart_as_processes_are(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def work() -> None:
        with storage.locked(tmp_path / "it"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            threading.Event().wait(0.02)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_whoever_waits_for_a_lock_that_is_removed_still_waits_for_the_next(builders: Builders) -> None:
    builders.folder.parent.mkdir()
    with storage.locked(builders.folder):
        second = builders.start("waiting", "movable", "by the second")
        storage.forget(builders.folder)
        assert second.stdout is not None
    assert second.stdout.readline() == "half\n"
    waited: list[str] = []
    opener = threading.Thread(target=builders.gate.write_text, args=("go",))

    def waiting() -> None:
        waited.append("waiting")
        opener.start()

    assert storage.build_once(builders.folder, builders.find, build, waiting=waiting) == "by the second"
    opener.join()
    assert waited == ["waiting"]


def test_the_lock_lies_beside_the_folder_that_boxes_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    folder.mkdir()
    with storage.locked(folder):
        assert list(folder.iterdir()) == []
    storage.forget(folder)
    assert list(tmp_path.iterdir()) == []


# Where they are


def test_the_platforms_places_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLGYM_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "linux":
        assert storage.cache_folder() == tmp_path / ".cache" / "mlgym"
        assert storage.state_folder() == tmp_path / ".local" / "state" / "mlgym"
    assert storage.cache_folder().is_relative_to(tmp_path)
    assert storage.state_folder().is_relative_to(tmp_path)


HOMELESS = 54321


def mlgym_without_home(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user that nobody knows, without ``HOME``."""
    stranger = ["unshare", "--user", f"--map-user={HOMELESS}"]
    if shutil.which("unshare") is None or subprocess.call([*stranger, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("becoming a user that nobody knows needs a user namespace")
    return subprocess.run(
        [*stranger, sys.executable, "-m", "mlgym_core", *arguments],
        env={"PATH": os.environ["PATH"], **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("command", [("data", "list"), ("data", "prepare", "house-price", "--size", "tiny")])
def test_without_a_home_folder_one_sentence_says_what_to_set(command: tuple[str, ...]) -> None:
    done = mlgym_without_home(*command)
    assert done.returncode == 2
    why = f"HOME is not set and user {HOMELESS} is not known here"
    assert done.stderr.splitlines() == [f"mlgym: there is no home folder: {why}; set HOME or MLGYM_CACHE"]


def test_without_a_home_folder_what_needs_none_goes_on(tmp_path: Path) -> None:
    assert mlgym_without_home("data", "list", MLGYM_CACHE=str(tmp_path / "absent")).returncode == 0
    assert mlgym_without_home("tasks").returncode == 0
    refused = mlgym_without_home("run", "battle-of-sexes", "--backend", "docker:/nowhere.sock")
    assert (refused.returncode, "Traceback" in refused.stderr) == (3, False)


@pytest.mark.parametrize("path", ["~no-such-user-here/x", "~no-such-user-here"])
def test_the_home_folder_of_nobody_is_said_to_be_none(path: str) -> None:
    with pytest.raises(UsageError, match="there is no such home folder; write the path without ~"):
        storage.expanded(path)


# Removing


def nest(folder: Path, depth: int) -> None:
    """Folders within folders, deeper than Python's recursion and than any path may be long."""
    parent = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)


def test_hostile_trees_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "locked" / "deeper").mkdir(parents=True)
    (folder / "locked" / "deeper" / "file").write_text("x")
    (folder / "locked").chmod(0)
    (tmp_path / "outside").write_text("kept")
    (folder / "link").symlink_to(tmp_path / "outside")
    nest(folder, 1200)
    remove_tree(folder)
    assert not folder.exists()
    assert (tmp_path / "outside").read_text() == "kept"
