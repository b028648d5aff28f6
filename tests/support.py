"""What several test files build: task folders and folders that look like installed plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mlgym_core import Episode, RunConfig, open_episode, run
from mlgym_core.runner.config import Own
from mlgym_core.runner.document import RunResult

GRADE = "import mlgym_peer as peer\npeer.job()\npeer.scored({'Score': 1.0})\n"

TASK_YAML = """\
schema: 1
id: {id}
title: A task
metrics:
  - {{name: Score, direction: up}}
submission: {{kind: csv, paths: [answer.csv]}}
baseline: {{command: "echo 1 > answer.csv"}}
sizes: {{full: {{}}}}
image: {{}}
"""


def write_task(folder: Path, task_id: str = "sample", grade: str = GRADE, yaml: str = TASK_YAML) -> Path:
    """A task folder that loads; ``yaml`` is formatted with ``id``."""
    for name in ("public", "private", "image"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "task.yaml").write_text(yaml.format(id=task_id))
    (folder / "description.md").write_text("Do {this} and get $1.\n")
    (folder / "private" / "grade.py").write_text(grade)
    return folder


class PluginFolder:
    """A folder on the path that looks like installed distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self, module: str, source: str, entry_points: Mapping[str, Mapping[str, str]], version: str = "1.0"
    ) -> None:
        """Install one distribution, named like its module, with one module."""
        package = self.folder / module
        package.mkdir()
        (package / "__init__.py").write_text(source)
        name = module.replace("_", "-")
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: about {name}\n"
        )
        lines = []
        for group, points in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def add_task(self, task_id: str, module: str | None = None, source: str | None = None) -> None:
        """Install a distribution with one task that loads, unless ``source`` says otherwise."""
        module = module or f"plug_{task_id.replace('-', '_')}"
        loading = (
            "from pathlib import Path\nfrom mlgym_core import hookimpl, load_task_folder\n\n"
            "@hookimpl\ndef mlgym_register_tasks():\n    return [load_task_folder(Path(__file__).parent)]\n"
        )
        self.add(module, loading if source is None else source, {"mlgym.tasks": {task_id: module}})
        write_task(self.folder / module, task_id)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the ``mlgym`` command with these plugins installed beside the real ones."""
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            [sys.executable, "-m", "mlgym_core", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **variables},
            timeout=100,
            check=False,
        )


def run_task(task: Any = "", *, on_event: Any = None, registry: Any = None, **given: Any) -> RunResult:
    """Run a task; names go into the configuration, objects beside it."""
    config, own = _parted({"task": task, **given})
    return run(config, on_event, registry, **own)


def open_task(task: Any = "", *, on_event: Any = None, **given: Any) -> AbstractContextManager[Episode]:
    """Open an episode; names go into the configuration, objects beside it."""
    config, own = _parted({"task": task, **given})
    return open_episode(config, on_event, **own)


def _parted(given: dict[str, Any]) -> tuple[RunConfig, Any]:
    objects = {name for name in Own.__annotations__ if not isinstance(given.get(name, ""), str)}
    plain = {name: value for name, value in given.items() if name not in objects}
    return RunConfig(**plain), {name: given[name] for name in objects}
