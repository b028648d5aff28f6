"""Wheels in a clean environment, with the source tree out of sight."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
GAMES = {"battle-of-sexes", "blotto", "prisoners-dilemma"}


def ids(environment: Any) -> set[str]:
    return {task["id"] for task in environment.json("tasks")}


def broken(environment: Any) -> dict[str, str]:
    return {row["name"]: row["broken"] for row in environment.json("plugins") if row["broken"]}


def test_an_environment_begins_without_anything_of_ours(environment: Any) -> None:
    found = environment.code(
        "import importlib.metadata as m, importlib.util as u, sys; import attrs; "
        "print([d.name for d in m.distributions() if 'mlgym' in d.name], u.find_spec('mlgym_core'), sys.path)"
    )
    assert found.startswith("[] None")
    assert str(ROOT / "src") not in found


def test_a_task_runs_and_a_removed_plugin_leaves_the_rest_intact(environment: Any) -> None:
    environment.install("mlgym-core")
    assert ids(environment) == set()
    environment.install("mlgym-tasks-gametheory[all]", "mlgym-task-house-price")
    assert str(environment.folder) in environment.code("import mlgym_core; print(mlgym_core.__file__)")
    assert str(ROOT / "src") not in environment.code("import sys; print(sys.path)")
    assert ids(environment) == {*GAMES, "house-price"}

    result = environment.json("run", "battle-of-sexes", "--size", "tiny", "--backend", "local")
    assert result["status"] == "scored"
    assert result["versions"]["mlgym-task-battle-of-sexes"]

    environment.pip("uninstall", "--quiet", "--yes", "mlgym-task-battle-of-sexes")
    assert ids(environment) == {"blotto", "prisoners-dilemma", "house-price"}
    assert broken(environment) == {}
    assert environment.json("run", "blotto", "--size", "tiny", "--backend", "local")["status"] == "scored"


def test_a_task_whose_domain_is_gone_says_so_and_the_others_work(environment: Any) -> None:
    environment.install("mlgym-task-blotto", "mlgym-task-house-price")
    environment.pip("uninstall", "--quiet", "--yes", "mlgym-tasks-gametheory")
    assert ids(environment) == {"blotto", "house-price"}
    refused = environment.mlgym("run", "blotto", "--size", "tiny", "--backend", "local")
    assert refused.returncode == 2
    assert "mlgym-tasks-gametheory" in refused.stderr
    assert "not installed" in refused.stderr
    assert "pip install" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert set(broken(environment)) == {"blotto"}
    assert environment.json("tasks", "show", "house-price")["id"] == "house-price"


def test_the_core_alone_writes_installs_and_packs_tasks(environment: Any, build_into: Any) -> None:
    """What an author does, from wheels: new, run where it lies, build, install, run."""
    environment.install("mlgym-core")
    made = environment.json("new", "task", "demo", "--kind", "code")
    assert environment.json("baseline", "./demo", "--size", "tiny", "--backend", "local")["status"] == "scored"
    build_into(Path(made["folder"]), environment.work / "dist")
    (wheel,) = (environment.work / "dist").glob("*.whl")
    environment.install(str(wheel))
    assert ids(environment) == {"demo"}
    assert environment.json("baseline", "demo", "--size", "tiny", "--backend", "local")["status"] == "scored"


def test_a_new_task_installs_as_an_author_would(environment: Any) -> None:
    environment.install("mlgym-core")
    environment.json("new", "task", "demo", "--kind", "csv")
    environment.pip("install", "--quiet", "--no-index", "--no-build-isolation", "-e", "./demo")
    assert ids(environment) == {"demo"}
    done = subprocess.run(
        [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "demo"],
        cwd=environment.work,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
