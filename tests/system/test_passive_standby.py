"""A process is killed for good whose secondaries hold checkpoints: each row once and in order."""

from __future__ import annotations

import contextlib

import pytest

import medusa as md
from tests.system.nodes import until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, SCHEMA, WHOLE, Clients

pytestmark = pytest.mark.system

MEMBERS = ["m", "s1", "s2"]


def query() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    counted = some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind")
    q.sink("out", counted, recovery="precise", method="passive_standby")
    return q


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "curve"])
def test_two_are_killed_for_good_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, keyed: bool, at: dict[str, list[str]]
) -> None:
    """Clients feed what is guarded (its output waits for checkpoints), or nodes do (it doesn't)."""
    standby = {node: ["s1", "s2"] for node in at}
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(tmp_path_factory.mktemp("p"), keyed=keyed)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            assert "passive standby" in str(fed.plan(query(), at=at, standby=standby, witness=["w"]))
            fed.deploy(query(), at=at, standby=standby, witness=["w"])
        name = "q/rows" if at is WHOLE else "q/kind"
        owner = nodes.until_followed(name)
        clients = Clients(nodes, held, query())
        clients.until(ROWS // 5)
        nodes.kill(owner)
        assert nodes.until_taken_over(name, owner) in {*MEMBERS} - {owner}
        clients.until(ROWS // 2)
        heir = nodes.until_followed(name, 1)
        nodes.kill(heir)
        assert nodes.until_taken_over(name, heir) in {*MEMBERS} - {owner, heir}
        clients.check()
