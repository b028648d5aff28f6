"""Settings of all tests, those of the plugins included."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine only.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

REASONS = 8


def pytest_configure() -> None:
    """Started in the background, the tests would hand ignored signals on to the runs that they interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no process is left with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum skips up by reason: a machine without an engine skips hundreds for a handful of them."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if not reasons:
        return
    terminalreporter.section("skipped")
    for reason, count in reasons.most_common(REASONS):
        terminalreporter.write_line(f"{count:5} {reason}"[:80])
    others = reasons.most_common()[REASONS:]
    if others:
        terminalreporter.write_line(f"{sum(count for _, count in others):5} for {len(others)} other reasons (-rs)")
