"""Plugins are found by metadata, imported when asked for, and fail alone (design section 8, cases 18 and 19)."""

from __future__ import annotations

import json
import textwrap

import pytest
from support import PluginFolder

from mlgym_core.errors import BackendUnavailableError, PluginError, UnknownTaskError, UsageError
from mlgym_core.plugins.loading import Registry, list_tasks
from mlgym_core.runner.backends import choose
from mlgym_core.runner.tasks import load_task

BROKEN = {
    "import-error": "import module_that_does_not_exist\n",
    "syntax-error": "def broken(:\n",
    "system-exit": "raise SystemExit(7)\n",
    "half": textwrap.dedent("""
        from mlgym_core import hookimpl
        from mlgym_core.tools.base import Tool

        @hookimpl
        def mlgym_register_tools():
            yield Tool("half-a-tool", "", {}, lambda context, arguments: None)
            raise RuntimeError("out of luck")
        """),
    "unknown-hook": textwrap.dedent("""
        from mlgym_core import hookimpl

        @hookimpl
        def mlgym_register_everything():
            return []
        """),
    "wrong-kind": textwrap.dedent("""
        from mlgym_core import hookimpl

        @hookimpl
        def mlgym_register_tools():
            return [5]
        """),
    "wrong-argument": textwrap.dedent("""
        from mlgym_core import hookimpl

        @hookimpl
        def mlgym_register_tools(surprise):
            return []
        """),
}
GOOD = textwrap.dedent("""
    from mlgym_core import hookimpl
    from mlgym_core.tools.base import Tool

    @hookimpl
    def mlgym_register_tools():
        return [Tool("good-tool", "", {}, lambda context, arguments: None)]
    """)


def test_tasks_are_listed_without_importing_them(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("boom", source="raise RuntimeError('imported')\n")
    listed = {task.id: task for task in list_tasks()}
    assert listed["boom"].distribution == "plug-boom"
    assert listed["boom"].summary == "about plug-boom"


def test_a_task_is_loaded_with_its_distribution_and_version(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("fine-task")
    task = load_task("fine-task")
    assert (task.id, task.distribution, task.version) == ("fine-task", "plug-fine-task", "1.0")


def test_an_unknown_task_names_the_nearest_ones(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("fine-task")
    with pytest.raises(UnknownTaskError, match="did you mean fine-task"):
        load_task("fine-tsak")
    with pytest.raises(UnknownTaskError, match="mlgym tasks"):
        load_task("zzzzzzzzzz")


@pytest.mark.parametrize("kind", ["import-error", "syntax-error", "system-exit"])
def test_asking_for_a_broken_task_raises_its_own_error(plugins_here: PluginFolder, kind: str) -> None:
    plugins_here.add_task("bad-task", source=BROKEN[kind])
    plugins_here.add_task("fine-task")
    with pytest.raises(PluginError, match=r"bad-task.*plug-bad-task 1\.0.*broken") as caught:
        load_task("bad-task")
    assert type(caught.value.__cause__).__name__ in ("ModuleNotFoundError", "SyntaxError", "SystemExit")
    assert load_task("fine-task").id == "fine-task"


def test_a_task_id_claimed_twice_needs_a_qualified_name(plugins_here: PluginFolder) -> None:
    plugins_here.add_task("twin", module="plug_one")
    plugins_here.add_task("twin", module="plug_two")
    with pytest.raises(PluginError, match="plug-one:twin or plug-two:twin"):
        load_task("twin")
    assert load_task("plug-two:twin").distribution == "plug-two"
    with pytest.raises(UnknownTaskError):
        load_task("plug-three:twin")


def test_an_entry_point_whose_module_registers_another_task_is_reported(plugins_here: PluginFolder) -> None:
    plugins_here.add("plug_liar", "", {"mlgym.tasks": {"promised": "plug_liar"}})
    with pytest.raises(PluginError, match="registers none"):
        load_task("promised")


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_rolled_back_reported_once_and_harms_nobody(plugins_here: PluginFolder, kind: str) -> None:
    plugins_here.add("plug_bad", BROKEN[kind], {"mlgym": {"bad": "plug_bad"}})
    plugins_here.add("plug_good", GOOD, {"mlgym": {"good": "plug_good"}})
    warnings: list[str] = []
    registry = Registry(warnings.append)
    for _ in range(2):
        names = [tool.name for tool in registry.collect("mlgym_register_tools")]
        assert "good-tool" in names
        assert "bash" in names
        assert "half-a-tool" not in names
    assert len(warnings) == 1
    assert "plug-bad 1.0" in warnings[0]


def test_a_hanging_import_is_cut_off(plugins_here: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_PLUGIN_DEADLINE", "0.3")
    plugins_here.add("plug_hang", "import time\ntime.sleep(10)\n", {"mlgym": {"hang": "plug_hang"}})
    warnings: list[str] = []
    names = [tool.name for tool in Registry(warnings.append).collect("mlgym_register_tools")]
    assert "bash" in names
    assert "did not finish within 0.3 s" in warnings[0]


def test_strict_mode_raises_at_once(plugins_here: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_STRICT_PLUGINS", "1")
    plugins_here.add("plug_bad", BROKEN["import-error"], {"mlgym": {"bad": "plug_bad"}})
    with pytest.raises(ModuleNotFoundError):
        Registry().collect("mlgym_register_tools")


def test_an_observer_that_raises_is_left_out_from_then_on(plugins_here: PluginFolder) -> None:
    source = textwrap.dedent("""
        from mlgym_core import hookimpl

        @hookimpl
        def mlgym_run_event(event):
            raise ValueError(event["kind"])
        """)
    plugins_here.add("plug_eye", source, {"mlgym": {"eye": "plug_eye"}})
    warnings: list[str] = []
    registry = Registry(warnings.append)
    assert registry.observes("mlgym_run_event")
    registry.notify("mlgym_run_event", run_id="r", event={"kind": "step"})
    registry.notify("mlgym_run_event", run_id="r", event={"kind": "step"})
    assert len(warnings) == 1


def test_a_backend_that_fails_to_start_is_passed_over_by_auto(plugins_here: PluginFolder) -> None:
    source = textwrap.dedent("""
        from mlgym_core import hookimpl
        from mlgym_core.plugins.hookspecs import BackendEntry

        @hookimpl
        def mlgym_register_backends():
            return [BackendEntry("burnt", lambda _: 1 / 0, rank=1), BackendEntry("empty", lambda _: None, rank=2)]
        """)
    plugins_here.add("plug_burnt", source, {"mlgym": {"burnt": "plug_burnt"}})
    choice = choose(Registry(), "auto")
    assert choice.backend.name in ("docker", "local")
    assert "burnt" in choice.why
    assert "empty" in choice.why
    with pytest.raises(BackendUnavailableError, match="division by zero"):
        choose(Registry(), "burnt")


def test_names_of_the_core_and_of_earlier_tools_are_taken(plugins_here: PluginFolder) -> None:
    source = (
        "from mlgym_core import hookimpl\nfrom mlgym_core.plugins.hookspecs import ModelEntry\n"
        "from mlgym_core.tools.base import Tool, ToolOutput\n\n"
        "def tool(name):\n    return Tool(name, 'WHO', {}, lambda context, arguments: ToolOutput('x'))\n\n"
        "@hookimpl\ndef mlgym_register_tools():\n    return [tool('bash'), tool('words')]\n\n"
        "@hookimpl\ndef mlgym_register_models():\n    return [ModelEntry('baseline', None), ModelEntry('WHO', None)]\n"
    )
    for who in ("plug_one", "plug_two"):
        plugins_here.add(who, source.replace("WHO", who), {"mlgym": {who: who}})
    warnings: list[str] = []
    registry = Registry(warnings.append)
    tools = [tool for _ in range(2) for tool in registry.collect("mlgym_register_tools") if tool.name == "words"]
    assert [tool.description for tool in tools] == ["plug_one", "plug_one"]
    assert registry.choose("mlgym_register_models", "baseline", "model").help.startswith("run the task's")
    assert registry.choose("mlgym_register_models", "plug_two", "model").name == "plug_two"
    assert sorted(warnings) == [
        "mlgym: the model 'baseline' of plugin 'plug_one' of plug-one 1.0 is left out: mlgym-core has one of that name",
        "mlgym: the model 'baseline' of plugin 'plug_two' of plug-two 1.0 is left out: mlgym-core has one of that name",
        "mlgym: the tool 'bash' of plugin 'plug_one' of plug-one 1.0 is left out: mlgym-core has one of that name",
        "mlgym: the tool 'bash' of plugin 'plug_two' of plug-two 1.0 is left out: mlgym-core has one of that name",
        "mlgym: the tool 'words' of plugin 'plug_two' of plug-two 1.0 is left out: plugin 'plug_one' of plug-one 1.0 "
        "has one of that name",
    ]


def test_an_unknown_choice_lists_the_possible_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'baseline'"):
        Registry().choose("mlgym_register_models", "baselin", "model")
    with pytest.raises(UsageError, match=r"choose from: .*local"):
        Registry().choose("mlgym_register_backends", "zzz", "backend")


def test_the_commands_survive_every_kind_of_broken_plugin(plugins: PluginFolder) -> None:
    for number, source in enumerate(BROKEN.values()):
        plugins.add(f"plug_b{number}", source, {"mlgym": {f"b{number}": f"plug_b{number}"}})
        plugins.add_task(f"t{number}", module=f"plug_t{number}", source=source)
    plugins.add("plug_hang", "import time\ntime.sleep(60)\n", {"mlgym": {"hang": "plug_hang"}})
    plugins.add_task("fine-task")
    assert plugins.run("--help").returncode == 0
    listed = plugins.run("tasks", "--json")
    assert {"fine-task", "t0"} <= {task["id"] for task in json.loads(listed.stdout)}
    assert plugins.run("tasks", "show", "fine-task").returncode == 0
    broken_task = plugins.run("tasks", "show", "t0")
    assert broken_task.returncode == 2
    assert "module_that_does_not_exist" in broken_task.stderr
    report = plugins.run("plugins", "--json", "--deadline", "5")
    assert report.returncode == 0, report.stderr
    causes = {row["name"]: row["broken"] for row in json.loads(report.stdout)}
    assert causes["fine-task"] is None
    assert "module_that_does_not_exist" in causes["b0"]
    assert "SyntaxError" in causes["b1"]
    assert "SystemExit" in causes["b2"]
    assert "out of luck" in causes["b3"]
    assert "did not finish" in causes["hang"]
    assert all(causes[f"b{number}"] for number in range(len(BROKEN)))


def test_a_plugin_adds_a_command(plugins: PluginFolder) -> None:
    source = textwrap.dedent("""
        import typer
        from mlgym_core import hookimpl

        app = typer.Typer()

        @app.command()
        def greet(name: str):
            typer.echo(f"hello {name}")

        @hookimpl
        def mlgym_register_commands():
            return [("greet", app)]
        """)
    plugins.add("plug_greet", source, {"mlgym": {"greet": "plug_greet"}})
    assert plugins.run("greet", "world").stdout == "hello world\n"
    assert plugins.run("great", "world").returncode == 2


def test_start_up_imports_nothing_heavy_and_no_plugin(plugins: PluginFolder) -> None:
    for number in range(30):
        plugins.add_task(f"many-{number}", source="raise SystemExit('imported')\n")
    for arguments in (["--help"], ["tasks"]):
        done = plugins.run(*arguments, PYTHONPROFILEIMPORTTIME="1")
        assert done.returncode == 0
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}
        assert "mlgym_core.cli" in imported
        heavy = {name for name in imported if name.split(".")[0] in ("litellm", "docker", "numpy", "torch", "requests")}
        assert not heavy
        assert not {name for name in imported if name.startswith(("plug_", "mlgym_task"))}
