"""The pytest plugin that installing the core brings: markers, the rule for skips in CI, and ``grade_files``."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mlgym_core.grading.grade import Grade

CI = "MLGYM_CI"
NOT_APPLICABLE = ("mlgym", "not applicable")  #: user property of a test whose skip lacks nothing

MARKERS = (
    "slow: takes more than a few seconds",
    "isolation: needs a backend that isolates (bubblewrap on the local backend)",
    "engine: needs a container engine",
    "xdist_group(name): runs in the same process as the others of its group, where tests run in parallel",
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    known = {_name(line) for line in config.getini("markers")}
    for line in MARKERS:
        if _name(line) not in known:
            config.addinivalue_line("markers", line)


def _name(marker: str) -> str:
    return marker.partition(":")[0].partition("(")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With ``MLGYM_CI`` set, everything that some machines lack is there: such a skip is a failure."""
    del call
    report = yield
    needs = item.get_closest_marker("isolation") or item.get_closest_marker("engine")
    if os.environ.get(CI) and needs and report.skipped and NOT_APPLICABLE not in item.user_properties:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture
def grade_files(request: pytest.FixtureRequest) -> Callable[..., Grade]:
    """Grades text files through the real sealed path: ``grade_files({"strategy.py": "..."}, size="tiny")``.

    The task is the argument ``task``, else the test class's attribute or the fixture of that name. Further arguments
    are those of :func:`mlgym_core.authoring.testing.grading.grade_files`.
    """

    def grade(files: Mapping[str, str | bytes], task: Any = None, **options: Any) -> Grade:
        from mlgym_core.authoring.testing.grading import grade_files as through

        named = getattr(request.cls, "task", None)
        chosen = task or (named if isinstance(named, str | Path) else request.getfixturevalue("task"))
        return through(chosen, files, **options)

    return grade
