"""Two nodes as processes, of which one has too much to do: what is left out is counted at both ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, PATIENT_READERS, TIMEOUT, Nodes, run_to_end, until
from tests.system.slow_rows import slow

pytestmark = pytest.mark.system

WINDOW_ROWS = 500

AHEAD_ROWS = 20_000
"""So far ahead of what the node has durably is published: six seconds of its work."""

SCHEMA = {"ts": "timestamp", "road": "int64"}


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("s"), ["a", "b"], limits=PATIENT_READERS)
    for name in nodes.names:
        config = nodes.config(name)
        config.write_text(f'functions = ["tests.system.slow_rows"]\n{config.read_text()}')
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def rows(first: int, count: int) -> pa.Table:
    """``WINDOW_ROWS`` a second, by their times."""
    numbers = range(first, first + count)
    times = pa.array([n * 1_000_000 // WINDOW_ROWS for n in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "road": pa.array([n % 3 for n in numbers], pa.int64())})


def test_what_a_node_leaves_out_is_counted_at_both_ends(nodes: Nodes) -> None:
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    done = cars.apply(slow, SCHEMA, name="work")
    counts = done.window("1s").aggregate(n=md.count(), name="counts")
    q.sink("report", counts, qos=md.QoS(latency=[("2s", 1), ("6s", 0)]))
    published, deadline_s = 0, time.monotonic() + DEADLINE_S
    with (
        md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed,
        md.connect(nodes.addresses["b"], timeout=TIMEOUT) as there,
    ):
        fed.deploy(q, at={"a": ["cars", "work"], "b": ["counts", "report"]})
        assert fed.left_out_rows("roads.cars") == 0
        with there.subscribe("roads.report", from_="oldest") as report:
            publisher = fed.publisher("roads.cars", durable="test")
            while publisher.left_out_rows < 20 * WINDOW_ROWS and time.monotonic() < deadline_s:
                if published - publisher.durable_row < AHEAD_ROWS:
                    publisher.publish(rows(published, 200))
                    published += 200
                else:
                    publisher.flush()
            publisher.finish()
            publisher.close()
            table = report.table("180s")
            said = fed.status()
            shed = said["fragments"][0]["left_out_rows"]
            assert shed >= 20 * WINDOW_ROWS, nodes.log("a")
            assert report.left_out_above == {"roads/cars.cars": shed}
            assert report.left_out_rows == shed
        assert sum(table["n"].to_pylist()) + shed == published
        assert {each["n"] for each in table.slice(0, table.num_rows - 1).to_pylist()} == {WINDOW_ROWS}
        (source,) = said["shedding"]["sources"]
        assert (source["how"], source["outputs"], source["left_out_rows"]) == (
            "windows",
            ["roads.report"],
            shed,
        )
        assert said["fragments"][0]["publishers"][0]["left_out_rows"] == shed
        (output,) = there.status()["fragments"][0]["outputs"]
        assert output["left_out_above"] == {"roads/cars.cars": shed}
        for command in (["status", "--node"], ["top", "--once"]):
            done = run_to_end(*command, nodes.addresses["a"])
            assert f"left out: {shed:,} rows" in done.stdout, done.stderr

    def said_of_it() -> tuple[int, int]:
        """How often it was said that it begins, and ends."""
        words = ("rows are left out: too much comes", "nothing is left out any more")
        begins, ends = (len(re.findall(each, nodes.log("a"))) for each in words)
        return begins, ends

    # On a busy machine too little may come for a while, and then too much again.
    until(lambda: 0 < said_of_it()[0] == said_of_it()[1], what=lambda: f"an end of it: {said_of_it()}")
    assert said_of_it()[0] < 10, "each beginning is said once, not with each row"
