"""A query over nodes in virtual time, others that stand by, and clients that go after its streams.

e (publishers, coordinator) ── m (what is guarded) ── c (readers)        s1, s2, s3 stand by; w, x vote
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_streams import StreamRule
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.placement import standby_plan
from medusa.nodes.recovery.recovery import Recovery
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.runtime.engine_host.group_names import GroupName
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.actors.follower import Follower
from medusa.sim.actors.node import NodeMachine
from medusa.wire.messages.configuration import Configuration, Replicas

NODES = ("e", "m", "c", "s1", "s2", "s3", "w", "x")
SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "int64"}
ROWS = 240
PIECE = 6
HALF = ROWS // 2 // PIECE * PIECE
EVERY_US = 4_000
PATIENCE_US = 30_000_000
LIMITS = Limits(checkpoint_every_us=50_000)


def shared_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are deployed as releases did in which guarded fragments that read one stream shared it."""
    monkeypatch.setattr(standby_plan, "with_own_streams", lambda plan: plan)


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    """Of five keys, with a gap of more than a second now and then."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * 100_000 + (n // 40) * 1_500_000 for n in numbers], pa.timestamp("us", "UTC")),
            "k": ["abcde"[n * n % 5] for n in numbers],
            "v": pa.array([n * 7 % 101 + n // 3 for n in numbers], pa.int64()),
        }
    )


class Run:
    """One run of a query.

    Args:
        q: it may read more sources than one; each is published by a client of its own.
        at: node -> its boxes.
        deploys: the node that is asked to; empty: the first of them.
        standby: node -> who stands by for it.
        witnesses: vote beside.
        names: of the nodes.
        more: for ``Federation``.

    Attributes:
        want: by sink, what one program gives.
    """

    def __init__(
        self,
        q: Any,
        at: Mapping[str, Sequence[str]],
        *,
        standby: Mapping[str, Sequence[str]],
        witnesses: Sequence[str] = ("w",),
        names: Sequence[str] = NODES,
        seed: int = 1,
        streams: Sequence[StreamRule] = (),
        tables: Mapping[str, pa.Table] | None = None,
        deploys: str = "",
    ) -> None:
        deploys = deploys or next(iter(at))
        self.q, self.at, self.standby, self.witnesses = q, at, standby, witnesses
        self.query = q.graph.name
        self.schemas = {box.id: box.schema for box in q.graph.boxes if box.id in q.sources}
        given = tables or {source: rows() for source in self.schemas}
        self.tables = {name: table.cast(schema_to_arrow(self.schemas[name])) for name, table in given.items()}
        self.want = dict(collect(q, **self.tables))
        self.lost: set[str] = set()
        """Nodes that never come back."""
        self.owners: dict[tuple[str, int], str] = {}
        self._published_us = 0
        self.fed = Federation(seed, names, limits=LIMITS, streams=streams, watch=self._watch)
        self.fed.start()
        self.deployer = self.fed.client("deployer", deploys)
        self.publishers = {source: self.client(f"pub-{source}", deploys) for source in self.schemas}
        self.reader = self.client("reader", deploys)

    def client(self, name: str, node: str) -> Follower:
        """One that finds streams wherever they are."""
        made = Follower(self.fed.world, self.fed.network, name, node, self.fed.nodes)
        self.fed.clients[name] = made
        return made

    # --- what must hold at any time --------------------------------------------------------------------

    def _watch(self, node: NodeMachine) -> None:
        if not node.alive:
            return
        for fragment, hosted in node.brain.fragments.items():
            if not hosted.frozen:
                epoch = node.brain.catalog.ownership.epoch(fragment)
                owner = self.owners.setdefault((fragment, epoch), node.name)
                assert owner == node.name, f"{fragment} in epoch {epoch} is of {owner} and of {node.name}"

    # --- what is done -----------------------------------------------------------------------------------

    def deploy(self) -> None:
        """And wait for the answer, which is yes."""
        request = self.deployer.deploy_guarded(self.q, self.at, self.standby, self.witnesses)
        reply, _ = self.fed.answer(self.deployer, request)
        assert reply.code == "", reply

    def undeploy(self, client: Client | None = None) -> None:
        """And wait for the answer, which is yes."""
        client = client or self.deployer
        reply, _ = self.fed.answer(client, client.undeploy(self.query))
        assert reply.code == "", reply

    def read(self) -> None:
        for sink in self.want:
            self.reader.read(f"{self.query}.{sink}")

    def publish(self, begin: int = 0, end: int = ROWS, *, source: str = "") -> None:
        """Rows from now on, or after those before, a few every few milliseconds; at the end of the table the
        source ends."""
        begin_us = max(self.fed.world.now_us + 1, self._published_us)
        self._published_us = begin_us + ((end - begin) // PIECE + 1) * EVERY_US
        for name in [source] if source else self.schemas:
            table = self.tables[name]
            for place, first in enumerate(range(begin, end, PIECE)):
                part = table.slice(first, min(PIECE, end - first))
                self.fed.world.at(
                    begin_us + place * EVERY_US,
                    lambda name=name, part=part: self.publishers[name].publish(  # type: ignore[misc]
                        f"{self.query}.{name}", part, self.schemas[name]
                    ),
                )
            if end == len(table):
                self.fed.world.at(
                    self._published_us - 1,
                    lambda name=name: self.publishers[name].finish(  # type: ignore[misc]
                        f"{self.query}.{name}", self.schemas[name]
                    ),
                )

    def lose(self, name: str) -> None:
        """The machine burns."""
        self.lost.add(name)
        self.fed.nodes[name].crash()

    # --- what is seen -------------------------------------------------------------------------------------

    @property
    def living(self) -> list[NodeMachine]:
        return [node for node in self.fed.nodes.values() if node.alive]

    def recovery(self, name: str) -> Recovery:
        return self.fed.nodes[name].brain.recovery

    def current(self, name: str) -> Configuration | None:
        """As this node knows it."""
        return self.recovery(name).agreement.current(self.query)

    def newest(self) -> Configuration:
        known = [found for node in self.living if (found := self.current(node.name)) is not None]
        return max(known, key=lambda each: each.number)

    def replicas(self, fragment: str) -> Replicas:
        found = self.newest().replicas(fragment)
        assert found is not None
        return found

    def owner(self, fragment: str) -> str:
        return self.replicas(fragment).owner

    def hosted(self, fragment: str) -> FragmentHost | None:
        """Where it runs and shows rows; None: nowhere at present."""
        for node in self.living:
            hosted = node.brain.fragments.get(fragment)
            if hosted is not None and not hosted.frozen and node.name == self.owner(fragment):
                return hosted
        return None

    def guarded(self, fragment: str, by: int) -> bool:
        """Whether so many nodes may succeed, by a decision, and do follow the present owner, and it knows."""
        replicas = self.replicas(fragment)
        following = [
            node.name
            for node in self.living
            if (fragment, replicas.owner)
            in [(name, owner) for name, owner, _ in node.brain.recovery.followings.followed()]
        ]
        owner = self.recovery(replicas.owner).replication
        known = all(owner.follows(fragment, node) for node in replicas.secondaries)
        return known and len(replicas.secondaries) >= by and set(replicas.secondaries) <= set(following)

    def until(self, done: Callable[[], bool], what: str, *, for_us: int = PATIENCE_US) -> None:
        assert self.fed.run(done, for_us=for_us), f"not in time: {what}\n{self.fed.last()[-6000:]}"

    def until_guarded(self, fragment: str, by: int = 1) -> None:
        self.until(lambda: self.guarded(fragment, by), f"{by} follow {fragment}")

    def until_owned(self, fragment: str, by: str) -> None:
        self.until(
            lambda: self.hosted(fragment) is not None and self.owner(fragment) == by, f"{by} has {fragment}"
        )

    def until_ended(self) -> None:
        streams = {f"{self.query}.{sink}" for sink in self.want}
        self.until(lambda: streams <= self.reader.ended, "all rows come")

    def got(self, sink: str, reader: Client | None = None) -> pa.Table:
        batches = (reader or self.reader).rows.get(f"{self.query}.{sink}", [])
        return pa.Table.from_batches(batches, self.want[sink].schema)

    def check(self) -> None:
        """Each row came once, in the order of the undisturbed run; a ``Client`` looks after the numbers."""
        self.until_ended()
        assert not any(self.reader.lost.values())
        for sink, want in self.want.items():
            assert want.num_rows > 10
            assert self.got(sink).to_pylist() == want.to_pylist(), sink

    # --- what is left -----------------------------------------------------------------------------------

    def remains(self) -> list[str]:
        """What nodes have of the query."""
        found = []
        for node in self.living:
            brain = node.brain
            for what, names in (
                ("fragment", brain.fragments),
                ("spec", brain.catalog.fragments),
                ("configuration", brain.catalog.configurations),
                ("epoch", brain.catalog.ownership.epochs),
                ("followed", brain.recovery.followings.status()),
                ("engine", node.loop._host._running),  # type: ignore[union-attr]
            ):
                found += [f"{node.name}: {what} {name}" for name in names if name.split("/")[0] == self.query]
            found += [f"{node.name}: file {name}" for name in node.disk.names() if GroupName.of(name).owner]
            found += [f"{node.name}: log {name}" for name in node.disk.journal.numbers()]
        return found
