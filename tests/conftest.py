"""Fixtures that several test files share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import PluginFolder, write_task


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
