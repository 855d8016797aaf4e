"""The examples run, print what docs/examples.md and docs/figure-1.md show, and what they print is true."""

from __future__ import annotations

import re
import runpy
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import duckdb
import pytest

from medusa.apps.workloads.linear_road_traffic import traffic
from tests.blocks import blocks
from tests.oracle.linear_road import linear_road as oracle

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
PAGES = ("examples.md", "figure-1.md")
LINES_MAX = 100


def shown() -> dict[str, str]:
    """Example -> what the documents say that it prints."""
    found = {}
    for page in PAGES:
        for block in blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "text"):
            command, _, printed = block.text.partition("\n")
            if command.startswith("$ python examples/"):
                found[Path(command).stem] = printed
    return found


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(name: str, *arguments: str) -> str:
        path = ROOT / "examples" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run


def parts_of(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_documents_show(name: str, printed: Callable[..., str]) -> None:
    assert printed(name) == shown()[name]


def test_every_example_is_short_and_listed() -> None:
    listed = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for name in EXAMPLES:
        text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
        assert f"(../examples/{name}.py)" in listed
        assert text.count("\n") <= LINES_MAX


def test_the_drawing_of_figure_1_is_that_of_its_query(tmp_path: Path, printed: Callable[..., str]) -> None:
    printed("figure1", "--svg", str(tmp_path / "drawn.svg"))
    drawn = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    kept = (ROOT / "docs" / "figure-1.svg").read_text(encoding="utf-8")
    assert drawn == kept, "draw it again: python examples/figure1.py --svg docs/figure-1.svg"


# --- the facts, found again by plain Python or DuckDB ---------------------------------------------


def test_facts_of_figure_1() -> None:
    example, said = parts_of("figure1"), shown()["figure1"]
    rows = rows_of(example["sightings"]())
    groups = defaultdict(list)
    for row in rows:
        groups[row["ts"] // 60, row["seg"]].append(row)
    tolls = {}
    for key, group in groups.items():
        volume, speed = len({row["car"] for row in group}), fmean(row["speed"] for row in group)
        tolls[key] = 0.25 * (volume - 8) if volume > 8 and speed < 45 else 0.0
    assert f"{len(tolls)} segment minutes, {sum(toll > 0 for toll in tolls.values())} with a toll" in said
    dearest = max(tolls, key=lambda key: tolls[key])
    assert f"00:{dearest[0]:02} segment {dearest[1]}: " in said
    told = [row for row in rows if row["speed"] > 0 and tolls.get((row["ts"] // 60 - 1, row["seg"]), 0) > 0]
    cars = {row["car"] for row in told}
    assert f"{len(told)} notifications to moving cars, {len(cars)} different cars" in said
    stops = defaultdict(list)
    for row in rows:
        if row["speed"] == 0:
            stops[row["car"]].append(row)
    trucks = rows_of(example["tow_trucks"]())
    near = {}
    for car, stands in stops.items():
        if len(stands) >= 3:
            seen = stands[2]
            times = [t["ts"] for t in trucks if t["seg"] == seen["seg"] and abs(t["ts"] - seen["ts"]) <= 180]
            if times:
                near[car] = seen
    lines = re.findall(r"near car (\d+), broken down in segment (\d) \(seen at (\d+) s\)", said)
    assert {int(car): (int(seg), int(ts)) for car, seg, ts in lines} == {
        car: (seen["seg"], seen["ts"]) for car, seen in near.items()
    }


def test_facts_of_contract_between_owners() -> None:
    terms, said = parts_of("contract_between_owners")["TERMS"], shown()["contract_between_owners"]
    assert f"cost {40 * 3_600 * terms.price_micro / 1e6:.2f} EUR" in said
    assert f"until day {12 + terms.notice_s / 86_400:g}" in said
    sent = Counter(re.findall(r"to (?:farm|studio): (\w+)", said))
    assert set(sent) == {"ContractProposed", "ContractSigned", "ContractVerified", "ContractFinalized"}


def test_facts_of_price_feeds() -> None:
    feeds, said = parts_of("price_feeds")["feeds"](), shown()["price_feeds"]
    turnover: Counter[tuple[int, str]] = Counter()
    shares: Counter[tuple[int, str]] = Counter()
    for trade in rows_of(feeds["trades"]):
        key = (trade["ms"] // 60_000, trade["symbol"])
        turnover[key] += trade["price"] * trade["shares"]
        shares[key] += trade["shares"]
    lines = re.findall(r"^00:(\d\d)   (\w+) +([\d.]+) ", said, re.MULTILINE)
    assert {(int(m), s): float(v) for m, s, v in lines} == {
        key: round(turnover[key] / shares[key], 3) for key in turnover
    }
    spreads = [
        (q["ms"], q["symbol"], (q["ask"] - q["bid"]) / q["bid"] * 1e4) for q in rows_of(feeds["quotes"])
    ]
    usual = {key: median(s for ms, symbol, s in spreads if (ms // 60_000, symbol) == key) for key in turnover}
    wide = [
        (ms, symbol)
        for ms, symbol, s in spreads
        if s > 4 * usual.get((ms // 60_000 - 1, symbol), float("inf"))
    ]
    assert {symbol for _, symbol in wide} == {"BBB"}
    alarms = [int(ms) for ms in re.findall(r"wide spread: BBB at (\d+) ms", said)]
    assert alarms == [min(ms for ms, _ in wide), min(ms for ms, _ in wide if ms > 200_000)]


def test_facts_of_vehicle_tracking() -> None:
    said = shown()["vehicle_tracking"]
    data = ROOT / "tests" / "data" / "austin_buses.parquet"
    hours = f"""WITH each AS (
        SELECT ts_s // 3600 AS h, route_id, avg(speed * 3.6) AS v FROM '{data}'
        GROUP BY ALL HAVING count(*) >= 60
    ) SELECT h, arg_min(route_id, v), min(v) FROM each GROUP BY h ORDER BY h LIMIT 6 OFFSET 14"""
    shifts = f"""WITH gaps AS (
        SELECT ts_s - lag(ts_s) OVER bus AS gap FROM '{data}'
        WINDOW bus AS (PARTITION BY vehicle_id ORDER BY ts_s)
    ) SELECT count(*) FROM gaps WHERE gap IS NULL OR gap >= 3600"""
    stands = f"""WITH gaps AS (
        SELECT *, ts_s - lag(ts_s) OVER bus AS gap FROM '{data}' WHERE speed < 0.5
        WINDOW bus AS (PARTITION BY vehicle_id ORDER BY ts_s)
    ), numbered AS (
        SELECT *, sum(CASE WHEN gap < 300 THEN 0 ELSE 1 END) OVER bus AS number FROM gaps
        WINDOW bus AS (PARTITION BY vehicle_id ORDER BY ts_s)
    ), sessions AS (
        SELECT (max(ts_s) - min(ts_s)) / 60 AS minutes FROM numbered GROUP BY vehicle_id, number
        HAVING count(*) >= 5
    ) SELECT count(*), max(minutes) FROM sessions"""
    with duckdb.connect() as connection:
        slowest = connection.sql(hours).fetchall()
        ((stops, longest),) = connection.sql(stands).fetchall()
        ((silences,),) = connection.sql(shifts).fetchall()
    lines = re.findall(r"(\d\d):00 route +(\w+): +\d+ buses, ([\d. ]+) km/h", said)
    assert lines == [(f"{h % 24:02}", route, f"{v:4.1f}") for h, route, v in slowest]
    assert f"{stops} long stops;" in said
    assert f"{longest:.0f} minutes" in said
    assert f"{silences} shifts" in said


def test_facts_of_the_fabrication_line() -> None:
    example, said = parts_of("fabrication_line"), shown()["fabrication_line"]
    parts = rows_of(example["line"]())
    made: Counter[tuple[int, int]] = Counter()
    bad: Counter[tuple[int, int]] = Counter()
    for part in parts:
        key = (part["ms"] // 300_000, part["machine"])
        made[key] += 1
        bad[key] += abs(part["width"] - example["TARGET"]) > example["TOLERANCE"]
    lines = re.findall(r"^ +(\d) +(\d+) +(\d+) +[\d.]+%  from 00:(\d\d)$", said, re.MULTILINE)
    assert {(int(at) // 5, int(m)): (int(n), int(b)) for m, n, b, at in lines} == {
        key: (made[key], bad[key]) for key in made if bad[key]
    }
    drifts, silent = [], []
    for machine in (1, 2, 3, 4):
        mine = [part for part in parts if part["machine"] == machine]
        means = [
            (fmean(p["width"] for p in mine[i - 50 : i]), mine[i - 1]["ms"]) for i in range(50, len(mine), 10)
        ]
        drifts += [(machine, at) for mean, at in means if abs(mean - example["TARGET"]) > 0.02][:1]
        pairs = pairwise(mine)
        silent += [(machine, a["ms"]) for a, b in pairs if b["ms"] - a["ms"] >= 20_000]
    assert [(3, drifts[0][1])] == drifts
    assert "machine 3 drifts: mean 20.02" in said
    assert f"at {drifts[0][1]} ms" in said
    assert [f"machine {m} fell silent" in said and f"at {ms} ms" in said for m, ms in silent] == [True]


def test_facts_of_network_monitoring() -> None:
    """59 groups that are heavy and wide, with 12 sources: known facts of the trace in this reading."""
    said = shown()["network_monitoring"]
    assert "107,251 flows; 59 scans, by 12 sources" in said
    assert "147.32.84.59, 581 ports with 1,416 flows" in said


def test_facts_of_patient_monitoring() -> None:
    said = shown()["patient_monitoring"]
    # The pulse of patient 2 is 140 from 200 s to 260 s; the third bad value of the grid is at 210 s or 215 s,
    # as the line from 75 to 140 passes 130 before 200 s or after.
    (alarm,) = re.findall(r"ALARM 00:03:(\d\d) patient 2: pulse 1[34]\d", said)
    assert alarm in ("30", "35")
    assert re.search(r"patient 2: 1[12] bad values, pulse to 14\d, oxygen to 8[56] %", said)
    # The oxygen sensor of patient 3 is off from 300 s to 340 s.
    assert re.search(r"^patient 3: no oxygen value from 00:0(4:5[5-9]|5:00)$", said, re.MULTILINE)


def test_facts_of_environmental_sensors() -> None:
    said = shown()["environmental_sensors"]
    largest: dict[str, int] = {}
    late = 0
    arrived = rows_of(parts_of("environmental_sensors")["readings"]())
    for row in arrived:
        newest = largest.get(row["station"], row["ts"])
        late += row["ts"] < newest - 600
        largest[row["station"]] = max(newest, row["ts"])
    assert late > 5
    assert f"{late} readings came too late" in said
    assert "moor: nothing from 01 Jan 22:20 on" in said  # The last reading is of 79,980 s, 22:13.
    assert "fen: " in said
    assert "02 Jan 09:00" in said  # The shield breaks at 120,000 s, 09:20.
    fen = [row["celsius"] for row in arrived if row["station"] == "fen" and row["ts"] < 86_400]
    (low, high) = re.findall(r"01 Jan  fen +([\d.]+) +[\d.]+ +([\d.]+)", said)[0]
    assert min(fen) <= float(low) + 0.05
    assert float(high) - 0.05 <= max(fen)


def test_facts_of_linear_road() -> None:
    """The oracle's answers; that the query gives them all is in tests/apps/workloads."""
    said = shown()["linear_road"]
    rows = traffic(seed=0)
    wanted, _ = oracle(rows.to_pylist())
    cost = sum(toll > 0 for *_, toll in wanted["tolls"]) / len(wanted["tolls"])
    assert f"{rows.num_rows:,} rows; {len(wanted['tolls']):,} entries" in said
    assert f"{cost:.0%} cost a toll" in said
    near = Counter((row[3], row[4]) for row in wanted["accidents"])
    lines = re.findall(r"segment (\d+), direction (\d): (\d+) drivers", said)
    assert {(int(d), int(s)): int(n) for s, d, n in lines} == near
    assert f"{len(wanted['balances'])} requests answered" in said
    assert f"the highest: {max(row[3] for row in wanted['balances'])} of car" in said
