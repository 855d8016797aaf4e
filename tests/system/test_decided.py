"""Killed with -9 at random moments: what had been decided outside the data is decided so again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.decided_query import SINKS, rows_of
from tests.system.test_restore import ROOT, read_rows

SECONDS_MAX = 300


@pytest.mark.system
@pytest.mark.parametrize(
    ("kills", "total", "seed"),
    [(10, 1_500, 1), pytest.param(100, 8_000, 2, marks=[pytest.mark.full, pytest.mark.issue(4)])],
)
def test_what_was_taken_never_changes(tmp_path: Path, kills: int, total: int, seed: int) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.system.decided_run"),
            *(str(tmp_path / "state"), str(tmp_path / "out"), str(total), str(kills), str(seed)),
        ],
        cwd=ROOT,
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kills, "each life but the last is cut"
    text = (tmp_path / "out").read_text()
    assert text.endswith("done\n")
    lines = [line.split(" ", 2)[:2] for line in text.splitlines()]
    assert len(lines) > len({tuple(line) for line in lines}) + kills, (
        "no row came again, so nothing was shown"
    )
    # Repeats have the same number and are equal, and nothing is missing:
    got = read_rows(tmp_path / "out", SINKS)
    order = [row["v"] for row in got["rows"]]
    for number, source in enumerate("ab"):
        mine = [v for v in order if v % 10 == number]
        assert mine == rows_of(source, 0, total)["v"].to_pylist(), "each input keeps its order"
    assert len(order) == 2 * total
    # All that stands below the union saw its rows in that one order:
    sums: dict[int, int] = {}
    for row, shown in zip(got["rows"], got["running"], strict=True):
        sums[row["k"]] = sums.get(row["k"], 0) + row["v"]
        assert (shown["v"], shown["s"]) == (row["v"], sums[row["k"]])
    assert [row["v"] for row in got["asked"]] == order
    assert len({row["answer"] for row in got["asked"]}) > 1
    assert got["pairs"]
