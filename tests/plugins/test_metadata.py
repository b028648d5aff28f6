"""One damaged package never stops a command, and is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = b"Metadata-Version: 2.1\nName: unrelated\nVersion: 1.0\n"
DAMAGES = {
    "a line without =": (b"[console_scripts]\nno equals sign here\n", GOOD),
    "bytes that are no UTF-8": (b"[console_scripts]\nx\xff = a:b\n", GOOD),
    "metadata that is no UTF-8": (b"[mlgym.tasks]\nodd = odd\n", b"Name: \xff\xfe\nVersion: 1\n"),
    "no metadata": (b"[mlgym.tasks]\nodd = odd\n", None),
    "empty metadata": (b"[mlgym.tasks]\nodd = odd\n", b""),
    "no version": (b"[mlgym]\nodd = odd\n", b"Name: odd\n"),
    "a module that is none": (b"[mlgym.tasks]\nodd = !!:??\n", GOOD),
    "no module": (b"[mlgym.tasks]\nodd =\n", GOOD),
}


def mlgym(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "mlgym_core", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(params=DAMAGES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    points, metadata = DAMAGES[request.param]
    folder = tmp_path / "odd-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_bytes(points)
    if metadata is not None:
        (folder / "METADATA").write_bytes(metadata)
    return tmp_path


def test_the_other_tasks_are_listed_and_one_line_names_the_folder(path: Path) -> None:
    done = mlgym(path, "tasks", "--json")
    assert done.returncode == 0, done.stderr
    assert {"battle-of-sexes", "blotto"} <= {task["id"] for task in json.loads(done.stdout)}
    assert done.stderr.count(str(path / "odd-1.0.dist-info")) == 1
    assert "Traceback" not in done.stderr


def test_it_is_listed_as_broken_with_the_reason(path: Path) -> None:
    done = mlgym(path, "plugins", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = (row for row in json.loads(done.stdout) if row["kind"] == "package")
    assert (row["name"], row["version"], row["module"]) == ("odd", "1.0", str(path / "odd-1.0.dist-info"))
    assert row["broken"]


def test_asking_for_its_task_is_a_plain_error(path: Path) -> None:
    done = mlgym(path, "tasks", "show", "odd")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "None" not in done.stderr
