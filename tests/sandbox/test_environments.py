from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox.base import BoxSpec, PreparedImage
from mlgym_core.sandbox.local import environments
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.storage import cache_folder, remove_tree
from mlgym_core.task.task import Image, Resources


def quiet(_: str) -> None:
    pass


def wheel(folder: Path) -> Path:
    """The smallest wheel that pip installs without an index."""
    path = folder / "tinything-1.0-py3-none-any.whl"
    info = "tinything-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tinything.py", "ANSWER = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"tinything.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Image]:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"--no-index\n{wheel(folder)}\n")
    yield Image(folder=folder)
    remove_tree(tmp_path / "cache")  # read-only folders are more than pytest can remove


def test_no_requirements_is_the_interpreter_itself(tmp_path: Path) -> None:
    prepared = environments.prepare(Image(folder=tmp_path), "agent", quiet, build=False)
    assert prepared.reference == sys.base_prefix
    assert not environments.is_environment(prepared)
    assert environments.interpreter(prepared).is_file()


def test_absent_environment_is_named_with_its_remedy(image: Image) -> None:
    with pytest.raises(InfrastructureError, match=r"tinything.*mlgym run <task>.*without --no-build"):
        environments.prepare(image, "agent", quiet, build=False)


def test_environment_is_built_once_and_kept_apart_from_the_graders(image: Image) -> None:
    messages: list[str] = []
    threads, found = [], []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(environments.prepare(image, "agent", messages.append)))
        threads.append(thread)
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert sum("building" in message for message in messages) == 1
    assert environments.prepare(image, "player", quiet, build=False) == found[0]
    with pytest.raises(InfrastructureError, match="grader"):
        environments.prepare(image, "grader", quiet, build=False)
    python = environments.interpreter(found[0])
    code = "import tinything; print(tinything.ANSWER)"
    assert subprocess.run([python, "-I", "-c", code], capture_output=True, check=True).stdout == b"42\n"
    assert not any(path.stat().st_mode & 0o222 for path in Path(found[0].reference).rglob("*.py"))
    check_in_boxes(found[0])


def check_in_boxes(prepared: PreparedImage) -> None:
    for backend in {LocalBackend().isolates: LocalBackend(), False: LocalBackend(isolate=False)}.values():
        sandbox = backend.open_sandbox(BoxSpec("environment", "agent", prepared, Resources(memory_mb=512)))
        try:
            result = sandbox.run("python -c 'import tinything, sys; print(tinything.ANSWER, sys.prefix)'", 60)
            assert result.stdout.head == f"42 {prepared.reference}\n".encode(), result
        finally:
            sandbox.close()


def test_failed_build_says_why_and_leaves_nothing(image: Image) -> None:
    (image.folder / "requirements.txt").write_text("--no-index\nno-such-distribution-at-all\n")
    with pytest.raises(InfrastructureError, match="no-such-distribution-at-all"):
        environments.prepare(image, "agent", quiet)
    assert [path for path in (cache_folder() / "environments").iterdir() if path.is_dir()] == []


def test_half_built_environment_is_built_again(image: Image) -> None:
    prepared = environments.prepare(image, "agent", quiet)
    folder = Path(prepared.reference)
    folder.chmod(0o755)
    (folder / "mlgym-ready.json").unlink()
    assert environments.prepare(image, "agent", quiet) == prepared


def test_cache_that_cannot_be_written(image: Image, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="MLGYM_CACHE"):
        environments.prepare(image, "agent", quiet)
