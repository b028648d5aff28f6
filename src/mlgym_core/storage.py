"""Removing folders that may hold anything."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a folder whose content may be anything: read-only, unreadable, nested without end.

    Nothing below it may still be changed by a running process. What cannot be removed is left.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists() or folder.is_symlink():
        return
    # Python's own tree functions recurse, and give up on a folder that cannot be listed.
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True, timeout=600)
