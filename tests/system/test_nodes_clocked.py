"""A node that decides by its clock is killed: what it decided holds, in real processes."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import PATIENT_READERS, Nodes

pytestmark = [pytest.mark.system, pytest.mark.full, pytest.mark.issue(5)]

ROWS = 600
STEP = 10
SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def query() -> md.Query:
    q = md.Query("met")
    cars = q.source("cars", SCHEMA, time="ts", slack="700ms", ahead="1s")
    vans = q.source("vans", SCHEMA, time="ts", idle="100ms")
    q.sink("ahead", cars.ahead)
    q.sink("rows", cars)
    q.sink("pairs", cars.join(vans, on="k", within="10ms", how="left"))
    return q


def rows(begin: int) -> pa.Table:
    """Times about a second from now: whether they are ahead is for the node's clock to say."""
    values = list(range(begin, begin + STEP))
    stamps = [time.time_ns() // 1000 + 1_000_000 + (value % 7 - 3) * 100_000 for value in values]
    return pa.table(
        {
            "ts": pa.array(stamps).cast(pa.timestamp("us", "UTC")),
            "k": ["a"] * STEP,
            "v": pa.array(values, pa.int64()),
        }
    )


def test_rows_ahead_and_a_silent_source_after_kills(tmp_path_factory):
    """Each row is ahead or isn't, once and for all; nobody ever publishes a van, and pairs come."""
    limits = f'checkpoint_every = "100ms"\n{PATIENT_READERS}'
    nodes = Nodes(tmp_path_factory.mktemp("n"), ["one"], limits=limits)
    try:
        nodes.start()
        with md.connect(nodes.addresses["one"], timeout="30s") as one:
            one.deploy(query(), at={"one": ["cars", "vans"]})
            with (
                md.connect(nodes.addresses["one"], timeout="30s") as cars,
                one.subscribe("met.ahead", from_="oldest") as ahead,
                one.subscribe("met.rows", from_="oldest") as passed,
                one.subscribe("met.pairs", from_="oldest") as pairs,
            ):
                for begin in range(0, ROWS, STEP):
                    cars.publish("met.cars", rows(begin))
                    if begin in (150, 300, 450):
                        nodes.kill("one")
                        nodes.start("one")
                paired = [pairs.next("30s")]
                cars.finish("met.cars")
                cars.flush("60s")
                over, kept = ahead.table("60s"), passed.table("60s")
                assert ahead.lost_rows == passed.lost_rows == 0
                one.publish("met.vans", rows(0).slice(0, 0))
                one.finish("met.vans")
                one.flush("60s")
                rest = pairs.table("60s")
    finally:
        nodes.close()
    values = {"over": over.column("v").to_pylist(), "kept": kept.column("v").to_pylist()}
    assert sorted(values["over"] + values["kept"]) == list(range(ROWS))
    assert values["over"]
    assert values["kept"]
    joined = [v for train in paired for v in train.batch.column("v").to_pylist()]
    assert joined
    assert sorted(joined + rest.column("v").to_pylist()) == sorted(values["kept"])
