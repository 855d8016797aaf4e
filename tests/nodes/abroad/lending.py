"""Nodes of two participants in virtual time, a query of the first, and contracts between them.

e (publisher, coordinator) ── m (what is lent) ── c (reader)    s stands by, w votes    h, g are of bob
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.abroad.permits import Allowance, PermitIn, PermitOut
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_security import ClientRules
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.keyring import Keyring
from medusa.wire.messages.configuration import Configuration, Replicas

NODES = {"e": "alice", "m": "alice", "c": "alice", "s": "alice", "w": "alice", "h": "bob", "g": "bob"}
ALL = ("*",)
CLIENTS = {
    name: ClientRules(key="", participant=name, publish=ALL, subscribe=ALL, deploy=ALL, status=True)
    for name in ("alice", "bob")
}
SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "int64"}
ROWS, PIECE, EVERY_US = 240, 6, 4_000
HALF = ROWS // 2
KEEP_US = 5_000_000
PATIENCE_US = 30_000_000
ALLOWANCE = Allowance(boxes=("filter", "select", "running", "union", "aggregate"))


def counting() -> Any:
    """What is lent reads one stream and counts: nothing is decided."""
    q = md.Query("q")
    first = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    kind = first.group_by("k").running(n=md.count(), t=md.sum("v"), name="kind")
    q.sink("out", kind.filter("n > 0", name="last"))
    return q


CUT = {"e": ["rows", "first"], "m": ["kind"], "c": ["last", "out"]}


def uniting() -> Any:
    """What is lent numbers the rows of two streams as they come: their order is decided there."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.union(right, name="both").running(n=md.count(), name="numbers")
    q.sink("out", both.filter("n > 0", name="last"))
    return q


UNITED = {"e": ["left", "l", "right", "r"], "m": ["both", "numbers"], "c": ["last", "out"]}


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * 100_000 for n in numbers], pa.timestamp("us", "UTC")),
            "k": ["abcde"[n * n % 5] for n in numbers],
            "v": pa.array([n * 7 % 101 + n // 3 for n in numbers], pa.int64()),
        }
    )


class Lending:
    """One run.

    Args:
        standby: node -> who stands by for it at home.
        nodes: all, and whose they are.
        trades: node -> how it trades, and by which contracts.
    """

    def __init__(
        self,
        q: Any,
        at: Mapping[str, Sequence[str]] = CUT,
        *,
        standby: Mapping[str, Sequence[str]] | None = None,
        witnesses: Sequence[str] = ("w",),
        nodes: Mapping[str, str] = NODES,
        trades: Mapping[str, Any] | None = None,
        checkpoint_every_us: int = 50_000,
        seed: int = 1,
    ) -> None:
        self.q, self.at, self.query = q, at, q.graph.name
        self.standby, self.witnesses = standby or {"m": ["s"]}, witnesses
        self.schemas = {box.id: box.schema for box in q.graph.boxes if box.id in q.sources}
        self.tables = {
            name: rows(1000 * place).cast(schema_to_arrow(self.schemas[name]))
            for place, name in enumerate(self.schemas)
        }
        self.want = dict(collect(q, **self.tables))
        self.ring = Keyring(nodes, CLIENTS, {}, trades)
        self.owners: dict[tuple[str, int], str] = {}
        self.fed = Federation(
            seed,
            list(nodes),
            limits=Limits(checkpoint_every_us=checkpoint_every_us),
            watch=self._watch,
            keyring=self.ring,
        )
        self._plain: dict[str, str] = {}
        self.events: dict[str, list[Any]] = {name: [] for name in nodes}
        self.fed.start()
        self.fed.run(for_us=200_000)
        first, last = next(iter(at)), list(at)[-1]
        self.deployer = self.client("alice", "deployer", first)
        self.publisher, self.reader = self.client("alice", "pub", first), self.client("alice", "read", last)
        self._published_us = 0

    def client(self, whose: str, name: str, node: str) -> Client:
        real = self.ring.name_of(whose, name)
        made = Client(self.fed.world, self.fed.network, real, node)
        self.fed.clients[real] = made
        return made

    def _watch(self, node: NodeMachine) -> None:
        if not node.alive:
            return
        if node.brain.market is None:  # Else that takes them.
            self.events[node.name] += node.brain.abroad.take_events()
        for fragment, hosted in node.brain.fragments.items():
            own = self.ring.owners.get(node.brain.catalog.coordinator_of(hosted.spec.query)) == "bob"
            if hosted.frozen or own:  # Bob may have a query of that name.
                continue
            epoch = node.brain.catalog.ownership.epoch(fragment)
            owner = self.owners.setdefault((fragment, epoch), node.name)
            assert owner == node.name, f"{fragment} in epoch {epoch} is of {owner} and of {node.name}"
            if NODES.get(node.name) == "bob":
                assert node.brain.permits.into(fragment) is not None, f"{fragment} runs without a permit"

    # --- what is done -----------------------------------------------------------------------------------

    def deploy(self) -> str:
        """And wait until it is guarded; the fragment in the middle."""
        request = self.deployer.deploy_guarded(self.q, self.at, self.standby, self.witnesses)
        reply, _ = self.fed.answer(self.deployer, request)
        assert reply.code == "", reply
        for sink in self.want:
            self.reader.read(f"{self.query}.{sink}")
        fragment = f"{self.query}/{self.at['m'][0]}"
        self.until(lambda: self.guarded(fragment), "guarded")
        return fragment

    def publish(self, begin: int = 0, end: int = ROWS) -> None:
        world = self.fed.world
        begin_us = max(world.now_us + 1, self._published_us)
        self._published_us = begin_us + ((end - begin) // PIECE + 1) * EVERY_US
        for name, table in self.tables.items():
            stream, schema = f"{self.query}.{name}", self.schemas[name]
            for place, first in enumerate(range(begin, end, PIECE)):
                part = table.slice(first, min(PIECE, end - first))
                world.at(
                    begin_us + place * EVERY_US,
                    lambda part=part, stream=stream, schema=schema: self.publisher.publish(  # type: ignore[misc]
                        stream, part, schema
                    ),
                )
            if end == len(table):
                world.at(
                    self._published_us - 1,
                    lambda stream=stream, schema=schema: self.publisher.finish(stream, schema),  # type: ignore[misc]
                )

    def contract(self, fragment: str, *, by: str = "m", host: str = "h", keep_us: int = KEEP_US) -> None:
        """Both sides have their permits."""
        self.node(host).order(
            lambda now_us: self.moves(host).permits.permit_in(
                PermitIn(fragment=fragment, participant="alice", allows=ALLOWANCE, keep_us=keep_us)
            )
        )
        self.node(by).order(
            lambda now_us: self.moves(by).permits.permit_out(
                PermitOut(fragment=fragment, participant="bob", node=host)
            )
        )

    def send(self, fragment: str, *, by: str = "m", host: str = "h") -> None:
        self.node(by).order(lambda now_us: self.moves(by).send(now_us, fragment, host))

    def recall(self, fragment: str, *, by: str = "m") -> None:
        self.node(by).order(lambda now_us: self.moves(by).recall(now_us, fragment))

    def lend(self, fragment: str, **more: Any) -> None:
        """And wait until it runs there, and is followed."""
        self.contract(fragment, **more)
        self.send(fragment)
        self.until_at(fragment, "h")

    # --- what is seen -------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeMachine:
        return self.fed.nodes[name]

    def moves(self, name: str) -> AbroadMoves:
        return self.node(name).brain.abroad

    @property
    def living(self) -> list[NodeMachine]:
        return [node for node in self.fed.nodes.values() if node.alive]

    def newest(self) -> Configuration:
        """As the nodes at home know it."""
        known = [
            found
            for node in self.living
            if NODES[node.name] == "alice"
            and (found := node.brain.recovery.agreement.current(self.query)) is not None
        ]
        return max(known, key=lambda each: each.number)

    def replicas(self, fragment: str) -> Replicas:
        found = self.newest().replicas(fragment)
        assert found is not None
        return found

    def follows(self, name: str, fragment: str) -> bool:
        """Whether a node follows its present owner."""
        owner, node = self.replicas(fragment).owner, self.node(name)
        if not node.alive:
            return False
        return (fragment, owner) in [(f, o) for f, o, _ in node.brain.recovery.followings.followed()]

    def guarded(self, fragment: str) -> bool:
        replicas = self.replicas(fragment)
        return bool(replicas.secondaries) and all(
            self.follows(each, fragment) for each in replicas.secondaries
        )

    def runs_at(self, fragment: str, name: str) -> bool:
        node = self.node(name)
        hosted = node.brain.fragments.get(fragment) if node.alive else None
        return hosted is not None and not hosted.frozen and self.replicas(fragment).owner == name

    def until(self, done: Callable[[], bool], what: str, *, for_us: int = PATIENCE_US) -> None:
        assert self.fed.run(done, for_us=for_us), f"not in time: {what}\n{self.fed.last()[-8000:]}"

    def until_at(self, fragment: str, name: str) -> None:
        """It runs there, and all that stand by follow."""
        self.until(lambda: self.runs_at(fragment, name) and self.guarded(fragment), f"{fragment} at {name}")

    def got(self, sink: str) -> pa.Table:
        batches = self.reader.rows.get(f"{self.query}.{sink}", [])
        return pa.Table.from_batches(batches, self.want[sink].schema)

    def check(self) -> None:
        """Each row came once, as if nothing had moved."""
        streams = {f"{self.query}.{sink}" for sink in self.want}
        self.until(lambda: streams <= self.reader.ended, "all rows come")
        assert not any(self.reader.lost.values())
        for sink, want in self.want.items():
            assert want.num_rows > 10
            if len(self.tables) == 1:
                assert self.got(sink).to_pylist() == want.to_pylist(), sink
            else:  # In the order of arrival, which is numbered.
                assert [row["n"] for row in self.got(sink).to_pylist()] == list(range(1, want.num_rows + 1))
                assert sorted(map(_plain, self.got(sink).to_pylist())) == sorted(
                    map(_plain, want.to_pylist())
                )


def _plain(row: dict[str, Any]) -> str:
    return str({name: value for name, value in row.items() if name != "n"})
