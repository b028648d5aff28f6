"""A backend without isolation whose peers are plain child processes, and tasks made of a few lines."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.sealed import Grade, Grader
from mlgym_core.sandbox.base import BoxSpec, Connection, Peer, PreparedImage
from mlgym_core.sandbox.local.pipes import spawn
from mlgym_core.task.task import Baseline, Include, Limits, Metric, Size, Submission, Task

SECRET = bytes(range(16))
HEAD = "import mlgym_peer as peer\n"
DOUBLE = HEAD + (
    "with peer.open_player() as player:\n"
    "    answer = player.call({'n': 1}, timeout=20, values=peer.buffer('<i4', [1, 2, 3]))\n"
    "    peer.scored({'Score': sum(answer.buffers['values'].tolist())}, details=answer.header)\n"
)
PLAYER = """
import mlgym_peer as peer
import answer


def handler(header, buffers):
    return {"seen": header}, {"values": peer.buffer("<i4", answer.play(buffers["values"].tolist()))}


if __name__ == "__main__":
    peer.serve(handler)
"""
HONEST = "def play(values):\n    return [2 * v for v in values]\n"


class PipePeer:
    def __init__(self, spec: BoxSpec, program: str) -> None:
        self.workdir = tempfile.mkdtemp(prefix="peer-")
        for mount in spec.mounts:
            target = Path(self.workdir) / mount.target
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(mount.source, target)
        argv = [sys.executable, "-I", "-c", program, self.workdir]
        self.connection: Connection
        self.process, self.connection = spawn(argv, env={"PATH": os.environ["PATH"], **spec.env})

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        shutil.rmtree(self.workdir, ignore_errors=True)


class PipeBackend:
    """Implements the two methods of a backend that grading uses; remembers every box it opened."""

    name = "pipes"

    def __init__(self, program: str | None = None) -> None:
        self.specs: list[BoxSpec] = []
        self.peers: list[PipePeer] = []
        self.prepared: list[str] = []
        self._program = program

    def prepare_image(self, image: Any, role: str, progress: Any, build: bool = True) -> PreparedImage:
        self.prepared.append(role)
        return PreparedImage(role, role)

    def open_peer(self, spec: BoxSpec, program: str) -> Peer:
        self.specs.append(spec)
        self.peers.append(PipePeer(spec, self._program or program))
        return self.peers[-1]

    def all_gone(self) -> bool:
        """Whether every box's process has ended and its folder is removed."""
        return all(p.process.returncode is not None and not Path(p.workdir).exists() for p in self.peers)


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends (or is a zombie) within a generous time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def make_task(folder: Path, grade: str, kind: str = "csv", player: str = "", grading_seconds: float = 60.0) -> Task:
    """A task in ``folder`` from the text of ``grade.py`` and, for code, of ``player.py``."""
    files = {"private/grade.py": grade, "public/player.py": player, "public/answer.py": "VALUE = 0\n"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    code = kind == "code"
    return Task(
        schema=1,
        id="sample",
        title="Sample",
        metrics=(Metric("Score", "up"),),
        submission=Submission(
            kind="code" if code else "csv",
            paths=("answer.py",) if code else ("answer.csv",),
            player="player.py" if code else None,
        ),
        baseline=Baseline("true"),
        sizes={"full": Size(parameters={"rounds": 2})},
        limits=Limits(grading_seconds=grading_seconds),
        include=Include(),
        folder=folder,
    )


def grade_files(
    task: Task, files: Mapping[str, str], store: Path, backend: Any = None, size: str = "full", split: Any = "test"
) -> Grade:
    """Freeze the given files and grade them."""
    workspace = store / "workspace"
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    archive = freeze_folder(workspace, task.submission, store / "archives")
    return Grader(task, backend or cast(Any, PipeBackend()), "run", size, SECRET).grade(archive, split)


def grade_csv(tmp_path: Path, backend: PipeBackend, text: str, seconds: float = 60.0) -> Grade:
    task = make_task(tmp_path / "task", HEAD + text, grading_seconds=seconds)
    grade = grade_files(task, {"answer.csv": "a,b\n1,2\n"}, tmp_path, backend)
    assert backend.all_gone()
    return grade


def grade_code(
    tmp_path: Path, backend: PipeBackend, answer: str, grade: str = DOUBLE, player: str = PLAYER, seconds: float = 60.0
) -> Grade:
    task = make_task(tmp_path / "task", grade, "code", player, seconds)
    outcome = grade_files(task, {"answer.py": answer}, tmp_path, backend)
    assert backend.all_gone()
    return outcome
