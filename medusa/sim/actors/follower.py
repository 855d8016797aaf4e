"""A client that goes after what it reads and publishes: ``medusa.runtime.client.followed_names`` in virtual
time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from medusa.query.boxes import Schema
from medusa.sim.actors.client import Client
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.client_mind import ClientMind, ClientPublication, ClientSubscription
from medusa.wire.link.redirect import FOLLOWED, RedirectStep, ask_again_us, next_step
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.links import OLDEST, Refuse

__all__ = ["Follower"]

LOOK_US = 50_000
CALLED_MAX = 2
"""So many other nodes are called when one is lost."""

ANSWER_US = 2_000_000
"""After this another node is asked."""


@dataclass(slots=True)
class _Trail:
    """One stream that is followed.

    Attributes:
        kind: ``stream`` or ``source``.
        node: by which it goes; empty: nobody has said yet where it is.
        later: what is published until then.
        asked: the node that was asked where it is, the number of the question, and since when.
        asked_us: when it was last asked for; by turns of the nodes that are there.
        turns: so often since its node was lost.
    """

    kind: str
    node: str = ""
    epoch: int = 0
    schema: Schema | None = None
    later: list[pa.Table | pa.RecordBatch] = field(default_factory=list)
    ends: bool = False
    asked: tuple[str, int, int] | None = None
    asked_us: int = -1
    turns: int = 0
    missing_since_us: int | None = None


class Follower(Client):
    """A client of one node that publishes and reads at any.

    Args:
        nodes: all that it may come to.
        may_give_up: whether more was lost than stood by: a stream may be nowhere.

    Attributes:
        read_as: stream -> the name under which it reads it.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        node: str,
        nodes: Iterable[str],
        *,
        may_give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(world, network, name, node)
        self.read_as: dict[str, str] = {}
        self._nodes = tuple(nodes)
        self._may_give_up = may_give_up
        self._there: dict[str, ClientMind] = {node: self.mind}
        self._away_since_us: dict[str, int] = {}
        self._trails: dict[str, _Trail] = {}
        self._looks = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._nodes

    @property
    def minds(self) -> list[ClientMind]:
        return list(self._there.values())

    def _mind_of(self, node: str) -> ClientMind:
        """The mind for the connection with a node."""
        if node not in self._there:
            self._there[node] = ClientMind(self.name, node)
        return self._there[node]

    # --- what a program does ------------------------------------------------------------------

    def publish(self, name: str, rows: pa.Table | pa.RecordBatch, schema: Schema) -> None:
        trail = self._follow(name, "source")
        trail.schema = schema
        if trail.node:
            super().publish(name, rows, schema)
        else:
            trail.later.append(rows)

    def finish(self, name: str, schema: Schema) -> None:
        if self._follow(name, "source").node:
            super().finish(name, schema)
        else:
            self._trails[name].ends = True

    def read(self, name: str) -> None:
        self._follow(name, "stream")

    def _follow(self, name: str, kind: str) -> _Trail:
        trail = self._trails.setdefault(name, _Trail(kind))
        if not self._looks:
            self._looks = True
            self._look()
        return trail

    # --- following ----------------------------------------------------------------------------

    def _look(self) -> None:
        if self.dead:
            return
        now_us = self._world.now_us
        for node, mind in self._there.items():
            if mind.up:
                self._away_since_us.pop(node, None)
            else:
                self._away_since_us.setdefault(node, now_us)
        if self._away_since_us:
            self._call_others()
        for name, trail in self._trails.items():
            self._look_after(name, trail)
        self._world.after(LOOK_US, self._look)
        self._settle()

    def _call_others(self) -> None:
        """Have others than the one that is lost. Those that were called stay so."""
        there = len(self._there) - len(self._away_since_us)
        others = [node for node in self._nodes if node not in self._there]
        for node in others[: max(CALLED_MAX - there, 0)]:
            self._mind_of(node)

    def _look_after(self, name: str, trail: _Trail) -> None:
        refusal = self._refusal(name, trail)
        now_us = self._world.now_us
        away_us = now_us - self._away_since_us.get(trail.node, now_us)
        trail.turns = trail.turns if away_us else 0
        rests = refusal is None and now_us - trail.asked_us < ask_again_us(away_us)
        wants = not trail.node or refusal is not None or away_us > 0
        if trail.asked is None:
            if wants and not (trail.node and rests):
                self._look_up(name, trail)
            return
        node, number, asked_us = trail.asked
        mind = self._there[node]
        if number in mind.replies:
            reply, payload = mind.replies.pop(number)
            trail.asked = None
            place = None if reply.code or payload is None else msgspec.json.decode(bytes(payload))
            if wants:
                self._told(name, trail, refusal, None if place is None else (place["node"], place["epoch"]))
        elif now_us - asked_us >= ANSWER_US or not mind.up:
            mind.give_up(number)
            trail.asked = None

    def _look_up(self, name: str, trail: _Trail) -> None:
        there = [node for node, mind in self._there.items() if mind.up] or [self.mind.node]
        node = there[trail.turns % len(there)]
        number = self._there[node].request(lambda n: Lookup(request=n, name=name, kind=trail.kind))
        trail.asked, trail.asked_us = (node, number, self._world.now_us), self._world.now_us
        trail.turns += 1

    def _refusal(self, name: str, trail: _Trail) -> Refuse | None:
        """After which it must be looked for."""
        of = self._stream(name, trail)
        last = (
            of.refusal if isinstance(of, ClientPublication) else None if of is None else of.receiver.refusal
        )
        return last if last is not None and last.code in FOLLOWED else None

    def _stream(self, name: str, trail: _Trail) -> ClientPublication | ClientSubscription | None:
        mind = self._there.get(trail.node)
        if mind is None:
            return None
        return (mind.publications if trail.kind == "source" else mind.subscriptions).get(name)

    def _told(self, name: str, trail: _Trail, refusal: Refuse | None, place: tuple[str, int] | None) -> None:
        now_us = self._world.now_us
        if place is not None:
            trail.missing_since_us = None
        elif trail.missing_since_us is None:
            trail.missing_since_us = now_us
        if not trail.node:
            if place is not None:
                self._begin(name, trail, *place)
            return
        step = next_step(
            refusal.code if refusal is not None else "",
            here=trail.node,
            epoch=trail.epoch,
            place=place,
            missing_us=0 if trail.missing_since_us is None else now_us - trail.missing_since_us,
        )
        if step is RedirectStep.GIVE_UP and not self._may_give_up():
            raise SimulationError(f"follow: {self.name} gives up {name}: {refusal}, {place}")
        if step is RedirectStep.MOVE and place is not None:
            self._move(name, trail, *place)

    def _begin(self, name: str, trail: _Trail, node: str, epoch: int) -> None:
        trail.node, trail.epoch = node, epoch
        mind = self._mind_of(node)
        if trail.kind == "stream":
            mind.subscribe(self._world.now_us, name, OLDEST, name=self.read_as.get(name, ""))
            return
        assert trail.schema is not None
        self._publishes(mind, name, trail.schema)
        for rows in trail.later:
            super().publish(name, rows, trail.schema)
        if trail.ends:
            super().finish(name, trail.schema)

    def _move(self, name: str, trail: _Trail, node: str, epoch: int) -> None:
        self._world.trace(self.name, f"goes after {name} to {node}, epoch {epoch}")
        of, before, there = self._stream(name, trail), self._there[trail.node], self._mind_of(node)
        if isinstance(of, ClientSubscription):
            there.take_subscription(self._world.now_us, of)
            if there is not before:
                del before.subscriptions[name]
        elif isinstance(of, ClientPublication):
            there.take_publication(self._world.now_us, of)
            if there is not before:
                del before.publications[name]
        trail.node, trail.epoch = node, epoch
