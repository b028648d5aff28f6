"""What wheels and sdists hold, and what they must not."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CORE = {
    "mlgym_core/py.typed",
    "mlgym_core/agent/templates/task.txt",
    "mlgym_core/grading/inside/mlgym_frames.py",
    "mlgym_core/grading/inside/mlgym_peer.py",
    "mlgym_core/grading/inside/mlgym_table.py",
    "mlgym_core/sandbox/shell/inside/bash.sh",
    "mlgym_core/sandbox/local/inside/launcher.py",
    "mlgym_core/sandbox/shell/inside/supervisor.sh",
    "mlgym_peer-stubs/__init__.pyi",
    "mlgym_core/authoring/scaffold/templates/LICENSE",
    "mlgym_core/tools/inside/launch.sh",
    "mlgym_core/tools/inside/agent_tools/window.py",
    "mlgym_core/authoring/scaffold/templates/tasks/common/pyproject.toml.tmpl",
    "mlgym_core/authoring/scaffold/templates/tasks/code/src/MODULE/private/grade.py.tmpl",
}
TASK = ("__init__.py", "task.yaml", "description.md", "private/grade.py", "image/Dockerfile")
UNWANTED = ("__pycache__", ".pyc", "tests/", "conftest", ".hypothesis", ".ruff_cache", ".mypy_cache", "runs/")


def wheel_of(project: Any, distributions: Path) -> zipfile.ZipFile:
    (path,) = distributions.glob(f"{project.module}-*.whl")
    return zipfile.ZipFile(path)


def sdist_of(project: Any, distributions: Path) -> tarfile.TarFile:
    (path,) = distributions.glob(f"{project.module}-*.tar.gz")
    return tarfile.open(path)


def members(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    """The files of the package itself."""
    return {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}


def test_a_wheel_holds_the_package_and_nothing_else(project: Any, distributions: Path) -> None:
    wheel = wheel_of(project, distributions)
    found = set(members(wheel))
    assert found == project.sources()
    own = [name for name in found if not name.startswith("mlgym_core/authoring/scaffold/templates/")]
    assert not [name for name in own for bad in UNWANTED if bad in name]
    (licence,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert b"Apache License" in wheel.read(licence)
    if project.name == "mlgym-core":
        assert found >= CORE
    if project.name.startswith("mlgym-task-"):
        assert found >= {f"{project.module}/{name}" for name in TASK}
        assert any(name.startswith(f"{project.module}/public/") for name in found)


def test_a_domain_holds_none_of_its_tasks(project: Any, distributions: Path) -> None:
    for names in (wheel_of(project, distributions).namelist(), sdist_of(project, distributions).getnames()):
        modules = {part for name in names for part in name.split("/") if part.startswith("mlgym_") and "-" not in part}
        modules = {name for name in modules if not name.endswith(".py") and not name.endswith(".pth")}
        assert modules == {project.module}


def test_an_sdist_holds_the_sources_and_their_licence(project: Any, distributions: Path) -> None:
    with sdist_of(project, distributions) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        found = {name.removeprefix("src/") for name in names if name.startswith("src/")}
    assert found == project.sources()
    assert names - {f"src/{name}" for name in found} - {".gitignore"} == {
        "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"
    }  # fmt: skip


def test_an_sdist_makes_the_same_wheel(project: Any, distributions: Path, build_into: Any, tmp_path: Path) -> None:
    with sdist_of(project, distributions) as sdist:
        sdist.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    build_into(source, tmp_path / "out")
    (again,) = (tmp_path / "out").glob("*.whl")
    assert members(zipfile.ZipFile(again)) == members(wheel_of(project, distributions))


def test_metadata_says_what_is_needed_and_where_tasks_are(project: Any, distributions: Path) -> None:
    wheel = wheel_of(project, distributions)
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(path).decode())
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Summary"]
    needs = [text for text in metadata.get_all("Requires-Dist", []) if text.startswith("mlgym-core")]
    assert bool(needs) == (project.name != "mlgym-core")
    assert all("<1" in text and ">=" in text for text in needs)
    points = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    announced = b"".join(wheel.read(name) for name in points)
    assert (b"[mlgym.tasks]" in announced) == project.name.startswith("mlgym-task-")
