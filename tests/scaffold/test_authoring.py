"""The authoring guide's one-file task is executed as it is shown, and its commands exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from support import PluginFolder

from mlgym_core.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "authoring.md").read_text("utf-8")


def test_the_one_file_task_of_the_guide_runs_and_packs(plugins: PluginFolder, tmp_path: Path) -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    path = tmp_path / "two_halves.py"
    path.write_text(text, "utf-8")
    cache = str(tmp_path / "cache")
    done = plugins.run("run", str(path), "--size", "tiny", "--backend", "local", "--json", MLGYM_CACHE=cache)
    assert json.loads(done.stdout)["status"] == "scored", done.stderr
    packed = plugins.run("pack", str(path), "--out", str(tmp_path), MLGYM_CACHE=cache)
    assert packed.returncode == 0, packed.stderr
    folder = str(tmp_path / "two-halves")
    done = plugins.run("baseline", folder, "--size", "tiny", "--backend", "local", "--json", MLGYM_CACHE=cache)
    assert json.loads(done.stdout)["status"] == "scored", done.stderr
    assert len([line for line in text.splitlines() if line.strip() and not line.startswith("#")]) <= 40


def test_the_commands_of_the_guide_exist() -> None:
    names = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    shown = set(re.findall(r"^mlgym ([a-z]+)", PAGE, re.MULTILINE))
    assert shown - {"check"} <= names
    assert {"new", "run", "baseline", "grade", "pack"} <= shown
