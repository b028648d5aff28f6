"""The one way from a grader's ``result.json`` to a grade."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grading.boxes import make_task
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.grading.grade import BadResultError, Grade, read_result
from mlgym_core.task.task import Task

GOOD = {
    "schema": 1,
    "outcome": "scored",
    "metrics": {"Score": 1, "Other": 0.5},
    "standard_error": {"Score": 0.1},
    "message": "",
    "details": {"n": [1, None, "x"]},
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return make_task(tmp_path_factory.mktemp("task"), "")


def test_a_score_is_read(task: Task) -> None:
    grade = read_result(json.dumps(GOOD).encode(), task)
    assert (grade.outcome, grade.metrics, grade.standard_error) == (
        "scored",
        {"Score": 1.0, "Other": 0.5},
        {"Score": 0.1},
    )
    assert grade.details == {"n": [1, None, "x"]}
    assert type(grade.metrics["Score"]) is float


def test_an_invalid_submission_has_its_reason_and_no_metrics(task: Task) -> None:
    raw = {"schema": 1, "outcome": "invalid_submission", "message": "row 3 is text \ud800", "metrics": {"Score": 9}}
    grade = read_result(json.dumps(raw).encode(), task)
    assert (grade.outcome, grade.metrics, grade.message) == ("invalid_submission", {}, "row 3 is text ?")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"schema": True}, "schema is True"),
        ({"outcome": "won"}, "outcome is 'won'"),
        ({"outcome": "grader_error"}, "outcome"),
        ({"metrics": {}}, "lack 'Score'"),
        ({"metrics": None}, "object of numbers"),
        ({"metrics": {"Score": None}}, "not a number"),
        ({"metrics": {"Score": True}}, "not a number"),
        ({"metrics": {"Score": "1"}}, "not a number"),
        ({"metrics": {"Score": 1, "Other": [1]}}, "not a number"),
        ({"metrics": {"Score": 10**400}}, "not finite"),
        ({"standard_error": {"Score": -1}}, "positive"),
        ({"standard_error": {"Nothing": 1}}, "of a metric"),
        ({"details": []}, "details an object"),
        ({"message": 3}, "message must be text"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_results_that_break_the_protocol_are_refused(task: Task, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadResultError, match=reason):
        read_result(json.dumps({**GOOD, **change}).encode(), task)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"score: 0.99",
        json.dumps(GOOD).encode() * 2,
        json.dumps(GOOD).replace("0.5", "NaN").encode(),
        json.dumps(GOOD).replace("0.5", "1e999").encode(),
        json.dumps(GOOD).replace('"Other"', '"Score"').encode(),
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        json.dumps({**GOOD, "message": "x" * 2_000_000}).encode(),
    ],
)
def test_only_one_strict_json_document_is_a_result(task: Task, text: bytes) -> None:
    with pytest.raises(BadResultError):
        read_result(text, task)


@given(
    st.binary(max_size=100)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_arbitrary_text_never_scores(task: Task, text: bytes) -> None:
    with pytest.raises(BadResultError):
        read_result(text, task)


def test_grades_survive_the_record() -> None:
    grade = Grade("scored", {"Score": 1.0}, {"Score": 0.1}, "m", {"a": {"b": 1}}, 2.5, "log", "player log")
    raw = json.loads(json.dumps(grade.to_json()))
    assert Grade.from_json(raw) == grade
    assert Grade.from_json({**raw, "later": 1}) == grade


def test_the_message_is_bounded(task: Task, tmp_path: Path) -> None:
    raw = {"schema": 1, "outcome": "invalid_submission", "message": "x" * 100_000}
    assert len(read_result(json.dumps(raw).encode(), task).message) == 4000
