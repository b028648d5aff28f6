"""The real grading path: known scores, every malformed submission, and submissions made to break the grader."""

from __future__ import annotations

import csv
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from grading.boxes import PipeBackend

from mlgym_core.data import Prepared
from mlgym_core.errors import InvalidSubmissionError
from mlgym_core.grading.archive import freeze_folder
from mlgym_core.grading.sealed import Grade, Grader
from mlgym_core.task.task import Split, Task

SECRET = bytes(16)
GradeBytes = Callable[..., Grade]
Labels = dict[str, tuple[str, float]]


@pytest.fixture(scope="module")
def labels(prepared: Prepared) -> Labels:
    """Id -> split and price, in the grader's order."""
    assert prepared.private is not None
    with (prepared.private / "labels.csv").open(newline="") as file:
        return {row["Id"]: (row["split"], float(row["SalePrice"])) for row in csv.DictReader(file)}


@pytest.fixture
def grade(task: Task, prepared: Prepared, tmp_path: Path) -> GradeBytes:
    def grading(content: bytes | str, split: Split = "test") -> Grade:
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        (work / "submission.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        archive = freeze_folder(work, task.submission, tmp_path / "archives")
        backend = PipeBackend()
        found = Grader(task, backend, "test", "full", SECRET, prepared).grade(archive, split)  # type: ignore[arg-type]
        assert backend.all_gone()
        return found

    return grading


def submission(values: dict[str, float]) -> str:
    return "Id,SalePrice\n" + "".join(f"{one},{value!r}\n" for one, value in values.items())


def test_scores_are_those_of_the_definition(grade: GradeBytes, labels: Labels) -> None:
    rng = random.Random(1)
    guess = {one: price * rng.uniform(0.8, 1.2) for one, (_, price) in labels.items()}
    for split in ("dev", "test"):
        truth = {one: price for one, (name, price) in labels.items() if name == split}
        squares = [(guess[one] - price) ** 2 for one, price in truth.items()]
        found = grade(submission(guess), split)
        assert found.outcome == "scored", found.message
        assert found.metrics["rmse"] == pytest.approx(math.sqrt(statistics.fmean(squares)))
        spread = statistics.pvariance(truth.values())
        assert found.metrics["r2"] == pytest.approx(1 - statistics.fmean(squares) / spread)
        assert found.details == {"rows": {"dev": 146, "test": 292}[split]}


def test_each_split_counts_only_its_own_rows(grade: GradeBytes, labels: Labels) -> None:
    for split in ("dev", "test"):
        right = {one: price if name == split else 1.0 for one, (name, price) in labels.items()}
        assert grade(submission(right), split).metrics == {"r2": 1.0, "rmse": 0.0}
        wrong = {one: 1.0 if name == split else price for one, (name, price) in labels.items()}
        assert grade(submission(wrong), split).metrics["r2"] < 0


def test_shuffled_ids_are_aligned_and_the_sample_scores_nearly_nothing(
    grade: GradeBytes, labels: Labels, prepared: Prepared
) -> None:
    ids = list(labels)
    random.Random(2).shuffle(ids)
    assert grade(submission({one: labels[one][1] for one in ids})).metrics["r2"] == 1.0
    assert prepared.public is not None
    found = grade((prepared.public / "sample_submission.csv").read_bytes())
    assert found.metrics["r2"] == pytest.approx(0, abs=0.05)


MALFORMED: dict[str, tuple[Callable[[str], str | bytes], str | None]] = {
    "nothing but a blank line": (lambda good: "\n", "submission.csv is empty"),
    "wrong header": (lambda good: good.replace("SalePrice", "price"), "line 1: the header is 'Id,price'"),
    "no header": (lambda good: good.partition("\n")[2], "line 1: the header is '10001,"),
    "extra column": (
        lambda good: "\n".join(f"{line},1" for line in good.split()),
        "line 1: the header is 'Id,SalePrice,1', expected Id,SalePrice",
    ),
    "duplicate id": (lambda good: good.replace("\n10002,", "\n10001,"), "line 3, column Id: id '10001' is on line 2"),
    "missing id": (lambda good: good[: good.rindex("\n", 0, -1) + 1], "1 of 438 ids have no row, for example '10438'"),
    "unknown id": (lambda good: good.replace("\n10003,", "\n1461,"), "line 4, column Id: unknown id '1461'"),
    "NaN": (lambda good: put(good, "nan"), "line 2, column SalePrice: 'nan' stands for a missing value"),
    "inf": (lambda good: put(good, "inf"), "line 2, column SalePrice: 'inf' is infinite"),
    "null": (lambda good: put(good, "null"), "line 2, column SalePrice: 'null' stands for a missing value"),
    "empty cell": (lambda good: put(good, ""), "line 2, column SalePrice: the cell is empty"),
    "text": (lambda good: put(good, "cheap"), "line 2, column SalePrice: 'cheap' is not a number"),
    "JSON lines": (lambda good: '{"Id": 10001, "SalePrice": 1}\n', "looks like JSON"),
    "ten times": (lambda good: good + good.partition("\n")[2] * 9, "line 440, column Id: id '10001' is on line 2"),
    "formula": (lambda good: put(good, "=SUM(A1:A9)"), "'=SUM(A1:A9)' is not a number"),
    "pickle": (lambda good: b"\x80\x04K\x01.", "is not UTF-8, at byte 1"),
    "BOM": (lambda good: b"\xef\xbb\xbf" + good.encode(), None),
    "CRLF": (lambda good: good.replace("\n", "\r\n"), None),
}


def put(good: str, cell: str) -> str:
    """The good file with another value in its first row."""
    header, first, rest = good.split("\n", 2)
    return f"{header}\n{first.partition(',')[0]},{cell}\n{rest}"


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_submissions(grade: GradeBytes, labels: Labels, name: str, split: Split) -> None:
    change, reason = MALFORMED[name]
    found = grade(change(submission({one: price for one, (_, price) in labels.items()})), split)
    if reason is None:
        assert found.metrics == {"r2": 1.0, "rmse": 0.0}
    else:
        assert (found.outcome, dict(found.metrics)) == ("invalid_submission", {})
        assert reason in found.message


def test_missing_folder_and_link(task: Task, tmp_path: Path) -> None:
    makers: list[Callable[[Path], object]] = [
        lambda path: None,
        Path.mkdir,
        lambda path: path.symlink_to("/etc/passwd"),
    ]
    for number, make in enumerate(makers):
        work = tmp_path / str(number)
        work.mkdir()
        make(work / "submission.csv")
        with pytest.raises(InvalidSubmissionError, match=r"submission\.csv"):
            freeze_folder(work, task.submission, tmp_path / "archives")


ADVERSARIAL = {
    "huge number": "1e999",
    "overflow of the square": "1e308",
    "just out of range": "1000000000001",
    "hexadecimal float": "-0x1p-9",
    "code": "__import__('os').system('id')",
    "pickle opcodes": "cos\\nsystem\\n(S'id'\\ntR.",
    "json injection": '"1"", ""metrics"": {""r2"": 1}"',
    "a result frame": '{"outcome": "scored"}',
    "wide digits": "\uff11\uff10\uff10",
    "control characters": "1\x1b[2J",
    "separator of lines": "1\u2028",
    "endless digits": "9" * 60_000,
    "nested quotes": '"' * 1_001,
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_adversarial_submissions_never_score(grade: GradeBytes, labels: Labels, name: str) -> None:
    good = submission({one: price for one, (_, price) in labels.items()})
    found = grade(put(good, ADVERSARIAL[name]))
    assert (found.outcome, dict(found.metrics)) == ("invalid_submission", {}), found.message
    assert found.message.startswith("line 2")
    assert len(found.message) < 400


def test_the_largest_errors_that_are_allowed_still_have_a_score(grade: GradeBytes, labels: Labels) -> None:
    found = grade(submission(dict.fromkeys(labels, -1e12)))
    assert found.outcome == "scored", found.message
    assert all(map(math.isfinite, found.metrics.values()))


def test_reasons_tell_neither_labels_nor_splits(grade: GradeBytes, labels: Labels) -> None:
    good = submission(dict.fromkeys(labels, 1.0))
    for change, reason in MALFORMED.values():
        if reason is not None:
            found = [grade(change(good), split).message for split in ("dev", "test")]
            assert found[0] == found[1]
            assert "dev" not in found[0]
