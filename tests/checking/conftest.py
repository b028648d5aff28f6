"""Tasks of a few lines that keep the contract, and what it takes to break one promise of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import write_task

from mlgym_core.authoring.checking import Report, check_named

DESCRIPTION = """\
# A task

Write `@PATH@` in your workspace. It is scored by `Score`, higher is better, on instances that are hidden from you and
drawn anew in every run. There is a baseline to beat in your workspace. Nothing else is handed in, and nothing else
counts: what you print is ignored.
"""

TABLE_YAML = """\
schema: 1
id: {id}
title: Doubles
metrics:
  - {{name: Score, direction: up}}
submission: {{kind: csv, paths: [answer.csv]}}
data: {{sources: [local]}}
baseline:
  command: cp data/sample.csv answer.csv
  scores: {{full: {{Score: {{value: 0.5, source: measured}}}}}}
sizes: {{full: {{}}}}
limits: {{grading_seconds: 60}}
image: {{}}
"""

TABLE_GRADE = """\
import csv

import mlgym_peer as peer
import mlgym_table as table

job = peer.job()
with (job.paths["data"] / "expected.csv").open() as file:
    rows = list(csv.DictReader(file))
read = table.read_predictions(
    job.paths["submission"] / "answer.csv", "id", ["y"], [row["id"] for row in rows], low=-1e9, high=1e9
)["y"]
of_split = [(float(row["y"]), y) for row, y in zip(rows, read) if row["split"] == job.split]
peer.scored({"Score": sum(a == b for a, b in of_split) / len(of_split)}, details={"rows": len(of_split)})
"""

TABLE_DATA = """\
import csv
import random


def prepare(source, size, seed, out):
    rng = random.Random(seed)
    numbers = [rng.randrange(1000) for _ in range(24)]
    with (out.public / "asked.csv").open("w") as file:
        csv.writer(file).writerows([("id", "x"), *((f"r{i}", x) for i, x in enumerate(numbers))])
    with (out.public / "sample.csv").open("w") as file:
        right = [2 * x if i % 4 == 1 else -1 for i, x in enumerate(numbers)]
        csv.writer(file).writerows([("id", "y"), *((f"r{i}", y) for i, y in enumerate(right))])
    with (out.private / "expected.csv").open("w") as file:
        rows = [(f"r{i}", ("dev", "test")[i % 2], 2 * x) for i, x in enumerate(numbers)]
        csv.writer(file).writerows([("id", "split", "y"), *rows])
"""

CODE_YAML = """\
schema: 1
id: {id}
title: Doubles
metrics:
  - {{name: Score, direction: up}}
submission: {{kind: code, paths: [answer.py], player: player.py}}
baseline:
  command: python3 answer.py
  scores: {{full: {{Score: {{value: -5.0, source: measured}}}}}}
sizes: {{full: {{}}}}
limits: {{grading_seconds: 60}}
image: {{}}
"""

CODE_GRADE = """\
import random

import mlgym_peer as peer

job = peer.job()
hidden = [random.Random(job.seed + str(i)).randrange(1000) for i in range(9)]
with peer.open_player() as player:
    answer = player.call({}, timeout=30, values=peer.buffer("<i4", hidden)).buffers.get("values")
if answer is None or answer.dtype != "<i4" or answer.shape != (9,):
    raise peer.InvalidSubmission("answer with nine integers")
errors = [abs(2 * x - y) for x, y in zip(hidden, answer.tolist())]
peer.scored({"Score": -float(sum(errors)) / 9}, details={"first": hidden[0]})
"""

CODE_PLAYER = """\
import mlgym_peer as peer

import answer


def handler(header, buffers):
    return {}, {"values": peer.buffer("<i4", answer.play(buffers["values"].tolist()))}


if __name__ == "__main__":
    peer.serve(handler)
"""

CODE_BASELINE = "def play(values):\n    return [2 * v + 5 for v in values]\n"
DOCKERFILE = "FROM python:3.11-bookworm\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that a test prepares stays with the test."""
    monkeypatch.setenv("MLGYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A local source, which the table task does not look at."""
    (tmp_path / "source").mkdir()
    return f"local:{tmp_path / 'source'}"


@pytest.fixture
def table_task(tmp_path: Path) -> Path:
    """A sound task whose submission is a table."""
    folder = write_task(tmp_path / "plug_table", "doubles", TABLE_GRADE, TABLE_YAML)
    (folder / "description.md").write_text(DESCRIPTION.replace("@PATH@", "answer.csv"))
    (folder / "data.py").write_text(TABLE_DATA)
    (folder / "image" / "Dockerfile").write_text(DOCKERFILE)
    (folder / "__init__.py").write_text("")
    return folder


@pytest.fixture
def code_task(tmp_path: Path) -> Path:
    """A sound task whose submission is code."""
    folder = write_task(tmp_path / "plug_code", "doubles", CODE_GRADE, CODE_YAML)
    (folder / "description.md").write_text(DESCRIPTION.replace("@PATH@", "answer.py"))
    (folder / "public" / "player.py").write_text(CODE_PLAYER)
    (folder / "public" / "answer.py").write_text(CODE_BASELINE)
    (folder / "image" / "Dockerfile").write_text(DOCKERFILE)
    (folder / "__init__.py").write_text("")
    return folder


@pytest.fixture
def check(source: str) -> Callable[..., Report]:
    """Does the named checks of a task folder."""

    def go(folder: Path, *names: str, **options: object) -> Report:
        given = source if (folder / "data.py").is_file() else None
        return check_named(str(folder), backend="local", source=given, only=names, **options)

    return go


def edit(path: Path, old: str, new: str) -> None:
    """Replace what must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
