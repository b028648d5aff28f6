"""Scratch folders of boxes on this machine: private to the user, marked with their owner, reaped when it is dead."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mlgym_core import settings
from mlgym_core.errors import InfrastructureError
from mlgym_core.sandbox.owner import Owner
from mlgym_core.storage import remove_tree

_SHARED_MEMORY = Path("/dev/shm")
_OWNER = "owner.json"
_UNMARKED_SECONDS = 3600.0
_KEPT_SECONDS = 7 * 24 * 3600.0


def root() -> Path:
    """This user's folder for boxes: below ``MLGYM_SCRATCH``, else below the system's temporary folder.

    Raises:
        InfrastructureError: it cannot be made, or belongs to someone else.
    """
    base = settings.SCRATCH.value() or Path(tempfile.gettempdir())
    folder = base / f"mlgym-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InfrastructureError(f"no scratch folder: {error}; set MLGYM_SCRATCH to a folder you can write") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InfrastructureError(
            f"{folder} is not a folder of yours; remove it, or set MLGYM_SCRATCH to another place"
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def create(run_id: str, role: str) -> Path:
    """A new folder, mode 0700, marked as owned by this process."""
    safe = re.sub(r"[^A-Za-z0-9_.]+", "-", run_id).strip("-.")[:60] or "run"
    folder = root() / f"{safe}-{role}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700)
        (folder / _OWNER).write_text(json.dumps(Owner.current().to_dict()), "utf-8")
    except OSError as error:
        raise InfrastructureError(f"no scratch folder: {error}; set MLGYM_SCRATCH to a folder with room") from error
    return folder


def keep(folder: Path) -> None:
    """Mark a folder as kept for debugging; it is reaped after a week."""
    expiry = {"expires": str(time.time() + _KEPT_SECONDS)}
    (folder / _OWNER).write_text(json.dumps(Owner.current().to_dict() | expiry), "utf-8")


def leftovers() -> Iterator[Path]:
    """Folders whose owner is certainly dead, or whose time is over."""
    for folder in sorted(root().iterdir()):
        if folder.is_dir() and not folder.is_symlink() and _is_leftover(folder):
            yield folder


def _is_leftover(folder: Path) -> bool:
    try:
        fields = json.loads((folder / _OWNER).read_text("utf-8"))
        if "expires" in fields:
            return time.time() > float(fields["expires"])
        return Owner.from_dict(fields).is_dead()
    except (OSError, ValueError, TypeError):
        pass
    # Its maker died before it could sign, unless it is about to.
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime > _UNMARKED_SECONDS
    return False


def memory_folder(folder: Path) -> Path:
    """Where a plain box keeps small files that change with every action: in memory, where there is such a place.

    On disk, ext4 for one writes a file out when it is truncated and written again.
    """
    usable = os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
    return _SHARED_MEMORY / f"mlgym-{folder.name}" if usable else folder / "state"


def remove(folder: Path) -> None:
    """Remove a box's folder, and its files in memory, whatever they hold."""
    if folder.parent != _SHARED_MEMORY:
        remove_tree(memory_folder(folder))
    remove_tree(folder)
