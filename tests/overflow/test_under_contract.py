"""A node whose fragments run on a cluster sells load by contract: two owners' real nodes in virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from medusa.market.work import ResourceUse
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_market import CostRules, MarketRules
from medusa.nodes.deploy.admission import ClusterNow
from medusa.nodes.load.loads import NodeLoads
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.runtime.machine.clock import SystemClock
from medusa.sim.actors.federation import Federation
from medusa.spark.overflow.participant import Participant, TriggerLatency
from tests.nodes.abroad.lending import Lending, counting, rows
from tests.nodes.market.papers import TERMS, signed
from tests.overflow.in_process import InProcess
from tests.overflow.slow_triggers import SlowTriggers

ROW_S = 0.01
"""What a row takes: time stands still while boxes of simulated nodes run."""

CORES, CORE, DELAY = 4.0, 1_200_000, 400_000
LEAST, MOST = TERMS.price_micro - TERMS.range_micro, TERMS.price_micro
BUSY, CALM = 60, 6
"""Rows a second."""


class Cluster:
    """What the test says of it.

    Attributes:
        overhead_us, down: as ``ClusterNow`` has them.
        busy_us: as of ``SlowTriggers``.
        checkpoint_us: between two checkpoints of each node.
    """

    def __init__(self, overhead_us: int = 500_000, busy_us: int = 0, checkpoint_us: int = 50_000) -> None:
        self.checkpoint_us = checkpoint_us
        self.overhead_us, self.down, self.busy_us = overhead_us, "", busy_us
        self.executors: list[InProcess] = []

    def now(self) -> ClusterNow:
        return ClusterNow(self.overhead_us, self.down)

    def host(self, world: Any, *arguments: Any, **more: Any) -> SlowTriggers:
        self.executors.append(InProcess())
        there = Participant(
            self.executors[-1], node="h", clock=SystemClock(), latency=TriggerLatency(), shards=2
        )
        return SlowTriggers(world, there, *arguments, busy_us=self.busy_us, **more)


@pytest.fixture(autouse=True)
def rows_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = NodeLoads.fragment

    def fragment(self: NodeLoads, name: str) -> Any:
        load = measured(self, name)
        return load and msgspec.structs.replace(load, busy_share=load.rows_in_per_s * ROW_S)

    def cpu_cores(self: NodeLoads, name: str) -> float | None:
        load = fragment(self, name)
        return None if load is None else load.busy_share

    monkeypatch.setattr(NodeLoads, "fragment", fragment)
    monkeypatch.setattr(NodeLoads, "cpu_cores", cpu_cores)


class Overflowing:
    """Alice, who has room for 0.3 cores, and bob, whose node ``h`` runs what it has on a cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, **terms: Any) -> None:
        self.cluster = cluster
        made = Federation.__init__

        def with_cluster(fed: Federation, *arguments: Any, **more: Any) -> None:
            limits = Limits(checkpoint_every_us=cluster.checkpoint_us)
            made(fed, *arguments, **{**more, "limits": limits})
            node = fed.nodes["h"]
            node.make_host, node.cluster = partial(cluster.host, fed.world), cluster.now

        monkeypatch.setattr(Federation, "__init__", with_cluster)
        papers = {"c.contract": signed(msgspec.structs.replace(TERMS, **terms))}
        ours = CostRules(cpu=((0.0, 0), (0.3, 150_000), (4.0, 37_150_000)))  # a half, and then ten
        theirs = CostRules(cluster_micro=CORE, delay_micro=DELAY)
        trades = {
            "m": (self._rules("bob", "h", ours), papers),
            "h": (self._rules("alice", "m", theirs), papers),
        }
        self.run = run = Lending(counting(), trades=trades)
        (schema,) = run.schemas.values()
        run.tables = {"rows": rows(0, 4_000).cast(schema_to_arrow(schema))}
        run.want = dict(collect(run.q, **run.tables))
        self.fragment = run.deploy()
        self.sent = 0

    def _rules(self, partner: str, node: str, cost: CostRules) -> MarketRules:
        return MarketRules(
            contracts="contracts",
            key="key",
            capacity=ResourceUse(cpu_cores=CORES),
            cost=cost,
            partners={partner: node},
            hold_us=2_000_000,
        )

    def rows_come(self, per_s: int, until: Any, what: str, *, for_s: int = 30) -> None:
        """Rows at this pace until something is so."""
        for _ in range(for_s * per_s // 6):
            self.run.publish(self.sent, self.sent + 6)
            self.sent += 6
            self.run.fed.run(for_us=6_000_000 // per_s)
            if until():
                return
        raise AssertionError(f"not in time: {what}\n{self.run.fed.last()[-4000:]}")

    def end(self) -> None:
        """All other rows, and then each has come once, as if nothing had moved."""
        self.run.publish(self.sent, len(self.run.tables["rows"]))
        self.run.check()

    def market(self, name: str) -> Any:
        node = self.run.node(name)
        return node.brain.market.status(node.clock.monotonic_us())

    def is_at(self, name: str) -> bool:
        return self.run.runs_at(self.fragment, name) and self.run.guarded(self.fragment)

    def owed(self, name: str) -> int:
        (found,) = self.market(name).contracts
        return int(found.owed_micro + found.settled_micro)


def went(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, **terms: Any) -> Overflowing:
    """It has gone, since it was too much."""
    over = Overflowing(monkeypatch, cluster, **terms)
    over.rows_come(CALM, lambda: over.run.fed.world.now_us > 8_000_000, "it is warm")
    assert over.is_at("m")
    over.rows_come(BUSY, lambda: over.is_at("h"), "it is at the cluster")
    over.rows_come(BUSY, lambda: bool(over.market("h").guests), "it is a guest")
    return over


def test_load_goes_there_at_its_price_and_is_given_back_and_both_say_what_is_owed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = went(monkeypatch, Cluster())
    (guest,) = over.market("h").guests
    assert CORE < guest.price_micro <= MOST
    triggers = over.cluster.executors[0].triggers
    over.rows_come(BUSY, lambda: over.market("h").contracts[0].receipts > 3, "it is paid for")
    assert over.cluster.executors[0].triggers > triggers
    over.rows_come(CALM, lambda: over.is_at("m"), "it is at home again")
    over.rows_come(CALM, lambda: not over.market("m").away, "nothing is away")
    over.run.until(lambda: over.owed("m") == over.owed("h") > 0, "both say the same")
    over.end()
    assert [each.disputes for name in "mh" for each in over.market(name).contracts] == [0, 0]


def test_it_is_handed_what_it_keeps_pace_with_though_much_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the two seconds of a trigger more elements come than one may be behind that feeds them as they come.
    A checkpoint that is sent is there before the next one; the rows are paid for some triggers later."""
    over = went(monkeypatch, Cluster(busy_us=2_000_000, checkpoint_us=8_000_000), interval_s=20)
    over.rows_come(CALM, lambda: over.is_at("m"), "it is at home again")
    over.end()


def test_the_longer_a_trigger_takes_the_more_is_asked_within_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A little load costs what its cores do, and ``delay * overhead / cores`` for the waiting."""
    cluster = Cluster()
    over = Overflowing(monkeypatch, cluster)
    asked = []
    for overhead_us in (500_000, 4_000_000, 60_000_000):
        cluster.overhead_us = overhead_us
        over.run.fed.run(for_us=12_000_000)  # It is said again every 10 s.
        asked.append(over.market("m").contracts[0].ask_micro)
    assert asked[0] >= CORE + DELAY * 0.5 / CORES
    assert asked[1] >= CORE + DELAY * 4 / CORES > asked[0]
    assert asked[2] == MOST


def test_a_cluster_that_costs_less_than_the_range_sells_at_its_bottom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = went(monkeypatch, Cluster(0), range_micro=500_000)
    (guest,) = over.market("h").guests
    assert guest.price_micro == MOST - 500_000 > CORE


def test_a_cluster_that_runs_nothing_any_more_takes_nothing_and_loses_what_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    over = went(monkeypatch, cluster)
    executor = cluster.executors[0]
    cluster.down = executor.down = "its session has ended"
    executor.fails |= {executor.triggers + 1 + number for number in range(100)}
    over.rows_come(BUSY, lambda: over.is_at("m"), "it is at home again")
    took = over.market("h").took
    over.rows_come(BUSY, lambda: over.run.fed.world.now_us > 60_000_000, "a while later", for_s=60)
    assert over.is_at("m")
    assert over.market("h").took == took
    over.end()
    over.run.until(lambda: over.owed("m") == over.owed("h"), "both say the same")
