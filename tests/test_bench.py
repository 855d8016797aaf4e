"""The bench itself: its data, its references, and that it notices a wrong answer."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from bench import compare, cores, data, engines, footprint, latency, metrics, qos, report, streaming, worker
from bench.growth import boxes, common, keys, overlap, queries, slack
from bench.peers import duckdb_, install, medusa_, medusa_push
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


GROWTH: dict[str, tuple[ModuleType, int, tuple[int, ...]]] = {
    "keys": (keys, 2_000, (1, 2)),
    "overlap": (overlap, 2_000, (1, 10)),
    "slack": (slack, 2_000, (0, 100_000)),
    "boxes": (boxes, 500, (1, 3)),
    "queries": (queries, 500, (1, 3)),
}


@pytest.mark.parametrize("name", GROWTH)
def test_growth_gives_a_figure_for_each_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "ROUNDS", 1)
    question, rows, sizes = GROWTH[name]
    result = question.measure(False, rows, sizes)
    assert {len(points) for points in result["series"].values()} == {len(sizes)}
    text = common.write(result, tmp_path)
    assert text.count("\n| ") == 1 + len(sizes)
    assert (tmp_path / f"growth-{name}.svg").read_text().count("<svg") == 1


def test_overlapping_windows_are_counted_as_the_fit_takes_them() -> None:
    events = data.events(20_000, overlap.KEYS)
    for times in (1, 10):
        rows = md.collect(overlap.query(events.schema, times), events=events)["out"]
        assert sum(rows["n"].to_pylist()) == times * len(events)


def test_fit_finds_a_and_b() -> None:
    outputs = {(1, 1): 10, (1, 3): 10, (100, 1): 1_000, (100, 3): 1_000}
    spent = {case: [5e-9 * 500 * case[1] + 7e-9 * out] for case, out in outputs.items()}
    a, b, off = overlap.fit(spent, outputs, 500)
    assert (a, b) == pytest.approx((5, 7))
    assert off < 1e-9


def test_latency_and_footprint_give_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "by_csp", lambda count: {"trouble": "not asked"})
    monkeypatch.setattr(footprint, "CALLS", 20)
    monkeypatch.setattr(footprint, "STARTS", {"python alone": ""})
    text = latency.write(latency.measure(60, ("filter", "all")), tmp_path)
    assert "| medusa, all |" in text
    assert "csp: not asked." in text
    text = footprint.write(footprint.measure((2_000,)), tmp_path)
    assert "| 2,000 |" in text
    assert "| push, 1 row |" in text


def test_quality_of_service_gives_its_table(tmp_path: Path) -> None:
    text = qos.write(qos.measure(5_000, rounds=1), tmp_path)
    assert "| 65,536 rows |" in text
    assert "| 1,000 rows |" in text


def test_metrics_give_their_table(tmp_path: Path) -> None:
    text = metrics.write(metrics.measure(5_000, rounds=1), tmp_path)
    assert "| 65,536 rows |" in text
    assert "| 1,000 rows |" in text


def test_trains_that_wait_count_from_when_they_were_due() -> None:
    class Slow:
        batches: tuple[()] = ()

        def between(self, number: int) -> None: ...

        def step(self, number: int) -> None:
            until = time.perf_counter_ns() + 200_000
            while time.perf_counter_ns() < until:
                pass

    took = latency.on_a_clock(Slow(), 20, gap_us=50.0)  # type: ignore[arg-type]
    assert took[-1] > took[0] + 10 * 150


def test_streaming_peers_that_are_absent_or_silent_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "PLACES", tmp_path)
    result = streaming.measure(["csp"], ["W3"], 1, scale=0.01)
    assert result["workloads"]["W3"]["csp"]["trouble"] == "not installed: python -m bench.peers.install csp"
    assert "python -m bench.peers.install csp" in streaming.table(result)
    table = data.events(1_000, 10)
    data.save(table, tmp_path / "events.arrow")
    silent = engines.Contestant("duckdb", "W1", tmp_path / "events.arrow", 1, limit_s=0.001)
    silent.close()
    assert silent.trouble == "no answer within 0 s"


def test_two_threads_are_measured_beside_one() -> None:
    figures = cores.contest("W1", 20_000, 1)
    assert figures["rows"] == 20_000
    assert figures["median"] > 0
    assert "| W1 | 20,000 |" in cores.table({**found(1.0), "workloads": {"W1": figures}})


def test_ratio_is_of_the_slower_way() -> None:
    ours = [{"events_per_cpu_s": 30.0}, {"events_per_cpu_s": 20.0}]
    assert streaming.ratios({"events_per_cpu_s": 2.0}, ours)["ratio"] == 10.0
    assert "ratio" not in streaming.ratios({"trouble": "inexact: 5.0% of the rows"}, ours)
    assert streaming.ratios({}, [ours[0], {"trouble": "no"}])["trouble"] == "medusa: no"


BURNT_S = 0.2
BURN = f"import time\nwhile time.process_time() < {BURNT_S} + 0.05: pass\nprint(flush=True)\ninput()"
PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, getattr(signal, sys.argv[1]))
with subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdin=subprocess.PIPE) as child:
    input()
    child.kill()
print(flush=True)
input()
"""


@pytest.mark.parametrize("reaped", ["SIG_DFL", "SIG_IGN"])
def test_what_ended_processes_have_used_stays_counted_once(reaped: str) -> None:
    """Idle workers of Spark end, and their daemon doesn't take over their time: a way had used -30 s."""
    command, pipe = [sys.executable, "-c", PARENT, reaped, BURN], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        spent = worker.Spent()

        def look() -> float:
            return spent.look([parent.pid, *worker.descendants(parent.pid)])

        parent.stdout.readline()
        before, own = look(), worker.Spent().look([parent.pid])
        assert before >= own + BURNT_S
        print(file=parent.stdin, flush=True)
        parent.stdout.readline()
        assert worker.descendants(parent.pid) == []
        taken_over = worker.Spent().look([parent.pid]) - own
        assert (taken_over >= BURNT_S) == (reaped == "SIG_DFL")
        for _ in range(2):
            assert before <= look() < before + BURNT_S
        parent.kill()
