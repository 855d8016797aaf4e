"""Linear Road: the query beside the oracle on made traffic, on odd little traces, in pieces, restored."""

from __future__ import annotations

import inspect
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.apps.workloads import linear_road
from medusa.apps.workloads.linear_road import FIELDS
from medusa.apps.workloads.linear_road_traffic import Traffic, traffic
from tests.oracle.linear_road import linear_road as oracle

SINKS = ("tolls", "accidents", "charges", "balances")
SMALL = Traffic(seconds=600, cars=600, jam=range(40, 42), accidents=4, asks=0.05)
QUERY = linear_road.query()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as tuples; the velocities rounded, since the oracle's are exact."""
    return [
        tuple(round(v, 9) if isinstance(v, float) else v for v in row.values()) for row in table.to_pylist()
    ]


def check(out: Any, table: pa.Table) -> Any:
    wanted, known = oracle(table.to_pylist())
    for sink in SINKS:
        want = [tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in wanted[sink]]
        assert rows_of(out[sink]) == want, sink
    return known


def test_the_query_is_short() -> None:
    assert len(inspect.getsource(linear_road.query).splitlines()) <= 60


def test_the_first_twenty_seconds_cost_nothing() -> None:
    table = traffic(Traffic(seconds=20, cars=280, xways=1), seed=1)
    out = md.collect(QUERY, input=table)
    check(out, table)
    assert out["tolls"].num_rows == 280
    assert set(out["tolls"]["toll"].to_pylist()) == {0}
    assert set(out["tolls"]["lav"].to_pylist()) == {None}


@pytest.mark.parametrize("seed", range(3))
def test_generated_traffic_with_accidents_and_re_entries(seed: int) -> None:
    table = traffic(Traffic(xways=1 + seed % 2, cars=900 + 700 * (seed % 2)), seed=seed)
    out = md.collect(QUERY, input=table)
    known = check(out, table)
    # The traffic has in it what there is to get wrong.
    tolls = out["tolls"].to_pylist()
    assert sum(row["toll"] > 0 for row in tolls) > 500
    assert sum(row["lav"] is not None and row["lav"] >= 40 for row in tolls) > 100
    found = [each for accidents in known.accidents.values() for each in accidents]
    assert len(found) >= 3
    assert any(each.cleared is not None for each in found)
    assert out["accidents"].num_rows > 100
    reports = [row for row in table.to_pylist() if row["type"] == 0]
    exits = Counter(row["vid"] for row in reports if row["lane"] == 4)
    assert sum(count > 1 for count in exits.values()) > 20
    assert out["charges"].num_rows > 500
    assert sum(row["balance"] > 0 for row in out["balances"].to_pylist()) > 20


def test_who_leaves_by_the_exit_of_the_segment_itself_does_not_pay() -> None:
    def report(time: int, vid: int, lane: int, seg: int, spd: int = 20) -> tuple[int, ...]:
        return (0, time, vid, spd, 0, lane, 0, seg, seg * 5280 + 100 + time, *(-1,) * 6)

    crowd = [report(0, vid, 1, 10) for vid in range(100, 160)]
    rows = [*crowd, report(60, 1, 1, 10), report(60, 2, 1, 10), report(90, 1, 4, 10), report(90, 2, 4, 11)]
    rows += [(2, 90, vid, *(-1,) * 6, vid, *(-1,) * 5) for vid in (1, 2)]
    table = table_of(rows)
    out = md.collect(QUERY, input=table)
    check(out, table)
    assert out["tolls"].slice(60)["toll"].to_pylist() == [200, 200]
    assert out["balances"]["balance"].to_pylist() == [0, 200]


def table_of(rows: list[tuple[int, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(c, pa.int32()) for name, c in zip(FIELDS, columns, strict=True)})


@st.composite
def traces(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A few cars that stand, move, pass the end of the road, fall silent and come back, as they like."""
    time, rows = 0, []
    for _ in range(draw(st.integers(5, 60))):
        time += draw(st.sampled_from([0, 0, 1, 10, 15, 30, 61]))
        vid = draw(st.integers(1, 4))
        if draw(st.integers(0, 9)) == 0:
            rows.append((2, time, vid, *(-1,) * 6, time, *(-1,) * 5))
        else:
            lane, pos = draw(
                st.sampled_from([(1, 100), (1, 100), (1, 100), (4, 100), (0, 5300), (2, 527_900)])
            )
            direction = draw(st.sampled_from([0, 0, 0, 0, 1]))
            spd = draw(st.integers(0, 100))
            rows.append((0, time, vid, spd, 0, lane, direction, pos // 5280, pos, *(-1,) * 6))
    return rows


@given(traces())
@settings(max_examples=40, deadline=None)
def test_odd_little_traces(rows: list[tuple[int, ...]]) -> None:
    table = table_of(rows)
    check(md.collect(QUERY, input=table), table)


@pytest.mark.parametrize("seed", range(2))
def test_in_pieces_and_restored_in_the_middle(seed: int, tmp_path: Path) -> None:
    table = traffic(SMALL, seed=seed)
    chance = random.Random(seed)
    stop = chance.randrange(1, table.num_rows)
    out: dict[str, list[pa.Table]] = {sink: [] for sink in SINKS}

    def feed(run: Any, start: int, end: int) -> None:
        while start < end:
            size = min(chance.choice((1, 7, 100, 1_000)), end - start)
            run.push("input", table.slice(start, size))
            start += size

    def take(run: Any) -> None:
        for sink in SINKS:
            out[sink].append(run.take(sink))

    with md.start(QUERY, checkpoint=tmp_path / "state") as run:
        feed(run, 0, stop)
        take(run)
    with md.restore(tmp_path / "state") as run:
        feed(run, run.positions()["input"], table.num_rows)
        run.finish()
        take(run)
    known = check({sink: pa.concat_tables(tables) for sink, tables in out.items()}, table)
    assert known.accidents
    assert any(car.balance for car in known.vehicles.values())


def test_the_traffic_is_seeded_and_in_order() -> None:
    first, again, other = traffic(SMALL, seed=7), traffic(SMALL, seed=7), traffic(SMALL, seed=8)
    assert first == again
    assert first != other
    times = first["time"].to_pylist()
    assert times == sorted(times)
    reports = [row for row in first.to_pylist() if row["type"] == 0]
    assert all(row["seg"] == row["pos"] // 5280 and 0 <= row["spd"] <= 100 for row in reports)
