"""A process is killed for good, and its disk is gone: its state was backed up at a node that sends to it."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, SCHEMA, Clients

pytestmark = pytest.mark.system


def query() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    counted = some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind")
    q.sink("out", counted, recovery="precise", method="state_backup")
    return q


CHOSEN: dict[str, list[str]] = {}
NAMED = {"e": ["s2"], "m": ["s1"], "c": ["s2"]}


@pytest.mark.parametrize("standby", [CHOSEN, NAMED], ids=["chosen", "named"])
def test_nodes_and_their_disks_are_lost_and_each_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory, standby: dict[str, list[str]]
) -> None:
    """Where nodes are named another one is lost afterwards: who it is, and whether enough vote, is known."""
    wishes: dict[str, Any] = {"standby": standby, "witness": ["w"]} if standby else {}
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(tmp_path_factory.mktemp("b"), keyed=False)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            told = str(fed.plan(query(), at=CUT, **wishes))
            assert "the state of q/kind is held by e" in told
            fed.deploy(query(), at=CUT, **wishes)
        fragment = "q/kind"
        assert nodes.until_followed(fragment, 1) == "m"
        clients = Clients(nodes, held, query())
        clients.until(ROWS // 3)
        nodes.kill("m")
        shutil.rmtree(nodes.folder / "m.data")

        def elsewhere() -> bool:
            return nodes.replicas(fragment)["owner"] not in ("m", "e")

        until(elsewhere, what="a node that doesn't hold it for others has it")
        nodes.until_guarded(fragment, "e")
        if standby:
            assert nodes.replicas(fragment)["owner"] == "s1"
            nodes.kill("s1")
            shutil.rmtree(nodes.folder / "s1.data")
        clients.check()
