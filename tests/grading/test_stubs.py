"""Type checkers know the modules that boxes provide, wherever MLGym is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GRADER = """\
import mlgym_frames as frames
import mlgym_peer as peer
import mlgym_table as table

path = peer.job().paths["submission"] / "answer.csv"
values = table.read_predictions(path, "Id", ["Price"], ids=["1"])["Price"]
sent: frames.Buffer = peer.buffer("<f8", values)
peer.scored({"Score": "one"})
table.read_predictions(path, "Id", ["Price"])
peer.mistyped()
"""


@pytest.mark.slow
def test_a_graders_mistakes_are_found(tmp_path: Path) -> None:
    (tmp_path / "grade.py").write_text(GRADER)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "grade.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^grade\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert found == [("8", "dict-item"), ("9", "call-arg"), ("10", "attr-defined")], done.stdout + done.stderr
