from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.sandbox.local import processes
from mlgym_core.sandbox.local.processes import Process, victims
from mlgym_core.sandbox.owner import Owner

# root 1, supervisor 2, shell 3 (tick 10), an older job 4 with an old and a new child, the action's tree 7-9, and a
# stranger with a child; the action began at tick 100.
TREE = {
    1: Process(0, 0),
    2: Process(1, 0),
    3: Process(2, 10),
    4: Process(3, 50),
    5: Process(4, 60),
    6: Process(4, 150),
    7: Process(3, 100),
    8: Process(7, 120),
    9: Process(1, 130),  # orphaned, so the root's child
    20: Process(0, 200),
    21: Process(20, 210),
}


def test_victims_are_the_shell_and_what_the_action_began() -> None:
    assert victims(TREE, 1, (2,), 3, 100.7) == {3, 7, 8, 9}


def test_everything_can_be_chosen() -> None:
    assert victims(TREE, 1, (2,), 3, 0.0) == {3, 4, 5, 6, 7, 8, 9}


def test_a_shell_that_is_gone_changes_nothing_for_the_rest() -> None:
    table = {pid: process for pid, process in TREE.items() if pid != 3} | {7: Process(1, 100), 4: Process(1, 50)}
    assert victims(table, 1, (2,), None, 100.0) == {7, 8, 9}


@given(st.dictionaries(st.integers(2, 30), st.tuples(st.integers(1, 30), st.integers(0, 20)), max_size=30))
def test_victims_never_include_root_spared_or_strangers(raw: dict[int, tuple[int, int]]) -> None:
    table = {1: Process(0, 0)} | {pid: Process(parent, started) for pid, (parent, started) in raw.items()}
    chosen = victims(table, 1, (2,), 3, 10.0)
    assert chosen <= processes.below(1, table) - {1, 2}
    assert all(pid == 3 or table[pid].started >= 10 for pid in chosen)


def test_kill_below_spares_root_and_the_named() -> None:
    script = 'sh -c "sleep 600 & echo up; exec sleep 600" & setsid sleep 600 & echo $!; read line'
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as root:
        try:
            assert root.stdout is not None
            lines = {root.stdout.readline(), root.stdout.readline()} - {"up\n"}
            spared = int(lines.pop())
            processes.kill_below(root.pid, (spared,))
            assert processes.below(root.pid, processes.processes()) == {spared}
            assert root.poll() is None
        finally:
            processes.kill_below(root.pid)
            root.kill()


def test_processes_are_found_by_their_environment() -> None:
    with subprocess.Popen(["sleep", "600"], env={"MLGYM_TEST": "it"}) as child:
        try:
            assert processes.carrying("MLGYM_TEST", "it") == {child.pid}
            assert processes.carrying("MLGYM_TEST", "i") == set()
        finally:
            child.kill()


def test_a_name_with_parentheses_is_read_correctly(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "600"]) as child:
        try:
            assert processes.processes()[child.pid].parent == os.getpid()
        finally:
            child.kill()


def test_zombies_are_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in processes.processes()
    child.wait()


def test_owner_lives_as_long_as_its_process() -> None:
    code = (
        "import json, sys; from mlgym_core.sandbox.owner import Owner; "
        "print(json.dumps(Owner.current().to_dict()), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        owner = Owner.from_dict(json.loads(child.stdout.readline()))
        assert owner.pid == child.pid
        assert not owner.is_dead()
        child.kill()
    assert owner.is_dead()


def test_owner_is_dead_only_when_that_is_certain() -> None:
    me = Owner.current()
    assert not me.is_dead()
    assert evolve(me, started=me.started - 1).is_dead()  # the process id has been used again
    assert evolve(me, boot="another").is_dead()
    assert not evolve(me, started=0, machine="another").is_dead()
    assert not evolve(me, started=0, pid_namespace="pid:[1]").is_dead()


def test_owner_survives_text() -> None:
    me = Owner.current()
    assert Owner.from_dict(me.to_dict() | {"more": "is ignored"}) == me
    for broken in ({}, me.to_dict() | {"pid": "x"}, me.to_dict() | {"started": ""}):
        with pytest.raises(ValueError, match=r"."):
            Owner.from_dict(broken)
