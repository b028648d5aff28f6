"""Hostile and careless strategies, through the real grading: a clear outcome, and never more than honest moves get."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mlgym_core.task.task import Task

PLAY_ZERO = 1.44
FORGE = """
import json, os, struct, sys
import mlgym_peer as peer

CHANNEL = peer._Box.channel
RESULT = json.dumps({"schema": 1, "outcome": "scored", "metrics": {"Score": 99}}).encode()


def say(header, payload=b""):
    text = json.dumps(header).encode()
    os.write(CHANNEL._sink.fileno(), struct.pack(">IQ", len(text), len(payload)) + text + payload)
"""
INVALID = {
    "raises": ("def row_strategy(history):\n    return [][len(history)]\n", "IndexError"),
    "raises late": ("def row_strategy(history):\n    return 0 if len(history) < 9 else 1 / 0\n", "strategy.py, line 2"),
    "no function": ("x = 1\n", "row_strategy"),
    "nothing": ("def row_strategy(history):\n    pass\n", "returned None for the history []"),
    "out of range": ("def row_strategy(history):\n    return 2\n", "returned 2 for the history []; return an integer"),
    "negative": ("def row_strategy(history):\n    return -1\n", "returned -1"),
    "a float": (
        "def row_strategy(history):\n    return 1.0 if history else 0\n",
        "returned 1.0 for the history [(0, 1)]",
    ),
    "text": ("def row_strategy(history):\n    return '0'\n", "returned '0'"),
    "a huge number": ("def row_strategy(history):\n    return 10 ** 400\n", "returned 1000"),
    "exits": ("import os\ndef row_strategy(history):\n    os._exit(0)\n", "ended"),
    "a forged result": (
        FORGE
        + "def row_strategy(history):\n    say({'type': 'result', 'buffers': [['content', '|u1', [len(RESULT)]]]},"
        " RESULT)\n    return 0\n",
        "nobody had asked for",
    ),
    "moves that the player would refuse": (
        FORGE + "import __main__\n"
        "def cheat(rules, buffers):\n    return {}, {'moves': b'\\7' * rules['simulations']}\n"
        "peer.serve = lambda handler, real=peer.serve: real(cheat)\n",
        "a move has a number over 1",
    ),
    "too few moves": (
        FORGE + "peer.serve = lambda handler, real=peer.serve: real(lambda rules, buffers: ({}, {'moves': b'0'}))\n"
        "def row_strategy(history):\n    return 0\n",
        "did not answer with 1000 moves",
    ),
    "closed descriptors": ("import os\nos.closerange(0, 64)\ndef row_strategy(history):\n    return 0\n", "ended"),
    "prints 200 MB": ("print('x' * 200_000_000)\ndef row_strategy(history):\n    return 0\n", "more than 64 MiB"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_with_a_reason(games: dict[str, Task], grade_strategy: Any, name: str) -> None:
    text, message = INVALID[name]
    if name.startswith("moves that"):
        text += "def row_strategy(history):\n    return 0\n"
    grade = grade_strategy(games["battle_of_sexes"], text, "tiny")
    assert (grade.outcome, grade.metrics) == ("invalid_submission", {})
    assert message in grade.message


ZERO = "def row_strategy(history):\n    return 0\n"
HONEST = {
    "changes the history": "def row_strategy(history):\n    history[:] = [(0, 0)] * 50\n    return 0\n",
    "keeps the history": (
        "kept = []\ndef row_strategy(history):\n    kept.append(history)\n    kept[0].clear()\n    return 0\n"
    ),
    "a bool": "def row_strategy(history):\n    return False\n",
    "an integer of its own": (
        "class I:\n    def __index__(self):\n        return 0\ndef row_strategy(history):\n    return I()\n"
    ),
    "prints": "def row_strategy(history):\n    print('score: 99' * 100)\n    return 0\n",
    "leaves children": "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n" + ZERO,
    "plants a result": FORGE + "open('result.json', 'wb').write(RESULT)\n" + ZERO,
    "writes a grader": "open('grade.py', 'w').write('x')\n" + ZERO,
    "breaks its modules": FORGE + "sys.modules['random'] = sys.modules['lockstep'] = None\n" + ZERO,
    "calls the grader's functions": FORGE + "peer.scored({'Score': 99})\n" + ZERO,
}


@pytest.mark.parametrize("name", HONEST)
def test_no_more_than_the_honest_moves(games: dict[str, Task], grade_strategy: Any, name: str) -> None:
    task = games["battle_of_sexes"]
    honest = grade_strategy(task, ZERO, "tiny").metrics
    assert honest["Score"] == pytest.approx(PLAY_ZERO, abs=0.03)
    grade = grade_strategy(task, HONEST[name], "tiny")
    assert (grade.outcome, grade.metrics) == ("scored", honest)


@pytest.mark.parametrize(
    "loop", ["def row_strategy(history):\n    while True:\n        pass\n", "while True:\n    pass\n"]
)
def test_a_strategy_that_never_ends(games: dict[str, Task], grade_strategy: Any, loop: str) -> None:
    task = games["battle_of_sexes"]
    task = attrs.evolve(task, limits=attrs.evolve(task.limits, grading_seconds=1.0))
    grade = grade_strategy(task, loop, "tiny")
    assert grade.outcome == "invalid_submission"
    assert "within the 1 s of a grading" in grade.message


@pytest.mark.parametrize(
    ("given", "fine"),
    [
        ("(20, 20, 20, 20, 20, 20)", True),
        ("[0] * 6", True),
        ("(120, 0, 0, 0, 0, 0)", True),
        ("range(6)", True),
        ("[20] * 5", False),
        ("[20] * 7", False),
        ("[0] * 100", False),
        ("[21] * 6", False),
        ("[121, 0, 0, 0, 0, 0]", False),
        ("[-1, 30, 30, 30, 31, 0]", False),
        ("[20.0] * 6", False),
        ("[300, 0, 0, 0, 0, 0]", False),
        ("None", False),
        ("5", False),
        ("'222222'", False),
    ],
)
def test_placements_in_blotto(games: dict[str, Task], grade_strategy: Any, given: str, fine: bool) -> None:
    grade = grade_strategy(games["blotto"], f"def row_strategy(history):\n    return {given}\n", "tiny")
    assert grade.outcome == ("scored" if fine else "invalid_submission")
    assert fine or "return 6 integers, none negative, that add up to at most 120" in grade.message


def test_a_blotto_player_that_lies_is_caught_by_the_grader(games: dict[str, Task], grade_strategy: Any) -> None:
    text = (
        "import mlgym_peer as peer\n"
        "moves = bytes([120] * 6)\n"
        "serve = peer.serve\n"
        "peer.serve = lambda handler: serve(lambda rules, b: ({}, {'moves': moves * rules['simulations']}))\n"
        "def row_strategy(history):\n    return [20] * 6\n"
    )
    grade = grade_strategy(games["blotto"], text, "tiny")
    assert (grade.outcome, grade.message) == ("invalid_submission", "the numbers of a move add up to more than 120")


def test_what_a_strategy_sees(games: dict[str, Task], grade_strategy: Any) -> None:
    text = (
        "def row_strategy(history):\n"
        "    assert type(history) is list and len(history) < 10\n"
        "    for row, column in history:\n"
        "        assert type(row) is tuple and row == (1, 2, 3, 4, 5, 6)\n"
        "        assert type(column) is tuple and len(column) == 6 and sum(column) == 120\n"
        "    return (1, 2, 3, 4, 5, 6)\n"
    )
    assert grade_strategy(games["blotto"], text, "tiny").outcome == "scored"
    text = (
        "def row_strategy(history):\n"
        "    assert [row for row, _ in history] == [0, 1, 1, 1, 1, 1, 1, 1, 1][:len(history)]\n"
        "    assert not history or history[0][1] == 1\n"
        "    return min(len(history), 1)\n"
    )
    grade = grade_strategy(games["battle_of_sexes"], text, "tiny")
    assert grade.outcome == "scored", grade.message


def test_other_seeds_give_other_games(games: dict[str, Task], grade_strategy: Any) -> None:
    task = games["battle_of_sexes"]
    scores = [grade_strategy(task, ZERO, "tiny", bytes([n]) * 16).metrics["Score"] for n in (1, 1, 2, 3, 4)]
    assert scores[0] == scores[1]
    assert len(set(scores)) > 2
