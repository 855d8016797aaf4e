"""A query that takes too much of a node ends alone: another one beside it gets every row."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import TIMEOUT, ForkedNodes, until

pytestmark = pytest.mark.system

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64"}
LIMITS = 'checkpoint_every = "200ms"\nquery_memory = "64 MiB"\nsubscriber_timeout = "10min"'
SERVED_S = 30.0
"""Longer than an honest client may have to wait, even where the machine is busy; the attacks take hours."""

UNDEPLOYED_S = 60.0


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedNodes]:
    made = ForkedNodes(tmp_path_factory.mktemp("h"), ["a"], limits=LIMITS)
    made.start()
    yield made
    made.close()


def attack(joins: int, name: str = "attack") -> md.Query:
    """Each row of one key meets each other, again and again."""
    q = md.Query(name)
    source = made = q.source("rows", SCHEMA, time="ts", slack="1 s")
    for _ in range(joins):
        made = made.join(source, on="k", within="1 h").select("k", v="v")
    q.sink("out", made)
    return q


def honest() -> md.Query:
    q = md.Query("honest")
    q.sink("out", q.source("rows", SCHEMA, time="ts", slack="0s").filter("v >= 0"))
    return q


def rows(count: int, first: int = 0) -> pa.Table:
    times = pa.array([(first + number) * 1000 for number in range(count)], pa.timestamp("us", "UTC"))
    numbers = pa.array(range(first, first + count))
    return pa.table({"ts": times, "k": pa.array([1] * count), "v": numbers})


class Honest:
    """A client that publishes a few rows again and again, and reads what comes of them."""

    def __init__(self, address: str) -> None:
        self.client = md.connect(address, timeout=TIMEOUT)
        self.client.deploy(honest())
        self._trains = self.client.subscribe("honest.out", from_="oldest")
        self._read = iter(self._trains)
        self.sent = self.got = 0
        self.longest_s = 0.0

    def turn(self) -> None:
        """Ten rows, there and back."""
        began = time.monotonic()
        self.client.publish("honest.rows", rows(10, self.sent))
        self.sent += 10
        while self.got < self.sent:
            train: Any = next(self._read)
            values = train.batch.column("v").to_pylist()
            assert values == list(range(self.got, self.got + len(values)))
            self.got += len(values)
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def close(self) -> None:
        self._trains.close()
        self.client.close()


@contextlib.contextmanager
def hostile(nodes: ForkedNodes) -> Iterator[Any]:
    """A client whose rows are never taken in the end, as it hears when it goes."""
    client = md.connect(nodes.addresses["a"], timeout="60s")
    try:
        yield client
    finally:
        with contextlib.suppress(md.LinkError):
            client.close()


def ended(client: Any) -> dict[str, Any]:
    return dict(client.status()["queries"]["attack"]["ended"])


def test_exploding_joins_end_alone_and_a_restart_does_not_bring_them_back(nodes: ForkedNodes) -> None:
    """500 rows of one key through three self-joins: 62 billion rows."""
    good = Honest(nodes.addresses["a"])
    with hostile(nodes) as bad:
        bad.deploy(attack(3))
        good.turn()
        bad.publish("attack.rows", rows(500))
        bad.finish("attack.rows")
        until(lambda: (good.turn(), ended(bad))[1], what="the attack ends")
        (end,) = ended(bad).values()
        assert (end["node"], end["code"]) == ("a", "E_MEMORY")
        assert "query 'attack' holds" in end["why"]
        assert bad.status()["queries"]["attack"]["state"] == "ended"
        until(lambda: [each["state"] for each in bad.queries() if each["name"] == "attack"] == ["ended"])
        assert [each["query"] for each in bad.status()["fragments"]] == ["honest"]
        for _ in range(20):
            good.turn()
        assert good.longest_s < SERVED_S
        with pytest.raises(md.LinkError) as caught:
            bad.flush()
        assert caught.value.code == "E_MEMORY"
        with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as late, pytest.raises(md.LinkError) as caught:
            late.publish("attack.rows", rows(1))
        assert caught.value.code == "E_MEMORY"
        with pytest.raises(md.LinkError) as caught, bad.subscribe("attack.out") as trains:
            next(iter(trains))
        assert caught.value.code == "E_MEMORY"
    assert nodes.log("a").count("query ended") == 1
    nodes.kill("a")
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout="30s") as bad:
        assert [each["query"] for each in bad.status()["fragments"]] == ["honest"]
        assert list(ended(bad).values()) == [end]
        bad.undeploy("attack")
        assert "attack" not in bad.status()["queries"]
        bad.deploy(attack(1))
        bad.publish("attack.rows", rows(30))
        bad.finish("attack.rows")
        with bad.subscribe("attack.out", from_="oldest") as trains:
            assert sum(len(each) for each in trains) == 900
    good.close()


def test_a_query_is_undeployed_in_the_middle_of_an_element(nodes: ForkedNodes) -> None:
    """Pairs that all fail a condition take hours and no memory."""
    q = md.Query("attack")
    source = q.source("rows", SCHEMA, time="ts", slack="1 s")
    pairs = source.join(source, on="k", within="1000 h", where="left.v + right.v < 0")
    q.sink("out", pairs.select("k"))
    good = Honest(nodes.addresses["a"])
    with hostile(nodes) as bad:
        bad.deploy(q)
        bad.publish("attack.rows", rows(60_000))
        bad.finish("attack.rows")
        until(lambda: busy(bad), what="the join has its rows")
        for _ in range(5):
            good.turn()
        assert good.longest_s < SERVED_S
        began = time.monotonic()
        bad.undeploy("attack")
        assert time.monotonic() - began < UNDEPLOYED_S
        assert [each["query"] for each in bad.status()["fragments"]] == ["honest"]
    good.turn()
    good.close()


def busy(client: Any) -> bool:
    """The end boundary is under way in the engine: it was fed, and there is no result."""
    (fragment,) = [each for each in client.status()["fragments"] if each["query"] == "attack"]
    return fragment["rows_in"] == 60_000
