"""The examples of ``docs/grading.md`` run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from grading.boxes import PipeBackend, grade_files, make_task

from mlgym_core.grading.inside import mlgym_frames as wire
from mlgym_core.task.task import Metric, Size

PAGE = Path(__file__).parents[2] / "docs" / "grading.md"


def snippets() -> dict[str, str]:
    blocks = re.findall(r"```python\n(# (\S+)\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return {name: text for text, name in blocks}


@pytest.mark.parametrize(
    ("predict", "outcome", "error"),
    [
        (None, "scored", 0.0),
        ("def predict(x):\n    return abs(x)\n", "scored", 0.25),
        ("def predict(x):\n    return 'x'\n", "invalid_submission", None),
    ],
)
def test_the_examples_work(
    tmp_path: Path, backend: PipeBackend, predict: str | None, outcome: str, error: float | None
) -> None:
    texts = snippets()
    task = make_task(tmp_path / "task", texts["private/grade.py"], "code", texts["public/player.py"])
    task = attrs.evolve(
        task,
        metrics=(Metric("Error", "down"),),
        submission=attrs.evolve(task.submission, paths=("predict.py",)),
        sizes={"full": Size(parameters={"points": 500})},
    )
    grade = grade_files(task, {"predict.py": predict or texts["predict.py"]}, tmp_path, backend)
    assert grade.outcome == outcome, grade
    if error is not None:
        assert grade.metrics["Error"] == pytest.approx(error, abs=0.01)


def test_the_page_names_every_type_and_kind() -> None:
    page = PAGE.read_text("utf-8")
    assert all(dtype in page for dtype in wire.DTYPES)
    assert all(f"`{kind}`" in page for kind in ("timeout", "died", "protocol", "raised", "refused"))
    assert all(f"`{outcome}`" in page for outcome in ("scored", "invalid_submission", "grader_error"))
