"""Two participants who don't trust each other, under faults: each finds what it was answered to be so.

Definitions are revoked, keys are withdrawn, names are looked up between them, and a reader has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa

from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import ClientRules
from medusa.ports import Buffer
from medusa.query.builder import Query
from medusa.query.codec import graph_to_msgpack
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.actors.subscriber import Subscriber
from medusa.sim.trials.federations import OFTEN, ROWS, answered, counts, options
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_dice import AWAY_US
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.keyring import Keyring
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Declare, Deploy, Remove, Reply
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.remote import DefineRemote, RevokeRemote

__all__ = ["OWNERS", "OwnersTrial"]

NODES = {"a1": "alice", "a2": "alice", "b1": "bob", "b2": "bob"}
AT = {"a1": ["flows", "most"], "b1": ["per_k"], "a2": ["all", "out"]}
"""What stands where; the part in the middle is run by another participant."""
PLACES = tuple((node, tuple(boxes)) for node, boxes in AT.items())
KEEPER, READ, RENEWED = "b1", "a2", "b2"
"""Who keeps alice's definitions, at whose sink is read, and who goes on with a new key."""
ALL = ("*",)
CLIENTS = {
    name: ClientRules(key="", participant=of, publish=ALL, subscribe=ALL, deploy=ALL, status=True)
    for name, of in {"alice": "alice", "bob": "bob", "thief": "bob"}.items()
}
OFFERS = {"bob": OfferRules(boxes=("aggregate", "filter"))}
FIRST = "first"
"""The definition by which the query runs that is read."""
UNDECIDED = ("E_TIMEOUT", "E_BUSY", "E_DISK")
"""Of a deployment: it may be tried again."""
AGAIN_US = 200_000
DIES = 0.3
REPEATED = 0.3
REPEATED_US = (300_000, 700_000, 1_500_000)
AWAY_FOR_US = (300_000, 2_000_000, 8_000_000)
LOOK_US = 20_000
SEEK_US = 300_000
PATIENCE_US = 6_000_000
MACHINES_IN_TIME = [kind for kind in MACHINES if kind != "clock step"]
"""What is signed counts for a time: clocks that are hours off are another matter."""
NOT_THERE = ("", "E_NO_DEFINITION", "E_QUERY")
"""Answers to who revokes or removes what may be gone already."""


_Step: TypeAlias = Callable[[Callable[[], None]], None]
"""Does something, and calls what follows when that was answered."""


class OwnersTrial(QueryTrial):
    """A query of alice with a part at a node of bob, read by a program with a name.

    Meanwhile alice has another part kept, uses it, and one of the two revokes it; bob withdraws the key of a
    client and that of a node, which goes on with a new one; and his nodes look for what alice has published.
    """

    def __init__(
        self,
        world: World,
        tables: Mapping[str, pa.Table],
        decided: QueryOptions,
        want: Mapping[str, pa.Table],
    ) -> None:
        self._plain: dict[str, str] = {}
        """How a program calls itself -> its name here."""
        self._reading: Subscriber | None = None
        self._busy = 2
        """Of those who give orders, how many aren't done."""
        self._revoked: list[str] = []
        """Keys that nobody may come with: it was answered."""
        self._found: dict[str, bool | None] = {}
        """Query -> whether bob finds its stream, by the last answer; None: nobody can say."""
        self._sought = 0
        self._names: dict[str, bool] = {}
        """Definition -> whether it stands, by the last answer."""
        self._left_alone: list[str] = []
        """Definitions of which nobody can know whether they stand, but both sides say the same."""
        q, _ = counts()
        self._other, _ = counts("other")
        ring = Keyring(NODES, CLIENTS, OFFERS)
        self._ring = ring
        super().__init__(world, q, tables, decided, want=want, nodes=list(NODES), keyring=ring)
        self._orders, self._leaves = world.dice("orders"), world.dice("abandoned")
        self._gaps = world.dice("away")

    # --- programs, and their names --------------------------------------------------------------------

    def client(self, name: str, node: str) -> Client:
        whose = name.partition(" ")[0]
        real = self._ring.name_of(whose if whose in CLIENTS else "alice", name.replace(" ", "-"))
        self._plain[real] = name
        made = self.clients[name] = Client(self.world, self.network, real, node)
        return made

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        super()._deliver(source, self._plain.get(target, target), frames)

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        real = {plain: name for name, plain in self._plain.items()}
        return [(real.get(one, one), two) for one, two in super().links]

    @property
    def owned(self) -> Sequence[Sequence[NodeMachine]]:
        return [
            [node for name, node in self.nodes.items() if NODES[name] == participant]
            for participant in self._ring.participants
        ]

    # --- orders ---------------------------------------------------------------------------------------

    def _until(
        self,
        client: Client,
        make: Callable[[int], Message],
        then: Callable[[Reply], None],
        payload: bytes | None = None,
        *,
        fine: Callable[[Reply], bool] = lambda reply: not reply.code,
    ) -> None:
        """Ask, again and again, until an answer is as it should be."""
        number = client.mind.request(make, payload)
        client.do(lambda mind: None)
        asked_us = self.world.now_us

        def again() -> None:
            self._until(client, make, then, payload, fine=fine)

        def look() -> None:
            if number in client.mind.replies:
                reply, _ = client.mind.replies.pop(number)
                if fine(reply):
                    then(reply)
                else:
                    self.world.trace(client.name, f"is told {reply.code} {reply.text}")
                    self.world.after(AGAIN_US, again)
            elif self.world.now_us - asked_us < PATIENCE_US:
                self.world.after(20_000, look)
            else:
                client.mind.give_up(number)
                again()

        look()

    def _define(self, name: str, q: Query, then: Callable[[], None]) -> None:
        def done(reply: Reply) -> None:
            self.world.trace("alice", f"has {name} kept at {KEEPER}")
            self._names[name] = True
            then()

        self._until(
            self.reader,
            lambda n: DefineRemote(request=n, name=name, node=KEEPER, at=PLACES),
            done,
            graph_to_msgpack(q.graph),
        )

    def _deploy(self) -> None:
        """First what it stands on."""
        if FIRST in self._names:
            super()._deploy()
        else:
            self._define(FIRST, self.q, super()._deploy)

    def _begin(self) -> None:
        super()._begin()
        self._round(self._orders.randrange(1, 4))
        self._withdraw()
        self._seek(self.client("bob seeks", RENEWED))

    def _read(self, name: str, sink: str, tries: int = 0) -> None:
        def left(client: Client) -> None:
            plain = self._plain[client.name]
            self.strangers[plain] = self.clients.pop(plain).deliver

        reading = self._reading = Subscriber(
            self.world,
            self.world.dice("subscriber"),
            "reader-one",
            f"{name}.{sink}",
            client=lambda life: self.client(f"alice reads {life}", READ),
            left=left,
        )
        for _ in range(self._orders.randrange(4)):
            self.world.after(self._orders.randrange(1, self.options.publish_us + 500_000), reading.die)

    def _pause(self, then: Callable[[], None]) -> None:
        self.world.after(self._orders.randrange(1, 300_000), then)

    def _round(self, left: int) -> None:
        """Define a part, use it, revoke it; and then it can't be used."""
        if not left:
            self._busy -= 1
            return
        name, by_bob = f"part-{left}", self._orders.random() < 0.5
        deploys, removes = self._deploys, self._removes

        def clear() -> None:
            """What bob has revoked alice still believes in."""
            self._revoke(name, False, lambda: self._round(left - 1))

        steps: list[_Step] = [
            lambda then: self._define(name, self._other, then),
            deploys,
            removes,
            lambda then: self._revoke(name, by_bob, then),
            self._is_refused,
            removes,
        ]
        if self._gaps.random() < REPEATED:  # What has a definition kept comes once more, when it is revoked.
            self.network.delay("keep-remote", self._gaps.choice(REPEATED_US), again=True)
        if self._leaves.random() < DIES:
            self._abandon(f"gone-{left}")
        self._in_turn(steps, clear)

    def _abandon(self, name: str) -> None:
        """A definition is asked for, and the node that is asked dies; nobody comes back to it."""
        graph = graph_to_msgpack(counts("nobody")[0].graph)
        number = self.reader.ask(
            lambda mind: mind.request(
                lambda n: DefineRemote(request=n, name=name, node=KEEPER, at=PLACES), graph
            )
        )
        self._left_alone.append(name)

        def die() -> None:
            self.nodes[READ].crash(flushed=True)
            self.reader.give_up(number)
            self.world.after(AWAY_US, lambda: self.restart(READ))

        delay_us = self.options.delay_us + self._leaves.choice((1, 1000, 5000, 20_000, 60_000))
        self.world.after(delay_us, die)

    def _in_turn(self, steps: Sequence[_Step], then: Callable[[], None]) -> None:
        if steps:
            steps[0](lambda: self._pause(lambda: self._in_turn(steps[1:], then)))
        else:
            then()

    def _deploys(self, then: Callable[[], None]) -> None:
        self._until(
            self.reader,
            lambda n: Deploy(request=n, at=PLACES),
            lambda reply: then(),
            graph_to_msgpack(self._other.graph),
            fine=lambda reply: reply.code in ("", "E_DEPLOYED"),
        )

    def _is_refused(self, then: Callable[[], None]) -> None:
        """Nothing allows it any more."""

        def told(reply: Reply) -> None:
            if not reply.code:
                raise SimulationError(
                    f"revoked: {KEEPER} runs a part of {self._other.graph.name} all the same"
                )
            then()

        self._until(
            self.reader,
            lambda n: Deploy(request=n, at=PLACES),
            told,
            graph_to_msgpack(self._other.graph),
            fine=lambda reply: reply.code not in UNDECIDED,
        )

    def _removes(self, then: Callable[[], None]) -> None:
        name = self._other.graph.name
        self._until(
            self.reader,
            lambda n: Remove(request=n, query=name),
            lambda reply: then(),
            fine=lambda reply: reply.code in NOT_THERE,
        )

    def _keeper_leaves(self) -> None:
        """Now and then the keeper is away while alice revokes, also for longer than she is patient."""
        if self._gaps.random() < DIES and self.nodes[KEEPER].alive:
            self.nodes[KEEPER].crash(flushed=True)
            self.world.after(self._gaps.choice(AWAY_FOR_US), lambda: self.restart(KEEPER))

    def _may_die(self) -> None:
        """Now and then the keeper dies when it has just answered."""
        if self._orders.random() > DIES:
            return
        node, after_us = self.nodes[KEEPER], self._orders.choice((1, 500, 3000))

        def die() -> None:
            node.crash(flushed=True)
            self.world.after(AWAY_US, lambda: self.restart(KEEPER))

        def sent(source: str, target: str) -> bool:
            if source == KEEPER:
                self.world.after(after_us, die)
            return source == KEEPER

        self.network.when_sent("reply", 1, sent)

    def _revoke(self, name: str, by_bob: bool, then: Callable[[], None]) -> None:
        def told(reply: Reply) -> None:
            self.world.trace("bob" if by_bob else "alice", f"has revoked {name}")
            self._names[name] = False
            then()

        self._may_die()
        if not by_bob:
            self._keeper_leaves()
        client = self.clients.get("bob keeps") or self.client("bob keeps", KEEPER)
        full = f"alice/{name}" if by_bob else name
        self._until(
            client if by_bob else self.reader,
            lambda n: RevokeRemote(request=n, name=full),
            told,
            fine=lambda reply: reply.code in NOT_THERE,
        )

    def _withdraw(self) -> None:
        """Bob withdraws the key of a client and that of a node, which begins a life with another."""
        ring, client = self._ring, self.client("bob signs", KEEPER)

        def say(statement: bytes, then: Callable[[], None]) -> None:
            self._until(client, lambda n: Declare(request=n, statement=statement), lambda reply: then())

        def revoke(key: str, then: Callable[[], None]) -> None:
            def told() -> None:
                self.world.trace("bob", f"has withdrawn a key: {key}")
                self._revoked.append(key)
                then()

            self._may_die()
            say(ring.revocation("bob", key), told)

        def renew(then: Callable[[], None]) -> None:
            self.nodes[RENEWED].crash()
            ring.renew(RENEWED)
            self.restart(RENEWED)
            then()

        def done() -> None:
            self._busy -= 1

        steps: list[_Step] = [partial(revoke, ring.clients["thief"].key)]
        for number in range(1, self._orders.randrange(2, 4)):
            steps += [
                partial(say, ring.certificate(RENEWED, number)),
                renew,
                partial(revoke, ring.node_key(RENEWED, number - 1)),
            ]
        self._in_turn(steps, done)

    def _seek(self, client: Client) -> None:
        """Bob's node looks for streams of alice, again and again, now for one, now for the other."""
        query = [self.q.graph.name, self._other.graph.name][self._sought % 2]
        self._sought += 1
        name = f"alice/{query}.{next(iter(self.want))}"
        number = client.mind.request(lambda n: Lookup(request=n, name=name, kind="stream"))
        client.do(lambda mind: None)
        asked_us = self.world.now_us

        def look() -> None:
            if number in client.mind.replies:
                reply, content = client.mind.replies.pop(number)
                place = msgspec.json.decode(bytes(content))["node"] if content is not None else ""
                if place not in ("", READ):
                    raise SimulationError(f"found: {name} at {place}, it is at {READ}")
                self._found[query] = bool(place) if not reply.code or reply.code == "E_STREAM" else None
            elif self.world.now_us - asked_us < PATIENCE_US:
                self.world.after(LOOK_US, look)
                return
            else:
                client.mind.give_up(number)
            self.world.after(SEEK_US, lambda: self._seek(client))

        look()

    # --- what must hold -------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        reading = self._reading
        if reading is None or not reading.ended or self._busy:
            return False
        if self._found != {self.q.graph.name: True, self._other.graph.name: False}:
            return False
        kept = self.nodes[READ].brain.catalog.remote if self.nodes[READ].alive else None
        return kept is not None and not kept.revoking and super().ended

    def heal(self) -> None:
        super().heal()
        self._found.clear()

    def crash_all(self) -> bool:
        self._found.clear()
        return super().crash_all()

    def _read_of(self, stream: str) -> list[pa.RecordBatch]:
        return self._reading.batches if self._reading is not None else []

    def check_end(self) -> None:
        super().check_end()
        self._check_definitions()
        for key in self._revoked:
            for name, node in self.nodes.items():
                if key in node.trusted:
                    raise SimulationError(f"revoked: {name} lets a key in that bob has withdrawn")

    def _check_definitions(self) -> None:
        """What was answered is what is kept, on either side."""
        mine = self.nodes[READ].brain.catalog.remote.mapped
        theirs = self.nodes[KEEPER].brain.catalog.remote.held
        stands = {name for name, there in self._names.items() if there}
        unknown = {*mine} & {*self._left_alone}
        if {*mine} - unknown != stands or {*theirs} != {f"alice/{name}" for name in mine}:
            raise SimulationError(
                f"defined: {sorted(stands)} stand; {READ} has {sorted(mine)}, {KEEPER} keeps {sorted(theirs)}"
            )


def owners(world: World, rows: int | None, parts: object) -> OwnersTrial:
    tables, want = answered("counts", world.seed % 16, ROWS if rows is None else rows)
    return OwnersTrial(world, tables, options(world.dice("options"), AT), want)


OWNERS: dict[str, Scenario] = {
    "owners": Scenario(
        about="two participants: definitions and keys withdrawn, names looked up, a reader with a name",
        build=owners,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES_IN_TIME],
        more=[*LATE, *BELIEVED],
        count=6,
        liveness_us=60_000_000,
        events_max=600_000,
    ),
}
