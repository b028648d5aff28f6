"""One row for every promise that a task can break: how, which check says so, and a word of what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Broken(NamedTuple):
    """A task with one fault.

    Attributes:
        kind: of the sound task that it is made from: ``table`` or ``code``.
        check: that has to fail.
        says: part of its message.
        spoil: makes the fault.
    """

    kind: str
    check: str
    says: str
    spoil: Callable[[Path], object]


def put(name: str, text: str | bytes) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return spoil


def change(name: str, old: str, new: str) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return spoil


def end(name: str, text: str) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(text)

    return spoil


SCORED = "import mlgym_peer as peer\njob = peer.job()\n"
RANDOM = SCORED + "import os\npeer.scored({'Score': os.urandom(1)[0] + os.urandom(1)[0] / 256})\n"
SECRET = "the hidden answer is forty-two, and nobody may know it\n"
LENIENT = SCORED + (
    "text = (job.paths['submission'] / 'answer.csv').read_text(errors='replace')\n"
    "peer.scored({'Score': len(text) / 1000 if job.split == 'dev' else len(text) / 2000})\n"
)
BRITTLE = SCORED + (
    "rows = (job.paths['submission'] / 'answer.csv').read_text().splitlines()[1:]\n"
    "peer.scored({'Score': sum(float(row.split(',')[1]) for row in rows) / len(rows) if job.split else 0})\n"
)

BROKEN = {
    "an unknown key": Broken("table", "spec", "unknown key 'metric'", end("task.yaml", "metric: 1\n")),
    "a description of one word": Broken("table", "description", "it has 2 characters", put("description.md", "Do\n")),
    "a description without the path": Broken(
        "table", "description", "does not mention answer.csv", change("description.md", "answer.csv", "a file")
    ),
    "a description without the metric": Broken(
        "table", "description", "does not mention Score", change("description.md", "`Score`", "us")
    ),
    "a placeholder": Broken("table", "description", "'TODO'", end("description.md", "\nTODO: say more\n")),
    "a template": Broken("table", "description", "'{deadline}'", end("description.md", "\nUntil {deadline} or so.\n")),
    "two steps": Broken(
        "table", "limits", "too few", change("task.yaml", "{grading_seconds: 60}", "{steps: 2, grading_seconds: 60}")
    ),
    "no validation": Broken(
        "table", "limits", "validations is 0", change("task.yaml", "grading_seconds: 60", "validations: 0")
    ),
    "an import of numpy": Broken("table", "imports", "imports numpy", put("__init__.py", "import numpy\n")),
    "an import that fails": Broken("table", "imports", "no_such_module", put("__init__.py", "import no_such_module\n")),
    "a player that pickles": Broken(
        "code", "no-pickle", "line 1: pickle",
        change("public/player.py", "import mlgym_peer", "import pickle, mlgym_peer"),
    ),
    "a grader that allows pickles": Broken(
        "code", "no-pickle", "allow_pickle=True",
        end("private/grade.py", "\nif 0:\n    load('x', allow_pickle=True)\n"),
    ),
    "a requirement that does not exist": Broken(
        "table", "image", "does not build", put("image/requirements.txt", "no-such-distribution @ file:///nowhere\n")
    ),
    "a grader that does not compile": Broken(
        "table", "compiles", "private/grade.py: line", end("private/grade.py", "\ndef (:\n")
    ),
    "a player that does not compile": Broken(
        "code", "compiles", "public/player.py: line", end("public/player.py", "\nreturn = 1\n")
    ),
    "data that depends on time": Broken(
        "table", "data", "asked.csv", change("data.py", "random.Random(seed)", "random.SystemRandom()")
    ),
    "data that cannot be prepared": Broken(
        "table", "data", "local source", change("data.py", "rng = random.Random(seed)", "raise ValueError('no')")
    ),
    "answers among the public data": Broken(
        "table", "no-secrets", "holds all of private data expected.csv",
        end("data.py", "    (out.public / 'x.csv').write_bytes((out.private / 'expected.csv').read_bytes())\n"),
    ),
    "most answers among the public data": Broken(
        "table", "no-secrets", "lines of private data expected.csv",
        end("data.py", "    lines = (out.private / 'expected.csv').read_bytes().splitlines()[1:-1]\n"
            "    (out.public / 'x.csv').write_bytes(b'\\n'.join(reversed(lines)))\n"),
    ),
    "a private file in public/": Broken(
        "code", "no-secrets", "public/note.txt holds all of private/note.txt",
        lambda folder: [put(f"{part}/note.txt", SECRET)(folder) for part in ("public", "private")],
    ),
    "a private file in image/": Broken(
        "code", "no-secrets", "image/note.txt holds all of private/note.txt",
        lambda folder: [put(f"{part}/note.txt", SECRET)(folder) for part in ("image", "private")],
    ),
    "public labels": Broken("code", "no-secrets", "named like a secret (labels)", put("public/labels.csv", "1\n")),
    "a baseline that fails": Broken(
        "code", "baseline", "ended as no_submission", change("task.yaml", "python3 answer.py", "rm answer.py")
    ),
    "a grader that raises": Broken("code", "baseline", "ended as grader_error", end("private/grade.py", "\n1 / 0\n")),
    "a wrong baseline score": Broken(
        "code", "baseline-score", "says Score -4 at size full, measured was -5", change("task.yaml", "-5.0", "-4.0")
    ),
    "a grader that scores empty files": Broken(
        "table", "empty", "holding a line feed was scored", put("private/grade.py", LENIENT)
    ),
    "a grader that scores garbage": Broken("table", "garbage", "was scored", put("private/grade.py", LENIENT)),
    "a grader that fails on garbage": Broken(
        "table", "garbage", "made the grader fail", put("private/grade.py", BRITTLE)
    ),
    "a random grader": Broken("table", "deterministic", "derive all randomness", put("private/grade.py", RANDOM)),
    "dev that is test": Broken(
        "table", "splits", "neither job.split nor job.seed",
        put("private/grade.py", SCORED + "peer.scored({'Score': 0.5})\n"),
    ),
    "a grader that shows its files": Broken(
        "code", "canary", "reaches the player",
        change("private/grade.py", "player.call({}", "player.call({'all': open('private/answers-canary.csv').read() "
               "if __import__('os').path.exists('private/answers-canary.csv') else ''}"),
    ),
    "a grader that believes the header": Broken(
        "code", "attack-answers-other-header", "more than the honest baseline",
        change("private/grade.py", "answer = player.call({}, timeout=30, values=peer.buffer(\"<i4\", hidden)).buffers",
               "reply = player.call({}, timeout=30, values=peer.buffer('<i4', hidden))\n"
               "    if 'metrics' in reply.header:\n        peer.scored(reply.header['metrics'])\n"
               "        raise SystemExit\n    answer = reply.buffers"),
    ),
    "a grader that checks no shape": Broken(
        "code", "attack-answers-too-few", "more than the honest baseline",
        change("private/grade.py", 'or answer.dtype != "<i4" or answer.shape != (9,)', ""),
    ),
    "a grader that looks at no buffer": Broken(
        "code", "attack-answers-nothing", "made the grader fail",
        change("private/grade.py", '.buffers.get("values")', '.buffers["values"]'),
    ),
    "a grader that counts half a table": Broken(
        "table", "attack-half-the-rows", "such a file was scored", put("private/grade.py", BRITTLE)
    ),
    "a grader that passes nan on": Broken(
        "table", "attack-every-cell-nan", "made the grader fail", put("private/grade.py", BRITTLE)
    ),
    "its own attack succeeds": Broken(
        "code", "attack-own-better", "more than the honest baseline",
        put("attacks/better/answer.py", "def play(values):\n    return [2 * v for v in values]\n"),
    ),
    "its own script is told private content": Broken(
        "code", "attack-own-told", "found what it must not find",
        put("attacks/told.yaml", "- echo ATTACK-''FOUND a way\n"),
    ),
}  # fmt: skip
