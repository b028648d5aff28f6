"""Each check passes on a sound task and fails on one that breaks its promise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from checking.broken import BROKEN

from mlgym_core.authoring.checking import Report, checks_for
from mlgym_core.plugins.loading import Registry
from mlgym_core.runner.backends import choose
from mlgym_core.task.task import Capability
from mlgym_core.task.taskfile import load_task_folder

Check = Callable[..., Report]
ISOLATED = ("canary", "attack-")


def need_isolation() -> None:
    backend = choose(Registry(), "local").backend
    if Capability.ISOLATION not in backend.capabilities():
        pytest.skip(f"the local backend does not isolate here: {backend.describe()}")


@pytest.mark.parametrize("kind", ["table", "code"])
def test_a_sound_task_passes(check: Check, request: pytest.FixtureRequest, kind: str) -> None:
    folder = request.getfixturevalue(f"{kind}_task")
    report = check(folder, attacks="none")
    bad = [one for one in report.findings if one.outcome == "failed"]
    assert not bad, bad
    # The code is wrong by five on every instance, so that its two splits cannot differ.
    allowed = {"data", "splits"} if kind == "code" else set()
    allowed |= set() if report.sealed else {"canary"}
    assert {one.name for one in report.findings if one.outcome == "skipped"} == allowed
    assert (report.status, report.exit_code, report.infrastructure) == ("passed", 0, "")


@pytest.mark.isolation
@pytest.mark.parametrize("kind", ["table", "code"])
def test_a_sound_task_withstands_the_attacks_on_its_grader(
    check: Check, request: pytest.FixtureRequest, kind: str
) -> None:
    need_isolation()
    report = check(request.getfixturevalue(f"{kind}_task"), "attack-", attacks="specific")
    assert [one for one in report.findings if one.outcome != "passed"] == []
    assert len(report.findings) > 10


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.isolation] if one.check.startswith(ISOLATED) else [])
        for name, one in BROKEN.items()
    ],
)
def test_a_broken_promise_is_found_and_explained(check: Check, request: pytest.FixtureRequest, name: str) -> None:
    broken = BROKEN[name]
    if broken.check.startswith(ISOLATED):
        need_isolation()
    folder = request.getfixturevalue(f"{broken.kind}_task")
    broken.spoil(folder)
    report = check(folder, broken.check)
    (finding,) = report.findings
    assert (finding.name, finding.outcome) == (broken.check, "failed"), finding
    assert broken.says in finding.message
    assert (report.status, report.exit_code) == ("failed", 1)


def test_every_check_but_those_of_attacks_has_a_task_that_breaks_it(code_task: Path) -> None:
    names = {one.name for one in checks_for(load_task_folder(code_task), "none")}
    assert names == {one.check for one in BROKEN.values() if not one.check.startswith("attack-")}


def test_a_metric_that_measures_time_may_differ_by_its_tolerance(table_task: Path, check: Check) -> None:
    yaml, grade = table_task / "task.yaml", table_task / "private" / "grade.py"
    grade.write_text(
        "import os\nimport mlgym_peer as peer\njob = peer.job()\n"
        "peer.scored({'Score': (1 if job.split == 'dev' else 2) + os.urandom(1)[0] / 10_000})\n"
    )
    yaml.write_text(yaml.read_text().replace("direction: up", "direction: up, tolerance: 0.1"))
    (finding,) = check(table_task, "deterministic").findings
    assert finding.outcome in ("skipped", "passed"), finding  # passed when both drew the same


def test_a_wrong_tolerance_is_refused(table_task: Path, check: Check) -> None:
    yaml = table_task / "task.yaml"
    yaml.write_text(yaml.read_text().replace("direction: up", "direction: up, tolerance: 2"))
    (finding,) = check(table_task).findings
    assert "tolerance of Score" in finding.message


def test_without_isolation_no_hostile_code_runs(code_task: Path) -> None:
    from mlgym_core.authoring.checking import check_task

    report = check_task(load_task_folder(code_task), backend="local:plain", only=("canary", "attack-"))
    assert {one.outcome for one in report.findings} == {"skipped"}
    assert all("does not isolate" in one.message for one in report.findings)
    assert not report.sealed


@pytest.mark.isolation
def test_bombs_are_tried_where_something_might_be_unpacked(check: Check, code_task: Path) -> None:
    need_isolation()
    yaml = code_task / "task.yaml"
    yaml.write_text(
        yaml.read_text()
        .replace("paths: [answer.py]", "paths: [answer.py, weights/]")
        .replace("python3 answer.py", "mkdir weights; echo 1 > weights/w.npz")
    )
    report = check(code_task, "attack-zip-bomb", "attack-gzip-bomb", "attack-escaping-archive")
    assert [one.outcome for one in report.findings] == ["passed"] * 3, report.findings


def test_bombs_are_not_tried_on_a_single_file_of_text(code_task: Path) -> None:
    names = {one.name for one in checks_for(load_task_folder(code_task))}
    assert "attack-named-pipe" in names
    assert not {name for name in names if name in ("attack-zip-bomb", "attack-escaping-archive")}
