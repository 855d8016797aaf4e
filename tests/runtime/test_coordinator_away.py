"""The node that coordinates a query is away: orders say so, and the query runs on."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.runtime.client import moves

NAMES = ("a", "b", "c")


@pytest.fixture
def nodes(tmp_path):
    listens = {name: f"ipc://{tmp_path}/{name}" for name in NAMES}
    made = {}
    for name in NAMES:
        config = {"name": name, "listen": listens[name], "data": str(tmp_path / f"{name}.data")}
        config["peers"] = {other: listens[other] for other in NAMES if other != name}
        made[name] = md.node(config, report=lambda *_: None)
        made[name].start()
    yield made
    for node in made.values():
        node.close()


def query(name):
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
    per_k = rows.window("10s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="some"))
    return q


def test_orders_name_it_and_the_query_runs_on(nodes, monkeypatch):
    monkeypatch.setattr(moves, "ANSWER_US", 2_000_000)
    away = r"node 'a' doesn't answer, seen \d+ s ago: it coordinates query 'q'"
    with (
        md.connect(nodes["a"].address, timeout="60s") as fed,
        md.connect(nodes["b"].address, timeout="60s") as other,
    ):
        fed.deploy(query("q"), at={"b": ["rows", "per_k"], "c": ["some"]})
        nodes["a"].close()
        with pytest.raises(md.LinkError, match=f"waited 3s for an answer.*: {away}") as caught:
            other.move("q/rows", to="c", timeout="1s")
        assert caught.value.code == "E_TIMEOUT"
        with pytest.raises(md.LinkError, match=away) as caught:
            other.undeploy("q")
        assert (caught.value.code, caught.value.hint) == ("E_TIMEOUT", "undeploy it when it is back")
        with other.subscribe("q.out", timeout="60s") as trains:
            other.publish("q.rows", {"ts": [1, 2, 30], "k": [1, 1, 1]})
            other.finish("q.rows")
            assert trains.table()["n"].to_pylist() == [2, 1]
