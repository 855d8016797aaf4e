"""Whole nodes that trade: load of an owner grows, goes to partners by contract and comes home, under faults.

Alice's node ``a2`` has two fragments and trades for her; ``b1`` does for bob and ``k1`` for carol. Contracts
end, are revoked, hosts are lost for good; in the end all of them end, and all is home.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any

import pyarrow as pa

from medusa.market.contract.signed import (
    ContractDocument,
    RevocationDocument,
    countersign,
    document_to_text,
    sign_document,
)
from medusa.market.contract.terms import Contract, TaskTerms
from medusa.market.work import ResourceUse
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_market import CostRules, MarketRules
from medusa.nodes.reports import RulesRead
from medusa.ports import Buffer
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count
from medusa.query.expressions.aggregates import sum as sum_of
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.busy_engine import BusyEngine
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.delivery import check_restarted
from medusa.sim.lending.abroad import CLIENTS, NODES
from medusa.sim.lending.charge_checks import ChargeChecks
from medusa.sim.lending.lending_nodes import LendingNodes
from medusa.sim.lending.lent_checks import LentChecks, could_succeed
from medusa.sim.lending.trade_checks import TradeChecks, TradedContract
from medusa.sim.trials.federations import OFTEN, SCHEMA, options, table
from medusa.sim.trials.owners import MACHINES_IN_TIME
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.clock import EPOCH_US
from medusa.sim.world.fault_kinds import LINKS, WEATHER, Scene
from medusa.sim.world.keyring import FEDERATION, Keyring, Signing
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["TRADING", "TradingTrial"]

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
TRADERS = {"alice": "a2", "bob": "b1", "carol": "k1"}
FRAGMENTS = ("q/per0", "q/per1")
AT = {
    "a1": ["flows", "part0", "part1"],
    "a2": ["per0", "per1"],
    "a3": ["all0", "out0", "all1", "out1"],
}
ROWS = 480
PUBLISH_US = 18 * SECOND_US
SAFETY_US = 12 * SECOND_US
"""Faults happen until then; rows go on to flow, as often as before."""
END_US = 20 * SECOND_US
"""All contracts end."""
KEEP_US = 20 * SECOND_US
COSTS: dict[str, tuple[tuple[float, int], ...]] = {
    "a2": ((0.0, 0), (0.5, 0), (4.0, 10_500_000)),
    "b1": ((0.0, 0), (0.5, 50_000), (4.0, 35_000_000)),
    "k1": ((0.0, 0), (0.6, 300_000), (4.0, 34_000_000)),
}
"""What cores cost: alice 3 for each beyond a half; bob a tenth up to a half, carol half, and 10 beyond."""


def parts() -> Query:
    """Two fragments count half of the rows each."""
    q = Query("q")
    flows = q.source("flows", SCHEMA, time="ts")
    for number in (0, 1):
        part = flows.filter(f"v % 2 = {number}" if number == 0 else "v % 2 <> 0", name=f"part{number}")
        per = part.window("1s").group_by("k").aggregate(n=count(), t=sum_of("v"), name=f"per{number}")
        q.sink(f"out{number}", per.filter("n > 0", name=f"all{number}"))
    return q


@lru_cache(maxsize=32)
def answered(seed: int, rows: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q = parts()
    tables = {source: table(Random(f"trading {source} {seed}"), rows) for source in q.sources}
    return tables, dict(collect(q, **tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class TradingOptions(QueryOptions):
    """What a seed decided beside.

    Attributes:
        row_us: what a row takes of the engine, anywhere.
        busy_us: from then on rows come three times as fast as before.
        limits_milli: contract -> units a second at most, times 1,000.
        narrow: contracts that are about the first fragment alone.
        ends_us: contract -> when it ends, as both have signed it; ``revoked_us``: when bob ends his.
        vanishes_us: when the host that then has a fragment is lost for good; None: none is.
        restarts: ("owner" or "host", so long after a fragment first began abroad, for so long): who trades
            dies while something is away.
    """

    row_us: int
    busy_us: int
    limits_milli: Mapping[str, int]
    narrow: Sequence[str]
    ends_us: Mapping[str, int]
    revoked_us: int | None = None
    vanishes_us: int | None = None
    restarts: Sequence[tuple[str, int, int]] = ()


def contracts(decided: TradingOptions) -> list[TradedContract]:
    """Bob and carol run load of alice's."""
    found = []
    for name, provider, price_micro in (("with-bob", "bob", 2_000_000), ("with-carol", "carol", 2_400_000)):
        narrow = name in decided.narrow
        streams = ("q.part0", "q.per0") if narrow else ("q.*",)
        terms = Contract(
            id=name,
            provider=provider,
            consumer="alice",
            begins_us=EPOCH_US - DAY_US,
            ends_us=EPOCH_US + decided.ends_us[name],
            price_micro=price_micro,
            range_micro=price_micro // 2,
            units_per_s_max_milli=decided.limits_milli[name],
            interval_s=1,
            settlement_s=4,
            tasks=TaskTerms(boxes=("aggregate",), streams=streams),
        )
        ends_us = terms.ends_us
        if provider == "bob" and decided.revoked_us is not None:
            ends_us = min(ends_us, EPOCH_US + decided.revoked_us)
        about = frozenset(FRAGMENTS[:1] if narrow else FRAGMENTS)
        found.append(TradedContract(terms=terms, fragments=about, ends_us=ends_us))
    return found


def signed(terms: Contract) -> str:
    """The text of a file that both have signed."""
    paper = ContractDocument(federation=FEDERATION, until_us=EPOCH_US + DAY_US, contract=terms)
    first = sign_document(paper, Signing(terms.consumer), terms.consumer)
    return document_to_text(countersign(first, Signing(terms.provider), terms.provider))


def revoked(terms: Contract, ends_us: int) -> str:
    """The text of a file by which its provider ends it."""
    paper = RevocationDocument(
        federation=FEDERATION,
        id=terms.id,
        version=terms.version,
        provider=terms.provider,
        consumer=terms.consumer,
        by=terms.provider,
        said_us=ends_us,
        ends_us=ends_us,
    )
    return document_to_text(sign_document(paper, Signing(terms.provider), terms.provider))


def rules(node: str) -> MarketRules:
    whose = NODES[node]
    partners = {name: TRADERS[name] for name in TRADERS if (whose == "alice") != (name == "alice")}
    return MarketRules(
        contracts="contracts",
        key="key",
        capacity=ResourceUse(cpu_cores=2.0),
        cost=CostRules(cpu=COSTS[node]),
        partners=partners,
        keep_us=KEEP_US,
    )


class TradingTrial(QueryTrial):
    """One query of alice; bob and carol sell."""

    def __init__(
        self,
        world: World,
        q: Query,
        tables: Mapping[str, pa.Table],
        decided: TradingOptions,
        want: Mapping[str, pa.Table],
    ) -> None:
        self._decided = decided
        self._contracts = contracts(decided)
        self._papers = {
            node: {
                f"{each.terms.id}.contract": signed(each.terms)
                for each in self._contracts
                if NODES[node] in (each.terms.provider, each.terms.consumer)
            }
            for node in COSTS
        }
        trades = {node: (rules(node), self._papers[node]) for node in COSTS}
        self._ring = Keyring(NODES, CLIENTS, {}, trades)
        self._who = LendingNodes(NODES, "alice", self._ring)
        self._dies = False
        self._healed_us: int | None = None
        super().__init__(world, q, tables, decided, want=want, nodes=list(NODES), keyring=self._ring)
        self._checks = LentChecks(self.nodes, self.clients, NODES, "alice")
        self.trades = TradeChecks(world, self.nodes, self._contracts, COSTS, TRADERS, decided.row_us * 1_000)
        self.charges = ChargeChecks(
            world, self.nodes, self._contracts, TRADERS, "alice", decided.row_us * 1_000
        )
        for node in self.nodes.values():
            node.engine_is(partial(BusyEngine, row_us=decided.row_us))

    # --- programs and nodes ---------------------------------------------------------------------------

    def client(self, name: str, node: str) -> Client:
        made = self.clients[name] = Client(self.world, self.network, self._who.real_name(name), node)
        return made

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        self._checks.delivered(source, frames)
        self.trades.delivered(source, target, frames)
        self.charges.delivered(source, target, frames)
        super()._deliver(source, self._who.plain_name(target), frames)

    @property
    def scene(self) -> Scene:
        return Scene(machines=list(self.nodes), links=self.links, span_us=SAFETY_US - SECOND_US)

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        return self._who.links(super().links)

    @property
    def owned(self) -> Sequence[Sequence[NodeMachine]]:
        return self._who.owned(self.nodes)

    def _together(self) -> bool:
        living = self._who.living(self.nodes)
        return (
            self._who.see_each_other(self.nodes)
            and self._is_home()
            and all(node.brain.saved for node in living)
        )

    # --- what happens ---------------------------------------------------------------------------------

    def _due_us(self, begin: int, rows: int) -> int:
        """At a third of the pace until it is busy."""
        busy_us, whole_us = self._decided.busy_us, self._decided.publish_us
        first = rows * busy_us / (3 * (whole_us - busy_us) + busy_us)
        if begin < first:
            return int(busy_us * begin / first)
        return busy_us + int((whole_us - busy_us) * (begin - first) / (rows - first))

    def _ask_for_it(self) -> int:
        return self.reader.deploy_guarded(self.q, self._decided.at, {"a2": ["s1"]}, ["w1"])

    def _begin(self) -> None:
        super()._begin()
        decided = self._decided
        if decided.revoked_us is not None:
            self.world.at(max(decided.revoked_us, self.world.now_us + 1), self._revoke)
        if decided.vanishes_us is not None:
            self.world.at(max(decided.vanishes_us, self.world.now_us + 1), self._vanish)

    def _revoke(self) -> None:
        """Bob ends his contract; both read it, sooner or later."""
        ends_us = EPOCH_US + self.world.now_us
        known = self._contracts[0]
        self.world.trace("b1", f"revokes {known.terms.id}")
        for node in ("a2", "b1"):
            self._papers[node]["with-bob.revoked"] = revoked(known.terms, ends_us)
            self._read_papers(node)

    def _read_papers(self, name: str) -> None:
        """As SIGHUP does; a node that is away reads them when it starts."""
        node = self.nodes[name]
        security = node.settings.security
        if node.alive and security is not None:
            papers = self._papers[name]
            node.order(lambda now_us: node.brain.report(now_us, RulesRead(security, papers=papers)))

    def _vanish(self) -> None:
        """A host that has a fragment is lost for good."""
        newest = self._checks.newest
        hosts = [] if newest is None else [each.owner for each in newest.fragments if each.abroad]
        if self._who.lost or self.world.now_us > SAFETY_US:
            return
        if not hosts or not self._guarded(hosts[0]):
            self.world.after(50_000, self._vanish)
            return
        self.world.trace(hosts[0], "vanishes")
        self._who.burns(hosts[0])
        self._look_at_us, self._resting = 0, False
        self.nodes[hosts[0]].crash()

    def _die(self) -> None:
        """Who has lent something, or who has it, at moments at which it is away."""
        self._dies = True
        [host] = {each.host for each in self.trades.stays.values()}
        for who, after_us, for_us in self._decided.restarts:
            node = TRADERS["alice"] if who == "owner" else host
            self.world.after(after_us, partial(self._crash, node))
            self.world.after(after_us + for_us, partial(self.restart, node))

    def _crash(self, node: str) -> None:
        if self._healed_us is None:
            self._look_at_us, self._resting = 0, False
            self.nodes[node].crash()

    def _guarded(self, host: str) -> bool:
        newest = self._checks.newest
        assert newest is not None
        nodes = self.nodes
        return all(
            any(nodes[name].alive and could_succeed(nodes[name], each.fragment) for name in each.secondaries)
            for each in newest.fragments
            if each.owner == host
        )

    def restart(self, name: str) -> None:
        if name not in self._who.lost:
            super().restart(name)

    def heal(self) -> None:
        super().heal()
        self._healed_us = self.world.now_us

    # --- what must hold -------------------------------------------------------------------------------

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        if node.alive:
            self._checks.look(node)
            self._checks.check_idle(node)
            self.trades.look(node)
            self.charges.look(node)
            if self.trades.stays and not self._dies:
                self._die()

    def _check_restarted(self, node: NodeMachine) -> None:
        newest = self._checks.newest
        owners = {} if newest is None else {each.fragment: each.owner for each in newest.fragments}
        check_restarted(node, self.nodes, self.clients, owners=owners)

    def _is_home(self) -> bool:
        """Alice's nodes have all, those that should stand by, and nothing is left of contracts."""
        lost = self._who.lost
        return self._who.has_all(self.nodes, self._checks.newest, FRAGMENTS) and not (
            self.trades.unequal(lost) or self.trades.left(lost)
        )

    @property
    def ended(self) -> bool:
        return self.world.now_us > END_US and super().ended

    def check_end(self) -> None:
        super().check_end()
        self.trades.check_bills(self._who.lost)
        self.charges.check_over(self._who.lost)
        if self._healed_us is None or self._decided_late:
            return
        moves = self.trades.moves_between(self._healed_us, self._decided.publish_us)
        if again := [name for name in FRAGMENTS if sum(each == name for _, each in moves) > 1]:
            raise SimulationError(f"rest: load is as it was, and {again} went to and fro: {moves}")

    @property
    def _decided_late(self) -> bool:
        """Whether something else than load changed after the faults."""
        ends = [each.ends_us - EPOCH_US for each in self._contracts]
        return any(SAFETY_US < at_us < self._decided.publish_us for at_us in ends)


def trading(world: World, rows: int | None, parts_: Any) -> TradingTrial:
    return _trial(world, rows, vanishes=False)


def deserted(world: World, rows: int | None, parts_: Any) -> TradingTrial:
    return _trial(world, rows, vanishes=True)


def _trial(world: World, rows: int | None, *, vanishes: bool) -> TradingTrial:
    dice = world.dice("options")
    q = parts()
    tables, want = answered(world.seed % 16, ROWS if rows is None else rows)
    decided = options(dice, AT)
    names = ("with-bob", "with-carol")
    ends_us = {name: dice.choice([END_US, END_US, END_US, 11 * SECOND_US]) for name in names}
    made = TradingOptions(
        at=AT,
        publish_us=PUBLISH_US,
        piece_rows=3,
        sync_us=min(decided.sync_us, 20_000),
        job_us=50,
        delay_us=decided.delay_us,
        limits=Limits(checkpoint_every_us=decided.limits.checkpoint_every_us),
        row_us=dice.choice([30_000, 40_000, 40_000, 60_000]),
        busy_us=dice.randrange(1, 6) * SECOND_US,
        limits_milli={name: dice.choice([400, 600, 1_000, 2_000]) for name in names},
        narrow=tuple(name for name in names if dice.random() < 0.25),
        ends_us=ends_us,
        revoked_us=dice.randrange(7, 11) * SECOND_US if dice.random() < 0.2 else None,
        vanishes_us=dice.randrange(7, 10) * SECOND_US if vanishes else None,
        restarts=tuple(
            (who, dice.choice([0, 1_000, 20_000, 200_000, 1_500_000]), dice.choice([1_000, 100_000, 600_000]))
            for who in ("owner", "host")
            if dice.random() < 0.45
        ),
    )
    return TradingTrial(world, q, tables, made, want)


TRADING: dict[str, Scenario] = {
    "trading": Scenario(
        about="load grows and goes to partners under contracts, which end: paid, and the same answer",
        build=trading,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES_IN_TIME],
        count=6,
        safety_us=SAFETY_US,
        liveness_us=60_000_000,
        events_max=2_000_000,
    ),
    "deserted": Scenario(
        about="as `trading`, and a partner is lost for good with what it runs",
        build=deserted,
        kinds=[*WEATHER, *LINKS],
        count=5,
        safety_us=SAFETY_US,
        liveness_us=60_000_000,
        events_max=2_000_000,
    ),
}
