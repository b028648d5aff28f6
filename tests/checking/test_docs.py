"""The page about checking: its example runs, and it names every check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from mlgym_core.authoring.checking import checks_for
from mlgym_core.runner.tasks import load_task

PAGE = Path(__file__).parents[2] / "docs" / "checking.md"


def test_the_example_passes(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_contract.py").write_text(snippet)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "spec or always"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


def test_every_check_is_in_the_table() -> None:
    page = PAGE.read_text("utf-8")
    for check in checks_for(load_task("battle-of-sexes"), "none"):
        assert f"| `{check.name}` |" in page, check.name
