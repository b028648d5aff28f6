from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox.base import BoxSpec
from mlgym_core.sandbox.local import cgroups, scratch
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.sandbox.local.environments import base_image
from mlgym_core.task.task import Resources


def disown(folder: Path, **changes: str) -> None:
    path = folder / "owner.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": "1"} | changes))


def test_folders_are_private_and_named_for_their_run(private_scratch: Path) -> None:
    folder = scratch.create("../run 1/\u00e9", "agent")
    assert folder.parent == private_scratch / f"mlgym-{os.geteuid()}"
    assert folder.name.startswith("run-1-agent-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert scratch.create("x" * 500, "agent").is_dir()


def test_only_dead_owners_lose_their_folders(private_scratch: Path) -> None:
    mine, dead, elsewhere, kept = (scratch.create(name, "agent") for name in ("mine", "dead", "elsewhere", "kept"))
    disown(dead)
    disown(elsewhere, machine="another")
    scratch.keep(kept)
    (mine.parent / "not a box").write_text("x")
    (mine.parent / "fresh and unsigned").mkdir()
    backend = LocalBackend(isolate=False)
    assert backend.reap() == [str(dead)]
    assert backend.reap() == []
    assert mine.is_dir()
    assert elsewhere.is_dir()
    assert kept.is_dir()


def test_kept_folders_go_after_their_time(private_scratch: Path) -> None:
    folder = scratch.create("kept", "agent")
    scratch.keep(folder)
    disown(folder, expires="1")
    assert LocalBackend(isolate=False).reap() == [str(folder)]


def test_a_root_of_someone_else_is_refused(private_scratch: Path) -> None:
    (private_scratch / f"mlgym-{os.geteuid()}").symlink_to("/tmp")
    with pytest.raises(InfrastructureError, match="MLGYM_SCRATCH"):
        scratch.create("run", "agent")


def test_keeping_a_sandbox_keeps_its_files_and_nothing_else(private_scratch: Path) -> None:
    backend = LocalBackend()
    sandbox = backend.open_sandbox(BoxSpec("kept", "agent", base_image(), Resources(memory_mb=512)))
    sandbox.run("echo mine > file; sleep 600 &", 30)
    hint = sandbox.enter_hint()
    sandbox.close(keep=True)
    assert (Path(hint.removeprefix("cd ").strip("'")) / "file").read_text() == "mine\n"
    assert backend.reap() == []
    (folder,) = scratch.root().iterdir()
    assert not any(cgroups.leftover(folder.name).folders)


def test_closing_leaves_no_folder(private_scratch: Path) -> None:
    sandbox = LocalBackend().open_sandbox(BoxSpec("closed", "agent", base_image(), Resources(memory_mb=512)))
    (folder,) = scratch.root().iterdir()
    sandbox.close()
    assert not folder.exists()
    assert not any(cgroups.leftover(folder.name).folders)


def test_a_sandbox_that_does_not_open_leaves_no_folder(private_scratch: Path, tmp_path: Path) -> None:
    spec = BoxSpec("broken", "agent", base_image(), Resources(memory_mb=512), files={"file": tmp_path / "missing"})
    with pytest.raises(InfrastructureError):
        LocalBackend().open_sandbox(spec)
    assert list(scratch.root().iterdir()) == []
