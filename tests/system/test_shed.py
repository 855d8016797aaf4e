"""Killed with -9 under overload: the same rows are left out again, and every row is counted once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import medusa as md
from tests.system.shed_query import SINKS, query, rows_of
from tests.system.test_restore import ROOT, read_rows

SECONDS_MAX = 300


@pytest.mark.system
@pytest.mark.parametrize(
    ("kills", "total", "seed"),
    [(10, 3_000, 1), pytest.param(100, 20_000, 2, marks=[pytest.mark.full, pytest.mark.issue(4)])],
)
def test_what_was_left_out_stays_left_out(tmp_path: Path, kills: int, total: int, seed: int) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.system.shed_run"),
            *(str(tmp_path / "state"), str(out), str(total), str(kills), str(seed)),
        ],
        cwd=ROOT,
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kills, "each life but the last is cut"
    assert out.read_text().endswith("done\n")
    lines = [line.split(" ", 2)[:2] for line in out.read_text().splitlines()]
    assert len(lines) > len({tuple(line) for line in lines}) + kills, (
        "no row came again, so nothing was shown"
    )
    # Repeats have the same number and are equal, and nothing is missing:
    got = read_rows(out, (*SINKS, "counted"))
    [(shed, places)] = got.pop("counted")
    assert all(count for _, _, count in places), f"a place shed nothing: {places}"
    assert len(got["rows"]) + shed["rows"] == len(got["large"]) + shed["large"] == total
    assert sum(row["n"] for row in got["windows"]) + shed["windows"] == total
    assert [seen for box, seen, _ in places if box in "st"] == [total, total]
    whole = md.collect(query(), s=rows_of("s", 0, total), t=rows_of("t", 0, total))["windows"]
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in whole.columns]
    exact = {row["window_start"]: row for row in pa.table(columns, names=whole.schema.names).to_pylist()}
    assert all(exact[row["window_start"]] == row for row in got["windows"])
    assert 0 < len(got["windows"]) < len(exact)
