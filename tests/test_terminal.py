"""What comes from models, services and sandboxes reaches a terminal as text only."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mlgym_core.cli.progress import RunProgress
from mlgym_core.cli.terminal import harmless

ESCAPES = "\x1b]0;title\x07 \x1b[2J \x1b]52;c;aGk=\x07 \x9b2J \x7f"


@given(st.text())
def test_no_control_character_but_line_breaks_and_tabs_is_left(text: str) -> None:
    left = harmless(text)
    assert len(left) == len(text)
    assert all(character in "\n\t" or not 0 <= ord(character) < 0x20 for character in left)
    assert not any(0x7F <= ord(character) < 0xA0 for character in left)


def test_progress_shows_escape_sequences_as_pictures() -> None:
    stream = io.StringIO()
    progress = RunProgress(Console(file=stream, force_terminal=False))
    progress.see({"kind": "notice", "text": ESCAPES})
    progress.see({"kind": "malformed_reply", "attempt": 1, "message": ESCAPES})
    assert "\x1b" not in stream.getvalue()
    assert "␛]0;title␇" in stream.getvalue()


def test_errors_of_the_command_show_them_as_pictures(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlgym_core", "run", f"no{ESCAPES}such"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
