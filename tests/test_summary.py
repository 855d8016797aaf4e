"""What a run in several processes says: of the simulator's seeds, and of tests that aren't there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
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


def test_a_file_that_is_not_there_is_named() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "tests/test_nothing.py"]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "ERROR: no such file or test: tests/test_nothing.py (-n 0 says which)" in done.stdout
