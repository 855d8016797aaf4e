"""What a client orders may be called by its full name: the own participant, a slash, and its name."""

from __future__ import annotations

from functools import partial

import pytest

import medusa as md
from medusa.nodes.move_orders import PATIENCE_US
from medusa.runtime.client import moves


@pytest.fixture
def fed(tmp_path):
    config = {"name": "a", "listen": f"ipc://{tmp_path}/a", "data": str(tmp_path / "data")}
    with md.node(config, report=lambda *_: None) as node, md.connect(node.address) as connected:
        yield connected


def query():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
    q.sink("out", rows.window("10s").group_by("k").aggregate(n=md.count(), name="w"))
    return q


def test_of_the_own_participant(fed):
    assert fed.define("local/trips", {"v": "int64"}, time=None) == 1
    assert [each["name"] for each in fed.definitions()] == ["trips"]
    fed.undefine("local/trips")
    assert fed.definitions() == []
    fed.deploy(query())
    assert set(fed.split("local/q/w", 2)["parts"]) == {"q/w-1", "q/w-2"}
    assert fed.move("local/q/w-1", to="a")["node"] == "a"
    with pytest.raises(md.LinkError, match="runs at node 'a' and needs no grant"):
        fed.grant("local/q/w-1", to="a")
    assert fed.merge("local/q/w")["node"] == "a"
    fed.undeploy("local/q")
    assert fed.queries() == []


def test_of_another_one(fed):
    fed.deploy(query())
    for order in (
        partial(fed.define, "bob/trips", {"v": "int64"}, time=None),
        partial(fed.undefine, "bob/trips"),
        partial(fed.undeploy, "bob/q"),
        partial(fed.split, "bob/q/w", 2),
        partial(fed.merge, "bob/q/w"),
        partial(fed.move, "bob/q/rows", to="a"),
        partial(fed.grant, "bob/q/rows", to="a"),
    ):
        with pytest.raises(md.LinkError, match="belongs to participant 'bob'") as caught:
            order()
        assert caught.value.code == "E_ROLE"


def test_a_grant_waits_longer_than_a_node_that_passes_it_on(fed, monkeypatch):
    """Else the client says that the node is there, and that of the fragment, which isn't, is never named."""
    waited = []
    monkeypatch.setattr(moves, "ask", lambda loop, make, *, timeout_us: waited.append(timeout_us))
    fed.grant("q/rows", to="a")
    assert waited[0] > PATIENCE_US
