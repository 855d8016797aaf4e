"""A node that starts with lower limits than its state needs keeps it, and holds it to them once it grows."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.runtime.test_inside import fields, folder, until_taken
from tests.system.nodes import until

__all__ = ["folder"]

SCHEMA = {"ts": "int64", "k": "int64", "v": "int64"}
GROUPS = 100_000
ROOMY = {"checkpoint_every": "100ms", "query_memory": "64 MiB", "owner_memory": "128 MiB"}
LOWER = {
    "query_memory": {"query_memory": "1 MiB"},
    "owner_memory": {"query_memory": "1 MiB", "owner_memory": "1 MiB"},
}


def counting() -> md.Query:
    q = md.Query("counts")
    source = q.source("rows", SCHEMA, time="ts", unit="s")
    q.sink("out", source.window("100 days").group_by("k").aggregate(n=md.count(), total=md.sum("v")))
    return q


def rows(first: int, count: int) -> dict[str, list[int]]:
    return {"ts": [1] * count, "k": list(range(first, first + count)), "v": [1] * count}


def kept_bytes(data: Path) -> int:
    """Of checkpoints, in the node's folder."""
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())


def of_query(client: Any) -> dict[str, Any]:
    return dict(client.status()["queries"]["counts"])


@pytest.mark.parametrize("limit", LOWER)
def test_a_start_with_lower_limits_deletes_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    given = fields(folder, limits=ROOMY)
    with md.node(given) as node, node.connect("60s") as fed:
        fed.deploy(counting())
        fed.publish("counts.rows", rows(0, GROUPS))
        fed.flush()
        until_taken(node, GROUPS)
    before = kept_bytes(given["data"])
    assert before > GROUPS * 8
    lower = {**given, "limits": {**ROOMY, **LOWER[limit]}}
    with caplog.at_level(logging.WARNING), md.node(lower) as node, node.connect("60s") as fed:
        fed.publish("counts.rows", rows(0, 100))
        fed.flush()
        until_taken(node, 100)
        assert of_query(fed)["ended"] == {}
        assert caplog.text.count(f"({limit})") == 1
        if limit == "owner_memory":
            more = md.Query("more")
            more.sink("out", more.source("rows", SCHEMA, time="ts", unit="s").filter("v > 0"))
            fed.deploy(more)
            until(lambda: fed.status()["queries"]["more"]["ended"], what="the new one is refused")
            (refused,) = fed.status()["queries"]["more"]["ended"].values()
            assert (refused["code"], "(owner_memory)" in refused["why"]) == ("E_MEMORY", True)
    assert kept_bytes(given["data"]) > 0.9 * before
    with md.node(lower) as node, node.connect("60s") as fed:
        assert of_query(fed)["ended"] == {}, "nor does the start after that"
    with md.node(given) as node, node.connect("60s") as fed:
        fed.publish("counts.rows", rows(0, 1))
        fed.finish("counts.rows")
        with fed.subscribe("counts.out", from_="oldest") as trains:
            table = trains.table("60s")
    found = dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert found == {k: 3 if k == 0 else 2 if k < 100 else 1 for k in range(GROUPS)}


def test_what_grows_beyond_what_it_had_at_the_start_ends(folder: Path) -> None:
    given = fields(folder, limits=ROOMY)
    with md.node(given) as node, node.connect("60s") as fed:
        fed.deploy(counting())
        fed.publish("counts.rows", rows(0, GROUPS))
        fed.flush()
    lower = {**given, "limits": {**ROOMY, **LOWER["query_memory"]}}
    with md.node(lower) as node:
        fed = node.connect("60s")
        fed.publish("counts.rows", rows(GROUPS, GROUPS))
        until(lambda: of_query(fed)["ended"], what="it ends")
        (end,) = of_query(fed)["ended"].values()
        assert (end["code"], "query 'counts' holds" in end["why"]) == ("E_MEMORY", True)
        with contextlib.suppress(md.LinkError):  # its last rows are never taken
            fed.close()
