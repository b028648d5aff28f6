"""Plugins that need other versions than are installed are refused by name, with the command that helps."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from support import PluginFolder

from mlgym_core.errors import PluginError
from mlgym_core.plugins.loading import Registry, examine, list_tasks
from mlgym_core.runner.tasks import load_task

CORE = version("mlgym-core")
TOOL = """
from mlgym_core import hookimpl
from mlgym_core.tools.base import Tool

@hookimpl
def mlgym_register_tools():
    return [Tool("far-tool", "", {}, lambda context, arguments: None)]
"""


def require(plugins: PluginFolder, module: str, *requirements: str) -> None:
    (metadata,) = plugins.folder.glob(f"{module}-*.dist-info/METADATA")
    with metadata.open("a") as file:
        file.writelines(f"Requires-Dist: {text}\n" for text in requirements)


@pytest.mark.parametrize(
    "requirement",
    ["mlgym-core>=99", "mlgym_core >=99,<100", "MLGym.Core (>=99)", "mlgym-core==0.0.1", "mlgym-core<0.0.1"],
)
def test_a_task_for_another_core_is_refused_when_asked_for(plugins_here: PluginFolder, requirement: str) -> None:
    plugins_here.add_task("far", source="raise RuntimeError('imported')\n")
    require(plugins_here, "plug_far", requirement)
    assert "far" in [task.id for task in list_tasks()]
    with pytest.raises(PluginError) as refused:
        load_task("far")
    text = str(refused.value)
    assert "plug-far 1.0" in text
    assert f"mlgym-core {CORE} is installed" in text
    assert "pip install --upgrade plug-far 'mlgym-core" in text
    assert "imported" not in text
    assert "needs mlgym-core" in str(examine("mlgym.tasks", "far", "plug-far"))


@pytest.mark.parametrize(
    "requirement",
    [
        f"mlgym-core>={CORE},<99",
        f"mlgym-core=={CORE}",
        "mlgym-core",
        "mlgym-core>=99; python_version < '3'",
        "mlgym-core>=99; extra == 'later'",
        "some-package-that-is-not-here>=99",
    ],
)
def test_what_fits_or_is_not_ours_is_no_matter(plugins_here: PluginFolder, requirement: str) -> None:
    plugins_here.add_task("near")
    require(plugins_here, "plug_near", requirement)
    assert load_task("near").id == "near"


def test_a_domain_that_is_missing_or_too_old_is_named(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("child")
    require(plugins_here, "plug_child", "mlgym-core>=0", "mlgym-tasks-nowhere>=2")
    with pytest.raises(PluginError, match=r"mlgym-tasks-nowhere>=2, which is not installed; run: pip install"):
        load_task("child")


def test_unreadable_requirements_are_said_to_be(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("odd")
    require(plugins_here, "plug_odd", "mlgym-core >>> 1")
    with pytest.raises(PluginError, match="cannot be read; reinstall plug-odd"):
        load_task("odd")


def test_a_behaviour_plugin_for_another_core_is_left_out(plugins_here: PluginFolder) -> None:
    plugins_here.add("plug_far_tool", TOOL, {"mlgym": {"far-tool": "plug_far_tool"}})
    require(plugins_here, "plug_far_tool", "mlgym-core>=99")
    warnings: list[str] = []
    names = [tool.name for tool in Registry(warnings.append).collect("mlgym_register_tools")]
    assert "far-tool" not in names
    assert "bash" in names
    (text,) = warnings
    assert f"needs mlgym-core>=99, but mlgym-core {CORE} is installed" in text


def test_the_command_says_it_in_one_line(plugins: PluginFolder) -> None:
    plugins.add_task("far")
    require(plugins, "plug_far", "mlgym-core>=99")
    assert "far" in plugins.run("tasks").stdout
    done = plugins.run("run", "far")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "mlgym-core>=99" in line
    assert CORE in line
