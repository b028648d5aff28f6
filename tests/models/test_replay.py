"""Replaying what a model said in an earlier run: real runs, and records in every state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models.server import ModelServer, bash, calls, submit
from support import run_task

from mlgym_core.errors import UsageError
from mlgym_core.models.base import Message, ModelContext, ModelSettings, ModelStopped, Price
from mlgym_core.models.replay import create
from mlgym_core.models.scripted import ScriptedModel
from mlgym_core.record.events import ModelReply, Notice
from mlgym_core.record.reader import events_of
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS

TASK = "battle-of-sexes"
WRITE = "printf 'def row_strategy(history):\\n    return 0\\n' > strategy.py"


def play(model: Any, **options: Any) -> Any:
    return run_task(TASK, model=model, size="tiny", backend="local", allow_unsafe=True, **options)


def test_a_run_is_played_again_without_its_service(server: ModelServer) -> None:
    server.script(calls(("bash", {"command": WRITE}), ("bash", {"command": "ls"}), text="I write it."), submit())
    settings = ModelSettings(base_url=server.url, price=Price(1.0, 2.0))
    first = play("litellm:openai/test-model", settings=settings)
    again = play(f"replay:{first.folder}")
    by_id = play(f"replay:{first.folder.name}")
    assert len(server.requests) == 2
    for result in (again, by_id):
        assert (result.document["reason"], result.document["steps"]) == ("submitted", 3)
        assert result.document["model"] == f"replay:{first.folder.name}"
        assert result.document["cost"] == {"usd": 0.0, "known": True}
    assert first.document["cost"]["usd"] > 0
    said = [event.text for event in events_of(again.folder, Notice)]
    notice = (
        f"replaying 2 replies of litellm:openai/test-model from run {first.folder.name}, which used --agent default"
    )
    assert said == [notice], "and no divergence"
    replies = [[event.reply for event in events_of(folder, ModelReply)] for folder in (first.folder, again.folder)]
    for then, now in zip(*replies, strict=True):
        assert (now["text"], now["tool_calls"]) == (then["text"], then["tool_calls"])


def test_another_course_is_noticed_once_and_the_end_is_the_end(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["echo one", "echo two", "echo three"]))
    first = play(f"scripted:{script}")
    record = first.folder / "events.jsonl"
    lines = record.read_text().splitlines()
    changed = [line.replace("one", "other") if json.loads(line)["kind"] == "message" else line for line in lines]
    assert changed != lines
    record.write_text("\n".join(changed) + "\n")
    again = play(f"replay:{first.folder}")
    assert again.document["reason"] == "stopped"
    _, differs, end = (event.text for event in events_of(again.folder, Notice))
    assert "before reply 2" in differs
    assert "the 3 recorded replies" in end


def _said(*calls: Any, provider: Any = None) -> str:
    return json.dumps({"kind": "model_reply", "reply": {"text": "", "tool_calls": calls, "provider": provider}})


@pytest.fixture
def recorded(tmp_path: Path, task_folder: Callable[..., Path]) -> Callable[..., Any]:
    """A replay of a record with these lines."""

    def make(*lines: str, end: str = "\n") -> Any:
        folder = tmp_path / "a-run"
        folder.mkdir(exist_ok=True)
        (folder / "events.jsonl").write_text("\n".join(lines) + end)
        return create(str(folder), ModelContext(load_task_folder(task_folder()), "full", 0))

    return make


def reply(command: str) -> str:
    call = {"id": "1", "name": "bash", "arguments": {"command": command}}
    carried = {"thinking_blocks": [{"type": "thinking", "signature": "s"}]}
    return json.dumps(
        {"kind": "model_reply", "reply": {"text": "", "tool_calls": [call], "usage": {}, "provider": carried}}
    )


def test_a_torn_last_line_is_left_out(recorded: Callable[..., Any]) -> None:
    model = recorded(reply("ls"), '{"kind": "model_reply", "re', end="")
    assert model.name == "replay:a-run"
    played = model.complete([Message("user", "x")], TOOLS)
    assert played.tool_calls[0].arguments == {"command": "ls"}
    assert played.message().provider["thinking_blocks"][0]["signature"] == "s"
    with pytest.raises(ModelStopped, match="the 1 recorded replies"):
        model.complete([Message("user", "x")], TOOLS)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"kind": "start"}'], "no reply of a model"),
        (["garbage", '{"kind": "start"}'], "not JSON"),
        (['{"kind": "model_reply"}', "{}"], "cannot be read"),
        (['{"kind": "model_reply", "reply": {"text": "", "tool_calls": [{"id": "1"}]}}'], "cannot be read"),
        ([_said({"id": "1", "name": "bash", "arguments": "abc"})], "'abc' is no mapping"),
        ([_said(provider=["x"])], "no mapping"),
        (["[" * 100_000], "not JSON"),
    ],
)
def test_a_record_that_cannot_be_replayed_is_refused(
    recorded: Callable[..., Any], lines: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        recorded(*lines)


def test_a_run_of_another_task_is_refused(task_folder: Callable[..., Path], tmp_path: Path) -> None:
    first = load_task_folder(task_folder(task_id="first"))
    script = ScriptedModel("s", ["echo 1 > answer.csv", {"tool": "submit"}])
    played = run_task(first, model=script, agent="json", backend="local", allow_unsafe=True)
    replay = f"replay:{played.folder}"
    other = load_task_folder(task_folder(task_id="second"))
    with pytest.raises(UsageError, match="of the task first; replay it with: mlgym run first"):
        run_task(other, model=replay, backend="local")
    again = run_task(first, model=replay, agent="json", backend="local", allow_unsafe=True)
    notices = [event.text for event in events_of(again.folder, Notice)]
    assert "which used --agent json" in notices[0]


def test_a_run_that_does_not_exist_is_refused(task_folder: Callable[..., Path]) -> None:
    context = ModelContext(load_task_folder(task_folder()), "full", 0)
    for argument in ("no-such-run", "/no/such/folder", "", "x" * 5000):
        with pytest.raises(UsageError, match="replay:<run>"):
            create(argument, context)
    with pytest.raises(UsageError, match="no such home folder"):
        create("~no-such-user-here/run", context)
    with pytest.raises(UsageError, match="null byte"):
        create("a\0b", context)


def test_a_manifest_that_cannot_be_read_costs_the_names_only(recorded: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "run.json").write_text("[" * 100_000)
    assert recorded(reply("ls")).name == "replay:a-run"


def test_what_a_model_chose_is_not_let_into_an_open_backend(server: ModelServer) -> None:
    server.script(bash("true"), submit())
    first = play("litellm:openai/test-model", settings=ModelSettings(base_url=server.url, price=Price(1.0, 2.0)))
    with pytest.raises(UsageError, match="allow-unsafe"):
        run_task(TASK, model=f"replay:{first.folder}", size="tiny", backend="local:plain")
