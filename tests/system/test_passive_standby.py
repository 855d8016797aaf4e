"""A process is killed for good whose secondaries hold checkpoints: each row once and in order."""

from __future__ import annotations

import contextlib

import pytest

import medusa as md
from tests.system.nodes import until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, PIECE, ROWS, SCHEMA, WHOLE, Clients

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


KEYS = 1_500
"""What is kept of so many is sent as deltas."""


def of_many_keys() -> md.Query:
    """First each of many keys once, then few of them."""
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    keyed = some.select("n", k=f"case when n < {KEYS} then n else n % 40 end", name="keyed")
    counted = keyed.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind")
    q.sink("out", counted, recovery="precise", method="passive_standby")
    return q


class SlowClients(Clients):
    """Rows come for so long that one sees deltas go: few at a time, in one checkpoint after the other."""

    pause_s = 0.01
    ahead = 20 * PIECE


def with_deltas(nodes: StandbyNodes, fragment: str) -> int:
    """How many of those that stand by hold deltas."""
    held = nodes.secondaries(fragment, nodes.replicas(fragment)["owner"])
    return sum((each["deltas"] or 0) > 0 for each in held.values())


def test_deltas_go_and_two_are_killed_for_good(tmp_path_factory: pytest.TempPathFactory) -> None:
    name, at = "q/rows", {"m": ["rows", "some", "keyed", "kind", "out"]}
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(tmp_path_factory.mktemp("d"), keyed=False)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            fed.deploy(of_many_keys(), at=at, standby={"m": ["s1", "s2"]}, witness=["w"])
        nodes.until_followed(name)
        clients = SlowClients(nodes, held, of_many_keys())
        clients.until(KEYS)
        until(lambda: with_deltas(nodes, name) > 0, what="deltas went")
        owner = nodes.until_followed(name)
        nodes.kill(owner)
        assert nodes.until_taken_over(name, owner) in {*MEMBERS} - {owner}
        nodes.until_followed(name, 1)
        clients.until(ROWS // 2)
        until(lambda: with_deltas(nodes, name) > 0, what="deltas of the new owner went")
        heir = nodes.until_followed(name, 1)
        nodes.kill(heir)
        assert nodes.until_taken_over(name, heir) in {*MEMBERS} - {owner, heir}
        clients.check()
