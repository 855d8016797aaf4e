"""Fragments move between nodes at random moments, under faults: one owner each, one answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.migration.outgoing import FINAL
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, sum
from medusa.query.stream.several import process
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.follower import Follower
from medusa.sim.actors.keyed_timers import OUT, STATE, Reminders
from medusa.sim.actors.node import NodeMachine
from medusa.sim.actors.row_copies import OUT as COPIES
from medusa.sim.actors.row_copies import copies
from medusa.sim.actors.targeted_faults import TargetedFaults
from medusa.sim.checkers.catalog import newest_catalog
from medusa.sim.checkers.delivery import check_node, check_restarted
from medusa.sim.trials.federations import OFTEN, ROWS, SCHEMA, Keys, few_keys, options, table
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_dice import AWAY_US
from medusa.sim.world.fault_kinds import AIMED, BELIEVED, LATE, LINKS, MACHINES, WEATHER, Fault
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages import Message
from medusa.wire.messages.move import Move

__all__ = ["MOVES", "MoveTrial"]


def slides(
    first: str = "1s", second: str = "5s", slack: str = "50ms", idle: str | None = None
) -> tuple[Query, dict[str, list[str]]]:
    """Two fragments in the middle have neither publishers nor readers who are clients: they move.

    Args:
        first, second: how long their windows are.
        slack, idle: of the source; what the second decides is logged, however long it is.
    """
    q = Query("m")
    flows = q.source("flows", SCHEMA, time="ts", slack=slack, idle=idle).filter("v > -90", name="most")
    per_k = flows.window(first).group_by("k").aggregate(n=count(), s=sum("v"), name="per_k")
    totals = per_k.window(second).aggregate(n=sum("n"), s=sum("s"), name="totals")
    q.sink("out", totals.filter("n > 0", name="all"))
    return q, {"e": ["flows", "most"], "a": ["per_k"], "b": ["totals"], "z": ["all", "out"]}


def unites() -> tuple[Query, dict[str, list[str]]]:
    """What moves is a union: the order in which rows arrive is decided, and goes along."""
    q = Query("m")
    left = q.source("left", SCHEMA, time="ts").filter("v > -95", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v > -95", name="r")
    both = left.union(right, name="both")
    q.sink("out", both.filter("v > -90", name="some").filter("v < 95", name="last"))
    return q, {"e": ["left", "l"], "a": ["right", "r"], "b": ["both"], "c": ["some"], "z": ["last", "out"]}


def parts() -> tuple[Query, dict[str, list[str]]]:
    """A window that was split: its router and its parts move, and the merge that puts them in order."""
    whole, at = slides()
    router, first, second = "per_k-router", "per_k-1", "per_k-2"
    at = {"e": at["e"], "a": [router], "b": [first], "c": [second], "z": ["per_k", "totals", *at["z"]]}
    return whole.split("per_k", 2), at


def meets() -> tuple[Query, dict[str, list[str]]]:
    """Boxes of other kinds that are split: a join, sessions, distinct, and a running count."""
    q = Query("m")
    most = q.source("flows", SCHEMA, time="ts", slack="50ms").filter("v > -90", name="most")
    firsts = q.source("others", SCHEMA, time="ts").distinct("k", within="300ms", name="firsts")
    pairs = most.join(firsts, on="k", within="200ms", name="pairs")
    so_far = pairs.group_by("k").running(n=count(), s=sum("v"), name="so_far")
    stays = most.session("200ms").group_by("k").aggregate(n=count(), s=sum("v"), name="stays")
    q.sink("met", so_far)
    q.sink("stayed", stays)
    at = {"e": ["flows", "most"], "a": ["others", "firsts"], "b": ["pairs"], "c": ["stays", "stayed"]}
    return q, at | {"z": ["so_far", "met"]}


def rings() -> tuple[Query, dict[str, list[str]]]:
    """Classes of users with timers, of one input and of three; each row has its place in the order."""
    q = Query("m")
    flows = q.source("flows", SCHEMA, time="ts", slack="50ms")
    others = q.source("others", SCHEMA, time="ts")
    alone = flows.process(Reminders, OUT, by="k", state=STATE, name="alone")
    inputs = {"flows": flows, "others": others, "low": flows.filter("v < -50", name="low")}
    several = process(Reminders, inputs, OUT, by="k", state=STATE, name="several")
    q.sink("rang", alone.running(place=count(), name="places"))
    q.sink("several_rang", several.running(place=count(), name="several_places"))
    at = {"e": ["flows", "low"], "a": ["others"], "b": ["alone"], "c": ["several"]}
    return q, at | {"z": ["places", "rang", "several_places", "several_rang"]}


def ledgers() -> tuple[Query, dict[str, list[str]]]:
    """A table that three streams change, who looks it up, and a function of users behind that."""
    q = Query("m")
    flows = q.source("flows", SCHEMA, time="ts", slack="50ms")
    others = q.source("others", SCHEMA, time="ts")
    held = q.table("held", key="k", schema={"k": "utf8", "n": "int64", "last": "int64"}, expire="2s")
    changed = flows.update(held, set={"n": "table.n + 1", "last": "v"}, insert={"n": "1", "last": "v"})
    q.sink("gone", others.filter("v > 80", name="high").delete(held))
    q.sink("kept", others.filter("v < -80", name="low").update(held, set={"last": "v"}, insert=False))
    seen = others.lookup(held, how="inner", name="seen")
    copied = seen.apply(copies, COPIES, by="k", name="copied")
    q.sink("changed", changed.running(place=count(), name="places"))
    q.sink("copies", copied.running(place=count(), name="copied_places"))
    at = {"e": ["flows"], "a": ["others", "high", "low"], "b": ["held", "seen"], "c": ["copied"]}
    return q, at | {"z": ["places", "changed", "gone", "kept", "copied_places", "copies"]}


def forks() -> tuple[Query, dict[str, list[str]]]:
    """Two fragments in the middle read one stream."""
    q = Query("m")
    most = q.source("flows", SCHEMA, time="ts", slack="50ms").filter("v > -90", name="most")
    per_k = most.window("1s").group_by("k").aggregate(n=count(), s=sum("v"), name="per_k")
    so_far = most.group_by("k").running(n=count(), s=sum("v"), name="so_far")
    q.sink("per_k_out", per_k.filter("n > 0", name="all"))
    q.sink("so_far_out", so_far.filter("n > 0", name="each"))
    return q, {"e": ["flows", "most"], "a": ["per_k"], "b": ["so_far"], "z": ["all", "each"]}


def many() -> tuple[Query, dict[str, list[str]]]:
    """Clients publish into what counts rows by keys: its output waits until others have their order."""
    q = Query("m")
    most = q.source("flows", SCHEMA, time="ts", slack="50ms").filter("v > -90", name="most")
    sums = {f"s{number}": sum(f"v + {number}") for number in range(12)}
    so_far = most.group_by("k").running({"n": count(), **sums}, name="so_far")
    q.sink("out", so_far.filter("n > 0", name="each"))
    return q, {"e": ["flows", "most", "so_far"], "z": ["each", "out"]}


NEWS_US = 1_000_000
"""Each node has looked at what it owns, and written it, within this."""

KINDS: dict[
    str, tuple[Callable[[], tuple[Query, dict[str, list[str]]]], tuple[str, ...], tuple[str, ...]]
] = {
    "slides": (slides, ("m/per_k", "m/totals"), ("m/flows", "m/all")),
    "parts": (parts, ("m/per_k-router", "m/per_k-1", "m/per_k-2"), ("m/flows", "m/per_k")),
    "unites": (unites, ("m/both", "m/some"), ("m/left", "m/right", "m/last")),
    "forks": (forks, (), ()),
    "many": (many, (), ()),
    "meets": (meets, (), ()),
    "rings": (rings, (), ()),
    "ledgers": (ledgers, (), ()),
    "keeps": (partial(slides, "4s", "8s"), (), ()),
    "waits": (partial(slides, "4s", "8s", "12s"), (), ()),
    "decides": (partial(slides, "4s", "8s", idle="1h"), (), ()),
}
"""The query; fragments that read and are read by nodes; those that clients read or publish into.
The last four, whose windows hold many keys at any time, are for splits alone. Rows of the third may come far
out of order; a fragment of the fourth logs what it decides, and so rests while it is split or merged."""


@dataclass(frozen=True, slots=True)
class _Order:
    at_us: int
    fragment: str
    to: str
    by: str
    timeout_ms: int


LAST_US = 4_000_000
"""When all faults are over and all nodes are there, two orders that come together are done within this."""

BEHIND_US = 1_000_000
"""Of a node that was slow the disk has so much to do at most, before all is well."""

ANSWERED_US = 3_000_000
"""An order that has no answer after this never gets one: it or its answer was lost. No timeout is longer."""

DEAF_US = 600_000
"""Shorter than the time after which a node that says nothing is silent."""

LAST_ATTEMPTS_MAX = 6
"""So often is each of them tried at most."""


class MoveTrial(QueryTrial):
    """A query over five nodes, and orders to move its fragments. Its clients go after what they use.

    In the end, when all is well, two fragments are ordered to move at once: one feeds the other, where there
    are such ones. Both have to.

    Args:
        movable: fragments that move.
        moves: how many orders.
    """

    def __init__(
        self,
        world: World,
        q: Query,
        tables: Mapping[str, pa.Table],
        options: QueryOptions,
        *,
        want: Mapping[str, pa.Table],
        movable: tuple[str, ...],
        moves: int,
    ) -> None:
        self._owners: dict[tuple[str, int], str] = {}
        self._feeds: dict[tuple[str, int, str, str], tuple[int, str]] = {}
        """Node, life, fragment and stream -> the epoch in which it reads that, and of whom."""
        self._movable = movable
        self._settled_us: int | None = None
        self._planned_us = 0
        """No order comes after this, but the last ones."""
        self._asked: list[tuple[int, Client, int]] = []
        """When each order came, by whom, and the number of its request."""
        self._last: dict[str, int] = {}
        """The last orders: their client -> the number of its request."""
        self._last_us = 0
        self._aims = TargetedFaults(self)
        super().__init__(world, q, tables, options, want=want, nodes=["e", "a", "b", "c", "z"])
        dice = world.dice("moves")
        self.orders = [
            _Order(
                dice.randrange(1, self.scene.span_us + 500_000),
                dice.choice(movable),
                dice.choice(list(self.nodes)),
                dice.choice(list(self.nodes)),
                dice.choice([200, 2000]),
            )
            for _ in range(moves)
        ]

    def aim(self, fault: Fault) -> None:
        """As ``MovingStage`` says."""
        if fault.kind == "stale move":
            self._there_and_back(fault)
        else:
            self._aims.add(fault)

    def heal(self) -> None:
        self._aims.clear()
        super().heal()

    def client(self, name: str, node: str) -> Client:
        """Who publishes and reads finds the streams from any node; who orders is a client of one."""
        if name.startswith("mover-"):
            return super().client(name, node)
        home = self.world.dice(f"home of {name}").choice(list(self.nodes))
        made = self.clients[name] = Follower(self.world, self.network, name, home, self.nodes)
        return made

    def _read(self, name: str, sink: str, tries: int = 0) -> None:
        self.reader.read(f"{name}.{sink}")

    def _begin(self) -> None:
        super()._begin()
        for order in self.orders:
            self._plan(order.at_us, partial(self._order, order))

    def _there_and_back(self, fault: Fault) -> None:
        """A fragment goes somewhere and comes back; what one kind of message says of the first way is stale
        when it comes."""
        tag, when, number = fault.who
        names = sorted(self.fragments)
        fragment = names[int(number) % len(names)]
        home = self._node_of(fragment)
        others = [node for node in self.nodes if node != home]
        to = others[int(number) // len(names) % len(others)]
        self.network.delay(tag, fault.amount, again=when == "again")
        self.world.after(3 * fault.for_us, lambda: self.network.delay(tag, 0))
        for node, by, later_us in ((to, home, 0), (home, to, fault.for_us), (to, home, 3 * fault.for_us)):
            self._plan(later_us, partial(self._order, _Order(0, fragment, node, by, 2000)))
        if when.endswith("dies"):
            later_us = (300, 1000, 5000, 20_000)[int(number) % 4]
            self.world.after(fault.for_us + later_us, partial(self._die, home, to))

    def _die(self, name: str, other: str) -> None:
        """It begins anew, and the other one doesn't see that for a while."""
        self.nodes[name].crash()
        for way in ((name, other), (other, name)):
            self.network.cut(*way)
            self.world.after(DEAF_US, partial(self.network.heal, *way))
        self.world.after(AWAY_US, lambda: self.restart(name))

    def _node_of(self, fragment: str) -> str:
        """Who runs it; any node where none does just now."""
        found = (n for n, node in self.nodes.items() if node.alive and fragment in node.brain.fragments)
        return next(found, next(iter(self.nodes)))

    def _plan(self, after_us: int, action: Callable[[], None]) -> None:
        """An order comes so much later."""
        self._planned_us = max(self._planned_us, self.world.now_us + after_us)
        self.world.after(after_us, action)

    def _order(self, order: _Order) -> None:
        self._ask(
            order.by,
            lambda n: Move(request=n, fragment=order.fragment, to=order.to, timeout_ms=order.timeout_ms),
            f"{order.fragment} to {order.to}",
        )

    def _ask(self, by: str, make: Callable[[int], Message], what: str) -> None:
        name = f"mover-{by}"
        client = self.clients.get(name) or self.client(name, by)
        self.world.trace(name, f"orders {what}")
        self._asked.append((self.world.now_us, client, client.mind.request(make)))
        client.do(lambda mind: None)

    # --- what must hold -----------------------------------------------------------------------------

    @property
    def fragments(self) -> Collection[str]:
        """Names of those that move."""
        return self._movable

    def _watch(self, node: NodeMachine) -> None:
        if self._lives.get(node.name) != node.lives:
            self._lives[node.name] = node.lives
            if node.loop is not None and not any(h.frozen for h in node.brain.fragments.values()):
                check_restarted(node, self.nodes, self.clients)
        check_node(node)
        self._check_complaints(node)
        for fragment in self.fragments:
            self._check_owner(fragment)
        self._check_feeds(node)
        self._aims.look(node)

    def _check_feeds(self, node: NodeMachine) -> None:
        """While a node lives it never goes back to an earlier owner of a stream that it reads."""
        if node.loop is None:
            return
        for hosted in node.brain.fragments.values():
            for feed in hosted.spec.feeds:
                about = node.name, node.lives, hosted.spec.name, feed.stream
                epoch, owner = self._feeds.get(about, (0, ""))
                if feed.epoch < epoch or (feed.epoch == epoch and feed.node != owner):
                    raise SimulationError(
                        f"feeds: {hosted.spec.name} at {node.name} reads {feed.stream} of {feed.node} "
                        f"in epoch {feed.epoch}, and read it of {owner} in epoch {epoch}"
                    )
                self._feeds[about] = feed.epoch, feed.node

    def _check_owner(self, fragment: str) -> None:
        """At most one node feeds and emits it, and in each epoch it is always the same one."""
        active = []
        for name, node in self.nodes.items():
            hosted = node.brain.fragments.get(fragment) if node.loop is not None else None
            if hosted is None or hosted.frozen:
                continue
            active.append(name)
            epoch = node.brain.catalog.ownership.epoch(fragment)
            if (fragment, epoch) not in self._owners and epoch > FIRST_EPOCH:
                self._check_disks(fragment, name)
            if (owner := self._owners.setdefault((fragment, epoch), name)) != name:
                raise SimulationError(f"owner: {fragment} in epoch {epoch} is of {owner} and of {name}")
        if len(active) > 1:
            raise SimulationError(f"owner: {fragment} runs at {' and at '.join(active)}")
        self._check_senders(fragment, active)

    def _check_senders(self, fragment: str, active: Collection[str]) -> None:
        """Who doesn't run it sends nothing of it."""
        for name, node in self.nodes.items():
            if name not in active and node.loop is not None and emits(node, fragment):
                raise SimulationError(f"emits: {fragment} is sent by {name}, it runs at {active}")

    def _check_disks(self, fragment: str, owner: str) -> None:
        """Who begins to feed it is its owner by its disk, and nobody else is by theirs."""
        found = [name for name, node in self.nodes.items() if claims(node, fragment)]
        if found != [owner]:
            raise SimulationError(f"owner: {owner} runs {fragment}, by their disks it is of {found}")

    @property
    def _settled(self) -> bool:
        """Nothing is on its way, no order either, and each fragment is at one node."""
        now_us = self.world.now_us
        if now_us <= self._planned_us or any(
            now_us - since_us < ANSWERED_US and number not in client.mind.replies
            for since_us, client, number in self._asked
        ):
            return False
        if any(node.behind_us > BEHIND_US for node in self.nodes.values()):
            return False
        if not all(node.alive for node in self.nodes.values()):
            return False
        brains = [node.brain for node in self.nodes.values()]
        moving = any(brain.orders.status().under_way for brain in brains)
        moving = moving or any(keeps_of_moves(brain.catalog) for brain in brains)
        return not moving and all(
            [fragment in brain.fragments for brain in brains].count(True) == 1 for fragment in self.fragments
        )

    def check_end(self) -> None:
        super().check_end()
        coordinator = self.nodes[self.reader.mind.node].brain.catalog.deployments[self.q.graph.name]
        for (fragment, _), name in self._owners.items():
            if fragment in self.nodes[name].brain.fragments and name not in coordinator.nodes:
                raise SimulationError(f"placed: {coordinator.nodes} is all that is known of, not {name}")

    @property
    def ended(self) -> bool:
        if not self._settled:
            self._settled_us = None
            return False
        if self._settled_us is None:
            # What was agreed on before counts no more; what has changed is written in a moment.
            self._settled_us = self._look_at_us = self.world.now_us
            self._resting = False
        if self.world.now_us - self._settled_us < NEWS_US or not super().ended:
            return False
        if not self._last:
            self._order_last()
        return self._last_done()

    def _order_last(self) -> None:
        """Two neighbours, at once."""
        dice, self._last_us = self.world.dice("last moves"), self.world.now_us
        specs = {
            spec.name: spec for node in self.nodes.values() for spec in node.brain.catalog.fragments.values()
        }
        names = sorted(set(specs) & set(self.fragments))
        streams = {name: set(specs[name].streams.values()) for name in names}
        pairs = [
            (one, other)
            for one in names
            for other in names
            if any(feed.stream in streams[one] for feed in specs[other].feeds)
        ]
        chosen = dice.choice(pairs or [(name,) for name in names])
        for number, fragment in enumerate(chosen if dice.random() < 0.5 else chosen[::-1]):
            to = dice.choice([name for name in self.nodes if name != specs[fragment].node])
            name, order = f"mover-last-{number}", Move(request=0, fragment=fragment, to=to, timeout_ms=10_000)
            self.world.trace(name, f"orders {fragment} to {to}")
            client = self.client(name, dice.choice(list(self.nodes)))
            self._last[name] = client.mind.request(partial(numbered, order))
            client.do(lambda mind: None)

    def _last_done(self) -> bool:
        """Whether both are.

        Raises:
            SimulationError: one isn't for long, or was tried again and again.
        """
        took_us = self.world.now_us - self._last_us
        done = [self.clients[name].mind.replies.get(number) for name, number in self._last.items()]
        for reply, figures in filter(None, done):
            if reply.code and reply.code not in FINAL:
                raise SimulationError(f"moves: all is well, and one isn't done: {reply.code} {reply.text}")
            tries = 1 if figures is None else msgspec.json.decode(figures)["attempts"]
            if tries > LAST_ATTEMPTS_MAX:
                raise SimulationError(f"moves: all is well, and one took {tries} attempts")
        if None in done and took_us > LAST_US:
            raise SimulationError(f"moves: all is well, and one isn't done after {took_us / 1e6:g} s")
        return None not in done


def numbered(order: Move, number: int) -> Move:
    """With the number of the request."""
    return msgspec.structs.replace(order, request=number)


def keeps_of_moves(catalog: Catalog) -> bool:
    """Whether anything in it is to be undone, or waits for others to hear of it."""
    untold = any(left.untold for left in catalog.left.values())
    return bool(catalog.expected or catalog.ownership.moves or catalog.ownership.unplaced or untold)


def emits(node: NodeMachine, fragment: str) -> bool:
    """Whether it would send what a fragment makes, be it its own or what it has of another's."""
    hosted = node.brain.fragments.get(fragment) or node.brain.orders.shadow(fragment)
    return hosted is not None and any(not output.sender.muted for output in hosted.outputs.values())


def claims(node: NodeMachine, fragment: str) -> bool:
    """Whether it would feed this fragment if it started now: by its newest whole catalog."""
    data = newest_catalog(node)
    if data is None:
        return False
    found = Catalog.from_bytes(data, node=node.name, where=node.name)
    moving = found.ownership.moves.get(fragment)
    return fragment in found.fragments and not (moving is not None and moving.handing)


@lru_cache(maxsize=64)
def answered(
    kind: str, seed: int, rows: int, keys: Keys = few_keys
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Rows, and what one program makes of them."""
    q, _ = KINDS[kind][0]()
    dice = Random(f"move {kind} {seed}")
    tables = {source: table(dice, rows, keys) for source in q.sources}
    return tables, dict(collect(q, **tables))


def moves(world: World, rows: int | None, parts: Any, **more: Any) -> QueryTrial:
    dice = world.dice("options")
    kind = dice.choice(["slides", "slides", "parts", "unites"])
    make, middle, ends = KINDS[kind]
    q, at = make()
    movable = middle + ends if dice.random() < 0.6 else middle
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows)
    number = dice.randrange(1, 7)
    return MoveTrial(world, q, tables, options(dice, at, **more), want=want, movable=movable, moves=number)


MOVES: dict[str, Scenario] = {
    "move": Scenario(
        about="fragments move between five nodes at random moments: one owner each, the same answer",
        build=moves,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *AIMED, *AIMED, *AIMED, "crash in a move"],
        more=[*LATE, *BELIEVED, *["stale move"] * 4],
        count=12,
        events_max=600_000,
    ),
    "returns": Scenario(
        about="fragments go somewhere and come back at once, and what was said of that comes late or again",
        build=moves,
        kinds=["jitter", "repeat", "crash", "write fails"],
        count=2,
        more=["stale move", "stale move", "stuck connection"],
        events_max=600_000,
    ),
}
