"""Whole gradings in real processes: what graders may do, and graders that misbehave."""

from __future__ import annotations

from pathlib import Path

import pytest
from grading.boxes import (
    HEAD,
    HONEST,
    PLAYER,
    SECRET,
    PipeBackend,
    grade_csv,
    grade_files,
    make_task,
)
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.errors import InfrastructureError, UsageError
from mlgym_core.grading import sealed
from mlgym_core.grading.archive import Archive, freeze_folder
from mlgym_core.grading.sealed import Grader, derive_seed


def test_a_grader_scores_a_file(tmp_path: Path, backend: PipeBackend) -> None:
    text = (
        "job = peer.job()\n"
        "rows = (job.paths['submission'] / 'answer.csv').read_text().splitlines()\n"
        "peer.scored({'Score': len(rows)}, {'Score': 0.5}, {'job': [job.task, job.split, job.size, job.seed],"
        " 'rounds': job.parameters['rounds'], 'paths': sorted(job.paths)})\n"
        "print('score: 0.99')\n"
    )
    grade = grade_csv(tmp_path, backend, text)
    assert (grade.outcome, grade.metrics, grade.standard_error) == ("scored", {"Score": 2.0}, {"Score": 0.5})
    assert grade.details["job"] == ["sample", "test", "full", derive_seed(SECRET, "sample", "test")]
    assert (grade.details["rounds"], grade.details["paths"]) == (2, ["submission"])
    assert "score: 0.99" in grade.log
    assert grade.seconds > 0
    assert [spec.role for spec in backend.specs] == ["grader"]
    assert backend.prepared == ["grader"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('score: 0.99')\n", "ended without a result"),
        ("print('score: 0.99')\nraise ValueError('bad truth')\n", "ValueError: bad truth"),
        ("peer.scored({'Score': 1})\nraise ValueError('after all')\n", "ValueError: after all"),
        ("peer.scored({'Score': 1})\npeer.scored({'Score': 2})\n", "has been written already"),
        ("open('result.json', 'w').write('{\"schema\": 1}{\"schema\": 1}')\n", "not one strict JSON document"),
        ("open('result.json', 'w').write('score: 0.99')\n", "not one strict JSON document"),
        ("open('result.json', 'w').write('x' * 2_000_000)\n", "larger than"),
        ("peer.scored({'Other': 1})\n", "lack 'Score'"),
        ("peer.scored({'Score': float('nan')})\n", "ValueError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import os\nprint('score: 0.99', flush=True)\nos._exit(0)\n", "process ended without a result"),
        ("peer.open_player()\n", "submission is data"),
        ("peer._Box.channel._sink.write(b'garbage' * 9)\npeer._Box.channel._sink.flush()\n", "broke the protocol"),
        ("peer._Box.channel.send({'type': 'receive', 'player': 7, 'timeout': 1})\n", "malformed"),
        ("peer._Box.channel.send({'type': 'open', 'timeout': -1})\n", "malformed"),
        ("def broken(:\n", "SyntaxError"),
    ],
)
def test_a_grader_that_fails_is_an_error_and_never_a_score(
    tmp_path: Path, backend: PipeBackend, text: str, message: str
) -> None:
    grade = grade_csv(tmp_path, backend, text)
    assert (grade.outcome, grade.metrics) == ("grader_error", {})
    assert message in grade.message
    if "0.99" in text and "print" in text:
        assert "score: 0.99" in grade.log


def test_a_grader_may_exit_by_itself(tmp_path: Path, backend: PipeBackend) -> None:
    assert grade_csv(tmp_path, backend, "peer.scored({'Score': 1})\nraise SystemExit\n").outcome == "scored"


def test_a_grader_that_hangs_is_stopped(tmp_path: Path, backend: PipeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "GRACE_SECONDS", 0.2)
    text = "import time\nprint('score: 0.99', flush=True)\ntime.sleep(600)\n"
    grade = grade_csv(tmp_path, backend, text, seconds=0.5)
    assert (grade.outcome, grade.metrics) == ("grader_error", {})
    assert "had not ended" in grade.message
    assert "score: 0.99" in grade.log


@pytest.mark.parametrize(
    "text", ["peer.invalid('row 3 is not a number')\n", "raise peer.InvalidSubmission('row 3 is not a number')\n"]
)
def test_the_reason_of_an_invalid_submission_reaches_the_agent(tmp_path: Path, backend: PipeBackend, text: str) -> None:
    grade = grade_csv(tmp_path, backend, text)
    assert (grade.outcome, grade.message) == ("invalid_submission", "row 3 is not a number")


def test_a_grading_that_cannot_be_set_up_says_why(tmp_path: Path, backend: PipeBackend) -> None:
    task = make_task(tmp_path / "task", HEAD)
    with pytest.raises(UsageError, match="has no size 'huge'; choose from: full"):
        Grader(task, backend, "run", "huge", SECRET)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has 3 bytes"):
        Grader(task, backend, "run", "full", b"abc")  # type: ignore[arg-type]
    missing = Archive("0", tmp_path / "0.tar", (), 0)
    with pytest.raises(InfrastructureError, match="cannot pack"):
        Grader(task, backend, "run", "full", SECRET).grade(missing, "test")  # type: ignore[arg-type]


def test_a_chatty_grader_is_no_problem(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_csv(
        tmp_path, backend, "print('x' * 3_000_000)\nprint('end', flush=True)\npeer.scored({'Score': 1})\n"
    )
    assert grade.outcome == "scored"
    assert len(grade.log) < 40_000
    assert grade.log.startswith("[29")
    assert grade.log.endswith("end\n")


def test_nothing_of_the_submission_can_be_imported_by_the_grader(tmp_path: Path, backend: PipeBackend) -> None:
    text = (
        HEAD
        + "import sys\ntry:\n    import answer\nexcept ImportError:\n"
        + "    peer.scored({'Score': 1}, details={'path': sys.path})\n"
    )
    task = make_task(tmp_path / "task", text, "code", PLAYER)
    grade = grade_files(task, {"answer.py": HONEST}, tmp_path, backend)
    assert grade.outcome == "scored"
    assert not any("submission" in path for path in grade.details["path"])


def test_boxes_hold_only_what_is_theirs(tmp_path: Path, backend: PipeBackend) -> None:
    for name in ("private", "public"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "x").write_text(name)
    look = "sorted(str(p.relative_to({0})) for p in Path({0}).rglob('*') if p.is_file())"
    text = HEAD + (
        "from pathlib import Path\njob = peer.job()\n"
        "with peer.open_player() as player:\n"
        "    theirs = player.call().header['files']\n"
        f"peer.scored({{'Score': 1}}, details={{'grader': {look.format('Path.cwd()')}, 'player': theirs,"
        " 'read': [(job.paths[n] / 'x').read_text() for n in ('data', 'public_data')]})\n"
    )
    player = (
        "import mlgym_peer as peer\nfrom pathlib import Path\n"
        f"peer.serve(lambda h, b: ({{'files': {look.format('Path.cwd()')}}}, {{}}))\n"
    )
    task = make_task(tmp_path / "task", text, "code", player)
    (task.folder / "public" / "starter.txt").write_text("x")

    class Data:
        private: Path | None = tmp_path / "data" / "private"
        public: Path | None = tmp_path / "data" / "public"

    (tmp_path / "answer.py").write_text(HONEST)
    archive = freeze_folder(tmp_path, task.submission, tmp_path / "store")
    grade = Grader(task, backend, "run", "full", SECRET, Data()).grade(archive, "dev")  # type: ignore[arg-type]
    assert grade.details["player"] == [
        "answer.py", "data/x", "lib/mlgym_frames.py", "lib/mlgym_peer.py", "player.py", "starter.txt",
    ]  # fmt: skip
    assert grade.details["grader"] == [
        "data/private/x", "data/public/x", "job.json",
        "lib/mlgym_frames.py", "lib/mlgym_peer.py", "lib/mlgym_table.py", "private/grade.py",
        "submission/answer.py",
    ]  # fmt: skip
    assert grade.details["read"] == ["private", "public"]
    secret = derive_seed(SECRET, task.id, "dev")
    roles = {spec.role: spec for spec in backend.specs}
    assert all(spec.network == "none" for spec in backend.specs)
    assert secret not in repr(roles["player"])
    assert [(mount.source, mount.target) for mount in roles["player"].mounts] == [
        (tmp_path / "data" / "public", "data")
    ]


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_seeds_depend_on_secret_task_and_split(one: bytes, other: bytes) -> None:
    seeds = {
        derive_seed(secret, task, split) for secret in {one, other} for task in ("a", "b") for split in ("dev", "test")
    }
    assert len(seeds) == 4 * len({one, other})
    assert all(len(bytes.fromhex(seed)) == 16 for seed in seeds)
