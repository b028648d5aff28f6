"""Two tasks that cannot share an environment run side by side, each in its own."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import PluginFolder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GRADE = """
import madeup
import mlgym_peer as peer

job = peer.job()
told = (job.paths["submission"] / "answer.csv").read_text().strip()
if told != madeup.VERSION:
    raise peer.InvalidSubmission(f"agent has {told}, grader {madeup.VERSION}")
peer.scored({"Score": float(madeup.VERSION)})
"""
YAML = """\
schema: 1
id: {id}
title: Needs a version of its own
metrics: [{{name: Score, direction: up}}]
submission: {{kind: csv, paths: [answer.csv]}}
baseline: {{command: python3 -c "import madeup; print(madeup.VERSION)" > answer.csv}}
sizes: {{full: {{}}}}
"""


def write_wheel(folder: Path, version: str) -> None:
    """A wheel of one module, by hand."""
    info = f"madeup-{version}.dist-info"
    files = {
        "madeup.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: madeup\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"madeup-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


def add_task(plugins: PluginFolder, task_id: str, version: str) -> None:
    plugins.add_task(task_id)
    folder = plugins.folder / f"plug_{task_id.replace('-', '_')}"
    (folder / "task.yaml").write_text(YAML.format(id=task_id))
    (folder / "private" / "grade.py").write_text(GRADE)
    write_wheel(folder / "image" / "wheels", version)
    lines = ["--no-index", "--find-links wheels", f"madeup=={version}"]
    (folder / "image" / "requirements.txt").write_text("\n".join(lines) + "\n")


def test_each_has_an_environment_of_its_own(plugins: PluginFolder, tmp_path: Path) -> None:
    wanted = {"needs-one": "1.0", "needs-two": "2.0"}
    for task_id, version in wanted.items():
        add_task(plugins, task_id, version)
    listed = {task["id"] for task in json.loads(plugins.run("tasks", "--json").stdout)}
    assert listed >= set(wanted)

    def run(task_id: str) -> dict[str, object]:
        done = plugins.run("baseline", task_id, "--backend", "local", "--json", MLGYM_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        document: dict[str, object] = json.loads(done.stdout)["scores"]["test"]
        return document

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(wanted, pool.map(run, wanted), strict=True))
    assert found == {"needs-one": {"Score": 1.0}, "needs-two": {"Score": 2.0}}
