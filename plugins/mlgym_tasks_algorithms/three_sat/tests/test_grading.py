"""Heuristics through the real grading: what is scored, what is refused, and that cheating gains nothing."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from mlgym_core.authoring.testing.grading import SECRET
from mlgym_core.grading.grade import Grade
from mlgym_core.grading.inside import mlgym_peer
from mlgym_core.grading.sealed import derive_seed
from mlgym_core.task.task import Task
from mlgym_core.testing import grade_files

ASKED = "def heuristic_fn(clauses, assignments, conflict_count, assignment_history, level):\n"
FIRST = f"{ASKED}    return abs(clauses[0][0]), clauses[0][0] > 0\n"
SMALLEST = f"{ASKED}    literal = min(clauses)[0]\n    return abs(literal), literal > 0\n"
JEROSLOW_WANG = f"""{ASKED}
    scores = {{}}
    for clause in clauses:
        for literal in clause:
            scores[literal] = scores.get(literal, 0.0) + 2.0 ** -len(clause)
    literal = max(scores, key=scores.get)
    return abs(literal), literal > 0
"""
PATCH_CLOCK = """
import time
for name in ("time", "monotonic", "perf_counter", "process_time"):
    setattr(time, name, lambda: 0.0)
"""
# What a hostile heuristic does to its own player: `twist(ends, lengths, decisions)` changes what the player answers.
TWIST = """
from array import array
import mlgym_peer as peer
def hostile(handler):
    def reply(header, buffers):
        header, found = handler(header, buffers)
        ends, lengths, decisions = twist(*(found[name].tolist() for name in ("ends", "lengths", "decisions")))
        return header, {"ends": array("B", ends), "lengths": array("I", lengths), "decisions": array("b", decisions)}
    return reply
peer.serve = lambda handler, serve=peer.serve: serve(hostile(handler))
"""
SEARCH = "finds these decisions not a whole search"
Grader = Callable[..., Grade]


def test_the_baseline_is_its_own_measure(grade_heuristic: Grader) -> None:
    one, again, dev = grade_heuristic(), grade_heuristic(), grade_heuristic(split="dev")
    assert one.outcome == "scored", one.message
    assert set(one.metrics) == {"Time", "Decisions", "Correct", "Relative"}
    assert one.metrics["Correct"] == 1
    assert one.metrics["Time"] == one.metrics["Relative"] * one.details["baseline_time"]
    assert one.metrics["Relative"] == one.details["relative_time"]
    assert one.metrics["Decisions"] == again.metrics["Decisions"] == one.details["baseline_decisions"] > 0
    assert one.details["satisfiable"] == again.details["satisfiable"]
    assert (one.details["instances"], one.details["batches"]) == (11, 3)
    assert dev.metrics["Decisions"] != one.metrics["Decisions"]


def test_a_better_heuristic_takes_fewer_decisions(task_with: Callable[..., Task], grade_heuristic: Grader) -> None:
    task = task_with({"variables": 35, "ratio": 4.26, "count": 12, "batch": 6})
    grade = grade_heuristic(JEROSLOW_WANG, task)
    assert grade.outcome == "scored", grade.message
    assert grade.metrics["Decisions"] < grade.details["baseline_decisions"] / 2


def test_random_is_seeded_before_the_heuristic_is_imported(grade_heuristic: Grader) -> None:
    drawn = random.Random(0).random()
    grade = grade_heuristic(f"import random\nassert random.random() == {drawn!r}\n{FIRST}")
    assert grade.outcome == "scored", grade.message


INVALID = {
    "raises": (f"{ASKED}    return [][level]\n", "IndexError"),
    "raises late": (f"{ASKED}    return (abs(clauses[0][0]), True) if level < 1 else 1 / 0\n", "heuristic.py, line 2"),
    "no function": ("x = 1\n", "no function heuristic_fn"),
    "no program": ("def heuristic_fn(:\n", "SyntaxError"),
    "nothing": (f"{ASKED}    pass\n", "heuristic_fn returned None; return (variable, value)"),
    "a literal": (f"{ASKED}    return -1\n", "returned -1; return"),
    "no such variable": (f"{ASKED}    return 99, True\n", "returned (99, True); return"),
    "an assigned variable": (f"{ASKED}    return 1, True\n", "but 1 is assigned already"),
    "no truth value": (f"{ASKED}    return abs(clauses[0][0]), 'yes'\n", "'yes'); return"),
    "exits": (f"import os\n{ASKED}    os._exit(0)\n", "ended"),
    "leaves": (f"{ASKED}    raise SystemExit(0)\n", "SystemExit"),
    "prints 100 MB": (f"print('x' * 100_000_000)\n{FIRST}", "more than 64 MiB"),
    "grows without bound": (f"{ASKED}    kept = []\n    while True:\n        kept.append(bytearray(1 << 26))\n", ""),
    "removes clauses": (f"{ASKED}    del clauses[1:]\n    return abs(clauses[0][0]), True\n", SEARCH),
    "assigns by itself": (
        f"{ASKED}    for one in list(conflict_count)[1:]:\n        assignments[one] = True\n    return 1, True\n",
        "",
    ),
    "unsatisfiable at once": (
        f"import solver\nsolver.Search.solve = lambda self, clauses: False\n{FIRST}",
        "was said to end as unsatisfiable after 0 decisions",
    ),
    "satisfied at once": (
        f"import solver\nsolver.Search.solve = lambda self, clauses: True\n{FIRST}",
        "was said to end as satisfied after 0 decisions",
    ),
    "unsatisfiable early": (
        f"def twist(ends, lengths, decisions):\n    return [0] * len(ends), lengths, decisions\n{TWIST}{FIRST}",
        "was said to end as unsatisfiable",
    ),
    "one decision less": (
        "def twist(ends, lengths, decisions):\n    at = max(range(len(lengths)), key=lengths.__getitem__)\n"
        "    del decisions[sum(lengths[:at + 1]) - 1]\n    lengths[at] -= 1\n    return ends, lengths, decisions\n"
        f"{TWIST}{FIRST}",
        SEARCH,
    ),
    "one decision more": (
        "def twist(ends, lengths, decisions):\n    return ends, [*lengths[:-1], lengths[-1] + 1], [*decisions, 1]\n"
        f"{TWIST}{FIRST}",
        SEARCH,
    ),
    "garbage": (
        "import random\ndef twist(ends, lengths, decisions):\n"
        f"    return ends, lengths, [random.randint(-128, 127) for _ in decisions]\n{TWIST}{FIRST}",
        SEARCH,
    ),
    "other ends": (
        f"def twist(ends, lengths, decisions):\n    return [2] * len(ends), lengths, decisions\n{TWIST}{FIRST}",
        "answered 2 where 0 or 1",
    ),
    "too few": (
        f"def twist(ends, lengths, decisions):\n    return ends[1:], lengths, decisions\n{TWIST}{FIRST}",
        "did not answer with the searches of",
    ),
    "lengths that do not add up": (
        f"def twist(ends, lengths, decisions):\n    return ends, [9] * len(lengths), decisions\n{TWIST}{FIRST}",
        "did not answer with the searches of",
    ),
    "millions of decisions": (
        "def twist(ends, lengths, decisions):\n    return ends, [3_000_000, *[0] * (len(ends) - 1)], [1] * 3_000_000\n"
        f"{TWIST}{FIRST}",
        "a batch took 3000000 decisions; branch",
    ),
    "no answer": (
        f"import mlgym_peer as peer\npeer.serve = lambda _, serve=peer.serve: serve(lambda *_: ({{}}, {{}}))\n{FIRST}",
        "did not answer with ends, lengths and decisions",
    ),
}


@pytest.mark.isolation
@pytest.mark.parametrize("name", INVALID)
def test_invalid_with_a_reason(grade_heuristic: Grader, name: str) -> None:
    text, message = INVALID[name]
    grade = grade_heuristic(text)
    assert (grade.outcome, dict(grade.metrics)) == ("invalid_submission", {})
    assert message in grade.message


@pytest.mark.parametrize("late", [f"{ASKED}    while True:\n        pass\n", f"while True:\n    pass\n{FIRST}"])
def test_a_heuristic_that_never_ends(task: Task, grade_heuristic: Grader, late: str) -> None:
    hasty = attrs.evolve(task, limits=attrs.evolve(task.limits, grading_seconds=2.0))
    grade = grade_heuristic(late, hasty)
    assert grade.outcome == "invalid_submission"
    assert "within the 2 s of a grading" in grade.message


def test_a_log_that_cannot_be_replayed_in_time(task: Task, grade_heuristic: Grader) -> None:
    sizes = {name: attrs.evolve(one, parameters={**one.parameters, "seconds": 0}) for name, one in task.sizes.items()}
    grade = grade_heuristic(FIRST, attrs.evolve(task, sizes=sizes))
    assert (grade.outcome, dict(grade.metrics)) == ("invalid_submission", {})
    assert "take too long to replay; branch so that fewer are needed" in grade.message


HONEST = {
    "a patched clock": PATCH_CLOCK,
    "memory between passes": """
import os
paths = [os.path.join(folder, "kept.txt") for folder in (".", "/tmp", os.path.expanduser("~"), "/dev/shm", "/box")]
assert not any(map(os.path.exists, paths)), "a pass knows of the one before"
for path in paths:
    try:
        open(path, "w").write("kept")
    except OSError:
        pass
""",
    "a hunt for instances and seeds": """
import os, sys
for folder, _, names in os.walk("."):
    assert not {"grade.py", "job.json", "instances.py", "passes.py"} & set(names), names
assert not any("instances" in name or "passes" in name for name in sys.modules)
""",
    "children": "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n",
    "threads": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "planted files": "for name in ('player.py', 'baseline.py', 'x.pth'):\n    open(name, 'w').write('x')\n",
    "planted results": "import mlgym_peer\nmlgym_peer.scored({'Time': 0.0, 'Decisions': 0, 'Correct': 1})\n",
    "another random": "import random\nrandom.seed = lambda *_: None\nrandom.choice = lambda some: some[0]\n",
    "a sorted formula": None,
    "naps": "import time\ntime.sleep(0.05)\n",
}


@pytest.fixture(scope="module")
def honest(task: Task) -> Grade:
    return grade_files(task, {"heuristic.py": SMALLEST}, size="tiny")


@pytest.mark.isolation
@pytest.mark.parametrize("name", HONEST)
def test_no_more_than_the_honest_decisions(honest: Grade, grade_heuristic: Grader, name: str) -> None:
    prefix = HONEST[name]
    text = SMALLEST.replace("    literal", "    clauses.sort()\n    literal") if prefix is None else prefix + SMALLEST
    grade = grade_heuristic(text)
    assert grade.outcome == "scored", grade.message
    for same in ("Decisions", "Correct"):
        assert grade.metrics[same] == honest.metrics[same]
    assert grade.details["baseline_decisions"] == honest.details["baseline_decisions"]
    assert grade.metrics["Time"] >= 0.799 * grade.details["replay_time"] > 0


def test_answers_without_a_search_are_worth_their_replay(
    task_with: Callable[..., Task], parts: SimpleNamespace, grade_heuristic: Grader
) -> None:
    """The perfect cheat: all decisions known before, which no submission can. It gets what the replay takes."""
    groups = [{"variables": 45, "ratio": 4.26, "count": 2, "batch": 1}]
    task = task_with(*groups)
    seed = derive_seed(SECRET, task.id, "test")
    known: dict[Any, tuple[int, list[int]]] = {}
    for number in range(3):
        for batch in parts.passes.disguise(number, parts.instances.batches_of(groups, seed), seed).batches:
            for instance in batch:
                search = parts.solver.Search(instance.variables, lambda clauses, *_: (abs(clauses[0][0]), True))
                known[hash(instance.clauses)] = (int(search.solve(instance.clauses)), search.decisions)
    text = f"""
import solver
KNOWN = {known!r}
def solve(self, clauses):
    end, self.decisions = KNOWN[hash(tuple(clauses))]
    return end
solver.Search.solve = solve
heuristic_fn = print
"""
    grade = grade_heuristic(text, task)
    assert grade.outcome == "scored", grade.message
    assert grade.metrics["Decisions"] == sum(len(decisions) for _, decisions in known.values()) / 3
    assert grade.metrics["Time"] >= 0.799 * grade.details["replay_time"]
    assert grade.details["measured_time"] < grade.metrics["Time"]
    assert grade.details["solver_bypassed"] is True


def test_the_floor_and_the_sum(parts: SimpleNamespace) -> None:
    assert parts.grade.floored([1.0, 2.0, 0.1], [1.0, 1.0, 1.0]) == [1.0, 2.0, 0.8]
    assert parts.grade.best([[1.0, 5.0], [2.0, 3.0], [4.0, 4.0]]) == 4.0


class PlayerInThisProcess:
    """Takes the place of a player box: no heuristic is asked, since its instances leave no choice."""

    def __enter__(self) -> PlayerInThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, header: Any, timeout: float, **buffers: Any) -> Any:
        count = len(buffers["sizes"].tolist())
        answer = {"ends": array("B", [1] * count), "lengths": array("I", [0] * count), "decisions": array("b")}
        return SimpleNamespace(buffers={name: mlgym_peer.as_buffer(one) for name, one in answer.items()})


def test_a_replay_that_met_a_busy_moment_is_repeated_by_a_mocked_clock(
    parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = iter([50.0, 0.0, 40.0, 0.0, 60.0])  # batch 0 or 1 first; those of no time are believed at once
    monkeypatch.setattr(parts.passes.peer, "open_player", lambda timeout: PlayerInThisProcess())
    monkeypatch.setattr(parts.passes, "replay", lambda *_: next(replays))
    batches = [[parts.instances.Instance(3, ())], [parts.instances.Instance(4, ())]]
    done = parts.passes.run(0, batches, "00" * 16, float("inf"))
    assert sorted(done.replayed) == [0.0, 0.0]
    assert next(replays) == 60.0


@pytest.mark.engine
def test_in_containers(grade_heuristic: Grader, engine: str) -> None:
    here, there = grade_heuristic(), grade_heuristic(backend=engine)
    assert there.outcome == "scored", there.message
    assert there.metrics["Decisions"] == here.metrics["Decisions"]
    refused = grade_heuristic(
        f"import solver\nsolver.Search.solve = lambda self, clauses: False\n{FIRST}", backend="docker"
    )
    assert (refused.outcome, refused.metrics) == ("invalid_submission", {})
