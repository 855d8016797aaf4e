"""A fragment of one participant goes to nodes of others and comes home, under faults: the same answer.

Whoever has a contract sends, recalls and gives back at random moments, and ends it; in the end all ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any

import pyarrow as pa

from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.abroad.permits import Allowance, PermitIn, PermitOut
from medusa.nodes.config.settings_security import ClientRules
from medusa.ports import Buffer
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.delivery import check_restarted
from medusa.sim.lending.lending_nodes import LendingNodes
from medusa.sim.lending.lent_checks import LentChecks, could_succeed
from medusa.sim.trials.federations import OFTEN, ROWS, SCHEMA, options, table
from medusa.sim.trials.owners import MACHINES_IN_TIME
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LINKS, WEATHER
from medusa.sim.world.keyring import Keyring
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.configuration import Replicas

__all__ = ["ABROAD", "AbroadTrial"]

NODES = {
    "a1": "alice",
    "a2": "alice",
    "a3": "alice",
    "s1": "alice",
    "w1": "alice",
    "b1": "bob",
    "k1": "carol",
}
HOSTS = ("b1", "k1")
OWNER = "a2"
"""Who has it at first, and has the contracts."""
ALL = ("*",)
CLIENTS = {
    "alice": ClientRules(key="", participant="alice", publish=ALL, subscribe=ALL, deploy=ALL, status=True)
}
ALLOWS = Allowance(boxes=("filter", "select", "aggregate", "union"))
KEEP_US = 20_000_000
"""Longer than any fault: what is turned out sooner may be lost."""
LOOK_US = 50_000
PUBLISH_US = 2_500_000
"""So long rows flow in most seeds: while it goes and comes."""


def windows() -> tuple[Query, dict[str, list[str]]]:
    """What is lent counts one stream: nothing is decided."""
    q = Query("q")
    flows = q.source("flows", SCHEMA, time="ts").filter("v > -80", name="most")
    per_k = flows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="all"))
    return q, {"a1": ["flows", "most"], "a2": ["per_k"], "a3": ["all", "out"]}


def unions() -> tuple[Query, dict[str, list[str]]]:
    """What is lent has two streams meet: their order is decided there."""
    q = Query("u")
    left = q.source("left", SCHEMA, time="ts").filter("v > -80", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v < 80", name="r")
    q.sink("out", left.union(right, name="both").filter("v > -90", name="last"))
    return q, {"a1": ["left", "l", "right", "r"], "a2": ["both"], "a3": ["last", "out"]}


KINDS = {"windows": (windows, "q/per_k"), "unions": (unions, "u/both")}


@lru_cache(maxsize=64)
def answered(kind: str, seed: int, rows: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q, _ = KINDS[kind][0]()
    tables = {source: table(Random(f"{kind} {source} {seed}"), rows) for source in q.sources}
    return tables, dict(collect(q, **tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class AbroadOptions(QueryOptions):
    """What a seed decided beside.

    Attributes:
        standby: who stands by at home.
        steps: when the market looks, from the deployment on, and does something.
        vanishes: from when on the host that has the fragment is lost for good, or else this one; None: none
            is.
    """

    standby: Sequence[str]
    steps: Sequence[int]
    vanishes: tuple[str, int] | None = None


class AbroadTrial(QueryTrial):
    """One query of alice; bob and carol are hosts."""

    def __init__(
        self,
        world: World,
        fragment: str,
        q: Query,
        tables: Mapping[str, pa.Table],
        decided: AbroadOptions,
        want: Mapping[str, pa.Table],
    ) -> None:
        self._ring = Keyring(NODES, CLIENTS, {})
        self._who = LendingNodes(NODES, "alice", self._ring)
        self._decided = decided
        self.fragment = fragment
        self._ends = self._begun = self._dooms = self._is_patient = False
        """All is to come home; it is deployed; a host is to be lost as soon as it has the fragment; nobody
        asks for what a lost host has: its silence brings it home."""
        self._market = world.dice("market")
        self._host = self._market.choice(HOSTS)
        """With whom there is a contract, or will be."""
        self._owners: dict[int, str] = {}
        """Epoch -> who runs it."""
        self.events: list[str] = []
        super().__init__(world, q, tables, decided, want=want, nodes=list(NODES), keyring=self._ring)
        self._checks = LentChecks(self.nodes, self.clients, NODES, "alice")

    # --- programs and nodes ---------------------------------------------------------------------------

    def client(self, name: str, node: str) -> Client:
        made = self.clients[name] = Client(self.world, self.network, self._who.real_name(name), node)
        return made

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        self._checks.delivered(source, frames)
        super()._deliver(source, self._who.plain_name(target), frames)

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

    # --- what the market says -------------------------------------------------------------------------

    def _ask_for_it(self) -> int:
        at = self._decided.at
        return self.reader.deploy_guarded(self.q, at, {OWNER: list(self._decided.standby)}, ["w1"])

    def _begin(self) -> None:
        super()._begin()
        self._begun = True
        for at_us in self._decided.steps:
            self.world.after(at_us, self._step)
        if self._decided.vanishes is not None:
            host, at_us = self._decided.vanishes
            self.world.after(at_us, lambda: self._lose(host))

    def _lose(self, host: str) -> None:
        """For good: whichever host has the fragment, once somebody at home could go on; this one, if none
        has had it until all is to come home."""
        self._dooms = True
        newest = self._checks.newest
        replicas = None if newest is None else newest.replicas(self.fragment)
        lent = replicas is not None and replicas.abroad
        if not self._ends and not (lent and replicas is not None and self._guarded(replicas)):
            self.world.after(LOOK_US, lambda: self._lose(host))
            return
        if lent and replicas is not None:
            host = replicas.owner
        self.world.trace(host, "vanishes")
        self._who.burns(host)
        self._dooms, self._is_patient = False, self._market.random() < 0.5
        self._look_at_us, self._resting = 0, False
        self.nodes[host].crash()

    def _guarded(self, replicas: Replicas) -> bool:
        nodes = (self.nodes[name] for name in replicas.secondaries)
        return any(node.alive and could_succeed(node, self.fragment) for node in nodes)

    def restart(self, name: str) -> None:
        if name not in self._who.lost:
            super().restart(name)

    def _say(self, name: str, what: Callable[[AbroadMoves, int], None]) -> None:
        """A market tells its node, if that lives."""
        node = self.nodes[name]
        if node.alive and name not in self._who.lost:
            node.order(lambda now_us: what(node.brain.abroad, now_us))

    def _step(self) -> None:
        """Whoever has a contract sends, and in a while takes back; now and then anything is said at any
        time."""
        newest, dice = self._checks.newest, self._market
        replicas = None if newest is None else newest.replicas(self.fragment)
        if replicas is None or self._ends or (self._is_patient and replicas.owner in self._who.lost):
            return
        if self._dooms:  # It is to get there.
            what = "wait" if replicas.abroad or replicas.guest else "send"
        elif dice.random() < 0.15:
            what = dice.choice(["send", "recall", "give back", "end"])
        elif replicas.abroad:
            what = dice.choice(["recall", "give back", "end", "wait", "wait", "wait"])
        elif replicas.guest:
            what = dice.choice(["wait", "wait", "wait", "recall", "end"])
        else:
            what = "send"
        self._order("contract" if what == "send" else what, self._host)
        if what == "send":
            self.world.after(dice.choice([0, 1_000, 50_000]), partial(self._order, what, self._host))
        elif what == "end":
            self._host = dice.choice(HOSTS)

    def _order(self, what: str, host: str) -> None:
        fragment = self.fragment
        self.world.trace("market", f"{what} {fragment} {host}")
        match what:
            case "contract" if not self._ends:
                self._say(host, lambda moves, now_us: self._permit_in(moves, host))
                self._say(OWNER, lambda moves, now_us: self._permit_out(moves, host))
            case "send" if not self._ends:
                self._say(OWNER, lambda moves, now_us: moves.send(now_us, fragment, host))
            case "recall":
                self._say(OWNER, lambda moves, now_us: moves.recall(now_us, fragment))
            case "give back":
                self._say(host, lambda moves, now_us: moves.give_back(now_us, fragment))
            case "end":
                self._say(OWNER, lambda moves, now_us: self._end_out(moves, host))
                self._say(host, lambda moves, now_us: moves.permits.end_in(fragment))

    def _permit_in(self, moves: AbroadMoves, host: str) -> None:
        permit = PermitIn(fragment=self.fragment, participant="alice", allows=ALLOWS, keep_us=KEEP_US)
        moves.permits.permit_in(permit)

    def _permit_out(self, moves: AbroadMoves, host: str) -> None:
        known = moves.permits.out(self.fragment)
        if known is None or known.node == host:
            moves.permits.permit_out(PermitOut(fragment=self.fragment, participant=NODES[host], node=host))

    def _end_out(self, moves: AbroadMoves, host: str) -> None:
        known = moves.permits.out(self.fragment)
        if known is not None and known.node == host:
            moves.permits.end_out(self.fragment)

    def heal(self) -> None:
        super().heal()
        self._end_all()

    def _end_all(self) -> None:
        """All contracts end, as often as it takes: who died may not have written it."""
        self._ends = True
        if self._begun:
            for host in HOSTS:
                self._order("end", host)
        if not self._is_home():
            self.world.after(1_000_000, self._end_all)

    # --- what must hold -------------------------------------------------------------------------------

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        if not node.alive:
            return
        self._checks.look(node)
        self._checks.check_idle(node)
        self.events += [type(each).__name__ for each in node.brain.abroad.take_events()]
        hosted = node.brain.fragments.get(self.fragment)
        if hosted is None or hosted.frozen:
            return
        epoch = node.brain.catalog.ownership.epoch(self.fragment)
        if (owner := self._owners.setdefault(epoch, node.name)) != node.name:
            raise SimulationError(f"owner: {self.fragment} in epoch {epoch} is of {owner} and {node.name}")
        if node.name in HOSTS and node.brain.permits.into(self.fragment) is None:
            raise SimulationError(f"permit: {self.fragment} runs at {node.name}, and nothing allows it")

    def _check_restarted(self, node: NodeMachine) -> None:
        newest = self._checks.newest
        owners = {} if newest is None else {each.fragment: each.owner for each in newest.fragments}
        check_restarted(node, self.nodes, self.clients, owners=owners)

    def _is_home(self) -> bool:
        """It runs at one of alice's nodes, those that should stand by, and nothing is left of contracts."""
        return self._who.has_all(self.nodes, self._checks.newest, (self.fragment,))

    @property
    def ended(self) -> bool:
        return self._ends and super().ended


def abroad(world: World, rows: int | None, parts: Any) -> AbroadTrial:
    return _trial(world, rows, vanishes=False)


def vanished(world: World, rows: int | None, parts: Any) -> AbroadTrial:
    return _trial(world, rows, vanishes=True)


def _trial(world: World, rows: int | None, *, vanishes: bool) -> AbroadTrial:
    dice = world.dice("options")
    kind = dice.choice(sorted(KINDS))
    make, fragment = KINDS[kind]
    q, at = make()
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows)
    decided = options(dice, at)
    publish_us = dice.choice([decided.publish_us, PUBLISH_US, PUBLISH_US])
    span_us = PUBLISH_US + 300_000
    steps = sorted(dice.randrange(1, span_us) for _ in range(dice.randrange(4, 20)))
    made = AbroadOptions(
        at=at,
        publish_us=publish_us,
        piece_rows=decided.piece_rows,
        sync_us=min(decided.sync_us, 20_000),
        job_us=decided.job_us,
        delay_us=decided.delay_us,
        limits=decided.limits,
        standby=dice.choice([["s1"], ["s1"], ["a3"], ["s1", "a1"]]),
        steps=tuple(steps),
        vanishes=(dice.choice(HOSTS), dice.randrange(100_000, span_us // 2)) if vanishes else None,
    )
    return AbroadTrial(world, fragment, q, tables, made, want)


ABROAD: dict[str, Scenario] = {
    "abroad": Scenario(
        about="a fragment goes to nodes of other participants and comes home: one owner, the same answer",
        build=abroad,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES_IN_TIME],
        more=[*LATE, *BELIEVED],
        count=6,
        liveness_us=60_000_000,
        events_max=900_000,
    ),
    "vanished": Scenario(
        about="a host is lost for good with a fragment of another: it comes home, the same answer",
        build=vanished,
        kinds=[*WEATHER, *LINKS],
        count=5,
        liveness_us=60_000_000,
        events_max=900_000,
    ),
}
