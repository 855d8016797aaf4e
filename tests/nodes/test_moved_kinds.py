"""Every kind of state goes along: a fragment of each kind moves three times while rows come."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.federation import Federation
from medusa.sim.trials.queries import difference
from medusa.wire.messages.move import Move

NODES = ["e", "m1", "m2", "c"]
SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "int64"}
ROWS = 240


def join(s: Any) -> Any:
    return s.filter("v % 2 = 0", name="even").join(
        s.filter("v % 2 = 1", name="odd"), on="k", within="2s", name="kind"
    )


KINDS: dict[str, Any] = {
    "sliding": lambda s: (
        s.window("4s", advance="1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="kind")
    ),
    "session": lambda s: s.session("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="kind"),
    "window_rows": lambda s: s.group_by("k").window_rows(7).aggregate(t=md.sum("v"), name="kind"),
    "window_values": lambda s: s.group_by("k").window_values("v", 40).aggregate(n=md.count(), name="kind"),
    "running": lambda s: s.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind"),
    "distinct": lambda s: s.distinct("k", within="3s", name="kind"),
    "top": lambda s: s.window("3s").top(2, by="v", name="kind"),
    "join": join,
}


def rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            # Gaps of more than a second now and then, for sessions.
            "ts": pa.array([n * 100_000 + (n // 40) * 1_500_000 for n in numbers], pa.timestamp("us", "UTC")),
            "k": ["abcde"[n * n % 5] for n in numbers],
            "v": pa.array([n * 7 % 101 + n // 3 for n in numbers], pa.int64()),
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_holds_goes_along(kind: str) -> None:
    q = md.Query("q")
    kept = KINDS[kind](q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first"))
    q.sink("out", kept.filter("true", name="last"))
    schema = next(box.schema for box in q.graph.boxes if box.id == "rows")
    table = rows().cast(schema_to_arrow(schema))
    want = collect(q, rows=table)["out"]
    assert want.num_rows > 10
    middle = [box.id for box in q.graph.boxes if box.id in ("kind", "even", "odd")]
    fed = Federation(3, NODES, limits=Limits(checkpoint_every_us=50_000))
    fed.start()
    client = fed.client("p", "e")
    at = {"e": ["rows", "first"], "m1": middle, "c": ["last", "out"]}
    reply, _ = fed.answer(client, client.deploy(q, at))
    assert reply.code == "", reply
    reader = fed.client("r", "c")
    reader.read("q.out")
    name = next(f for f in fed.nodes["m1"].brain.fragments)
    fed.run(for_us=500_000)
    for number, to in enumerate(("m2", "c" if kind != "join" else "m1", "m1"), start=1):
        for first in range((number - 1) * 60, number * 60, 6):
            client.publish("q.rows", table.slice(first, 6), schema)
        fed.run(for_us=20_000)
        mover = fed.clients.get("mover") or fed.client("mover", "e")
        request = mover.mind.request(lambda n, to=to: Move(request=n, fragment=name, to=to, timeout_ms=5_000))
        mover.do(lambda mind: None)
        reply, figures = fed.answer(mover, request)
        assert reply.code == "", reply
        assert msgspec.json.decode(figures)["node"] == to
        assert [n for n, node in fed.nodes.items() if name in node.brain.fragments] == [to]
    client.publish("q.rows", table.slice(180), schema)
    client.finish("q.rows", schema)
    assert fed.run(lambda: "q.out" in reader.ended, for_us=20_000_000), fed.last()[-2000:]
    got = pa.Table.from_batches(reader.rows["q.out"], want.schema)
    assert difference(got, want) is None
