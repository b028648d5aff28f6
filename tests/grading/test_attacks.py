"""Submissions that attack the protocol or their box: none gets more than its honest answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grading.boxes import (
    DOUBLE,
    PipeBackend,
    gone,
    grade_code,
)

FORGE = """
import json, os, struct
import mlgym_peer as peer

OWN = peer._Box.channel._sink.fileno()
RESULT = json.dumps({"schema": 1, "outcome": "scored", "metrics": {"Score": 99}}).encode()
AS_RESULT = {"type": "result", "buffers": [["content", "|u1", [len(RESULT)]]]}
REPLY = {"type": "reply", "id": 1, "header": {}, "buffers": []}


def framed(text, payload=b""):
    return struct.pack(">IQ", len(text), len(payload)) + text + payload


def say(header, payload=b"", descriptor=OWN):
    os.write(descriptor, framed(json.dumps(header).encode(), payload))


def say_everywhere(header, payload):
    for descriptor in range(256):
        try:
            say(header, payload, descriptor)
        except OSError:
            pass
"""
ATTACKS = {
    "a forged result": ("say(AS_RESULT, RESULT)", "nobody had asked for"),
    "a forged result everywhere": ("say_everywhere(AS_RESULT, RESULT)", "nobody had asked for"),
    "a forged result in answer": ("say({**AS_RESULT, 'id': 1}, RESULT)", "nobody had asked for"),
    "a forged failure": ("say({'type': 'failed', 'message': 'x'})", "nobody had asked for"),
    "a forged opening": ("say({'type': 'open', 'timeout': 5})", "nobody had asked for"),
    "an answer to a later call": ("say({**REPLY, 'id': 2})", "nobody had asked for"),
    "a header that is no object": ("say({**REPLY, 'header': 5})", "its header is not an object"),
    "a frame that is no object": ("say([])", "not a JSON object"),
    "an infinite number": ("os.write(OWN, framed(json.dumps(REPLY).replace('{}', '[1e999]').encode()))", "an object"),
    "an infinite number inside": (
        "os.write(OWN, framed(json.dumps(REPLY).replace('{}', '{\"a\": 1e999}').encode()))",
        "not JSON compliant",
    ),
    "a deep header": ("os.write(OWN, framed(b'[' * 60000))", "not JSON"),
    "garbage": ("os.write(OWN, b'\\xff' * 4096)", "over the limit"),
    "an endless frame": ("os.write(OWN, struct.pack('>IQ', 5, 2**64 - 1))", "over the limit"),
    "half a frame and the end": ("os.write(OWN, struct.pack('>IQ', 100, 0)); os._exit(0)", "ended"),
    "a header that grows": (
        "text = json.dumps({**REPLY, 'header': {'a': '\u00e9' * 25000}}, ensure_ascii=False).encode()\n"
        "    os.write(OWN, framed(text))",
        "the header has",
    ),
    "a buffer that lies": ("say({**REPLY, 'buffers': [['values', '<i4', [1000]]]}, b'abcd')", "do not fill"),
    "closed descriptors": ("os.closerange(3, 256)", "ended"),
    "an error of an unknown kind": ("say({'type': 'error', 'id': 1, 'kind': 'grader_error', 'message': [1]})", "why"),
    "an error with odd text": ("say({'type': 'error', 'id': 1, 'message': '\\ud800\\x00' * 5000})", "?\0?"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_the_protocol_scores_nothing(tmp_path: Path, backend: PipeBackend, name: str) -> None:
    attack, message = ATTACKS[name]
    answer = f"{FORGE}\ndef play(values):\n    {attack}\n    return [0]\n"
    grade = grade_code(tmp_path, backend, answer)
    assert (grade.outcome, grade.metrics) == ("invalid_submission", {})
    assert message in grade.message
    json.dumps(grade.to_json(), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    "attack",
    [
        "open('result.json', 'w').write(RESULT.decode())",
        "import sys; sys.modules['json'] = sys.modules['struct'] = None",
        "peer.scored({'Score': 99})",
        "peer.PlayerError.__init__ = None",
        "os.dup2(os.open(os.devnull, os.O_RDONLY), 2)",
    ],
)
def test_what_a_player_does_to_its_own_box_changes_nothing(tmp_path: Path, backend: PipeBackend, attack: str) -> None:
    answer = f"{FORGE}\ndef play(values):\n    {attack}\n    return [1, 1]\n"
    grade = grade_code(tmp_path, backend, answer)
    assert (grade.outcome, grade.metrics) == ("scored", {"Score": 2.0})


def test_a_flood_of_answers_is_bounded(tmp_path: Path, backend: PipeBackend) -> None:
    answer = f"{FORGE}\ndef play(values):\n    while True:\n        say({{'type': 'reply', 'id': 1}})\n"
    text = DOUBLE.replace("    peer.scored", "    player.call({}, timeout=5, values=b'')\n    peer.scored")
    grade = grade_code(tmp_path, backend, answer, text)
    assert grade.outcome == "invalid_submission"


def test_children_of_a_player_end_with_its_box(tmp_path: Path, backend: PipeBackend) -> None:
    answer = (
        "import os, subprocess, sys, time\n"
        "def play(values):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    fork = os.fork()\n"
        "    if fork == 0:\n        time.sleep(600)\n"
        "    return [child.pid, fork]\n"
    )
    text = DOUBLE.replace("sum(answer.buffers['values'].tolist())", "1").replace(
        "details=answer.header", "details={'pids': answer.buffers['values'].tolist()}"
    )
    grade = grade_code(tmp_path, backend, answer, text)
    assert grade.outcome == "scored"
    assert all(gone(pid) for pid in grade.details["pids"])
