"""Two nodes with several connections for streams, of which some break: each row arrives once, in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa as md
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.zeromq import Transport
from tests.system.nodes import until

SOURCES = ("one", "two", "three")
TRAINS = 30
ROWS = 4000


def fields(folder: Path, name: str, other: str, links: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "listen": f"ipc://{folder}/{name}",
        "data": folder / f"{name}.data",
        "peers": {other: f"ipc://{folder}/{other}"},
        "links": links,
        "streams": {"q.wone*": {"weight": 4}},
        "limits": {"checkpoint_every": "50ms"},
    }


def query() -> md.Query:
    q = md.Query("q")
    for name in SOURCES:
        rows = q.source(name, {"ts": "int64", "v": "int64"}, time="ts", unit="us")
        q.sink(
            f"out_{name}", rows.filter("v >= 0", name=f"kept_{name}").filter("v >= 0", name=f"again_{name}")
        )
    return q


AT = {
    "a": [*SOURCES, *(f"kept_{name}" for name in SOURCES)],
    "b": [f"{box}_{name}" for name in SOURCES for box in ("again", "out")],
}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Counter[Connection | None]:
    """Connections by which rows come to node b -> how many frames they brought."""
    brought: Counter[Connection | None] = Counter()
    caller = Transport._caller

    def spy(transport: Transport, route: bytes, key: str, frame: Any) -> str:
        if transport.endpoint.endswith("/b") and len(memoryview(frame.buffer)) > 10_000:
            brought[Connection.that_brought(frame)] += 1
        return caller(transport, route, key, frame)

    monkeypatch.setattr(Transport, "_caller", spy)
    return brought


@pytest.mark.parametrize(
    "links", [{"connections": 2}, {"connections": 3, "spread": "striped"}], ids=["pinned", "striped"]
)
def test_rows_of_nodes_with_several_connections_arrive_though_some_break(
    tmp_path_factory: pytest.TempPathFactory, connections: Counter[Connection | None], links: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("n")
    with md.node(fields(folder, "a", "b", links)) as a, md.node(fields(folder, "b", "a", links)) as b:
        at_a, at_b = a.connect("60s"), b.connect("60s")
        at_b.deploy(query(), at=AT)
        broken = 0
        for number in range(TRAINS):
            for name in SOURCES:
                values = np.arange(number * ROWS, (number + 1) * ROWS)
                at_a.publish(f"q.{name}", {"ts": values, "v": values})
            if number % 10 == 9:
                at_a.flush()
                broken += sum(each.cut() for each in list(connections) if each is not None)
                connections.clear()
        for name in SOURCES:
            at_a.finish(f"q.{name}")
        for name in SOURCES:
            got = at_b.subscribe(f"q.out_{name}", from_="oldest").table("60s")["v"].to_pylist()
            assert got == list(range(TRAINS * ROWS))
        assert broken >= 2
        assert b.status()["lost_rows"] == 0
        until(lambda: b.status()["peers"] == {"a": "up"}, what="a is there")
