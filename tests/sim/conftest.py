"""Says in the end how fast the seeds were."""

from __future__ import annotations

SPENT: list[tuple[str, int, float]] = []
"""Scenario, events and CPU seconds of each seed that ran."""


def pytest_terminal_summary(terminalreporter):
    for name in dict.fromkeys(name for name, _, _ in SPENT):
        events = [events for each, events, _ in SPENT if each == name]
        seconds = sum(seconds for each, _, seconds in SPENT if each == name)
        terminalreporter.write_line(
            f"simulator, {name}: {len(events)} seeds, {len(events) / seconds:.1f} a second of one core, "
            f"{sum(events) / seconds:,.0f} events a second"
        )
