"""A subscription that reads tentative rows too, over a connection that is only pretended."""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from medusa.elements import END_US, Kind, Train
from medusa.errors import LinkError
from medusa.query.boxes import Field
from medusa.runtime.client.subscription import Reading, Subscription
from medusa.wire.client_mind import ClientMind
from medusa.wire.codec import TrainCodec
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.sender import Sender
from medusa.wire.messages.links import NOW, Hello
from medusa.wire.outbox import Outbox
from tests.wire.pair import SMALL, sends

SCHEMA = (Field("k", "utf8"), Field("v", "int64"))
CODEC = TrainCodec(SCHEMA, timed=True)
NARROW = replace(SMALL, tentative_bytes_max=20_000)


class Connection:
    """A client's mind and a node that has one stream; what is under way comes while somebody waits."""

    node, timeout_us = "n", 1000

    def __init__(self):
        self.lock = threading.RLock()
        self.box = Outbox()
        self.sender = Sender("out", SCHEMA, timed=True, outbox=self.box, settings=NARROW)
        self._mind = ClientMind("c", "n", link=NARROW)
        self._mind.tick(0)
        self.settle()

    def mind(self):
        return self._mind

    def settle(self):
        while True:
            up, down = sends(self._mind.outbox), sends(self.box)
            if not up and not down:
                return
            for message, _ in up:
                if isinstance(message, Hello):
                    self.box.send("c", Hello(version=PROTOCOL_VERSION, node="n", incarnation=1))
                else:
                    self.sender.receive(0, "c", message)
            for message, payload in down:
                self._mind.receive(0, message, payload)

    def wait(self, done, what, timeout_us):
        self.settle()
        if not done():
            raise LinkError(f"{what}: not in time", code="link.timeout")

    async def wait_async(self, done, what, timeout_us):
        self.wait(done, what, timeout_us)

    def rows(self, *rows, tentative=False):
        """(time, k, v) each."""
        times, keys, values = zip(*rows, strict=True)
        train = Train(
            batch=pa.record_batch([pa.array(keys), pa.array(values)], schema=CODEC.schema),
            times=pa.array(times, pa.timestamp("us", tz="UTC")),
        )
        [(payload, count, _)] = CODEC.encode(train)
        lane = self.sender.tentative if tentative else self.sender
        lane.train(0, payload, count)


@pytest.fixture
def node():
    return Connection()


@pytest.fixture
def reading(node):
    return Subscription(node, "out", NOW, None, tentative=True)


def rows_of(shown):
    columns = shown.batch.columns if isinstance(shown, Train) else shown.columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_trains_say_of_which_kind_they_are_and_states_come_in_between(node, reading):
    told = []
    reading.on_state(told.append)
    node.rows((1, "a", 1))
    node.sender.tentative.state(0, "up_failure", 1)
    node.rows((5, "a", 2), (6, "b", 3), tentative=True)
    first, second = reading.next(), reading.next()
    assert (first.kind, rows_of(first), second.kind) == (Kind.STABLE, [("a", 1)], Kind.TENTATIVE)
    assert (rows_of(second), second.first_seq) == ([("a", 2), ("b", 3)], 0)
    assert (told, reading.state, reading.fork) == (["up_failure"], "up_failure", 1)
    node.sender.tentative.state(0, "stabilization", 1)
    node.rows((5, "a", 4))
    node.sender.tentative.state(0, "stable", 0)
    assert rows_of(reading.next()) == [("a", 4)]
    with pytest.raises(LinkError, match="not in time"):
        reading.next()
    assert (told, reading.fork) == (["up_failure", "stabilization", "stable"], 0)


def test_a_node_that_is_not_heard_is_a_failure(node, reading):
    told = []
    reading.on_state(told.append)
    node._mind.lost(0)
    with pytest.raises(LinkError, match="not in time"):
        reading.next()
    assert (told, reading.state) == (["failure"], "failure")
    node._mind.tick(300_000)
    node.rows((1, "a", 1))
    assert rows_of(reading.next()) == [("a", 1)]
    assert told == ["failure", "stable"]


def test_without_asking_stable_rows_alone_come_as_before(node):
    reading = Subscription(node, "out", NOW, None)
    node.sender.tentative.state(0, "up_failure", 1)
    node.rows((5, "a", 2), tentative=True)
    node.rows((1, "a", 1))
    assert rows_of(reading.next()) == [("a", 1)]
    with pytest.raises(LinkError, match="not in time"):
        reading.next()
    for what in (lambda: reading.state, lambda: reading.missed_rows, lambda: reading.on_state(print)):
        with pytest.raises(LinkError) as caught:
            what()
        assert (caught.value.code, "tentative=True" in caught.value.hint) == ("link.argument", True)


def test_a_subscription_that_is_acknowledged_has_no_tentative_rows():
    with pytest.raises(LinkError) as caught:
        Reading(None).subscribe("out", "now", durable="r", known=False, timeout=None, tentative=True)
    assert caught.value.code == "link.argument"


def test_a_table_is_kept_corrected_and_says_how_much_of_it_is_tentative(node, reading, monkeypatch):
    table = reading.table(key="k")
    node.rows((1, "a", 1), (1, "b", 1))
    node.sender.boundary(0, 2)
    assert table.wait()
    assert (rows_of(table.arrow()), table.tentative_rows) == ([("a", 1), ("b", 1)], 0)
    node.sender.tentative.state(0, "up_failure", 1)
    node.rows((3, "b", 20), (9, "c", 30), tentative=True)
    assert table.wait("1s")
    assert (rows_of(table.arrow()), table.tentative_rows) == ([("a", 1), ("b", 20), ("c", 30)], 2)
    node.sender.tentative.state(0, "stabilization", 1)
    node.rows((3, "b", 2))
    node.sender.boundary(0, 4)
    assert table.wait()
    assert (rows_of(table.arrow()), table.tentative_rows) == ([("a", 1), ("b", 2), ("c", 30)], 1)
    node.sender.tentative.state(0, "stable", 0)
    node.rows((9, "c", 3))
    assert table.wait()
    assert table.pandas().to_dict("list") == {"k": ["a", "b", "c"], "v": [1, 2, 3]}
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        with pytest.raises(LinkError, match="pandas is not installed") as refused:
            table.pandas()
    assert refused.value.code == "link.pandas"
    assert "arrow()" in refused.value.hint
    assert table.tentative_rows == 0
    node.sender.boundary(0, END_US)
    assert not table.wait()
    assert not table.wait()
    assert reading.ended


def test_a_stream_that_has_ended_is_stable_though_nobody_says_so_any_more(node, reading):
    told = []
    reading.on_state(told.append)
    node.sender.tentative.state(0, "stabilization", 1)
    node.rows((1, "a", 1), tentative=True)
    node.rows((1, "a", 2))
    node.sender.boundary(0, END_US)
    assert [train.kind for train in reading] == [Kind.TENTATIVE, Kind.STABLE]
    assert (reading.state, reading.fork, told) == ("stable", 0, ["stabilization", "stable"])
    node._mind.lost(0)
    assert reading.next() is None
    assert reading.state == "stable"


def test_what_a_table_reads_nobody_reads_beside_it(node, reading):
    reading.table(key=["k", "v"])
    for read in (reading.next, lambda: reading.table(key="k"), lambda: asyncio.run(reading.next_async())):
        with pytest.raises(LinkError, match="table"):
            read()


def test_a_table_of_no_column_leaves_the_subscription_as_it_was(node, reading):
    for wrong in ({"key": "kk"}, {"key": "k", "timeout": "1s"}):
        with pytest.raises(LinkError) as caught:
            reading.table(**wrong)
        assert caught.value.code == "link.argument"
    node.rows((1, "a", 1))
    assert rows_of(reading.next()) == [("a", 1)]


def test_a_table_stays_when_its_subscription_is_closed(node, reading):
    table = reading.table(key="k")
    node.rows((1, "a", 1))
    assert table.wait()
    reading.close()
    assert rows_of(table.arrow()) == [("a", 1)]
    with pytest.raises(LinkError, match="closed"):
        table.wait()


def test_states_said_over_and_over_take_no_room(node, reading):
    for turn in range(500):
        node.sender.tentative.state(0, "up_failure", turn + 1)
        node.settle()
    assert len(node._mind.subscriptions["out"].waiting) == 1
    assert reading.missed_rows == 0


def test_a_slow_reader_misses_tentative_rows_and_no_stable_one(node, reading):
    node.sender.tentative.state(0, "up_failure", 1)
    wide = "x" * 1000
    for turn in range(100):
        node.rows((turn, wide, turn), tentative=True)
        node.settle()
    lane = node.sender.tentative
    assert lane.dropped_rows == 100 - lane.sent_rows
    assert 0 < lane.sent_rows * 1000 <= NARROW.tentative_bytes_max
    node.rows((1, "a", 1))
    node.settle()
    while (train := reading.next()).kind is Kind.TENTATIVE:
        pass
    assert rows_of(train) == [("a", 1)]
    node.rows((1, "b", 1), tentative=True)
    assert rows_of(reading.next()) == [("b", 1)]
    assert reading.missed_rows == lane.dropped_rows
