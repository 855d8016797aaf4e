"""The checks of the demonstration with Spark, without Spark: what is wrong in an archive is seen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.demos.spark_demo import HELD_BACK, HELD_US, SparkRun, _judged, _late_order
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.netmon import SLACK_US


def test_held_back_rows_and_no_others_come_late() -> None:
    times = np.cumsum(np.random.default_rng(7).integers(0, 40_000, 5 * HELD_BACK))
    order = _late_order(pa.table({"ts_us": times}))
    assert sorted(order) == list(range(len(times)))
    late, highest = [], -(10**18)
    for place in order:  # row by row, as a source judges
        late.append(times[place] < highest - SLACK_US)
        highest = max(highest, times[place])
    assert _judged(times[order]).tolist() == late
    held = {n for n in range(HELD_BACK - 1, len(times), HELD_BACK) if times[n] + HELD_US < times[-1]}
    assert held <= {int(place) for place, is_late in zip(order, late, strict=True) if is_late}
    assert sum(late) <= len(times) // HELD_BACK


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ("", []),
        ("missing", ["each row is there once", "rows are what was published", "late rows are marked"]),
        ("twice", ["each row is there once", "rows are what was published", "late rows are marked"]),
        ("value", ["rows are what was published"]),
        ("mark", ["late rows are marked"]),
        ("open", ["it is complete"]),
    ],
)
def test_what_is_wrong_in_an_archive_is_seen(tmp_path: Path, wrong: str, seen: list[str]) -> None:
    sent = pa.table({"ts_us": [1, 2, 9_000_000, 3]})
    late = np.array([False, False, False, True])
    rows: list[dict[str, Any]] = [
        {"ts_us": ts, "_seq": n, "_late": n == 3} for n, ts in enumerate(sent["ts_us"].to_pylist())
    ]
    match wrong:
        case "missing":
            del rows[1]
        case "twice":
            rows.append(rows[0])
        case "value":
            rows[0]["ts_us"] = 7
        case "mark":
            rows[3]["_late"] = False
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    stored = SimpleNamespace(files=[file], manifest=SimpleNamespace(complete=wrong != "open", epoch=0))
    jobs = SimpleNamespace(open_archive=lambda _: stored)
    told: list[str] = []
    screen = DemoScreen()
    screen.say = told.append  # type: ignore[method-assign]
    run = SparkRun(None, jobs, {}, tmp_path, speed=0, screen=screen, interruption=Interruption())
    run._archived(sent, late)
    assert [check.what for check in run.steps[0].checks if not check.fine] == seen
    assert run.steps[0].fine is not bool(wrong)
    assert sum(line.startswith("   NOT ") for line in told) == len(seen)
