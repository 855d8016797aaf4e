"""Named subscriptions against a node in this process: what is kept, for whom, and until when."""

from __future__ import annotations

import pytest

import medusa as md
from tests.runtime.test_process import InThread, query, write

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
