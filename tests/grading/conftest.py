"""Fixtures of the grading tests."""

from __future__ import annotations

import pytest
from grading.boxes import PipeBackend


@pytest.fixture
def backend() -> PipeBackend:
    return PipeBackend()
