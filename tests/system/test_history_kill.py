"""Histories on disk, killed with -9 in the middle of calls that write, sync, cut, rename and remove."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.history_run import TOTAL

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 300


@pytest.mark.system
@pytest.mark.parametrize(
    ("moments", "seed"), [(10, 1), pytest.param(100, 2, marks=[pytest.mark.full, pytest.mark.issue(4)])]
)
def test_history_survives_kill_9(tmp_path: Path, moments: int, seed: int) -> None:
    """After each the history is that of the checkpoint, row by row; the program compares it."""
    program = [sys.executable, "-m", "tests.system.history_run", str(tmp_path), str(moments), str(seed)]
    done = subprocess.run(program, cwd=ROOT, timeout=SECONDS_MAX, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    begun = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert moments // 3 < len(begun) <= moments + 1, "others died before they could look"
    assert len(set(begun)) > 2, "some went on from later checkpoints"
    assert max(begun) <= TOTAL
