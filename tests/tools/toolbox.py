"""The tools' scripts as an agent finds them: a folder first on PATH, here outside any sandbox."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlgym_core.sandbox import toolfiles
from mlgym_core.tools.builtin import TOOLS
from mlgym_core.tools.scripted import tool_files


def install(folder: Path) -> Path:
    """Put the scripts into a fresh folder."""
    toolfiles.copy(tool_files(TOOLS), folder)
    return folder


class Toolbox:
    """Scripts, their state, and a workspace in which they run as real processes.

    Args:
        folder: for state and workspace.
        scripts: made by :func:`install`.
        compiled: folder for what Python has compiled of them, shared by all who use them.

    Attributes:
        workspace: the current directory of every call.
        state: the tools' state file.
    """

    def __init__(self, folder: Path, scripts: Path, compiled: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.state = folder / "state" / "tools"
        self.state.parent.mkdir()
        self.state.with_name("tools.pyc").symlink_to(compiled)
        self.env = {"LANG": "C.UTF-8", "MLGYM_TOOLS_STATE": str(self.state)}
        self.use(scripts)

    def use(self, scripts: Path) -> Path:
        """Take other scripts."""
        self.folder = scripts
        self.env["PATH"] = os.pathsep.join([str(scripts), os.environ["PATH"]])
        return scripts

    def own_scripts(self) -> Path:
        """Take a copy of the scripts, which may be changed."""
        return self.use(install(self.state.parent.parent / "own"))

    def run(self, *words: str | bytes, text: str | bytes | None = None) -> tuple[int, str]:
        """A command line: exit code and what is printed; ``text`` on standard input, which is empty otherwise."""
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        source: Mapping[str, Any] = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
        done = subprocess.run(
            words,
            executable=self.folder / os.fsdecode(words[0]),
            cwd=self.workspace,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=60,
            **source,
        )
        return done.returncode, done.stdout.decode("utf-8", "surrogateescape")

    def call(self, name: str, /, **arguments: Any) -> tuple[int, str]:
        """A tool call."""
        return self.run(name, "--json", text=json.dumps(arguments))

    def write(self, name: str, content: str | bytes) -> Path:
        """A file in the workspace."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def shown(output: str) -> dict[int, str]:
    """The numbered lines in a window."""
    found = {}
    for line in output.split("\n"):
        number, colon, text = line.partition(":")
        if colon and number.isdigit() and (not found or int(number) == max(found) + 1):
            found[int(number)] = text
    return found
