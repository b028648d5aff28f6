"""Builds every distribution once, and makes environments that see other people's packages but none of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(
    [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("plugins/*/*/pyproject.toml")]
)


class Project:
    """One distribution's source."""

    def __init__(self, pyproject: Path) -> None:
        self.folder = pyproject.parent
        self.name: str = tomllib.loads(pyproject.read_text("utf-8"))["project"]["name"]
        self.module = self.name.replace("-", "_")

    def __repr__(self) -> str:
        return self.name

    def sources(self) -> set[str]:
        """The files of the package, and of stubs beside it, as they lie in the tree, relative to ``src``."""
        src = self.folder / "src"
        return {
            path.relative_to(src).as_posix()
            for path in src.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }


class Environment:
    """A virtual environment with nothing of ours in it until something is installed."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder, self.wheels = folder, wheels
        self.work = folder / "work"
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        self.work.mkdir()
        self._show_third_party()

    def _show_third_party(self) -> None:
        """Links to everything that is installed here but ours; a copy of the folder's .pth files would find us."""
        third = self.folder / "third-party"
        third.mkdir()
        for folder in (Path(folder) for folder in reversed(sys.path) if folder.endswith("site-packages")):
            for entry in folder.iterdir():
                if "mlgym" not in entry.name and entry.suffix != ".pth":
                    (third / entry.name).unlink(missing_ok=True)
                    (third / entry.name).symlink_to(entry)
        (site,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        (site / "third-party.pth").write_text(f"{third}\n")

    def pip(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pip on it, without any index."""
        done = self._call([sys.executable, "-m", "pip", "--isolated", "--python", str(self.python), *arguments])
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, *names: str) -> None:
        """Install our wheels by name."""
        self.pip("install", "--quiet", "--no-index", "--find-links", str(self.wheels), *names)

    def mlgym(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        return self._call([str(self.python.with_name("mlgym")), *arguments])

    def json(self, *arguments: str) -> Any:
        """Run the installed command, which must succeed, with ``--json``."""
        done = self.mlgym(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def code(self, text: str) -> str:
        """Run Python in it and return what it prints."""
        done = self._call([str(self.python), "-c", text])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _call(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PIP_"))
        }
        kept |= {"MLGYM_CACHE": str(self.folder / "cache"), "MLGYM_RUNS": str(self.work / "runs"), "COLUMNS": "200"}
        return subprocess.run(
            argv,
            cwd=self.work,
            env=kept,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=100,
            check=False,
        )


def build(source: Path, out: Path) -> None:
    """Build wheel and sdist of a project into ``out``."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist of every project of the repository."""
    out = tmp_path_factory.mktemp("dist")
    for pyproject in PROJECTS:
        build(pyproject.parent, out)
    return out


@pytest.fixture
def environment(tmp_path: Path, distributions: Path) -> Environment:
    """A fresh environment."""
    return Environment(tmp_path / "environment", distributions)


@pytest.fixture
def build_into() -> Callable[[Path, Path], None]:
    """Builds wheel and sdist of a project: ``build_into(source, out)``."""
    return build


@pytest.fixture(params=[Project(path) for path in PROJECTS], ids=repr)
def project(request: pytest.FixtureRequest) -> Project:
    """Every project of the repository in turn."""
    found: Project = request.param
    return found
