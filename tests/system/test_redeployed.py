"""Three nodes over real sockets: the coordinator loses its folder, and the first try to deploy anew fails."""

from __future__ import annotations

import shutil

import pytest

import medusa as md
from tests.system.nodes import ordered, until

SCHEMA = {"ts": "int64", "v": "int64"}
AT = {"a": ["rows", "f"], "b": ["g"], "c": ["out"]}


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="s", slack="0s")
    counted = rows.filter("v >= 0", name="f").window("10 s").aggregate(n="count(*)", name="g")
    q.sink("out", counted)
    return q


def test_what_the_others_have_outlives_a_deployment_that_fails_and_the_next_one_goes_on(tmp_path):
    names = "abc"

    def node(name):
        peers = {other: f"ipc://{tmp_path}/{other}" for other in names if other != name}
        config = {"name": name, "listen": f"ipc://{tmp_path}/{name}", "data": f"{tmp_path}/{name}.data"}
        return md.node({**config, "peers": peers}).start()

    nodes = {name: node(name) for name in names}
    try:
        with nodes["a"].connect("60s") as fed:
            fed.deploy(query(), at=AT)
            fed.publish("q.rows", {"ts": list(range(95)), "v": list(range(95))})
            fed.flush()

        def fragment_of_b():
            [found] = nodes["b"].status()["fragments"]
            return found

        until(lambda: fragment_of_b()["rows_in"] == 95, what="b has all rows")
        fragment = fragment_of_b()
        for name in ("a", "c"):
            nodes.pop(name).close()
        shutil.rmtree(tmp_path / "a.data")
        nodes["a"] = node("a")
        with nodes["a"].connect("60s") as fed:
            with pytest.raises(md.LinkError) as told:
                fed.deploy(query(), at=AT)
            assert told.value.code == "E_TIMEOUT"
            nodes["c"] = node("c")
            until(lambda: not fed.queries(), what="the failed deployment is undone")
            [kept] = nodes["b"].status()["fragments"]
            assert kept["fragment"] == fragment["fragment"]
            assert kept["rows_in"] >= fragment["rows_in"] > 0
            ordered(lambda: fed.deploy(query(), at=AT))
            fed.publish("q.rows", {"ts": list(range(95, 150)), "v": list(range(55))})
            fed.finish("q.rows")
            fed.flush("60s")
        with nodes["c"].connect("60s") as fed:
            trains = fed.subscribe("q.out", from_="oldest", timeout="60s")
            counts = [n for train in trains for n in train.batch.column("n").to_pylist()]
        assert counts == [10] * 15
    finally:
        for each in nodes.values():
            each.close()
