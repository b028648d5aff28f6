"""The contract of a task, and the whole red team on a file of predictions; on real data where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlgym_core.testing import TaskContract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # builds the task's environment if it is the first to need it


class TestTask(TaskContract):
    task = Path(__file__).parents[1] / "src" / "mlgym_task_house_price"
    # The known score is that of the real data.
    skip = () if os.environ.get("MLGYM_TEST_HOUSE_PRICES") else ("baseline-score",)

    @pytest.fixture
    def source(self, table: Path) -> str:
        return f"local:{table}"
