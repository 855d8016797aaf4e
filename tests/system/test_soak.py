"""Memory stays flat while windows open and close, keys come and go, and history is retained and trimmed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.soaked import ROWS, STEP_US

ROOT = Path(__file__).resolve().parents[2]
HISTORY_ROWS = 10_000_000 // STEP_US * ROWS
FLAT = 1.05


def soak(folder: Path, seconds: float) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "tests.system.soaked", str(folder), str(seconds), str(4 * HISTORY_ROWS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * seconds + 300,
    )
    assert made.returncode == 0, made.stderr
    *rounds, end = map(json.loads, made.stdout.splitlines())
    assert len(rounds) > 10
    assert end["rows"] > 3 * HISTORY_ROWS, "long enough for history to be trimmed"
    assert end["came"]["windows"] == end["kept"], "every row is in one window"
    assert min(end["came"].values()) > 0
    assert HISTORY_ROWS * 0.9 <= end["history_rows"] <= HISTORY_ROWS * 1.5
    sizes = [each["rss"] for each in rounds if each["rows"] > HISTORY_ROWS]  # from then on all is as it stays
    first, last = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    assert max(last) <= FLAT * max(first)


@pytest.mark.system
def test_memory_stays_flat_for_a_while(tmp_path: Path) -> None:
    soak(tmp_path / "history", 15)


@pytest.mark.full
@pytest.mark.issue(4)
@pytest.mark.system
def test_memory_stays_flat_for_an_hour(tmp_path: Path) -> None:
    soak(tmp_path / "history", 3_600)
