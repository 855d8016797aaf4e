"""Killed with -9 again and again, restored in new processes: the answer is that of ``md.collect``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.engine.queries import numbers
from tests.system.restored_query import SINKS, query, rows_of

ROOT = Path(__file__).parents[2]
TOTAL = 6_000
SECONDS_MAX = 60


def run_process(folder: Path, kill_after: int, seed: int) -> int:
    """Run the program until it ends or kills itself; its exit status."""
    program = [sys.executable, "-m", "tests.system.restored_run", str(folder / "state"), str(folder / "out")]
    arguments = [str(TOTAL), str(kill_after), str(seed)]
    done = subprocess.run(
        [*program, *arguments], cwd=ROOT, timeout=SECONDS_MAX, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def read_rows(out: Path, sinks: Sequence[str] = SINKS) -> dict[str, list[Any]]:
    """Rows by sink, repeats dropped by their number as a consumer would; gaps and changes fail."""
    rows: dict[str, list[Any]] = {sink: [] for sink in sinks}
    for line in out.read_text().splitlines():
        if line == "done":
            continue
        sink, number, text = line.split(" ", 2)
        have = rows[sink]
        assert int(number) <= len(have), f"{sink}: row {number} after {len(have)}"
        if int(number) == len(have):
            have.append(json.loads(text))
        else:
            assert have[int(number)] == json.loads(text), "a row came again, but changed"
    return rows


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=[pytest.mark.full, pytest.mark.issue(2)])])
def test_the_answer_survives_kill_9(tmp_path: Path, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.LateWarning)
        whole = md.collect(query(), a=rows_of("a", 0, TOTAL), b=rows_of("b", 0, TOTAL))
    kills = 0
    for attempt in range(20):
        # The first lives of the program are short, the last one is never cut.
        status = run_process(tmp_path, 0 if attempt == 4 else 8 + 5 * attempt, seed * 100 + attempt)
        kills += status == -signal.SIGKILL
        if status == 0:
            break
    assert kills >= 3
    got = read_rows(tmp_path / "out")
    for sink in SINKS:
        assert got[sink] == numbers(whole[sink]), sink
        assert got[sink], f"{sink} gave nothing, so nothing was shown"
    assert not [name for name in os.listdir(tmp_path / "state") if name.endswith(".tmp")]
