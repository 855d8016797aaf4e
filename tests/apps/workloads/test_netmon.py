"""The trace, its split over two edges, and its published figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.apps.workloads import netmon
from medusa.errors import DataError


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    return netmon.load_trace()


def test_the_shipped_trace_is_the_published_one(trace: pa.Table) -> None:
    assert len(trace) == 107_251
    assert sum(trace["bytes"].to_pylist()) == 3_408_204_928
    assert sum(trace["pkts"].to_pylist()) == 4_394_662
    assert len(set(trace["src"].to_pylist())) == 29_157
    assert trace["dport"].null_count == 7_900


def test_the_citation_ships_with_it() -> None:
    from importlib import resources

    text = (resources.files("medusa.apps.workloads") / "data" / "CITATION.md").read_text()
    assert "Garcia" in text
    assert "Garcia" in netmon.CITATION


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_jitter_disorders_within_the_slack_and_loses_nothing(trace: pa.Table, seed: int) -> None:
    parts = netmon.deliveries(trace, seed)
    together: Counter[tuple[object, ...]] = Counter()
    for part in parts:
        times = part.rows["ts_us"].to_numpy()
        largest_before = np.maximum.accumulate(times)
        assert (np.diff(times) < 0).any()
        assert (largest_before - times).max() <= netmon.SLACK_US
        assert (np.diff(part.at_us) >= 0).all()
        together.update(zip(*(column.to_pylist() for column in part.rows.columns), strict=True))
    flows = trace.drop_columns("file_row")
    assert together == Counter(zip(*(column.to_pylist() for column in flows.columns), strict=True))


def test_each_edge_sees_its_parity(trace: pa.Table) -> None:
    first, second = netmon.deliveries(trace, 0, jitter_us=0)
    even = trace.filter(pa.array(trace["file_row"].to_numpy() % 2 == 0)).drop_columns("file_row")
    assert first.rows.equals(even)
    assert len(first.rows) + len(second.rows) == len(trace)


def test_equal_seeds_deliver_equally(trace: pa.Table) -> None:
    assert all(
        a.rows.equals(b.rows)
        for a, b in zip(netmon.deliveries(trace, 5), netmon.deliveries(trace, 5), strict=True)
    )
    assert not netmon.deliveries(trace, 5)[0].rows.equals(netmon.deliveries(trace, 6)[0].rows)


def test_slices_make_the_whole(trace: pa.Table) -> None:
    part = netmon.deliveries(trace, 0)[0]
    first, last = int(part.at_us[0]), int(part.at_us[-1])
    slices = [part.between(at, at + 7_000_000) for at in range(first, last + 1, 7_000_000)]
    assert pa.concat_tables(slices).equals(part.rows)


def test_jitter_beyond_the_slack_is_refused(trace: pa.Table) -> None:
    with pytest.raises(DataError, match="the slack of the source"):
        netmon.deliveries(trace, 0, jitter_us=netmon.SLACK_US + 1)


def test_a_trace_without_a_column_is_refused(trace: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "flows.parquet"
    pq.write_table(trace.drop_columns("dport"), path)
    with pytest.raises(DataError, match="no column dport"):
        netmon.load_trace(path)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flows.parquet"
    path.write_text("ts_us,src\n")
    with pytest.raises(DataError, match=r"flows\.parquet.*can't be read"):
        netmon.load_trace(path)


def test_bots_are_those_of_the_labels(trace: pa.Table, tmp_path: Path) -> None:
    assert netmon.labelled_bots() == {"147.32.84.165", "147.32.84.191", "147.32.84.192"}
    path = tmp_path / "unlabelled.parquet"
    pq.write_table(trace, path)
    assert netmon.labelled_bots(path) == frozenset()


def test_the_query_survives_its_json() -> None:
    query = netmon.query()
    assert type(query).from_json(query.to_json()).graph == query.graph
    assert query.sinks == netmon.SINKS
