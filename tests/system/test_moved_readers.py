"""A reader with a name goes along with a fragment that moves: what it acknowledged, and what waits for it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import ForkedNodes, until

pytestmark = pytest.mark.system

MIB = 1 << 20
LIMITS = f"""subscriber_timeout = "10min"
checkpoint_every = "100ms"
[streams."*"]
retention = {MIB}
at_limit = "spill"
"""
ROWS = 8 * 1024


@pytest.fixture
def nodes(tmp_path_factory):
    made = ForkedNodes(tmp_path_factory.mktemp("m"), ["a", "b", "c"], limits=LIMITS)
    yield made
    made.close()


def query() -> md.Query:
    q = md.Query("q")
    q.sink("out", q.source("rows", {"n": "int64", "text": "binary"}, time=None).filter("n >= 0", name="some"))
    return q


def batch(begin: int, end: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"n": pa.array(range(begin, end)), "text": pa.array([b"x" * 1000] * (end - begin))}
    )


def taken(reader: md.Subscription, until_row: int) -> list[int]:
    """The numbers that come, up to one; each train is acknowledged."""
    got: list[int] = []
    while not got or got[-1] < until_row:
        train = reader.next("60s")
        got += train.batch.column("n").to_pylist()
        reader.ack(train.first_seq + len(train))
    return got


def test_what_spilled_for_a_reader_goes_along_and_what_it_acknowledged_does_not_come_again(nodes):
    nodes.start()
    with (
        md.connect(nodes.addresses["a"], timeout="60s") as fed,
        md.connect(nodes.addresses["c"], timeout="60s") as other,
    ):
        fed.deploy(query(), at={"a": ["rows"]})
        with other.subscribe("q.out", from_="oldest", durable="x") as reader:
            fed.publish("q.rows", batch(0, 512))
            first = taken(reader, 511)
        assert first == list(range(512))
        for begin in range(512, ROWS, 512):
            fed.publish("q.rows", batch(begin, begin + 512))
        fed.flush()

        def spilled() -> int:
            with md.connect(nodes.addresses["a"], timeout="60s") as there:
                [fragment] = there.status()["fragments"]
                return fragment["outputs"][0]["spilled_bytes"]

        until(lambda: spilled() > 4 * MIB, what="it spills")
        assert other.move("q/rows", to="b", timeout="60s")["node"] == "b"
        with other.subscribe("q.out", durable="x") as reader:
            got = taken(reader, 2000)
        assert got == list(range(512, got[-1] + 1))
        nodes.kill("b")
        nodes.start("b")
        with other.subscribe("q.out", durable="x") as reader:
            rest = taken(reader, ROWS - 1)
        # What it acknowledged after the last checkpoint before the kill may come again.
        assert 512 <= rest[0] <= got[-1] + 1
        assert rest == list(range(rest[0], ROWS))


def test_what_came_without_rows_shows_its_boxes(nodes):
    nodes.start()
    with md.connect(nodes.addresses["a"], timeout="60s") as fed:
        fed.deploy(query(), at={"a": ["rows"]})
        fed.move("q/rows", to="b")
        with md.connect(nodes.addresses["b"], timeout="60s") as there:
            boxes = until(lambda: there.status()["fragments"][0]["boxes"], what="its boxes")
        assert list(boxes) == ["rows", "some", "out"]
