"""``mlgym check`` as a command: choices, documents, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import PluginFolder

from mlgym_core.authoring.checking import Finding, Report


def test_one_check_of_an_installed_task_as_a_document(plugins: PluginFolder) -> None:
    done = plugins.run("check", "battle-of-sexes", "--backend", "local", "--only", "spec", "--only", "limits", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["name"] for one in document["findings"]] == ["spec", "limits"]
    assert (document["task"], document["size"], document["status"]) == ("battle-of-sexes", "tiny", "passed")
    assert document["counts"] == {"passed": 2, "failed": 0, "skipped": 0}


def test_a_folder_and_the_table(plugins: PluginFolder, code_task: Path) -> None:
    (code_task / "description.md").write_text("TODO\n")
    done = plugins.run("check", str(code_task), "--backend", "local", "--attacks", "none", "--only", "description")
    assert done.returncode == 1
    assert "say what the task is" in " ".join(done.stdout.split())
    assert "0 passed, 1 failed, 0 skipped" in done.stdout


def test_a_task_that_cannot_be_loaded_is_a_failed_check(plugins: PluginFolder, code_task: Path) -> None:
    (code_task / "task.yaml").write_text("schema: 1\n")
    done = plugins.run("check", str(code_task), "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["name"], finding["outcome"]) == ("spec", "failed")
    assert "missing key" in finding["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such-task"], "unknown task"),
        (["battle-of-sexes", "--only", "basline"], "did you mean 'baseline'?"),
        (["battle-of-sexes", "--attacks", "all"], "generic, specific or none"),
        (["battle-of-sexes", "--size", "huge"], "choose from: full, tiny"),
    ],
)
def test_wrong_usage(plugins: PluginFolder, arguments: list[str], says: str) -> None:
    done = plugins.run("check", *arguments, "--backend", "local")
    assert done.returncode == 2
    assert says in done.stderr


def test_skipping_leaves_out_and_attacks_go_by_their_beginning(plugins: PluginFolder) -> None:
    done = plugins.run(
        "check", "battle-of-sexes", "--backend", "local:plain", "--only", "spec", "--only", "attack-", "--json",
        "--skip", "attack-clock",
    )  # fmt: skip
    names = [one["name"] for one in json.loads(done.stdout)["findings"]]
    assert names[0] == "spec"
    assert "attack-never-answers" in names
    assert "attack-clock" not in names


@pytest.mark.parametrize(
    ("outcomes", "trouble", "status", "code"),
    [
        (["passed", "skipped"], "", "passed", 0),
        (["passed", "failed"], "", "failed", 1),
        (["passed", "skipped"], "the engine is gone", "infrastructure", 3),
        (["failed", "skipped"], "the engine is gone", "failed", 1),
    ],
)
def test_exit_codes(outcomes: list[str], trouble: str, status: str, code: int) -> None:
    findings = [Finding(str(n), "", outcome) for n, outcome in enumerate(outcomes)]  # type: ignore[arg-type]
    report = Report("x", findings=findings, infrastructure=trouble)
    assert (report.status, report.exit_code, report.to_json()["status"]) == (status, code, status)


def test_a_machine_that_fails_is_no_fault_of_the_task(code_task: Path) -> None:
    from mlgym_core.authoring.checking import check_task
    from mlgym_core.errors import InfrastructureError
    from mlgym_core.sandbox.local.backend import LocalBackend
    from mlgym_core.task.taskfile import load_task_folder

    class Failing(LocalBackend):
        def open_peer(self, spec: object, program: str) -> object:  # type: ignore[override]
            raise InfrastructureError("the disk is full")

    report = check_task(load_task_folder(code_task), backend=Failing(), only=("spec", "baseline", "empty"))
    assert [one.outcome for one in report.findings] == ["passed", "skipped", "skipped"]
    assert (report.exit_code, report.infrastructure) == (3, "the disk is full")
