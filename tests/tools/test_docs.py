"""The examples of ``docs/tools.md`` work as they stand, and its table names every tool."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support import PluginFolder, open_task

from mlgym_core import Action
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS
from mlgym_core.tools.inside.agent_tools.declared import TOOLS as TABLE

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text("utf-8")


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_tool_is_in_the_table_with_its_arguments_and_usage() -> None:
    for tool in TOOLS:
        (row,) = (
            line for line in PAGE.splitlines() if f"`{tool.name}({', '.join(tool.parameters['properties'])})`" in line
        )
        usage = TABLE[tool.name].usage if tool.name in TABLE else ""
        assert f"`{usage}`" in row or not usage


def test_the_plugin_of_the_page(plugins_here: PluginFolder, task_folder: Callable[..., Path], tmp_path: Path) -> None:
    script, plugin, contract = blocks()
    plugins_here.add("word_tools", plugin, {"mlgym": {"words": "word_tools"}})
    (plugins_here.folder / "word_tools" / "words.py").write_text(script)
    task = load_task_folder(task_folder())
    with open_task(task, backend="local", allow_unsafe=True, out=tmp_path / "out") as episode:
        episode.reset()
        episode.step("echo 'one two three' > '-a b'")
        assert episode.step(Action("words", {"path": "-a b"})).observation == "3 words"
        assert episode.step("words './-a b' && echo done").observation == "3 words\ndone"
        refused = episode.step(Action("words", {"path": "missing"}))
        assert "give the path of a text file" in refused.observation
        assert refused.info["exit_code"] == 1
    (tmp_path / "test_words.py").write_text(contract)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_words.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(plugins_here.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    del sys.modules["word_tools"]
