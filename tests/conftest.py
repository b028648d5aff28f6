"""Fixtures that several test files share."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import PluginFolder, write_task


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI everything that some machines lack is there, so a skipped isolation or engine test is a failure."""
    report = yield
    needs = item.get_closest_marker("isolation") or item.get_closest_marker("engine")
    if os.environ.get("MLGYM_CI") and needs and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test does lands in the checkout or the user's cache."""
    monkeypatch.setenv("MLGYM_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("MLGYM_STRICT_PLUGINS", raising=False)


@pytest.fixture
def plugins(tmp_path: Path) -> PluginFolder:
    """Plugins for a child process (``plugins.run``)."""
    return PluginFolder(tmp_path / "site")


@pytest.fixture
def plugins_here(plugins: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginFolder]:
    """The same, visible in this process too."""
    monkeypatch.syspath_prepend(str(plugins.folder))
    before = set(sys.modules)
    yield plugins
    for name in set(sys.modules) - before:
        if name.startswith("plug_"):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def task_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes task folders: ``task_folder(task_id="x", grade="...", yaml="...")``."""

    def make(**arguments: str) -> Path:
        return write_task(tmp_path / arguments.get("task_id", "sample"), **arguments)

    return make
