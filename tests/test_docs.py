"""What the documentation shows is executed, and what it promises is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import yaml
from support import write_task

from mlgym_core.agent.config import AgentConfig
from mlgym_core.agent.config import load as load_agent
from mlgym_core.plugins import hookspecs
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_library_example_of_the_readme_runs(tmp_path: Path) -> None:
    (snippet,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "scored" in done.stdout


def test_the_examples_of_the_agents_page_run(tmp_path: Path) -> None:
    code = "\n".join(blocks(ROOT / "docs" / "agents.md", "python"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "submitted" in done.stdout


def test_the_configuration_and_the_demonstration_of_the_agents_page_load(tmp_path: Path) -> None:
    config, demonstration = blocks(ROOT / "docs" / "agents.md", "yaml")
    (tmp_path / "example.yaml").write_text(demonstration)
    (tmp_path / "agent.yaml").write_text(config.replace("demonstrations: []", "demonstrations: [example.yaml]"))
    loaded = load_agent(tmp_path / "agent.yaml")
    assert set(yaml.safe_load(config)) == {field.name for field in attrs.fields(AgentConfig)} - {"folder"}
    assert [rule.keep for rule in loaded.history] == ["newest_windows", "last_observations", "token_window"]
    assert [step.tool for step in loaded.examples(loaded.offered(TOOLS))[0].steps] == ["bash"]


def test_the_task_file_of_the_guide_loads(tmp_path: Path) -> None:
    (text,) = (block for block in blocks(ROOT / "docs" / "tasks.md", "yaml") if "schema:" in block)
    folder = write_task(tmp_path / "task")
    (folder / "task.yaml").write_text(text)
    (folder / "public" / "player.py").write_text("")
    assert load_task_folder(folder).id == yaml.safe_load(text)["id"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_hook_is_documented_with_its_arguments() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    for name, hook in vars(hookspecs).items():
        if name.startswith("mlgym_"):
            arguments = ", ".join(hook.__code__.co_varnames[: hook.__code__.co_argcount])
            assert f"`{name}({arguments})`" in page


def test_every_command_is_documented() -> None:
    from mlgym_core.cli import app

    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert names
    for name in names:
        assert f"`{name}" in page
