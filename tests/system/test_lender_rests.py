"""A real node lends what it runs, computes nothing of it, and goes on exactly when its host is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from medusa.apps.workloads.market.market_owners import Deal, MarketNodes, TradingOwner
from medusa.apps.workloads.market.market_query import TALKERS, RepeatedTrace
from tests.system.nodes import DEADLINE_S, eventually, until

pytestmark = pytest.mark.system

OWNERS = {
    "alice": TradingOwner(node="a", tasks=1, threshold=0.001),
    "bob": TradingOwner(node="b", tasks=0, threshold=0.9),
}
"""What alice runs costs her more than bob's price, whatever it takes."""

DEALS = [Deal(provider="bob", consumer="alice", price=0.02)]
FRAGMENT = TALKERS.fragment("alice", 0)
SECOND_US = 1_000_000
PIECE_US = 2 * SECOND_US


class Flows:
    """What alice publishes, piece by piece."""

    def __init__(self, client: Any) -> None:
        self._client, self._trace, self._at_us = client, RepeatedTrace(1), 0
        self.pieces: list[pa.Table] = []

    def go_on(self) -> None:
        table = self._trace.until(self._at_us, self._at_us + PIECE_US)
        self._at_us += PIECE_US
        self._client.publish("alice.flows", table)
        self.pieces.append(table)

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self.pieces)


def part_at(client: Any) -> Mapping[str, Any] | None:
    """The fragment, where a node runs it."""
    return next((each for each in client.status()["fragments"] if each["fragment"] == FRAGMENT), None)


def held_at(host: Any) -> dict[str, Any] | None:
    """What each node at home holds, once both hold something."""
    part = part_at(host)
    found = {} if part is None else part.get("replicas", {}).get("secondaries", {})
    all_hold = len(found) == 2 and all(each["state"] == "following" for each in found.values())
    return found if all_hold else None


def test_a_host_computes_alone_and_is_killed(tmp_path: Path) -> None:
    with MarketNodes(OWNERS, DEALS, tmp_path) as nodes, contextlib.ExitStack() as stack:
        home, owner, host = (
            stack.enter_context(contextlib.closing(nodes.connect(name))) for name in ("a-home", "a", "b")
        )
        until(lambda: home.status()["peers"].get("a") == "up", what="they hear each other")
        home.deploy(TALKERS.query("alice", 1), TALKERS.placed("a-home", "a", 1), standby={"a": ["a-home"]})
        flows = Flows(home)

        def lent() -> None:
            """On a busy machine bob may be missed for a moment: then it comes home, and goes again."""
            flows.go_on()
            held, part = held_at(host), part_at(host)
            assert held is not None, "bob has it, and alice's nodes hold it"
            assert part is not None
            assert {*held} == {"a", "a-home"}
            assert all(each["deltas"] is not None for each in held.values()), "checkpoints are sent"
            assert part["method"] == "passive_standby"
            assert part_at(owner) is part_at(home) is None
            decided = home.status()["queries"]["alice"]["configuration"]["fragments"][FRAGMENT]
            assert (decided["owner"], *decided["secondaries"]) == ("b", "a", "a-home")

        eventually(lent, every_s=0.2, deadline_s=2 * DEADLINE_S)
        for _ in range(10):
            flows.go_on()
        os.kill(nodes.pids["b"], signal.SIGKILL)
        part = until(lambda: part_at(owner) or part_at(home), what="it is home")
        assert part["method"] == "active_standby"
        flows.go_on()
        home.finish("alice.flows")
        trains = home.subscribe("alice.out-0", from_="oldest")
        got = pa.Table.from_batches([train.batch for train in trains], trains.schema)
        want = TALKERS.unmoved("alice", 1, flows.rows)["out-0"]
        assert got.num_rows > 0
        assert got.combine_chunks().equals(want.combine_chunks())
