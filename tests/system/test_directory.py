"""Three node processes and a client of one of them: it reads and publishes by name alone, also when nodes
come back at other addresses."""

from __future__ import annotations

import pytest

import medusa as md
from tests.system.nodes import TIMEOUT, ForkedNodes, ordered, until

pytestmark = pytest.mark.system

LIMITS = 'checkpoint_every = "100ms"\ndeploy_timeout = "5s"'
"""So long a definition that may not be changed is waited for."""


@pytest.fixture
def nodes(tmp_path_factory):
    made = ForkedNodes(tmp_path_factory.mktemp("n"), ["a", "b", "c"], limits=LIMITS)
    yield made
    made.close()


def query():
    q = md.Query("t")
    q.sink("out", q.source("cars", {"v": "int64"}, time=None).filter("v >= 0", name="ok"))
    return q


def elsewhere(nodes, name):
    """Kill a node and start it at another address."""
    nodes.kill(name)
    old, new = f'listen = "{nodes.addresses[name]}"', f'listen = "{nodes.addresses[name]}x"'
    nodes.config(name).write_text(nodes.config(name).read_text().replace(old, new))
    nodes.addresses[name] += "x"
    nodes.start(name)


class Reader:
    def __init__(self, trains):
        self.trains = trains
        self.rows = []

    def up_to(self, count):
        while len(self.rows) < count:
            self.rows += self.trains.next("60s").batch["v"].to_pylist()
        assert self.rows == list(range(count))
        assert self.trains.lost_rows == 0


def test_streams_are_found_and_followed_by_name_alone(nodes):
    nodes.start()
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"b": ["cars"], "c": ["ok", "out"]})
        assert [each["node"] for each in (fed.find("t.out"), fed.find("local/t.cars"))] == ["c", "b"]
        [shown] = fed.queries()
        assert shown["fragments"] == {"t/cars": ["b"], "t/ok": ["c"]}
        plain = Reader(fed.subscribe("t.out"))
        with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as other:
            until(lambda: known(other, "t.out"), what="b has heard of it")
            named = Reader(other.subscribe("t.out", durable="mine"))
            fed.publish("t.cars", {"v": list(range(10))})
            plain.up_to(10)
            named.up_to(10)
            for victim, count in (("b", 20), ("c", 30)):
                elsewhere(nodes, victim)
                fed.publish("t.cars", {"v": list(range(count - 10, count))})
                plain.up_to(count)
                named.up_to(count)
                address = nodes.addresses[victim]
                until(lambda name=victim, at=address: fed.find(name, "node")["address"] == at, what="a knows")
            named.trains.close()
        fed.flush()
        until(lambda: [each["node"] for each in fed.statuses(all=True)] == ["a", "b", "c"], what="all answer")
        ordered(lambda: fed.unsubscribe("t.out", durable="mine"), again=["E_TAKEN"])
        with pytest.raises(md.LinkError, match=r"is called 't\.otu'") as caught:
            fed.find("t.otu")
        assert "t.out" in caught.value.hint
        with pytest.raises(md.LinkError, match=r"no stream 't\.otu' .did you mean 't\.out'"):
            fed.subscribe("t.otu")
        with pytest.raises(md.LinkError, match=r"no source 't\.car' .did you mean 't\.cars'"):
            fed.publish("t.car", {"v": [1]})


def test_a_defined_stream_is_published_and_read_by_its_name(nodes):
    nodes.start()
    with (
        md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed,
        md.connect(nodes.addresses["c"], timeout=TIMEOUT) as other,
    ):
        assert fed.define("trips", {"v": "int64"}, time=None) == 1
        assert fed.define("trips", {"v": "int64"}, time=None) == 1
        until(lambda: other.definitions())
        trains = other.subscribe("trips")
        other.publish("local/trips", {"v": [0, 1]})
        reader = Reader(trains)
        reader.up_to(2)
        with pytest.raises(md.LinkError) as caught:
            other.define("trips", {"w": "int64"}, time=None)
        assert caught.value.code == "E_READ"
        trains.close()
        other.flush()
        assert until(lambda: changed(other)) == 2
        [known] = fed.definitions()
        assert known == {
            "name": "trips",
            "version": 2,
            "columns": [["w", "int64"]],
            "time": None,
            "unit": None,
            "slack_us": None,
            "node": "a",
        }
        fed.deploy(query())
        until(lambda: "t" in {each["name"] for each in other.queries()}, what="c has heard of it")
        with pytest.raises(md.LinkError) as caught:
            other.define("t", {"v": "int64"}, time=None)
        assert caught.value.code == "E_DEFINED"
        other.undeploy("t")
        other.undefine("trips")
        until(lambda: fed.definitions() == other.definitions() == [], what="nobody knows it any more")


def test_a_defined_stream_keeps_its_name_wherever_it_moves_and_whoever_restarts(nodes):
    nodes.start()
    with (
        md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed,
        md.connect(nodes.addresses["c"], timeout=TIMEOUT) as other,
    ):
        fed.define("trips", {"v": "int64"}, time=None)
        with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as first:
            until(lambda: there(first, "a"), what="b has heard of it")
            first.publish("trips", {"v": [0]})
            first.flush()
        for number, (to, restarted) in enumerate([("b", "a"), ("c", "c"), ("a", "a")], start=1):
            ordered(lambda to=to: other.move("trips/in", to=to))
            nodes.kill(restarted)
            nodes.start(restarted)
            # The last word of the earlier owner may come before the first one of the new owner.
            until(lambda to=to: there(fed, to) and there(other, to))
            assert [each["version"] for each in fed.definitions()] == [1]
            assert other.find("trips")["coordinator"] == "a"
            assert other.stream("trips").columns[0].name == "v"
            assert other.define("trips", {"v": "int64"}, time=None) == 1
            if to != "a":
                with pytest.raises(md.LinkError, match=rf"runs at node '{to}'") as caught:
                    other.define("trips", {"w": "int64"}, time=None)
                assert caught.value.code == "E_DEFINED"
            with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as one:  # Knows nothing of what was.
                until(lambda one=one, to=to: there(one, to), what="b has heard of it")
                one.publish("trips", {"v": [number]})
                one.flush()
                trains = Reader(one.subscribe("trips", "oldest"))
                trains.up_to(number + 1)
                trains.trains.close()
        until(lambda: changed(other) == 2)
        ordered(lambda: other.move("trips/in", to="b"))
        fed.undefine("trips")
        until(lambda: fed.definitions() == fed.queries() == [], what="nobody knows it any more")


def known(client, name):
    """Whether its node has heard where a stream is."""
    try:
        return client.find(name)
    except md.LinkError as error:
        if error.code != "E_STREAM":
            raise
        return None


def there(client, node):
    try:
        return client.find("trips")["node"] == client.find("trips.out")["node"] == node
    except md.LinkError as error:
        if error.code != "E_STREAM":
            raise
        return False


def changed(client):
    """The version; None while the node hasn't heard yet that nobody reads any more."""
    try:
        return client.define("trips", {"w": "int64"}, time=None)
    except md.LinkError as error:
        if error.code != "E_READ":
            raise
        return None
