"""The edits of the published agents, replayed: our tools do to each file what theirs did, and show the same lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from tools.toolbox import Toolbox, shown

from mlgym_core.tools.builtin import with_input

SHARED = Path(os.environ.get("MLGYM_TEST_SHARED", Path(__file__).parents[3] / "shared"))
HOME = "/home/agent/workspace"
HEADER = re.compile(rf"\[File: {HOME}/(?P<path>.*) \((?P<total>\d+) lines total\)\]")


@frozen
class Recorded:
    """One recorded use of a tool."""

    step: str
    tool: str
    command: str
    observation: str

    @property
    def window(self) -> tuple[str, dict[int, str]] | None:
        """Path and lines of the file it left open; ``None`` when it was refused."""
        header = HEADER.match(self.observation)
        if header is None:
            return None
        lines = shown(self.observation)
        assert len(lines) == int(header["total"]), "a window that does not hold its whole file"
        return header["path"], lines

    @property
    def undefined(self) -> set[str]:
        """Names for which it was refused."""
        return set(re.findall(r"undefined name '(\w+)'", self.observation))


def recorded(file: Path) -> Iterator[Recorded]:
    for number, step in enumerate(json.loads(file.read_text("utf-8"))["trajectory"]):
        tool = step["action"].split(maxsplit=1)[0]
        if tool in ("open", "edit", "insert", "find_file"):
            yield Recorded(f"{file.stem} {number}: {tool}", tool, step["action"], step["observation"])


def content(lines: dict[int, str]) -> str:
    return "".join(f"{line}\n" for line in lines.values())


class Replay:
    """A trajectory's files, as they were when it first opened them, and the tools on them."""

    def __init__(self, box: Toolbox, workspace: Path, steps: list[Recorded]) -> None:
        box.workspace = workspace
        workspace.mkdir()
        self.box = box
        self.files: dict[str, dict[int, str]] = {}
        for step in steps:
            if step.window is not None and step.window[0] not in self.files:
                assert step.tool == "open"
                self._settle(*step.window)

    def _settle(self, path: str, lines: dict[int, str]) -> None:
        self.files[path] = lines
        self.box.write(path, content(lines))

    def difference(self, step: Recorded) -> str | None:
        """Do a step; returns what came out differently, and makes the files what they were there."""
        done = subprocess.run(
            ["bash", "-c", with_input(step.command)],
            cwd=self.box.workspace,
            env=self.box.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        reason = self._compare(step, done.returncode, done.stdout + done.stderr)
        if step.window is not None:
            self._settle(*step.window)
        return reason

    def _compare(self, step: Recorded, code: int, output: str) -> str | None:
        if step.tool == "find_file":
            theirs = set(re.findall(rf"^{HOME}/(.*)$", step.observation, re.MULTILINE))
            ours = set(re.findall(rf"^{self.box.workspace}/(.*)$", output, re.MULTILINE))
            return None if ours == theirs else f"found {ours}, not {theirs}"
        if step.window is None:
            expected = self.files
            if code != 1:
                return "was refused there"
            if step.undefined != set(re.findall(r"undefined name '(\w+)'", output)):
                return "was refused there for other names"
        else:
            path, lines = step.window
            expected = {**self.files, path: lines}
            if code != 0:
                return f"was done there, but here: {output[:300]}"
            if shown(output) != lines or f"{self.box.workspace}/{path} " not in output:
                return "shows another window"
        changed = [name for name, lines in expected.items() if self._text(name) != content(lines)]
        return f"leaves another content in {changed}" if changed else None

    def _text(self, name: str) -> str:
        return (self.box.workspace / name).read_text("utf-8")


def test_published_edits_work_here(box: Toolbox, tmp_path: Path) -> None:
    files = sorted((SHARED / "published" / "trajectories").glob("*/*.traj"))
    if not files:
        pytest.skip(f"no published trajectories in {SHARED}; set MLGYM_TEST_SHARED")
    box.env["MLGYM_WINDOW"] = "1000"  # theirs held each file whole
    counted: Counter[str] = Counter()
    differences: list[tuple[str, Any]] = []
    for number, file in enumerate(files):
        steps = list(recorded(file))
        replay = Replay(box, tmp_path / str(number), steps)
        for step in steps:
            counted[step.tool] += 1
            reason = replay.difference(step)
            if reason is not None:
                differences.append((step.step, reason))
    assert counted == {"open": 17, "edit": 42, "insert": 4, "find_file": 1}
    assert len(differences) <= 0.05 * counted.total(), differences
    assert differences == []
