"""A query with split boxes over three processes: what readers get is the sequence of one program."""

from __future__ import annotations

import threading

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, TIMEOUT, ForkedNodes, until

pytestmark = pytest.mark.system

SCHEMA = {"ts": "int64", "k": "int64", "v": "float64"}
ROWS = 300


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="us", slack="40 us")
    q.sink("out", rows.window("100us").group_by("k").aggregate(n=md.count(), t="sum(v)", name="per_k"))
    q.sink("all", rows.group_by("k").running(n=md.count(), before=md.lag("v"), name="so_far"))
    return q


def rows(begin: int) -> dict[str, list[float]]:
    turns = range(begin, begin + ROWS)
    times = [max(0, n - n * 7 % 30) for n in turns]
    return {"ts": times, "k": [n * n % 23 for n in turns], "v": [n * 37 % 101 / 100 for n in turns]}


@pytest.fixture
def nodes(tmp_path):
    made = ForkedNodes(tmp_path, ["a", "b", "c"])
    yield made
    made.close()


def test_parts_on_nodes_give_the_sequence_of_one_program(nodes):
    nodes.start()
    parts = query().split("per_k", 2).split("so_far", 3)
    at = {
        "a": ["rows", "so_far-1", "per_k-1"],
        "b": ["so_far-2", "per_k-2"],
        "c": ["so_far-3", "so_far", "per_k"],
    }
    got: dict[str, list[dict[str, object]]] = {"out": [], "all": []}

    def read(sink: str) -> None:
        with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as reader:
            for train in reader.subscribe(f"q.{sink}", from_="oldest"):
                got[sink] += train.batch.to_pylist()

    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(parts, at=at)
        readers = [threading.Thread(target=read, args=(sink,)) for sink in got]
        for reader in readers:
            reader.start()
        published = 0
        while published < 40 * ROWS:
            fed.publish("q.rows", rows(published))
            published += ROWS
            if published == 20 * ROWS:
                until(lambda: len(got["all"]) > 10 * ROWS)
        fed.finish("q.rows")
        for reader in readers:
            reader.join(DEADLINE_S)
            assert not reader.is_alive()
    expected = md.collect(
        query(), rows={name: [v for n in range(0, published, ROWS) for v in rows(n)[name]] for name in SCHEMA}
    )
    for sink, found in got.items():
        assert found == expected[sink].to_pylist()
