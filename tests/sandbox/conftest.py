from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def private_scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch root of this test's own, outside pytest's folders, which only this user may enter."""
    with tempfile.TemporaryDirectory(prefix="mlgym-test-") as folder:
        monkeypatch.setenv("MLGYM_SCRATCH", folder)
        yield Path(folder)
