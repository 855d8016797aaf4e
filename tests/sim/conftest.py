"""Notes how fast the seeds were; ``tests/conftest.py`` says it in the end."""

from __future__ import annotations

from collections.abc import Generator

import pytest

SPENT: list[tuple[str, int, float]] = []
"""Scenario, events and CPU seconds of each seed that the test at work ran."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports reach the process that sums up, whichever ran the test."""
    report = yield
    report.user_properties += [("seed", each) for each in SPENT]
    SPENT.clear()
    return report
