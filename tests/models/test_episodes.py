"""Whole runs with a model service: through the real client, on the local backend and on a container engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
from models.meters import KEY
from models.server import Answer, ModelServer, bash, calls, empty, fails, says, submit, usage

from mlgym_core import RunConfig, run
from mlgym_core.errors import BackendUnavailableError, UsageError
from mlgym_core.models.base import ModelSettings, Price
from mlgym_core.record.events import Event, ModelAttempt, ModelReply, ModelRequest, Notice
from mlgym_core.record.reader import read_events
from mlgym_core.sandbox.engine.docker import DockerBackend

T = TypeVar("T", bound=Event)

WRITE = "printf 'def row_strategy(history):\\n    return 0\\n' > strategy.py"
ONE = usage(100, 20, cost=1.0)
AT_ONCE = {"retry-after": "0"}


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.engine)])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        try:
            DockerBackend()
        except BackendUnavailableError as error:
            pytest.skip(str(error))
    return str(request.param)


@pytest.fixture
def play(server: ModelServer) -> Callable[..., dict[str, Any]]:
    """Runs the smallest task with what the server's script says; the result document, with events and folder."""

    def go(*script: Answer, then: Answer | None = None, **options: Any) -> dict[str, Any]:
        server.script(*script, then=then)
        settings = ModelSettings(base_url=server.url, price=options.pop("price", Price(1.0, 2.0)))
        config = RunConfig("battle-of-sexes", model="litellm:openai/test-model", size="tiny", settings=settings)
        result = run(attrs.evolve(config, **{"backend": "local", "allow_unsafe": True, **options}))
        events = list(read_events(result.folder))
        return {**result.document, "exit_code": result.exit_code, "folder": result.folder, "events": events}

    return go


def of(document: dict[str, Any], form: type[T]) -> list[T]:
    return [event for event in document["events"] if isinstance(event, form)]


def test_a_task_is_done_by_tool_calls(server: ModelServer, play: Callable[..., dict[str, Any]], backend: str) -> None:
    document = play(
        calls(("bash", {"command": "ls"}), ("bash", {"command": WRITE})),
        calls(("validate", {})),
        submit(),
        backend=backend,
    )
    assert (document["status"], document["reason"], document["exit_code"]) == ("scored", "submitted", 0)
    assert document["steps"] == 4
    assert document["scores"]["test"]["Score"] > 0
    assert document["tokens"] == {"prompt": 300, "completion": 60, "cached": 0, "reasoning": 0}
    assert document["cost"] == {"usd": pytest.approx(3 * 140e-6), "known": True}
    told = server.requests[1].messages
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool", "tool"]
    assert [m["tool_call_id"] for m in told[3:]] == [c["id"] for c in told[2]["tool_calls"]]
    assert "strategy.py" in told[3]["content"]


def test_a_task_is_done_by_text(server: ModelServer, play: Callable[..., dict[str, Any]], backend: str) -> None:
    script = [says(f"I write it.\n```bash\n{WRITE}\n```"), says("```\nvalidate\n```"), says("```\nsubmit\n```")]
    document = play(*script, backend=backend, agent="text")
    assert (document["status"], document["reason"], document["steps"]) == ("scored", "submitted", 3)
    assert document["scores"]["dev"][0]["step"] == 2
    assert "tools" not in server.requests[0].body
    assert [message["role"] for message in server.requests[1].messages] == ["system", "user", "assistant", "user"]


def test_a_file_is_edited_with_the_tools_by_calls_and_by_text(
    server: ModelServer, play: Callable[..., dict[str, Any]], backend: str
) -> None:
    new = "def row_strategy(history):\n    return 0\n"
    document = play(
        calls(("bash", {"command": "rm strategy.py"}), ("create", {"path": "strategy.py", "text": "x = y\n"})),
        calls(("create", {"path": "strategy.py", "text": new.replace("0", "1")})),
        calls(("edit", {"start": 2, "end": 2, "text": "    return history +"})),
        calls(("edit", {"start": 2, "end": 2, "text": "    return 0"})),
        submit(),
        backend=backend,
    )
    assert (document["status"], document["steps"]) == ("scored", 6)
    last = server.requests[-1].messages[-1]["content"]
    assert "2:    return 0" in last
    assert re.search(r"step 5 of 50, 45 left; open file: \S*/strategy.py; directory: \S+", last)
    assert "syntax" in server.requests[3].messages[-1]["content"].lower()
    words = [
        says("I look.\n```bash\nopen strategy.py 1\n```"),
        says(f"I write it anew.\n```bash\nrm strategy.py && create strategy.py <<'EOF'\n{new}EOF\n```"),
        says("```bash\nreplace 'return 0' 'return 1 - 1' && validate\n```"),
        says("```bash\nsubmit\n```"),
    ]
    document = play(*words, backend=backend, agent="text")
    assert (document["status"], document["steps"], len(document["scores"]["dev"])) == ("scored", 4, 1)
    assert document["scores"]["test"]["Score"] == pytest.approx(1.44, abs=0.1)


def test_malformed_calls_are_all_answered_cost_no_step_and_are_charged(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    broken = calls(("bash", '{"command": "l'), ("bash", {"command": "pwd"}), figures=ONE)
    document = play(broken, says("Let me think.", ONE), submit(ONE))
    assert (document["status"], document["steps"], document["cost"]["usd"]) == ("scored", 1, 3.0)
    answers = [m for m in server.requests[1].messages if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in answers] == ["call_0_bash", "call_1_bash"]
    assert "not a JSON object" in answers[0]["content"]
    first = of(document, ModelReply)[0].reply
    assert first["raw"]["damaged_arguments"] == {"call_0_bash": '{"command": "l'}


def test_waiting_and_empty_replies_use_up_no_step(server: ModelServer, play: Callable[..., dict[str, Any]]) -> None:
    document = play(
        fails(429, "slow down", headers={"retry-after": "1"}),
        fails(500, "boom", headers=AT_ONCE),
        fails(500, "boom", headers=AT_ONCE),
        bash(WRITE),
        empty(),
        submit(),
    )
    assert (document["status"], document["reason"], document["steps"]) == ("scored", "submitted", 2)
    assert len(server.requests) == 6
    attempts = [event.attempt for event in of(document, ModelAttempt)]
    assert [(a["kind"], a["status"]) for a in attempts] == [
        ("rate_limit", 429),
        ("server", 500),
        ("server", 500),
        ("empty", 200),
    ]
    assert attempts[0]["wait"] == 1.0
    assert document["wall_s"] >= 1.0
    assert len(of(document, ModelRequest)) == len(of(document, ModelReply)) == 2


def test_a_refused_key_ends_the_run_at_once_with_everything_recorded(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    document = play(bash(WRITE), then=fails(401, f"Incorrect API key: {KEY}"))
    assert (document["reason"], document["exit_code"], document["steps"]) == ("model_error", 3, 1)
    assert "authentication error 401: Incorrect API key" in document["message"]
    assert document["status"] == "scored"
    assert len(server.requests) == 2
    (event,) = of(document, ModelAttempt)
    assert (event.attempt["kind"], event.attempt["wait"]) == ("authentication", None)


def test_no_file_of_the_record_holds_the_key(play: Callable[..., dict[str, Any]]) -> None:
    document = play(
        says(f"Your key is {KEY}"), fails(500, KEY, headers=AT_ONCE), bash(f"echo {KEY}"), then=fails(401, KEY)
    )
    files = [path for path in document["folder"].rglob("*") if path.is_file()]
    assert {"run.json", "result.json", "events.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []
    assert "[redacted]" in document["message"]


def test_a_key_from_dotenv_is_hidden_too(
    server: ModelServer, play: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "sk-from-the-file-9876543210"
    monkeypatch.delenv("OPENAI_API_KEY")
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={other}\n")
    try:
        document = play(fails(401, f"Incorrect API key: {other}"))
    finally:
        os.environ.pop("OPENAI_API_KEY", None)
    sent = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert sent["authorization"] == f"Bearer {other}"
    assert all(other.encode() not in path.read_bytes() for path in document["folder"].rglob("*") if path.is_file())


def test_the_settings_are_in_the_manifest_and_the_providers_fields_in_the_events(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    document = play(submit(usage(100, 30, cached=60, reasoning=25)))
    manifest = json.loads((document["folder"] / "run.json").read_text())
    settings = manifest["model_settings"]
    assert (settings["temperature"], settings["top_p"], settings["base_url"]) == (0.0, 0.95, server.url)
    assert settings["price"] == {"prompt": 1.0, "completion": 2.0}
    (event,) = of(document, ModelReply)
    raw = event.reply["raw"]
    assert (raw["id"], raw["model"], raw["finish_reason"]) == ("cmpl-7", "served-1", "tool_calls")
    assert raw["usage"]["prompt_tokens_details"]["cached_tokens"] == 60
    assert (event.reply["usage"]["cached_tokens"], event.reply["usage"]["reasoning_tokens"]) == (60, 25)


# Limits


def test_every_charge_counts_failed_and_malformed_calls_too(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    script = [fails(500, "boom", ONE, headers=AT_ONCE), says("Hm.", ONE)]
    document = play(*script, then=bash("true", ONE), limits={"cost_usd": 3.0})
    assert (document["reason"], document["status"]) == ("cost", "scored")
    assert document["cost"] == {"usd": 3.0, "known": True}
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(fails(500, "boom", ONE, headers=AT_ONCE), "model_error"), (empty(ONE), "cost"), (says("Hm.", ONE), "cost")],
    ids=["error", "empty", "prose"],
)
def test_what_always_fails_stops_at_the_limit_on_cost(
    server: ModelServer, play: Callable[..., dict[str, Any]], answer: Answer, reason: str
) -> None:
    document = play(then=answer, limits={"cost_usd": 3.0})
    assert (document["reason"], document["steps"]) == (reason, 0)
    assert (document["cost"]["usd"], len(server.requests)) == (3.0, 3)


@pytest.mark.parametrize(
    "answer", [fails(429, "slow down", headers={"retry-after": "90"}), submit()], ids=["waiting", "asking"]
)
def test_the_limit_on_time_holds_while_waiting_and_asking(
    server: ModelServer, play: Callable[..., dict[str, Any]], answer: Answer
) -> None:
    slow = attrs.evolve(answer, delay=0.0 if answer.status == 429 else 90.0)
    document = play(bash(WRITE), then=slow, limits={"wall_seconds": 8.0})
    assert (document["reason"], document["status"], document["steps"]) == ("time", "scored", 1)
    assert len(server.requests) == 2
    assert document["wall_s"] < 60


def test_a_conversation_that_is_too_long_is_shortened_once(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    long = bash(f"{WRITE}; seq 5000")
    document = play(long, fails(400, "prompt is too long: 210000 tokens > 200000 maximum"), submit())
    assert (document["reason"], document["status"], document["steps"]) == ("submitted", "scored", 2)
    sizes = [len(json.dumps(request.messages)) for request in server.requests]
    assert sizes[2] < sizes[1] / 2


def test_a_conversation_that_stays_too_long_ends_the_run_and_is_graded(play: Callable[..., dict[str, Any]]) -> None:
    document = play(bash(WRITE), then=fails(400, "prompt is too long: 210000 tokens > 200000 maximum"))
    assert (document["reason"], document["status"], document["exit_code"]) == ("context", "scored", 0)


def test_without_a_price_a_limit_on_cost_is_refused_before_anything_is_created(
    server: ModelServer, play: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="--price"):
        play(submit(), price=None, limits={"cost_usd": 1.0})
    assert server.requests == []
    assert not (tmp_path / "runs").exists()


def test_without_a_limit_on_cost_an_unknown_price_is_noticed_once(
    server: ModelServer, play: Callable[..., dict[str, Any]]
) -> None:
    document = play(bash("true"), bash(WRITE), submit(), price=None, limits={"cost_usd": None})
    assert (document["status"], document["cost"]) == ("scored", {"usd": 0.0, "known": False})
    assert len(of(document, Notice)) == 1
    assert len(server.requests) == 3


# The command line


def mlgym(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlgym_core", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200", **variables},
        timeout=100,
        check=False,
    )


def test_the_command_takes_the_settings(server: ModelServer) -> None:
    base = ["run", "battle-of-sexes", "--size", "tiny", "--backend", "local", "--allow-unsafe", "--json"]
    base += ["--model", "litellm:openai/test-model", "--base-url", server.url]
    refused = mlgym(*base)
    assert refused.returncode == 2
    assert "--price" in refused.stderr
    server.script(fails(500, "boom", headers=AT_ONCE), submit(), then=submit())
    done = mlgym(*base, "--cost", "0", "--temperature", "0.5", "--top-p", "default", "--max-tokens", "99")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cost"]["known"] is False
    assert done.stderr.count("is not known") == 1
    assert "server: boom; next try in 0.0 s" in done.stderr
    body = server.requests[0].body
    assert (body["temperature"], body["max_tokens"], "top_p" in body) == (0.5, 99, False)
    done = mlgym(*base, "--price", "10,20")
    assert json.loads(done.stdout)["cost"] == {"usd": pytest.approx(1e-6 * (10 * 100 + 20 * 20)), "known": True}
    for wrong in (["--price", "3"], ["--price", "a,b"], ["--temperature", "hot"]):
        assert mlgym(*base, *wrong).returncode == 2


def test_the_example_of_the_documentation_runs(server: ModelServer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    (snippet,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "http://127.0.0.1:8000/v1" in snippet
    server.script(bash(WRITE), submit())
    code = snippet.replace("http://127.0.0.1:8000/v1", server.url).replace("size=", "allow_unsafe=True, size=")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "scored" in done.stdout
    assert [request.body["seed"] for request in server.requests] == [1, 1]
