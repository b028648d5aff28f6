"""Whole gradings in real processes: players, fresh, late, failing, and boxes that do not open."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from grading.boxes import (
    DOUBLE,
    HEAD,
    HONEST,
    PLAYER,
    SECRET,
    PipeBackend,
    grade_code,
    grade_csv,
    grade_files,
    make_task,
)

from mlgym_core.errors import InfrastructureError
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.relay import Relay
from mlgym_core.grading.sealed import Grader


def test_a_player_answers(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_code(tmp_path, backend, HONEST)
    assert (grade.outcome, grade.metrics, grade.details) == ("scored", {"Score": 12.0}, {"seen": {"n": 1}})
    assert sorted(spec.role for spec in backend.specs) == ["grader", "player"]


def test_every_player_is_fresh_and_several_may_be_open(tmp_path: Path, backend: PipeBackend) -> None:
    answer = "count = 0\ndef play(values):\n    global count\n    count += 1\n    return [count]\n"
    text = HEAD + (
        "counts = []\n"
        "with peer.open_player() as one, peer.open_player() as two:\n"
        "    for player in (one, two, one):\n"
        "        counts += player.call(values=peer.buffer('<i4', [0])).buffers['values'].tolist()\n"
        "with peer.open_player() as three:\n"
        "    counts += three.call(values=peer.buffer('<i4', [0])).buffers['values'].tolist()\n"
        "peer.scored({'Score': 0}, details={'counts': counts})\n"
    )
    grade = grade_code(tmp_path, backend, answer, text)
    assert grade.details["counts"] == [1, 1, 2, 1]
    assert len(backend.specs) == 4


def test_players_are_prepared_side_by_side_and_withheld_files_stay_out_of_their_boxes(
    tmp_path: Path, backend: PipeBackend
) -> None:
    text = HEAD + (
        "peer.prepare_players(6)\n"
        "seen = []\n"
        "players = [peer.open_player() for _ in range(6)]\n"
        "for player in players:\n"
        "    seen += player.call(values=peer.buffer('<i4', [1])).buffers['values'].tolist()\n"
        "held = open('submission/weights/0.bin').read()\n"
        "peer.scored({'Score': 0}, details={'seen': seen, 'held': held})\n"
    )
    task = make_task(tmp_path / "task", text, "code", PLAYER)
    submission = attrs.evolve(task.submission, paths=("answer.py", "weights/"), withheld=("weights/",))
    answer = "import os\n\ndef play(values):\n    return [int(os.path.exists('weights'))]\n"
    files = {"answer.py": answer, "weights/0.bin": "9"}
    grade = grade_files(attrs.evolve(task, submission=submission), files, tmp_path, backend)
    assert grade.details == {"seen": [0] * 6, "held": "9"}, grade
    assert len(backend.specs) == 7


def test_more_players_than_may_be_open_cannot_be_prepared(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_code(tmp_path, backend, HONEST, HEAD + "peer.prepare_players(9)\npeer.open_player()\n")
    assert grade.outcome == "grader_error"
    assert "9 players cannot be prepared" in grade.message


def test_large_frames_go_both_ways(tmp_path: Path, backend: PipeBackend) -> None:
    text = HEAD + (
        "data = bytes(range(256)) * 40_000\n"
        "with peer.open_player() as player:\n"
        "    answer = player.call(data=data)\n"
        "peer.scored({'Score': bytes(answer.buffers['data'].data) == data[::-1] and 1.0})\n"
    )
    player = "import mlgym_peer as peer\npeer.serve(lambda h, b: ({}, {'data': bytes(b['data'].data)[::-1]}))\n"
    assert grade_code(tmp_path, backend, HONEST, text, player).metrics == {"Score": 1.0}


MISBEHAVIOUR = {
    "raises": ("def play(values):\n    return 1 / 0\n", "ZeroDivisionError: division by zero (answer.py, line 2)"),
    "raises on import": ("x = 1\nraise RuntimeError('early')\n", "RuntimeError: early (answer.py, line 2)"),
    "does not parse": ("def play(:\n", 'File "answer.py", line 1'),
    "exits": ("def play(values):\n    raise SystemExit(0)\n", "SystemExit"),
    "interrupts": ("def play(values):\n    raise KeyboardInterrupt\n", "KeyboardInterrupt"),
    "exits hard": ("import os\ndef play(values):\n    print('bye', flush=True)\n    os._exit(0)\n", "bye"),
    "exits hard on import": ("import os\nos._exit(0)\n", "process that ran your code ended"),
    "kills itself": ("import os\ndef play(values):\n    os.kill(os.getpid(), 9)\n", "process that ran your code"),
    "answers text": ("def play(values):\n    return ['a']\n", "required argument is not an integer"),
    "floods its log": ("def play(values):\n    while True:\n        print('x' * 10**6)\n", "more than 64 MiB"),
    "floods its log once": ("print('x' * 200_000_000)\ndef play(values):\n    return [1]\n", "more than 64 MiB"),
    "recurses": ("def play(values):\n    return play(values)\n", "RecursionError"),
    "raises what cannot be shown": (
        "class E(Exception):\n    def __str__(self):\n        raise E\ndef play(values):\n    raise E\n",
        "(answer.py, line 5)",
    ),
}


@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_a_player_that_misbehaves_makes_the_submission_invalid(tmp_path: Path, backend: PipeBackend, name: str) -> None:
    answer, message = MISBEHAVIOUR[name]
    grade = grade_code(tmp_path, backend, answer)
    assert (grade.outcome, grade.metrics) == ("invalid_submission", {})
    assert message in grade.message
    assert len(grade.message) <= 4000
    assert all(peer.workdir not in grade.message for peer in backend.peers)


LATE = {
    "spins": "def play(values):\n    while True:\n        pass\n",
    "sleeps": "import time\ndef play(values):\n    time.sleep(600)\n",
    "stops itself": "import os, signal\ndef play(values):\n    os.kill(os.getpid(), signal.SIGSTOP)\n",
    "never loads": "import time\ntime.sleep(600)\n",
}


@pytest.mark.parametrize("name", LATE)
def test_a_player_that_is_late_is_closed(tmp_path: Path, backend: PipeBackend, name: str) -> None:
    text = DOUBLE.replace("timeout=20", "timeout=0.5").replace("open_player()", "open_player(timeout=2)")
    grade = grade_code(tmp_path, backend, LATE[name], text)
    assert grade.outcome == "invalid_submission"
    assert "within 0.5 s" in grade.message or "not loaded within 2 s" in grade.message


def test_the_gradings_own_limit_is_the_submissions_fault(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_code(tmp_path, backend, LATE["spins"], seconds=1.0)
    assert grade.outcome == "invalid_submission"
    assert "the 1 s of a grading (your code had used" in grade.message


def test_a_grader_may_handle_a_failing_player(tmp_path: Path, backend: PipeBackend) -> None:
    text = HEAD + (
        "kinds = []\n"
        "def attempt(player, **options):\n"
        "    try:\n        return player.call(values=peer.buffer('<i4', [1]), **options).buffers['values'].tolist()\n"
        "    except peer.PlayerError as error:\n        return error.kind\n"
        "with peer.open_player() as player:\n"
        "    kinds = [attempt(player), attempt(player), attempt(player, timeout=0.3), attempt(player)]\n"
        "peer.scored({'Score': 1}, details={'kinds': kinds})\n"
    )
    answer = (
        "n = 0\ndef play(values):\n    global n\n    n += 1\n    if n == 1:\n        raise ValueError\n"
        "    while n == 3:\n        pass\n    return [n]\n"
    )
    assert grade_code(tmp_path, backend, answer, text).details["kinds"] == ["raised", [2], "timeout", "timeout"]


def test_printing_much_is_only_a_log(tmp_path: Path, backend: PipeBackend) -> None:
    answer = (
        "import os\nprint('x' * 2_000_000)\n"
        "def play(values):\n    os.system('echo child')\n    print('y' * 2_000_000)\n    return [1]\n"
    )
    grade = grade_code(tmp_path, backend, answer)
    assert (grade.outcome, grade.metrics) == ("scored", {"Score": 1.0})


def test_a_box_that_does_not_start_is_nobodys_submission(tmp_path: Path) -> None:
    backend = PipeBackend("import sys; sys.exit('no such interpreter')")
    with pytest.raises(InfrastructureError, match="no such interpreter"):
        grade_csv(tmp_path, backend, "peer.scored({'Score': 1})\n")
    assert backend.all_gone()


class SecondFails(PipeBackend):
    def open_peer(self, spec, program):  # type: ignore[no-untyped-def]
        if spec.role == "player":
            raise InfrastructureError("the engine refused")
        return super().open_peer(spec, program)


@pytest.mark.parametrize("text", [DOUBLE])
def test_a_player_box_that_does_not_open_is_nobodys_submission(tmp_path: Path, text: str) -> None:
    backend = SecondFails()
    with pytest.raises(InfrastructureError, match="the engine refused"):
        grade_code(tmp_path, backend, HONEST, text)
    assert backend.all_gone()


def test_a_player_nobody_asked_for_is_closed(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_code(tmp_path, backend, "import time\ntime.sleep(600)\n", HEAD + "peer.scored({'Score': 1})\n")
    assert grade.outcome == "scored"


def test_an_interrupt_closes_every_box(tmp_path: Path, backend: PipeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Relay, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grade_code(tmp_path, backend, HONEST)
    assert backend.all_gone()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("grading")]


def test_gradings_run_side_by_side(tmp_path: Path, backend: PipeBackend) -> None:
    task = make_task(tmp_path / "task", DOUBLE, "code", PLAYER)
    (tmp_path / "answer.py").write_text(HONEST)
    archive = freeze_folder(tmp_path, task.submission, tmp_path / "store")
    grader = Grader(task, cast(Any, backend), "run", "full", SECRET)
    grades: list[Grade] = []
    threads = [threading.Thread(target=lambda: grades.append(grader.grade(archive, "test"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [grade.metrics for grade in grades] == [{"Score": 12.0}] * 4
    assert sorted(backend.prepared) == ["grader", "player"]


def test_nothing_stays_open(tmp_path: Path, backend: PipeBackend) -> None:
    grade_code(tmp_path / "warm", backend, HONEST)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(3):
        grade_code(tmp_path / str(number), backend, HONEST)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_player_file_that_never_serves_is_named(tmp_path: Path, backend: PipeBackend) -> None:
    grade = grade_code(tmp_path, backend, HONEST, player="x = 1\n")
    assert grade.outcome == "invalid_submission"
    assert "must call peer.serve" in grade.message


def test_nesting_that_one_end_could_not_decode_is_refused_by_the_first(tmp_path: Path, backend: PipeBackend) -> None:
    deep = (
        "import mlgym_peer as peer\n"
        "def answer(header, buffers):\n"
        "    nested = {}\n"
        "    for _ in range(900):\n"
        "        nested = {'a': nested}\n"
        "    return nested, {}\n"
        "peer.serve(answer)\n"
    )
    grade = grade_code(tmp_path, backend, HONEST, player=deep)
    assert grade.outcome == "invalid_submission"
    assert "levels" in grade.message or "Recursion" in grade.message


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=1)
print("options", parser.parse_args())
def row_strategy(history):
    return 0
"""


def test_a_submission_that_reads_its_command_line_finds_none() -> None:
    from mlgym_core.testing import grade_files

    assert grade_files("battle-of-sexes", {"strategy.py": ARGPARSE}, size="tiny").outcome == "scored"


def test_what_an_exit_has_printed_belongs_to_its_reason() -> None:
    from mlgym_core.testing import grade_files

    text = ARGPARSE.replace("parser.parse_args()", "parser.parse_args(['--rnd'])")
    grade = grade_files("battle-of-sexes", {"strategy.py": text}, size="tiny")
    assert grade.outcome == "invalid_submission"
    assert "SystemExit" in grade.message
    assert "unrecognized arguments: --rnd" in grade.message
