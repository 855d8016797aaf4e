"""What a run says in the end about the simulator's seeds, from the reports of all processes."""

from __future__ import annotations

from types import SimpleNamespace

from tests.conftest import pytest_terminal_summary


def test_seeds_of_all_reports_are_summed_and_other_properties_left_alone() -> None:
    lines: list[str] = []
    stats = {
        "passed": [
            SimpleNamespace(user_properties=[("cut_s", 0.125), ("seed", ("union", 3000, 0.5))]),
            SimpleNamespace(user_properties=[("seed", ("union", 5000, 1.5)), ("seed", ("join", 10, 1.0))]),
        ],
        "deselected": [object()],
    }
    pytest_terminal_summary(SimpleNamespace(stats=stats, write_line=lines.append))
    assert lines == [
        "simulator, join: 1 seeds, 1.0 a second of one core, 10 events a second",
        "simulator, union: 2 seeds, 1.0 a second of one core, 4,000 events a second",
    ]
