"""The contract of a task, and attacks on the answers of a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlgym_core.testing import TaskContract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # builds the tasks' environment if it is the first to need it


class TestTask(TaskContract):
    task = Path(__file__).parents[1] / "src" / "mlgym_task_mountain_car"
    attacks = "specific"
    # Each grading starts jax seven times. What is left out differs from what is kept only in what the tests of the
    # shared code, or of the core, vary themselves.
    skip = ("canary", *(
        f"attack-{name}"
        for name in (
            "answers-infinity", "answers-huge", "answers-too-few", "answers-too-many", "answers-other-shapes",
            "answers-other-types", "answers-other-header", "clock", "never-answers", "spins", "raises-oddly",
            "raises-endlessly", "raises-while-raising", "interrupts",
            "zip-bomb", "gzip-bomb",
        )
    ))  # fmt: skip
