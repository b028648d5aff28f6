"""Whole runs on the local backend: what ends them, what is scored, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import PluginFolder, open_task, run_task

from mlgym_core import Action, Episode, read_result
from mlgym_core.agent.budget import Budget
from mlgym_core.cli.progress import result_table
from mlgym_core.errors import BackendUnavailableError, InvalidSubmissionError, RecordError, UsageError
from mlgym_core.grading.sealed import derive_seed
from mlgym_core.grading.secrets import Secrets
from mlgym_core.models.base import ContextOverflowError, Message, Reply, ToolCall, Usage
from mlgym_core.plugins.loading import Registry
from mlgym_core.record import events
from mlgym_core.record.eventjson import to_json
from mlgym_core.record.reader import events_of, read_events
from mlgym_core.runner.backends import choose
from mlgym_core.runner.document import RunResult
from mlgym_core.runner.execution import grade_folder
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.task.task import SPLITS, Task
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.base import Tool

# Reads one number; dev and test differ, so that a test can tell which was scored.
GRADE = """
import mlgym_peer as peer
job = peer.job()
try:
    value = float(open("submission/answer.csv").read())
except ValueError as error:
    raise peer.InvalidSubmission(f"answer.csv is not a number: {error}") from error
score = value if job.split == "test" else value / 10
peer.scored({"Score": score}, details={"too_good": value > 8, "value": value})
"""


@pytest.fixture
def task(task_folder: Callable[..., Path]) -> Task:
    return load_task_folder(task_folder(grade=GRADE))


@pytest.fixture
def play(task: Task, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a script and returns the result document, with ``folder``."""

    def go(script: Sequence[Any], **options: Any) -> dict[str, Any]:
        path = tmp_path / "script.yaml"
        path.write_text(yaml.safe_dump(list(script)))
        result = run_task(task, model=f"scripted:{path}", backend="local", **options)
        return {**result.document, "exit_code": result.exit_code, "folder": result.folder}

    return go


def needs(backend: str) -> None:
    try:
        choose(Registry(), backend)
    except BackendUnavailableError as error:
        pytest.skip(str(error))


def put(value: object) -> str:
    return f"echo {value} > answer.csv"


VALIDATE, SUBMIT = {"tool": "validate"}, {"tool": "submit"}


def test_a_submitted_run_is_scored_on_test(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(5), VALIDATE, put(7), SUBMIT])
    assert (document["status"], document["reason"], document["exit_code"]) == ("scored", "submitted", 0)
    assert [entry["Score"] for entry in document["scores"]["dev"]] == [0.5]
    assert document["scores"]["test"] == {"Score": 7.0}
    assert document["scores"]["best_attempt"]["Score"] == 7.0
    assert read_result(document["folder"])["scores"] == document["scores"]


def test_what_the_grader_told_is_in_the_result_and_its_flags_are_shown(
    play: Callable[..., dict[str, Any]], task: Task, tmp_path: Path
) -> None:
    document = play([put(9), SUBMIT])
    assert document["details"] == {"too_good": True, "value": 9.0}
    table = result_table(RunResult(document, document["folder"]))
    assert "flagged by the grader: too good" in str(table.caption)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "answer.csv").write_text("9")
    words = ["grade", str(task.folder), str(tmp_path / "mine"), "--backend", "local"]
    done = subprocess.run([sys.executable, "-m", "mlgym_core", *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Score: 9", "flagged by the grader: too good"]


def test_the_best_attempt_is_the_best_of_all_accepted_on_test(play: Callable[..., dict[str, Any]]) -> None:
    scores = play([put(9), VALIDATE, put(3), VALIDATE, put(3), SUBMIT])["scores"]
    assert scores["test"] == {"Score": 3.0}
    assert (scores["best_attempt"]["Score"], scores["best_attempt"]["step"]) == (9.0, 2)
    assert scores["best_on_dev"]["Score"] == 9.0


def test_at_the_step_limit_the_workspace_is_graded(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(4), "true", "true"], limits={"steps": 3})
    assert (document["status"], document["reason"], document["exit_code"]) == ("scored", "steps", 0)
    assert document["scores"]["test"] == {"Score": 4.0}


def test_at_a_limit_an_invalid_workspace_falls_back_to_the_newest_valid_archive(
    play: Callable[..., dict[str, Any]],
) -> None:
    document = play([put(1), VALIDATE, put(2), VALIDATE, put("nonsense")], limits={"steps": 5})
    assert document["scores"]["test"] == {"Score": 2.0}


def test_a_run_without_a_submission_has_no_score(play: Callable[..., dict[str, Any]]) -> None:
    document = play(["true"], limits={"steps": 1})
    assert (document["status"], document["exit_code"], document["scores"]["test"]) == ("no_submission", 1, {})
    document = play([put("nonsense")], limits={"steps": 1})
    assert (document["status"], document["exit_code"]) == ("invalid_submission", 1)


def test_an_invalid_submission_costs_a_step_and_ends_nothing(play: Callable[..., dict[str, Any]]) -> None:
    document = play([SUBMIT, put("nonsense"), SUBMIT, VALIDATE, put(1), SUBMIT])
    assert (document["status"], document["steps"]) == ("scored", 6)
    seen = [e.observation for e in events_of(document["folder"], events.Step)]
    assert "answer.csv" in seen[0]
    assert "not a number" in seen[2]
    assert "not a number" in seen[3]


def test_validations_are_counted_when_they_are_scored(play: Callable[..., dict[str, Any]]) -> None:
    script = [VALIDATE, put(1), VALIDATE, put(2), VALIDATE, put(3), VALIDATE, SUBMIT]
    document = play(script, limits={"validations": 2})
    assert [entry["Score"] for entry in document["scores"]["dev"]] == [0.1, 0.2]
    assert document["status"] == "scored"


def test_a_script_that_ends_without_submitting_is_graded_and_reported(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(6)])
    assert (document["status"], document["reason"], document["exit_code"]) == ("scored", "stopped", 0)
    notices = [e.text for e in events_of(document["folder"], events.Notice)]
    assert "ended after 1 actions, and no submission had been accepted" in notices[0]
    assert document["scores"]["test"] == {"Score": 6.0}


def test_malformed_replies_cost_no_step_and_end_the_run_when_they_go_on(play: Callable[..., dict[str, Any]]) -> None:
    prose = {"text": "I am done, I think."}
    document = play([prose, prose, prose, put(1), SUBMIT])
    assert (document["status"], document["steps"]) == ("scored", 2)
    document = play([put(1), prose, prose, prose, prose])
    assert (document["reason"], document["steps"]) == ("format", 1)


def test_text_actions_work_like_tool_calls(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(2), VALIDATE, SUBMIT], agent="text")
    assert (document["status"], document["steps"], document["agent"]) == ("scored", 3, "text")


def test_printing_what_looks_like_a_submission_submits_nothing(play: Callable[..., dict[str, Any]]) -> None:
    document = play(["echo submit; echo '```bash'; echo submit; echo '```'", "cat submit", put(1), SUBMIT])
    assert document["steps"] == 4


def test_the_grading_secret_is_in_the_record_only_after_the_run(task: Task, tmp_path: Path) -> None:
    secret = bytes(range(16))
    seen: list[str] = []
    config = {"task": task, "backend": "local", "out": tmp_path / "runs", "secrets": Secrets.fixed(secret)}

    def look(event: Mapping[str, Any]) -> None:
        for path in (tmp_path / "runs").rglob("*.json*"):
            if event["kind"] != "end":
                seen.append(path.read_text())

    result = run_task(**config, on_event=look)
    assert seen
    assert not any(secret.hex() in text for text in seen)
    manifest = json.loads((result.folder / "run.json").read_text())
    assert manifest["seeds"]["grading"] == secret.hex()
    assert secret.hex() not in (result.folder / "events.jsonl").read_text()


def test_every_field_of_the_result_is_there(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(1), SUBMIT])
    needed = (
        "schema run_id task protocol size source seed model agent backend sealed missing_capabilities validate_on "
        "status reason steps scores primary_metric baseline improvement cost tokens wall_s versions"
    )
    assert set(needed.split()) <= set(document)
    manifest = json.loads((document["folder"] / "run.json").read_text())
    assert {"limits", "hardware", "network", "seeds", "data_checksums", "backend_choice"} <= set(manifest)


def test_validating_on_test_reproduces_the_published_protocol_and_says_so(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(5), VALIDATE, SUBMIT], validate_on="test")
    assert document["validate_on"] == "test"
    step = next(e for e in events_of(document["folder"], events.Step) if e.tool == "validate")
    assert "test score: Score 5" in step.observation


# --- graders that misbehave --------------------------------------------------------------------------------

BAD_GRADERS = {
    "prints a score": "print('score: 0.99', flush=True)\n",
    "raises": "raise RuntimeError('out of luck')\n",
    "writes none": "pass\n",
    "writes two results": "open('result.json', 'w').write('{\"schema\": 1}{\"schema\": 1}')\n",
    "writes nan": 'open(\'result.json\', \'w\').write(\'{"schema": 1, "outcome": "scored", "metrics": {"Score": NaN}}\')',  # noqa: E501
    "hangs": "import time\nprint('about to hang', flush=True)\ntime.sleep(600)\n",
}


@pytest.mark.parametrize("backend", ["local", pytest.param("docker", marks=pytest.mark.engine)])
@pytest.mark.parametrize("kind", BAD_GRADERS)
def test_a_failing_grader_gives_no_score_and_loses_nothing(
    task_folder: Callable[..., Path], tmp_path: Path, kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(backend)
    monkeypatch.setattr("mlgym_core.grading.sealed.GRACE_SECONDS", 0.2)
    folder = task_folder(grade=BAD_GRADERS[kind])
    (folder / "image" / "Dockerfile").write_text("FROM debian:bookworm-slim\n")
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump([put(1), VALIDATE, SUBMIT]))
    limits = {"grading_seconds": 1.0}
    broken = run_task(load_task_folder(folder), model=f"scripted:{script}", backend=backend, limits=limits)
    assert (broken.status, broken.exit_code, broken.score) == ("grader_error", 3, None)
    assert broken.document["scores"]["test"] == {}
    assert broken.document["scores"]["dev"] == []
    grades = [e.grade for e in events_of(broken.folder, events.Grade)]
    assert grades
    assert all(grade["message"] for grade in grades)
    archives = list((broken.folder / "submissions").iterdir())
    assert len(archives) == 1
    if kind == "prints a score":
        assert "score: 0.99" in grades[-1]["log"]


# --- models ----------------------------------------------------------------------------------------------------------


class FakeModel:
    """Charges for every call; does what it was told to."""

    name = "fake"
    remote = False

    def __init__(self, replies: Sequence[Reply | BaseException]) -> None:
        self._replies = list(replies)

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, BaseException):
            raise reply
        return reply


def run_fake(task: Task, replies: Sequence[Reply | BaseException], **options: Any) -> dict[str, Any]:
    return dict(run_task(task, model=FakeModel(replies), backend="local", **options).document)


def test_limits_of_cost_tokens_and_time_end_a_run_with_their_reason(task: Task) -> None:
    paid = Reply("", (ToolCall("1", "bash", {"command": put(1)}),), Usage(10, 5, 0.5))
    document = run_fake(task, [paid], limits={"cost_usd": 2.0})
    assert (document["reason"], document["cost"], document["steps"]) == ("cost", {"usd": 2.0, "known": True}, 4)
    assert document["status"] == "scored"
    document = run_fake(task, [paid], limits={"tokens": 30, "cost_usd": None})
    assert (document["reason"], document["tokens"]) == (
        "tokens",
        {"prompt": 20, "completion": 10, "cached": 0, "reasoning": 0},
    )
    slow = Reply("", (ToolCall("1", "bash", {"command": f"{put(1)}; sleep 60"}),), Usage())
    document = run_fake(task, [slow], limits={"wall_seconds": 0.5})
    assert (document["reason"], document["status"]) == ("time", "scored")


def test_a_full_context_ends_the_run_and_is_graded(task: Task) -> None:
    good = Reply("", (ToolCall("1", "bash", {"command": put(3)}),), Usage())
    document = run_fake(task, [good, ContextOverflowError("too long")])
    assert (document["reason"], document["status"]) == ("context", "scored")


def test_a_bug_in_a_model_ends_the_work_and_not_the_run(task: Task, tmp_path: Path) -> None:
    good = Reply("", (ToolCall("1", "bash", {"command": put(3)}),), Usage())
    document = run_fake(task, [good, ZeroDivisionError("bug")])
    assert (document["reason"], document["status"], document["scores"]["test"]) == (
        "model_error",
        "scored",
        {"Score": 3.0},
    )
    assert "ZeroDivisionError: bug" in document["message"]
    (folder,) = (tmp_path / "runs").iterdir()
    (event,) = events_of(folder, events.AgentFailed)
    assert "Traceback" in event.traceback


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -5.0, None])
def test_a_price_that_makes_no_sense_is_an_unknown_one(task: Task, cost: float | None) -> None:
    odd = Reply("", (ToolCall("1", "bash", {"command": "true"}),), Usage(1, 1, cost))
    document = run_fake(task, [odd], limits={"steps": 2})
    assert document["cost"] == {"usd": 0.0, "known": False}


def test_arguments_that_are_no_json_are_answered_and_recorded(task: Task) -> None:
    odd = Reply("", (ToolCall("1", "bash", {"command": "echo hi", "timeout": float("nan")}),), Usage())
    document = run_fake(task, [odd], limits={"steps": 1})
    assert (document["reason"], document["steps"]) == ("format", 0)


class OwnAgent:
    """A program inside the sandbox, started with one step."""

    name = "own-name"

    def run(self, episode: Episode, budget: Budget) -> str:
        episode.step(Action("bash", {"command": f"sh -c '{put(4)}'", "timeout": 60}))
        episode.step(Action("submit"))
        return "whatever"


def test_agents_models_and_backends_of_ones_own_are_taken_as_they_are(task: Task) -> None:
    result = run_task(task, model=FakeModel([]), agent=OwnAgent(), backend=LocalBackend())
    document = result.document
    assert (document["agent"], document["reason"], document["scores"]["test"]) == (
        "own-name",
        "submitted",
        {"Score": 4.0},
    )


def test_a_remote_model_is_not_let_into_plain_processes_unasked(task: Task, tmp_path: Path) -> None:
    class Remote(FakeModel):
        remote = True

    with pytest.raises(UsageError, match="--allow-unsafe"):
        run_task(task, model=Remote([]), backend="local:plain")
    with pytest.raises(UsageError, match="allow_unsafe=True"), open_task(task, backend="local:plain"):
        pass
    assert not (tmp_path / "runs").exists()
    with open_task(task, backend="local:plain", allow_unsafe=True) as episode:
        episode.reset()
        assert episode.step("echo hi").observation == "hi"


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "huge"}, "choose from: full"),
        ({"model": "gpt"}, "unknown model 'gpt'"),
        ({"agent": "smith"}, "unknown agent 'smith'"),
        ({"backend": "cloud"}, "unknown backend 'cloud'"),
        ({"limits": {"steps": 0}}, "must be positive"),
        ({"limits": {"stops": 1}}, "unknown limit 'stops'"),
        ({"limits": {"steps": None}}, "limits.steps: None is not a whole number"),
        ({"limits": {"cost_usd": float("inf")}}, "must be positive"),
        ({"limits": {"wall_seconds": "5"}}, "not a number"),
        ({"backend": "local:cloud"}, "local:isolated or local:plain"),
        ({"agent": "default:x"}, "takes no argument"),
        ({"source": "hub"}, "has no data"),
        ({"validate_on": "train"}, "dev or test"),
        ({"network": "some"}, "none or full"),
    ],
)
def test_bad_configuration_is_refused_and_leaves_nothing_behind(
    task: Task, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run_task(task, **{"backend": "local", **options})
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_graded_as_a_run_would_be(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "submission"
    folder.mkdir()
    with pytest.raises(InvalidSubmissionError, match=r"answer\.csv"):
        grade_folder(task, folder, backend="local")
    (folder / "answer.csv").write_text("8")
    assert grade_folder(task, folder, backend="local").metrics == {"Score": 8.0}
    assert grade_folder(task, folder, backend="local", split="dev").metrics == {"Score": 0.8}
    with pytest.raises(UsageError, match="does not exist"):
        grade_folder(task, tmp_path / "absent", backend="local")


def test_an_unwritable_run_folder_is_an_error_before_anything_starts(task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="--out"):
        run_task(task, backend="local", out=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_in_the_run_folder_ends_the_run_and_leaves_no_sandbox(
    command: PluginFolder, tmp_path: Path
) -> None:
    disk, scratch, script = tmp_path / "disk", tmp_path / "scratch", tmp_path / "script.yaml"
    disk.mkdir()
    script.write_text(yaml.safe_dump([*["head -c 20000 /dev/urandom | base64"] * 20, SUBMIT]))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        options = ["--backend", "local", "--model", f"scripted:{script}", "--out", str(disk)]
        done = command.run("run", "sample-task", *options, MLGYM_SCRATCH=str(scratch))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert done.returncode == 3
    assert "No space left on device; free some space or choose another folder with --out" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(scratch.glob("*/*"))


# --- the library -----------------------------------------------------------------------------------------------------


def test_an_episode_is_stepped_without_agent_and_model(task: Task) -> None:
    with open_task(task, backend="local", allow_unsafe=True) as episode:
        with pytest.raises(UsageError, match="reset"):
            episode.step("ls")
        assert "Do {this}" in episode.reset()
        assert episode.step("echo hi").observation == "hi"
        assert "no tool 'fly'" in episode.step(Action("fly")).observation
        assert episode.step("exit 3").info["exit_code"] == 3
        episode.step(put(2))
        result = episode.step(Action("submit"))
        assert (result.done, result.reason, result.step) == (True, "submitted", 4)
        with pytest.raises(UsageError, match="over"):
            episode.step("ls")
        assert episode.submitted is not None
        assert episode.submitted.grades["test"].metrics == {"Score": 2.0}


def test_an_episode_of_ones_own_leaves_a_whole_record(task: Task, tmp_path: Path) -> None:
    with open_task(task, backend="local", allow_unsafe=True) as episode:
        episode.reset()
        episode.step(put(2))
        episode.finish("stopped")
    (folder,) = (tmp_path / "runs").iterdir()
    document = read_result(folder)
    assert (document["status"], document["reason"], document["model"]) == ("scored", "stopped", None)
    assert document["scores"]["test"] == {"Score": 2.0}
    manifest = json.loads((folder / "run.json").read_text())
    assert set(manifest["images"]) == {"agent", "grader"}
    assert {"bash", "validate", "submit"} <= set(manifest["tools"])
    kinds = [e.kind for e in read_events(folder)]
    assert (kinds[0], kinds[-1]) == ("start", "end")


def test_leaving_an_episode_grades_nothing_by_itself(task: Task, tmp_path: Path) -> None:
    with open_task(task, backend="local", allow_unsafe=True) as episode:
        episode.reset()
        episode.step(put(2))
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_result(folder)["status"] == "no_submission"


def test_accepted_attempts_stand_in_the_result(play: Callable[..., dict[str, Any]]) -> None:
    document = play([put(1), VALIDATE, put("nonsense"), VALIDATE, put(2), VALIDATE, put(1), SUBMIT])
    attempts = document["attempts"]
    assert [(a["step"], a["counts"]) for a in attempts] == [(2, False), (6, False), (8, True)]
    graded = [{split: grade["metrics"]["Score"] for split, grade in a["grades"].items()} for a in attempts]
    assert graded == [{"dev": 0.1, "test": 1.0}, {"dev": 0.2, "test": 2.0}, {"dev": 0.1, "test": 1.0}]
    assert attempts[0]["archive"] == attempts[2]["archive"] != attempts[1]["archive"]
    assert all((document["folder"] / "submissions" / f"{a['archive']}.tar").exists() for a in attempts)
    keys = {"outcome", "metrics", "standard_error", "message", "details", "seconds"}
    assert set(attempts[0]["grades"]["dev"]) == keys


def test_listeners_see_what_is_recorded(task: Task, tmp_path: Path) -> None:
    seen: list[Any] = []
    result = run_task(task, backend="local", on_event=seen.append)
    recorded = (result.folder / "events.jsonl").read_text().splitlines()
    assert seen == [json.loads(line) for line in recorded]
    assert seen == [to_json(event) for event in read_events(result.folder)]
    assert not list(events_of(result.folder, events.UnknownEvent))
    assert all(list(event)[:2] == ["t", "kind"] for event in seen)


def test_a_grader_that_prints_its_seed_does_not_put_it_into_the_record(task_folder: Callable[..., Path]) -> None:
    grade = "import mlgym_peer as peer\nprint(peer.job().seed)\npeer.scored({'Score': 1.0})\n"
    seen: list[str] = []
    secret = bytes(range(16))
    task = load_task_folder(task_folder(grade=grade))
    secrets = Secrets.fixed(secret)
    result = run_task(task, backend="local", secrets=secrets, on_event=lambda event: seen.append(json.dumps(event)))
    seeds = [derive_seed(secret, task.id, split) for split in SPLITS]
    text = "".join(seen) + (result.folder / "events.jsonl").read_text()
    assert "[redacted]" in text
    assert not [seed for seed in seeds if seed in text]


def test_a_run_cleans_up_after_dead_ones(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    monkeypatch.setenv("MLGYM_SCRATCH", str(scratch))
    script = (
        "import os, signal\nfrom pathlib import Path\nfrom mlgym_core import *\n"
        f"config, task = RunConfig(backend='local', allow_unsafe=True), load_task_folder(Path({str(task.folder)!r}))\n"
        "with open_episode(config, task=task) as episode:\n    episode.reset()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert len(list(scratch.glob("*/*"))) == 1
    result = run_task(task, backend="local")
    assert list(events_of(result.folder, events.Reaped))
    assert not list(scratch.glob("*/*"))


def test_many_episodes_run_in_threads_at_once(task: Task) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> float:
        with open_task(task, backend="local", allow_unsafe=True) as episode:
            episode.reset()
            episode.step(put(number))
            episode.step(Action("submit"))
            assert episode.submitted is not None
            return episode.submitted.grades["test"].metrics["Score"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == list(range(8))


def test_runs_go_on_side_by_side_under_asyncio(task: Task) -> None:
    import asyncio

    async def several() -> list[float | None]:
        runs = [asyncio.to_thread(run_task, task, backend="local") for _ in range(3)]
        return [result.score for result in await asyncio.gather(*runs)]

    assert asyncio.run(several()) == [1.0, 1.0, 1.0]


def test_the_library_prints_nothing(task: Task, capfd: pytest.CaptureFixture[str]) -> None:
    run_task(task, backend="local")
    assert capfd.readouterr() == ("", "")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(plugins: PluginFolder) -> PluginFolder:
    """The command with one task, ``sample-task``, installed."""
    plugins.add_task("sample-task")
    (plugins.folder / "plug_sample_task" / "private" / "grade.py").write_text(GRADE)
    return plugins


def test_run_prints_one_json_document_and_the_progress_elsewhere(command: PluginFolder) -> None:
    done = command.run("run", "sample-task", "--backend", "local", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["status"], document["scores"]["test"]) == ("scored", {"Score": 1.0})
    assert "step 3/50" in done.stderr
    assert "record:" in done.stderr


def test_run_ends_with_a_table(command: PluginFolder) -> None:
    done = command.run("run", "sample-task", "--backend", "local")
    assert done.returncode == 0
    assert "scored (submitted)" in done.stdout
    assert "improvement" in done.stdout


def test_baseline_and_grade_and_show(command: PluginFolder, tmp_path: Path) -> None:
    assert command.run("baseline", "sample-task", "--backend", "local").returncode == 0
    assert "Score (higher is better)" in command.run("tasks", "show", "sample-task").stdout
    assert json.loads(command.run("tasks", "show", "sample-task", "--json").stdout)["id"] == "sample-task"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "answer.csv").write_text("3.5")
    done = command.run("grade", "sample-task", str(tmp_path / "mine"), "--json", "--backend", "local")
    assert json.loads(done.stdout)["scores"]["test"] == {"Score": 3.5}
    (tmp_path / "mine" / "answer.csv").write_text("text")
    done = command.run("grade", "sample-task", str(tmp_path / "mine"), "--backend", "local")
    assert done.returncode == 1
    assert "not a number" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "smaple-task"], 2, "did you mean sample-task?"),
        (["run", "sample-task", "--size", "huge"], 2, "choose from: full"),
        (["run", "sample-task", "--backend", "cloud"], 2, "unknown backend"),
        (["run", "sample-task", "--modle", "x"], 2, "--modle"),
        (["run"], 2, "Missing argument"),
        (["grade", "sample-task", "/nonexistent/folder"], 2, "does not exist"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_bad_usage_exits_2_without_a_traceback(
    command: PluginFolder, arguments: list[str], code: int, message: str
) -> None:
    done = command.run(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "kind"), [(["smaple-task"], "UnknownTaskError"), (["sample-task", "--modle", "x"], "UsageError")]
)
def test_errors_are_json_too_when_asked_for(command: PluginFolder, arguments: list[str], kind: str) -> None:
    done = command.run("run", *arguments, "--json")
    assert json.loads(done.stdout)["error"]["type"] == kind
    assert done.returncode == 2


def test_mistakes_in_a_script_are_found_before_anything_runs(command: PluginFolder, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    for action, message in (
        ({"tool": "validat"}, "no tool 'validat'"),
        ({"tool": "bash", "arguments": {"cmd": "ls"}}, "argument 'command' is missing"),
        ("submit", "write {tool: submit}"),
    ):
        script.write_text(yaml.safe_dump(["ls", action]))
        done = command.run("run", "sample-task", "--model", f"scripted:{script}")
        assert done.returncode == 2
        assert "action 2" in done.stderr
        assert message in done.stderr


def test_progress_shows_what_went_wrong(command: PluginFolder, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        yaml.safe_dump(["exit 7", SUBMIT, {"tool": "bash", "arguments": {"command": "sleep 9", "timeout": 1}}])
    )
    done = command.run("run", "sample-task", "--model", f"scripted:{script}", "--backend", "local")
    assert done.returncode == 1
    assert "[exit code 7]" in done.stderr
    assert "answer.csv is missing" in done.stderr
    assert "[killed at its time limit]" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("again", [False, True])
def test_an_interrupted_run_is_recorded_and_cleaned_up(
    command: PluginFolder, tmp_path: Path, number: signal.Signals, code: int, again: bool
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump([f"{put(1)}; touch started; sleep 600", SUBMIT]))
    runs, scratch = tmp_path / "runs", tmp_path / "scratch"
    path = os.pathsep.join([str(command.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = ["run", "sample-task", "--backend", "local", "--json", "--model", f"scripted:{script}"]
    arguments += ["--out", str(runs)]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlgym_core", *arguments],
        env={**os.environ, "PYTHONPATH": path, "MLGYM_SCRATCH": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not list(scratch.glob("**/started")):
        assert time.monotonic() < deadline, process.communicate(timeout=1)
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    if again:
        process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert json.loads(output)["status"] == "interrupted"
    assert b"record: " in errors
    (folder,) = runs.iterdir()
    assert read_result(folder)["status"] == "interrupted"
    assert not list(scratch.glob("*/*")), "a sandbox was left behind"
