"""Watching a run never changes it: readers that go away, full disks, closed descriptors, listeners that raise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import run_task, write_task

from mlgym_core import load_task_folder
from mlgym_core.record import events
from mlgym_core.record.reader import events_of, read_events, read_result

MLGYM = f"{sys.executable} -m mlgym_core"


@pytest.fixture
def command(tmp_path: Path) -> str:
    folder = write_task(tmp_path / "task")
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump(["echo 1", "echo 2; sleep 0.2", "echo 3 > answer.csv", {"tool": "submit"}]))
    return f"{MLGYM} run {folder} --backend local --out {tmp_path / 'runs'} --model scripted:{script}"


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def result_in(folder: Path) -> dict[str, Any]:
    (run,) = folder.iterdir()
    assert list(events_of(run, events.End))
    return read_result(run)


@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        ("2>&1 | head -1", None),
        ("2>/dev/full", 0),
        (">/dev/full", 1),
        (">/dev/full 2>/dev/full", 1),
        (">&-", 1),
        ("2>&-", 0),
        ("<&- >&- 2>&-", 1),
        ("--json 2>/dev/full", 0),
        ("--json >/dev/full", 1),
    ],
)
def test_a_run_goes_on_whatever_becomes_of_its_output(
    command: str, tmp_path: Path, redirected: str, code: int | None
) -> None:
    done = shell(f"{command} {redirected}", tmp_path)
    assert "Traceback" not in done.stdout + done.stderr
    if code is not None:
        assert done.returncode == code
    document = result_in(tmp_path / "runs")
    assert (document["status"], document["reason"], document["steps"]) == ("scored", "submitted", 4)


@pytest.mark.parametrize("words", ["tasks", "tasks --json", "plugins", "clean", "run no-such-task", "--help"])
@pytest.mark.parametrize("redirected", [">&-", "2>&-", ">/dev/full", "| true", ">&- 2>&- <&-"])
def test_no_command_ends_in_a_traceback(tmp_path: Path, words: str, redirected: str) -> None:
    done = shell(f"{MLGYM} {words} {redirected}", tmp_path)
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_descriptor_is_not_given_to_a_file_of_the_run(command: str, tmp_path: Path) -> None:
    shell(f"{command} >&- 2>&-", tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    assert list(read_events(run)), "every line of the record is an event"


@pytest.mark.parametrize("error", [RuntimeError("down"), OSError(28, "full"), SystemExit(3), RecursionError()])
@pytest.mark.parametrize("at", ["start", "step", "grade", "end"])
def test_a_listener_that_raises_is_left_out_and_the_run_goes_on(tmp_path: Path, error: BaseException, at: str) -> None:
    seen = []

    def listener(event: Mapping[str, Any]) -> None:
        seen.append(event["kind"])
        if event["kind"] == at:
            raise error

    task = load_task_folder(write_task(tmp_path / "task"))
    result = run_task(task, backend="local", out=tmp_path / "runs", on_event=listener)
    assert result.document["status"] == "scored"
    assert seen[-1] == at
    notices = [event.text for event in events_of(result.folder, events.Notice)]
    assert any("listener" in text for text in notices)


def test_a_listener_may_be_interrupted_by_the_person_who_runs_it(tmp_path: Path) -> None:
    def listener(event: Mapping[str, Any]) -> None:
        if event["kind"] == "step":
            raise KeyboardInterrupt

    task = load_task_folder(write_task(tmp_path / "task"))
    with pytest.raises(KeyboardInterrupt):
        run_task(task, backend="local", out=tmp_path / "runs", on_event=listener)
    assert result_in(tmp_path / "runs")["status"] == "interrupted"
