"""Processes split what others stand by for, and merge it: each row once, in order, also when one is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, ordered, run_to_end, until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, SCHEMA, WHOLE, Clients, deployed

pytestmark = pytest.mark.system

BOTH = pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])


def timed() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time="n", unit="ms").filter("n >= 0", name="some")
    q.sink("out", some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind"))
    return q


def listed(nodes: StandbyNodes) -> Mapping[str, Any]:
    """Fragments that others stand by for, and those that are no more, as the coordinator knows."""
    with nodes.connect("e") as fed:
        return fed.status()["queries"]["q"]["configuration"]["fragments"]


def guarded(nodes: StandbyNodes) -> list[str]:
    """Of these those that are there."""
    return [name for name, each in listed(nodes).items() if each["secondaries"]]


def merged(nodes: StandbyNodes, box: str) -> str:
    """Merge by the command line, until it is done; what that said besides."""
    told: list[str] = []

    def done() -> bool:
        found = run_to_end("merge", box, *nodes.words("e"), timeout_s=2 * DEADLINE_S)
        told.append(found.stderr)
        # It may have been done though its answer didn't come in time.
        return found.returncode == 0 or (len(told) > 1 and "isn't split" in found.stderr)

    until(done, what=lambda: f"{box} is merged: {told}", deadline_s=2 * DEADLINE_S)
    return "".join(told)


@BOTH
def test_it_is_split_over_nodes_and_merged_while_rows_flow(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    deployed(nodes, at, timed())
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held, timed())
        clients.until(ROWS // 5)
        with nodes.connect("w") as fed:
            found = ordered(lambda: fed.split("q/kind", 2, at=["s1", "m"]))
        assert found["parts"] == {"q/kind-1": "s1", "q/kind-2": "m"}
        until(lambda: "q/kind-1" in listed(nodes), what="who stands by is decided")
        nodes.until_followed("q/kind-1")
        clients.until(ROWS // 3)
        told = merged(nodes, "q/kind")
        assert "stand by for q/kind; nobody does until" in told
        clients.check()
    name = "q/kind" if at is CUT else "q/rows"
    until(lambda: name in listed(nodes), what="who stands by is decided")
    nodes.until_followed(name)


@BOTH
def test_the_node_of_all_parts_is_killed_and_never_comes_back(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    deployed(nodes, at, timed())
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held, timed())
        clients.until(ROWS // 5)
        with nodes.connect("w") as fed:
            ordered(lambda: fed.split("q/kind", 2))
        until(lambda: "q/kind-1" in listed(nodes), what="who stands by is decided")
        # On a busy machine m may have been taken for silent: then it doesn't have all of them any more.
        owners = {name: nodes.until_followed(name) for name in guarded(nodes)}
        assert {"q/kind-1", "q/kind-2"} <= owners.keys()
        killed = owners["q/kind-1"]
        nodes.kill(killed)
        for name, owner in owners.items():
            if owner == killed:
                assert nodes.until_taken_over(name, owner) in {"m", "s1", "s2"} - {killed}
        clients.check()
