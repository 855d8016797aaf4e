"""Named subscriptions against a node in this process: what is kept, for whom, and until when."""

from __future__ import annotations

import itertools

import pytest

import medusa as md
from medusa.errors import LinkError
from tests.runtime.test_process import InThread, query, write
from tests.system.nodes import until

WAIT = "20s"


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("n")


def started(place, monkeypatch):
    return InThread(write(place, more='[limits]\ncheckpoint_every = "50ms"\n'), monkeypatch)


@pytest.fixture
def node(place, monkeypatch):
    made = started(place, monkeypatch)
    yield f"ipc://{place}/a"
    made.stop()


@pytest.fixture
def fed(node):
    with md.connect(node, timeout=WAIT) as made:
        made.deploy(query())
        yield made


def publish(fed, *values):
    fed.publish("q.rows", {"ts": list(values), "v": list(values)})
    fed.flush(WAIT)


def taken(trains, count):
    """So many rows: (number, value)."""
    found = []
    while len(found) < count:
        train = trains.next(WAIT)
        found += enumerate(train.batch["v"].to_pylist(), start=train.first_seq)
    return found


def named(fed, name="r"):
    [fragment] = fed.status()["fragments"]
    [output] = fragment["outputs"]
    return next((each for each in output["named"] if each["name"] == name), None)


def test_what_was_not_acknowledged_comes_again_under_the_same_name(fed, node):
    with fed.subscribe("q.out", durable="r") as trains:
        publish(fed, 1, 2, 3)
        assert taken(trains, 3) == [(0, 1), (1, 2), (2, 3)]
        trains.ack(1)
        assert trains.acked_row == 1
    publish(fed, 4)
    with md.connect(node, timeout=WAIT) as other:
        # From here on ``from_`` doesn't count: the name is known.
        with other.subscribe("q.out", from_="now", durable="r") as trains:
            assert taken(trains, 3) == [(1, 2), (2, 3), (3, 4)]
            trains.ack(4)
        with other.subscribe("q.out", from_="oldest", durable="r") as trains:
            publish(fed, 5)
            assert taken(trains, 1) == [(4, 5)]


def test_a_name_and_its_position_outlive_the_node(place, monkeypatch):
    node = started(place, monkeypatch)
    with md.connect(f"ipc://{place}/a", timeout=WAIT) as fed:
        fed.deploy(query())
        with fed.subscribe("q.out", durable="r") as trains:
            publish(fed, 1, 2, 3)
            assert len(taken(trains, 3)) == 3
            trains.ack(2)
        publish(fed, 4)
    node.stop()
    node = started(place, monkeypatch)
    with md.connect(f"ipc://{place}/a", timeout=WAIT) as fed:
        assert named(fed)["acknowledged_row"] == 2
        with fed.subscribe("q.out", durable="r") as trains:
            assert taken(trains, 2) == [(2, 3), (3, 4)]
            assert named(fed)["connected"]
    node.stop()


def test_one_program_at_a_time_reads_under_a_name(fed, node):
    with fed.subscribe("q.out", durable="r"), md.connect(node, timeout=WAIT) as other:
        with pytest.raises(LinkError, match="'r' is being read by another program") as caught:
            other.subscribe("q.out", durable="r")
        assert caught.value.code == "E_TAKEN"
        with pytest.raises(LinkError, match="being read by another") as caught:
            other.unsubscribe("q.out", durable="r")
        assert caught.value.code == "E_TAKEN"
        with other.subscribe("q.out", durable="r2"):
            assert named(fed, "r2")["to"] != named(fed, "r")["to"]
    # Closing waits for nobody, and another connection may be heard before it.
    until(lambda: not named(fed)["connected"], what="the name is free")
    with md.connect(node, timeout=WAIT) as third, third.subscribe("q.out", durable="r"):
        assert named(fed)["connected"]


def test_a_subscription_that_is_ended_keeps_nothing_and_its_reader_hears_it(fed):
    with fed.subscribe("q.out", durable="r") as trains:
        fed.unsubscribe("q.out", durable="r")
        assert named(fed) is None
        with pytest.raises(LinkError, match="subscription 'r' was ended"):
            trains.next(WAIT)
    with fed.subscribe("q.out", durable="report"), pytest.raises(LinkError, match="did you mean") as caught:
        fed.unsubscribe("q.out", durable="reports")
    assert caught.value.code == "E_NAME"
    with pytest.raises(LinkError, match=r"no stream 'q\.other'"):
        fed.unsubscribe("q.other", durable="r")


def test_a_number_is_where_the_program_stands(fed):
    publish(fed, 1, 2, 3)
    with fed.subscribe("q.out", from_=1, durable="r") as trains:
        assert taken(trains, 2) == [(1, 2), (2, 3)]
    with fed.subscribe("q.out", from_=2, durable="r") as trains:
        assert trains.acked_row == 2
        assert taken(trains, 1) == [(2, 3)]
    with pytest.raises(LinkError, match="rows below 2 of subscription 'r' were acknowledged") as caught:
        fed.subscribe("q.out", from_=1, durable="r")
    assert caught.value.code == "E_SEQ"
    with pytest.raises(LinkError, match="row 1000 is beyond the end") as caught:
        fed.subscribe("q.out", from_=1000, durable="new")
    assert named(fed, "new") is None


def test_what_is_no_name(fed):
    names = ["", "A", "a b", "x" * 65, "a/b", 7]
    for call, name in itertools.product((fed.subscribe, fed.unsubscribe), names):
        with pytest.raises(LinkError, match=r"is no name of a subscription.*1 to 64 characters"):
            call("q.out", durable=name)


def test_acknowledging_what_can_not_be(fed):
    with fed.subscribe("q.out", durable="r") as trains:
        publish(fed, 1, 2, 3)
        taken(trains, 3)
        for seq, says in (
            (4, "row 4 acknowledged, taken were the rows below 3"),
            (-1, "no row"),
            (True, "no row"),
        ):
            with pytest.raises(LinkError, match=says):
                trains.ack(seq)
        trains.ack(3)
        trains.ack(1)
        assert trains.acked_row == 3
    with pytest.raises(LinkError, match="was closed"):
        trains.ack(3)
    with fed.subscribe("q.out") as plain, pytest.raises(LinkError, match="read without a name") as caught:
        plain.ack(0)
    assert caught.value.code == "E_READER"


def test_a_name_that_nobody_reads_slows_the_source_at_the_bound_and_loses_nothing(place, monkeypatch):
    more = '[limits]\ncheckpoint_every = "50ms"\ncredit = "5 MiB"\nretention = "1 MiB"\n'
    node = InThread(write(place, more=more), monkeypatch)
    rows, pieces = 20_000, 20
    with md.connect(f"ipc://{place}/a", timeout=WAIT) as fed:
        fed.deploy(query())
        fed.subscribe("q.out", durable="r").close()
        for piece in range(pieces):
            values = list(range(1 + piece * rows, 1 + (piece + 1) * rows))
            fed.publish("q.rows", {"ts": values, "v": values})
        fed.finish("q.rows")

        def kept():
            return named(fed)["kept_bytes"]

        with pytest.raises(LinkError) as caught:
            fed.flush("500ms")  # Were it not slowed, all would come through meanwhile.
        assert caught.value.code == "link.timeout"
        until(lambda: kept() >= 1 << 20, what="it is full")
        assert kept() < 3 << 20, "one train more than the bound, and what was under way"
        assert fed.status()["rows_out"] < rows * pieces
        found = 0
        with fed.subscribe("q.out", durable="r") as trains:
            for train in trains:
                assert train.first_seq == found
                found += len(train)
                trains.ack(found)
            assert (found, trains.lost_rows) == (rows * pieces, 0)
        fed.flush(WAIT)
    node.stop()
