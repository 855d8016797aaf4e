"""Question: how much sooner does a part of a query run at another node that keeps it already?

Data: a query of which 5 or 500 boxes stand at the other node, deployed and undeployed: two nodes in
processes of their own, on disk. ``spec``: the whole spec goes there; ``name``: its name and inputs do
(``fed.define_remote``).
Not shown: what the engine does with the part; it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import Nodes, until

BOXES = (5, 500)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    nodes = Nodes(Path(tmp_path_factory.mktemp("r")), ["a", "b"])
    try:
        nodes.start()
        with md.connect(nodes.addresses["a"], timeout="30s") as made:
            until(lambda: made.status()["peers"] == {"b": "up"})
            yield made
    finally:
        nodes.close()


def query(boxes: int) -> tuple[md.Query, dict[str, list[str]]]:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    for number in range(boxes):
        rows = rows.filter(f"v > {number}", name=f"f{number}")
    q.sink("out", rows)
    return q, {"a": ["rows", "out"], "b": [f"f{number}" for number in range(boxes)]}


@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("way", ["spec", "name"])
def test_deploy_and_undeploy(peer: Any, fed: Any, way: str, boxes: int) -> None:
    q, at = query(boxes)
    if way == "name":
        fed.define_remote("part", q, at, node="b")

    def run() -> None:
        fed.deploy(q, at=at)
        fed.undeploy("q")

    peer(run)
    if way == "name":
        fed.revoke("part")
