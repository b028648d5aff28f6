from __future__ import annotations

from pathlib import Path

import pytest
from tools.toolbox import Toolbox, install


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("scripts") / "tools")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def box(tmp_path: Path, scripts: Path, compiled: Path) -> Toolbox:
    return Toolbox(tmp_path, scripts, compiled)
