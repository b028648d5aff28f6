"""The local backend's images: the interpreter itself, or a cached virtual environment with a task's requirements."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mlgym_core import storage
from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox.base import PreparedImage, Progress, Role
from mlgym_core.sandbox.local.bubblewrap import base_python
from mlgym_core.task.task import Image

_READY = "mlgym-ready.json"
_BUILD_SECONDS = 3 * 3600


def base_image() -> PreparedImage:
    """The interpreter that runs MLGym, without anything installed for it."""
    prefix = str(Path(sys.base_prefix))
    digest = hashlib.sha256(f"{sys.version} {platform.machine()}".encode()).hexdigest()
    return PreparedImage(prefix, f"python-{platform.python_version()}-{digest[:16]}")


def is_environment(image: PreparedImage) -> bool:
    """Whether the image is a virtual environment rather than the base interpreter."""
    return (Path(image.reference) / "pyvenv.cfg").is_file()


def interpreter(image: PreparedImage) -> Path:
    """The Python program of an image; its path is the same inside a box."""
    return Path(image.reference) / "bin" / "python" if is_environment(image) else base_python()


def prepare(image: Image, role: Role, progress: Progress, build: bool = True) -> PreparedImage:
    """Return the environment of a task for a role, building it when it is not in the cache.

    Agent and player share one environment; the grader has its own.

    Raises:
        InfrastructureError: it is absent and ``build`` is false, or the build failed.
    """
    lines = image.requirement_lines()
    if not lines:
        return base_image()
    key = _key(lines, role)
    folder = storage.cache_folder() / "environments" / key
    ready = _ready(folder)
    if ready is not None:
        return ready
    if not build:
        raise InfrastructureError(
            f"the {_kind(role)} environment {key} ({', '.join(lines[:4])}{', ...' if len(lines) > 4 else ''}) "
            "is not built yet; build it with `mlgym run <task>` without --no-build"
        )

    def build_in(place: Path) -> None:
        _build(place, image, role, progress)

    return storage.build_once(folder, lambda: _ready(folder), build_in, movable=False)


def _kind(role: Role) -> str:
    return "grader" if role == "grader" else "agent"


def _key(lines: Sequence[str], role: Role) -> str:
    base = (sys.base_prefix, platform.python_version(), platform.machine())
    text = json.dumps([list(lines), list(base), _kind(role)])
    return f"{_kind(role)}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def _ready(folder: Path) -> PreparedImage | None:
    try:
        return PreparedImage(str(folder), json.loads((folder / _READY).read_text("utf-8"))["digest"])
    except (OSError, ValueError, KeyError):
        return None


def _build(folder: Path, image: Image, role: Role, progress: Progress) -> None:
    """Build in place, for an environment cannot be moved; the ready file, written last, makes it count."""
    progress(f"building the {_kind(role)} environment {folder.name} (once; kept in the cache)")
    has_pip = importlib.util.find_spec("ensurepip") is not None
    python = str(folder / "bin" / "python")
    _call([str(base_python()), "-m", "venv", *([] if has_pip else ["--without-pip"]), str(folder)], image.folder)
    pip = [python, "-I", "-m", "pip"] if has_pip else [sys.executable, "-m", "pip", "--python", python]
    progress(f"installing {', '.join(image.requirement_lines())}")
    options = ["install", "--quiet", "--no-input", "--disable-pip-version-check"]
    _call([*pip, *options, "-r", image.requirements], image.folder)
    frozen = _call([*pip, "--disable-pip-version-check", "freeze", "--all"], image.folder)
    digest = hashlib.sha256(f"{platform.python_version()}\n{frozen}".encode()).hexdigest()
    ready = json.dumps({"digest": digest, "packages": frozen.split()})
    storage.write_atomically(folder / _READY, ready.encode())
    _make_read_only(folder)
    progress(f"the {_kind(role)} environment is ready")


def _call(argv: Sequence[str], folder: Path) -> str:
    # Variables of the caller's own environment (PYTHONPATH, an activated environment) must not leak into the build.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    try:
        done = subprocess.run(
            argv,
            check=False,
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            umask=0o022,  # boxes read it as another user
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"the environment could not be built: {error}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise InfrastructureError(f"the environment could not be built: {' '.join(argv[:5])} ... failed:\n{tail}")
    return done.stdout


def _make_read_only(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            readable = mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0)
            path.chmod(readable & ~0o222)
