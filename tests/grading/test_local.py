"""Gradings in the boxes of the local backend: what the seal is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grading.boxes import DOUBLE, HEAD, HONEST, PLAYER, SECRET, grade_files, make_task

from mlgym_core.grading.sealed import derive_seed
from mlgym_core.sandbox.local.backend import LocalBackend
from mlgym_core.task.task import Capability

CANARY = "canary-5f1c9a"
SEARCH = '''
import os

import mlgym_peer as peer


def contains(path, needle):
    try:
        with open(path, "rb") as file:
            return needle in file.read(4_000_000)
    except OSError:
        return False


def handler(header, buffers):
    """Looks wherever a process can look for the text that only the grader holds."""
    needles = [text.encode()[::-1] for text in header["reversed"]]
    found = []
    for top in ["/" + name for name in os.listdir("/") if name not in ("usr", "lib", "sys")]:
        for folder, folders, files in os.walk(top):
            if folder.count("/") > 8 or folder.startswith("/proc") and "/task" in folder:
                folders.clear()
                continue
            for name in files:
                path = os.path.join(folder, name)
                if name in ("kmsg", "kcore", "mem", "pagemap") or not (os.path.isfile(path)):
                    continue
                found += [path for needle in needles if contains(path, needle)]
    return {"found": found, "uid": os.getuid()}, {}


peer.serve(handler)
'''


@pytest.fixture
def isolated() -> LocalBackend:
    backend = LocalBackend()
    if Capability.ISOLATION not in backend.capabilities():
        pytest.skip("bubblewrap does not work here")
    return backend


@pytest.mark.isolation
def test_a_grading_in_namespaces(tmp_path: Path, isolated: LocalBackend) -> None:
    task = make_task(tmp_path / "task", DOUBLE, "code", PLAYER)
    grade = grade_files(task, {"answer.py": HONEST}, tmp_path, isolated)
    assert (grade.outcome, grade.metrics) == ("scored", {"Score": 12.0}), grade.message


def test_a_grading_in_plain_processes(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", DOUBLE, "code", PLAYER)
    grade = grade_files(task, {"answer.py": HONEST}, tmp_path, LocalBackend(isolate=False))
    assert (grade.outcome, grade.metrics) == ("scored", {"Score": 12.0}), grade.message


@pytest.mark.isolation
def test_the_player_finds_nothing_of_the_graders(tmp_path: Path, isolated: LocalBackend) -> None:
    seed = derive_seed(SECRET, "sample", "test")
    text = HEAD + (
        f"CANARY = '{CANARY}'\n"
        "with peer.open_player() as player:\n"
        "    seen = player.call({'reversed': [CANARY[::-1], peer.job().seed[::-1]]}, timeout=60).header\n"
        "peer.scored({'Score': len(seen['found'])}, details=seen)\n"
    )
    task = make_task(tmp_path / "task", text, "code", SEARCH)
    (task.folder / "public" / "decoy.txt").write_text(f"{CANARY} {seed}")
    grade = grade_files(task, {"answer.py": HONEST}, tmp_path, isolated)
    assert grade.outcome == "scored", grade.message
    assert set(grade.details["found"]) == {"/box/decoy.txt"}, grade.details
    assert grade.details["uid"] != 0


@pytest.mark.isolation
@pytest.mark.parametrize(
    "answer",
    [
        "import os\ndef play(values):\n    os.kill(-1, 9)\n",
        "import os\ndef play(values):\n    os.kill(os.getppid(), 9)\n    while True:\n        pass\n",
        "def play(values):\n    while True:\n        pass\n",
        "import os\ndef play(values):\n    while True:\n        os.write(1, b'x' * 100_000)\n",
    ],
    ids=["kills everything", "kills its parent", "spins", "floods"],
)
def test_a_player_that_fights_its_box_is_invalid(tmp_path: Path, isolated: LocalBackend, answer: str) -> None:
    task = make_task(tmp_path / "task", DOUBLE.replace("timeout=20", "timeout=3"), "code", PLAYER)
    grade = grade_files(task, {"answer.py": answer}, tmp_path, isolated)
    assert (grade.outcome, grade.metrics) == ("invalid_submission", {})


@pytest.mark.isolation
def test_data_is_mounted_where_it_belongs(tmp_path: Path, isolated: LocalBackend) -> None:
    from mlgym_core.grading.archive import freeze_folder
    from mlgym_core.grading.sealed import Grader

    for name in ("private", "public"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "x").write_text(name)
    (tmp_path / "data").chmod(0o755)

    class Data:
        private: Any = tmp_path / "data" / "private"
        public: Any = tmp_path / "data" / "public"

    text = HEAD + (
        "job = peer.job()\n"
        "read = [(job.paths[n] / 'x').read_text() for n in ('data', 'public_data')]\n"
        "with peer.open_player() as player:\n    read.append(player.call().header['x'])\n"
        "peer.scored({'Score': 1}, details={'read': read})\n"
    )
    player = "import mlgym_peer as peer\npeer.serve(lambda h, b: ({'x': open('data/x').read()}, {}))\n"
    task = make_task(tmp_path / "task", text, "code", player)
    (tmp_path / "answer.py").write_text(HONEST)
    archive = freeze_folder(tmp_path, task.submission, tmp_path / "store")
    grade = Grader(task, isolated, "run", "full", SECRET, Data()).grade(archive, "test")
    assert grade.details["read"] == ["private", "public", "public"], grade
