"""The bench itself: its data, its references, and that it notices a wrong answer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench import compare, data, report
from bench.peers import duckdb_, medusa_, medusa_push
from bench.workloads import WORKLOADS, difference, reference

ROWS = 20_000


@pytest.fixture(scope="module", params=WORKLOADS)
def asked(request: pytest.FixtureRequest) -> tuple[str, pa.Table, pa.Table]:
    workload = WORKLOADS[request.param]
    # So few rows of W4's 100,000 keys would make no pairs.
    table = data.streams(ROWS, 100) if workload.streams == 2 else data.events(ROWS, workload.keys)
    wanted = reference(request.param, table)
    assert len(wanted) > 0
    return request.param, table, wanted


@pytest.mark.parametrize("engine", [medusa_.Engine, medusa_push.Engine, duckdb_.Engine])
def test_engines_agree_with_numpy(asked: tuple[str, pa.Table, pa.Table], engine: type[Any]) -> None:
    name, table, wanted = asked
    made = engine(table, 1)
    assert difference(name, made.answer(name, made.run(name)), wanted) == ""


def test_plain_python_agrees_with_numpy() -> None:
    table = data.events(2_000, 10)
    sums: dict[tuple[int, int], list[float]] = {}
    for row in table.to_pylist():
        sums.setdefault((row["ts"] // 1_000_000 * 1_000_000, row["key"]), []).append(row["value"])
    wanted = reference("W1", table)
    for row in wanted.to_pylist():
        values = sums.pop((row["start"], row["key"]))
        assert (row["n"], row["lo"], row["hi"]) == (len(values), min(values), max(values))
        assert math.isclose(row["s"], math.fsum(values), rel_tol=1e-12)
    assert not sums


def test_events_are_seeded_and_disordered_within_the_slack() -> None:
    table = data.events(ROWS, 50)
    assert table.equals(data.events(ROWS, 50))
    ts = table["ts"].to_numpy()
    behind = np.maximum.accumulate(ts) - ts
    assert 0 < behind.max() <= data.DELAY_US
    assert data.START_US % 1_000_000_000 == 0


def test_a_wrong_answer_is_named(asked: tuple[str, pa.Table, pa.Table]) -> None:
    name, _, wanted = asked
    column = "value_right" if name == "W4" else "n"
    values = wanted[column].to_pylist()
    values[-1] += 1
    at = wanted.column_names.index(column)
    assert f"{column} of row" in difference(name, wanted.set_column(at, column, pa.array(values)), wanted)
    assert "rows instead of" in difference(name, wanted.slice(1), wanted)
    assert difference(name, wanted.drop_columns(column), wanted) == f"no column {column}"
    assert difference(name, wanted, wanted) == ""


def test_order_of_rows_is_no_difference() -> None:
    table = data.events(2_000, 10)
    wanted = reference("W1", table)
    assert difference("W1", wanted.take(np.arange(len(wanted))[::-1]), wanted) == ""


def found(speed: float) -> dict[str, Any]:
    figures = {
        "version": "1",
        "exact": True,
        "events_per_cpu_s": speed,
        "events_per_s": speed,
        "cpu_s": [1.0, 1.1],
        "wall_s": [1.0, 1.1],
        "peak_beyond_input_bytes": 5_000_000,
    }
    half = {**figures, "events_per_cpu_s": speed / 2}
    wrong = {"version": "2", "trouble": "99 rows instead of 100"}
    engines = {"medusa": figures, "duckdb": half, "datafusion": wrong}
    place = {"processor": "p", "cores": 2, "python": "3", "commit": "c", "changed": False}
    when = {"measured": "m", "load_before": 0.0, "rows": 10, "threads": 1, "rounds": 2}
    return {**place, **when, "workloads": {"W1": engines}}


def test_the_table_shows_ratio_and_trouble(tmp_path: Path) -> None:
    text = report.engines_table(found(4e6))
    assert "Medusa / best batch engine (duckdb): **2.00** (goal 3.0)" in text
    assert "99 rows instead of 100" in text
    report.engines_plot(found(4e6), tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("<svg") == 1


def test_comparing_two_runs_lists_the_largest_loss_first() -> None:
    old, new = found(4e6), json.loads(json.dumps(found(4e6)))
    new["workloads"]["W1"]["duckdb"]["events_per_cpu_s"] = 1e6
    new["workloads"]["W1"]["datafusion"] = new["workloads"]["W1"]["medusa"]
    lines = compare.table(old, new).splitlines()
    assert lines[2].startswith("| W1 duckdb | 0.50 |")
    assert lines[3].startswith("| W1 medusa | 1.00 |")
    assert lines[4:] == ["only in the new file: W1 datafusion"]
