"""Workloads in parts: what is made at any size, and that copies are copies."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.workloads import netmon, scaled
from medusa.apps.workloads.linear_road_traffic import Traffic, traffic
from medusa.apps.workloads.scaled import COPIES_MAX, LinearRoad, Netmon, shifted


def whole(workload: Netmon) -> tuple[pa.Table, np.ndarray]:
    chunks = [chunk for number in range(workload.parts) for chunk in workload.part(number)]
    assert all((chunk.times_us == chunk.rows.column("ts_us").to_numpy()).all() for chunk in chunks)
    return pa.Table.from_batches([chunk.rows for chunk in chunks]), np.concatenate([c.seq for c in chunks])


def test_a_copy_is_the_trace_with_other_addresses_and_copies_of_a_row_stand_together() -> None:
    rows, seq = whole(Netmon(3))
    trace = netmon.load_trace().drop_columns("file_row")
    assert (seq == np.arange(3 * trace.num_rows)).all()
    same = [name for name in netmon.COLUMNS if name not in ("src", "dst")]
    for copy in range(3):
        mine = rows.take(pa.array(np.arange(copy, len(rows), 3)))
        assert mine.select(same).combine_chunks() == trace.select(same).combine_chunks()
        for name in ("src", "dst"):
            assert mine[name][:200].to_pylist() == shifted(trace[name][:200].to_pylist(), copy)
    first = rows.take(pa.array(np.arange(0, len(rows), 3)))
    assert first.combine_chunks() == trace.combine_chunks()


def test_addresses_of_copies_are_all_different_and_networks_stay_networks() -> None:
    trace = netmon.load_trace()
    every = sorted({*trace["src"].to_pylist(), *trace["dst"].to_pylist()})
    few = [*every[::400], *(each for each in every if ":" in each)]
    copies = (0, 1, 2, 433, 434, COPIES_MAX - 1)
    made = {
        (address, copy): moved
        for copy in copies
        for address, moved in zip(few, shifted(few, copy), strict=True)
    }
    assert len({*made.values()}) == len(made)
    assert not {made[address, copy] for address in few for copy in copies[1:]} & {*every}
    networks: dict[tuple[str, int], str] = {}
    four = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3})\.(\d{1,3})")
    for (address, copy), moved in made.items():
        was, found = four.fullmatch(address), four.fullmatch(moved)
        assert bool(was) == bool(found)
        if was and found:
            assert was[2] == found[2]
            assert networks.setdefault((was[1], copy), found[1]) == found[1]
            if copy <= 433:
                assert max(map(int, moved.split("."))) < 256
    assert len({*networks.values()}) == len(networks)


def test_an_expressway_is_the_traffic_of_its_seed_with_numbers_of_its_own() -> None:
    workload = LinearRoad(xways=3, cars=200, seconds=300, seed=5)
    parts = [next(workload.part(number)) for number in range(workload.parts)]
    plain = traffic(Traffic(seconds=300, cars=200), seed=6)
    second = pa.Table.from_batches([parts[1].rows])
    reports = np.array(plain["type"]) == 0
    assert (np.array(second["vid"]) == np.array(plain["vid"]) + 200).all()
    assert (np.array(second["xway"]) == np.where(reports, 1, -1)).all()
    for name in ("time", "spd", "lane", "seg", "pos"):
        assert second[name].combine_chunks() == plain[name].combine_chunks()
    asked = [qid for part in parts for qid in part.rows.column("qid").to_pylist() if qid >= 0]
    assert len({*asked}) == len(asked)
    assert (parts[2].times_us == parts[2].rows.column("time").to_numpy() * 1_000_000).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Netmon(0), "copies is from 1 to 10,000, got 0"),
        (lambda: Netmon(True), "copies is from 1 to 10,000, got True"),
        (lambda: LinearRoad(xways=401), "xways is from 1 to 400, got 401"),
        (lambda: LinearRoad(xways=400, cars=200_000, seconds=10_000), "don't fit int32"),
    ],
)
def test_sizes_that_can_not_be_are_refused(make: object, said: str) -> None:
    with pytest.raises(md.DataError, match=said):
        make()  # type: ignore[operator]


def test_beyond_the_largest_copy_addresses_still_have_three_digits() -> None:
    last = max(scaled._networks())
    text = scaled._written(scaled._free(np.array([(COPIES_MAX - 1) * len(scaled._networks())])))[0].as_py()
    assert last < 1 << 24
    assert max(map(int, text.split("."))) <= 999
