"""Configurations, templates and demonstrations: what is wrong with one is said before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import PluginFolder, run_task

from mlgym_core.agent.base import AgentContext
from mlgym_core.agent.config import SHIPPED, AgentConfig, from_file, load, shipped
from mlgym_core.agent.prompts import PLACEHOLDERS, read_template
from mlgym_core.authoring.scaffold.agents import new_agent
from mlgym_core.errors import UsageError
from mlgym_core.models.scripted import ScriptedModel
from mlgym_core.plugins.loading import Registry
from mlgym_core.record.events import End, Event, Message, Tools
from mlgym_core.record.reader import read_events
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS

SCRIPT = ["echo 1 > answer.csv", {"tool": "submit"}]


@pytest.fixture
def task(task_folder: Callable[..., Path]) -> Task:
    return load_task_folder(task_folder())


@pytest.fixture
def play(task: Task, tmp_path: Path) -> Callable[..., list[Event]]:
    """Runs a script with a configuration (its text, or a name) and returns the events."""

    def go(config: str, *files: tuple[str, str], script: Any = SCRIPT) -> list[Event]:
        agent = config
        if ":" in config:
            agent = str(tmp_path / "mine.yaml")
            Path(agent).write_text("schema: 1\n" + config)
            for name, text in files:
                (tmp_path / name).write_text(text)
        result = run_task(task, model=ScriptedModel("s", script), agent=agent, backend="local", allow_unsafe=True)
        return list(read_events(result.folder))

    return go


def shown(events: list[Event], role: str) -> list[str]:
    return [event.content for event in events if isinstance(event, Message) and event.role == role]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_agent_does_a_task(play: Callable[..., list[Event]], name: str) -> None:
    events = play(name)
    assert isinstance(events[-1], End)
    assert events[-1].status == "scored"
    (system,) = shown(events, "system")
    assert ("- bash" in system) == (name in ("text", "xml", "json"))


def test_braces_and_dollars_in_a_description_are_just_text(play: Callable[..., list[Event]]) -> None:
    assert "Do {this} and get $1." in shown(play("default"), "user")[0]


def test_every_observation_carries_step_steps_left_open_file_and_directory(
    play: Callable[..., list[Event]],
) -> None:
    events = play("default", script=["mkdir sub", *SCRIPT])
    first = shown(events, "tool")[0]
    assert "step 1 of 50, 49 left" in first
    assert "open file: none" in first
    assert "directory: " in first


def test_templates_of_ones_own_stand_beside_the_configuration(play: Callable[..., list[Event]]) -> None:
    events = play(
        "system: sys.txt\ntask: t.txt\nstep: s.txt",
        ("sys.txt", "You are $$5 cheap. $format"),
        ("t.txt", "Do: $description"),
        ("s.txt", "<$observation|$steps_left>"),
    )
    assert shown(events, "system")[0].startswith("You are $5 cheap.")
    assert shown(events, "user") == ["Do: Do {this} and get $1."]
    assert shown(events, "tool")[0] == "<[no output]|49>"


@pytest.mark.parametrize("kind", PLACEHOLDERS)
def test_an_unknown_placeholder_is_an_error_that_lists_the_known_ones(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.txt").write_text("Hello $nobody")
    with pytest.raises(UsageError, match=r"unknown placeholder \$nobody.*\$" + PLACEHOLDERS[kind][0]):
        read_template(kind, "t.txt", tmp_path)


@pytest.mark.parametrize(("text", "message"), [("costs $ 5", "stands alone"), (None, "cannot be read")])
def test_a_template_that_cannot_be_used_says_why(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "t.txt").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_template("task", "t.txt", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("formt: tools", "did you mean 'format'"),
        ("format: yaml", "choose from tools, fenced, xml, json"),
        ("tools: bash", "expected a list"),
        ("tools: []", "offers no tools"),
        ("tools: [bash, teleport]", "names a tool 'teleport'"),
        ("history: [{keep: some}]", "choose from all"),
        ("history: [{keep: token_window}]", "needs tokens"),
        ("format_retries: -1", "at least 0"),
        ("hardware: 1", "true or false"),
        ("demonstrations: [absent.yaml]", "cannot be read"),
        ("folder: /tmp", "unknown key 'folder'"),
        ("system: absent.txt", "cannot be read"),
        ("system: systm", "no shipped prompt template 'systm'; there are: system"),
    ],
)
def test_a_mistake_in_a_configuration_is_named(tmp_path: Path, task: Task, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema: 1\n" + text)
    context = AgentContext(task, "full", 0, "none", ScriptedModel("s", []), TOOLS)
    with pytest.raises(UsageError, match=message):
        from_file(path, context)


def test_a_configuration_made_in_python_is_checked_too() -> None:
    odd: Any = "yaml"
    with pytest.raises(ValueError, match="tools, fenced, xml, json"):
        AgentConfig(format=odd)
    with pytest.raises(ValueError, match="repeats must be at least 0"):
        AgentConfig(repeats=-1)


def test_an_own_configuration_is_not_recorded_as_a_shipped_one(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "default.yaml"
    path.write_text("schema: 1\n")
    config = {
        "task": task,
        "model": ScriptedModel("s", SCRIPT),
        "agent": str(path),
        "backend": "local",
        "allow_unsafe": True,
    }
    assert run_task(**config).document["agent"] == str(path)


@pytest.mark.parametrize("like", SHIPPED)
def test_a_new_agent_is_a_copy_that_works(task: Task, tmp_path: Path, like: str) -> None:
    path = new_agent("mine", like, tmp_path)
    own, other = load(path), load(shipped(like))
    assert {k: t.template for k, t in own.templates().items()} == {k: t.template for k, t in other.templates().items()}
    same = ("format", "tools", "history", "format_retries", "repeats", "hardware")
    assert [getattr(own, name) for name in same] == [getattr(other, name) for name in same]
    config = {
        "task": task,
        "model": ScriptedModel("s", SCRIPT),
        "agent": str(path),
        "backend": "local",
        "allow_unsafe": True,
    }
    assert run_task(**config).status == "scored"


def test_a_new_agent_overwrites_nothing(tmp_path: Path) -> None:
    new_agent("mine", out=tmp_path)
    with pytest.raises(UsageError, match="exists"):
        new_agent("mine", out=tmp_path)
    with pytest.raises(UsageError, match="no shipped agent 'mine'"):
        new_agent("other", "mine", tmp_path)


def test_aliases_that_stand_for_very_much_are_refused(tmp_path: Path) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(["schema: 1", "l0: &l0 [x]", *levels]))
    with pytest.raises(UsageError, match="more than 100000 values"):
        load(path)
    path.write_text("schema: 1\ntools: &a [*a]\n")
    with pytest.raises(UsageError, match="more than 100000 values"):
        load(path)


def test_a_missing_configuration_is_named_and_nothing_is_created(task: Task, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml cannot be read"):
        run_task(task, agent="./nowhere.yaml", backend="local")
    assert not (tmp_path / "runs").exists()


def test_the_tools_that_are_offered_are_those_of_the_configuration(play: Callable[..., list[Event]]) -> None:
    events = play("tools: [submit, bash, submit]")
    (offered,) = (event for event in events if isinstance(event, Tools))
    assert [tool["name"] for tool in offered.tools] == ["submit", "bash"]
    assert offered.tools[1]["parameters"]["required"] == ["command"]


DEMONSTRATION = """
schema: 1
title: another task
steps:
  - {tool: bash, arguments: {command: ls}, observation: train.py, thought: I look around.}
  - {tool: submit, arguments: {}, observation: Submitted.}
"""


@pytest.mark.parametrize("form", ["tools", "fenced", "xml", "json"])
def test_a_demonstration_is_shown_in_the_agents_format(play: Callable[..., list[Event]], form: str) -> None:
    events = play(f"format: {form}\ndemonstrations: [demo.yaml]", ("demo.yaml", DEMONSTRATION))
    messages = [event for event in events if isinstance(event, Message)][1:7]
    roles = ["user", "assistant", "tool" if form == "tools" else "user"]
    assert [message.role for message in messages] == [*roles, *roles[1:], "user"]
    assert "another task" in messages[0].content
    assert "train.py" in messages[2].content
    assert "# Task" in messages[5].content


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tool: bash", "tool: teleport", "no tool 'teleport'"),
        ("command: ls", "cmd: ls", "'command' is missing"),
        ("title: another task", "", "missing key 'title'"),
    ],
)
def test_a_demonstration_that_could_not_happen_is_refused(
    play: Callable[..., list[Event]], old: str, new: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        play("demonstrations: [demo.yaml]", ("demo.yaml", DEMONSTRATION.replace(old, new)))


def test_gpu_info_says_what_the_sandbox_has(play: Callable[..., list[Event]]) -> None:
    prompt = shown(play("gpu-info"), "user")[0]
    assert "2 CPU cores, 4096 MiB of memory" in prompt
    assert "GPU" in prompt
    assert "Your hardware" not in shown(play("default"), "user")[0]


def test_a_plugin_offers_a_configuration(plugins_here: PluginFolder, task: Task) -> None:
    plugins_here.add(
        "plug_agents",
        "from pathlib import Path\nfrom mlgym_core import hookimpl\nfrom mlgym_core.agent.config import entry\n\n"
        "@hookimpl\ndef mlgym_register_agents():\n    return [entry(Path(__file__).parent / 'brief.yaml')]\n",
        {"mlgym": {"agents": "plug_agents"}},
    )
    (plugins_here.folder / "plug_agents" / "brief.yaml").write_text("schema: 1\nhelp: few words\nformat: json\n")
    registry = Registry()
    entry = registry.choose("mlgym_register_agents", "brief", "agent")
    assert entry.help == "few words"
    config = {
        "task": task,
        "model": ScriptedModel("s", SCRIPT),
        "agent": "brief",
        "backend": "local",
        "allow_unsafe": True,
    }
    assert run_task(**config, registry=registry).status == "scored"


def test_the_manifest_holds_the_configuration_and_its_texts(task: Task) -> None:
    import json

    result = run_task(task, model=ScriptedModel("s", SCRIPT), backend="local", allow_unsafe=True)
    settings = json.loads((result.folder / "run.json").read_text())["agent_settings"]
    assert (settings["format"], settings["format_retries"]) == ("tools", 3)
    assert settings["templates"]["step"].startswith("$observation")


def test_shipped_configurations_differ_as_they_say() -> None:
    assert {name: load(shipped(name)).format for name in SHIPPED} == {
        "default": "tools",
        "tools": "tools",
        "gpu-info": "tools",
        "text": "fenced",
        "xml": "xml",
        "json": "json",
    }
    assert load(shipped("gpu-info")).hardware
    assert "all" in load(shipped("tools")).tools
    assert AgentConfig().templates().keys() == PLACEHOLDERS.keys()
