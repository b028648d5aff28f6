"""``mlgym data``, and how runs and gradings come by prepared data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import TASK_YAML, PluginFolder, run_task, write_task

from mlgym_core import grade_folder
from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.task.task import Task
from mlgym_core.task.taskfile import load_task_folder

MODULE = """
EXPECTS = "a folder"
def prepare(source, size, seed, out):
    if source.kind == "hub":
        raise RuntimeError("unreachable")
    out.progress("working")
    (out.public / "x").write_text(f"x {seed}")
    (out.private / "answer").write_text(str(seed))
"""
YAML = TASK_YAML.replace("echo 1 > answer.csv", "cut -c 3- data/x > answer.csv; ls data > seen") + (
    "data: {{sources: [synthetic, hub, local]}}\n"
)
GRADE = """
import mlgym_peer as peer
job = peer.job()
right = (job.paths["data"] / "answer").read_text()
seen = sorted(p.name for p in job.paths["public_data"].iterdir())
given = (job.paths["submission"] / "answer.csv").read_text().strip()
peer.scored({"Score": float(given == right)}, details={"seen": seen})
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))


def with_data(folder: Path, task_id: str) -> Path:
    write_task(folder, task_id, GRADE, YAML)
    (folder / "data.py").write_text(MODULE)
    return folder


@pytest.fixture
def installed(plugins: PluginFolder) -> PluginFolder:
    plugins.add_task("fed")
    with_data(plugins.folder / "plug_fed", "fed")
    plugins.add_task("plain")
    return plugins


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task_folder(with_data(tmp_path / "fed", "fed"))


def answer(installed: PluginFolder, *arguments: str, code: int = 0) -> Any:
    done = installed.run("data", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_prepare_list_verify_remove(installed: PluginFolder) -> None:
    made = answer(installed, "prepare", "fed", "--seed", "3")
    assert (made["task"], made["source"], made["size"], made["seed"]) == ("fed", "synthetic", "full", 3)
    assert Path(made["public"], "x").read_text() == "x 3"
    assert set(made["files"]) == {"public/x", "private/answer"}
    (entry,) = answer(installed, "list")
    assert (entry["task"], entry["bytes"], entry["files"]) == ("fed", 4, 2)
    assert answer(installed, "verify", "fed") == {"schema": 1, "intact": 1, "damaged": []}
    Path(made["public"], "x").write_text("other")
    found = answer(installed, "verify", code=1)
    assert (found["intact"], found["damaged"][0]["problems"]) == (0, ["public/x has changed"])
    answer(installed, "prepare", "fed")
    assert [one["seed"] for one in answer(installed, "remove", "fed")] == [0]
    assert answer(installed, "list") == answer(installed, "remove", "--all") == []


def test_for_people(installed: PluginFolder) -> None:
    done = installed.run("data", "prepare", "fed")
    assert (done.returncode, Path(done.stdout.strip(), "public", "x").read_text()) == (0, "x 0")
    assert "working" in done.stderr
    done = installed.run("data", "list", "fed")
    assert done.stdout.startswith("fed ")
    assert "synthetic, size full, seed 0" in done.stdout
    assert "needs no data" in installed.run("data", "prepare", "plain").stderr
    assert "1 removed" in installed.run("data", "remove", "--all").stderr
    assert "no data has been prepared" in installed.run("data", "list").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["remove"], 2, "name a task, or pass --all"),
        (["remove", "fed", "--all"], 2, "name a task, or pass --all"),
        (["remove", ".."], 2, "holds no task.yaml"),
        (["list", "absent"], 2, "unknown task"),
        (["prepare", "fed", "--source", "magic"], 2, "choose from: synthetic, hub, local:<folder or file>"),
        (["prepare", "plain", "--source", "hub"], 2, "has no data"),
        (["prepare", "fed", "--source", "hub"], 3, "from hub failed: RuntimeError: unreachable"),
    ],
)
def test_refusals(installed: PluginFolder, arguments: list[str], code: int, reason: str) -> None:
    done = installed.run("data", *arguments)
    assert done.returncode == code
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_shows_the_progress_and_records_what_it_used(task: Task, tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    config = {"task": task, "backend": "local", "seed": 5, "out": tmp_path / "runs"}
    result = run_task(**config, on_event=events.append)
    assert result.document["scores"]["test"] == {"Score": 1.0}
    assert result.document["source"] == "synthetic"
    told = [event["text"] for event in events if event["kind"] == "progress"]
    assert told[1] == "working"
    manifest = json.loads((result.folder / "run.json").read_text())
    assert set(manifest["data_checksums"]) == {"public/x", "private/answer"}
    assert manifest["seeds"]["data"] == 5
    assert '"text":"working"' not in (result.folder / "events.jsonl").read_text()


def test_the_agent_sees_the_public_part_alone(task: Task, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps(["ls data; find / -name answer -path '*private*' 2>/dev/null; echo 0 > answer.csv"]))
    config = {"task": task, "model": f"scripted:{script}", "backend": "local", "out": tmp_path / "runs"}
    result = run_task(**config)
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    (step,) = (event for event in events if event["kind"] == "step" and event["tool"] == "bash")
    if result.document["sealed"]:
        assert step["observation"] == "x"
    else:
        assert step["observation"].startswith("x")


def test_a_grading_uses_the_data_of_its_seed(task: Task, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "answer.csv").write_text("7")
    told: list[str] = []
    scores = [
        grade_folder(task, tmp_path / "work", backend="local", seed=seed, progress=told.append).metrics["Score"]
        for seed in (7, 8)
    ]
    assert scores == [1.0, 0.0]
    assert told.count("working") == 2


@pytest.mark.parametrize(("source", "error"), [("magic", UsageError), ("hub", InfrastructureError)])
def test_data_that_cannot_be_had_is_refused_before_anything_is_made(
    task: Task, tmp_path: Path, source: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        run_task(task=task, backend="local", source=source, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
