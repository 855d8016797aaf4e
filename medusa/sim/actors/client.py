"""A client of one simulated node: it publishes, reads, deploys and asks, and keeps what came."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from medusa.elements import END_US, START_US, Train
from medusa.errors import LinkError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.query.builder import Query
from medusa.query.codec import graph_to_msgpack
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.client_mind import ClientMind, ClientPublication
from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
from medusa.wire.link.receiver import Delivery, LostRows, ReceivedPromise, ReceivedRows, Receiver
from medusa.wire.link.tentative_receiver import (
    StateChanged,
    TentativeDelivery,
    TentativePromise,
    TentativeRowsCame,
)
from medusa.wire.messages.commands import Deploy, Remove, Reply, StatusRequest
from medusa.wire.messages.links import OLDEST
from medusa.wire.messages.standby import DeployGuarded
from medusa.wire.outbox import Send

__all__ = ["Client", "LaneReader"]

FAR = 1 << 37
"""No run has so many rows: numbers in between belong to none."""


class LaneReader(Protocol):
    """Looks at what comes of a stream by both lanes, in order."""

    def stable(self, train: Train) -> None: ...

    def promised(self, time_us: int) -> None: ...

    def turned(self, change: StateChanged) -> None: ...

    def tentative(self, came: TentativeRowsCame, train: Train) -> None: ...

    def promised_tentatively(self, promise: TentativePromise) -> None: ...


class Client:
    """A program with a connection to one node. It has no disk.

    Attributes:
        mind: positions, replies, refusals.
        rows: by stream, what was read.
        first_seq: by stream, the number of the first row that was read.
        lost: by stream, rows that the stream said are lost; ``gaps``: from which number to before which.
        versions: by stream, the version with which rows came last.
        renumbered: by stream, how often rows went on under much higher numbers.
        ended: streams that came to their end.
        names: stream -> the name under which it publishes it.
        lanes: stream -> what looks at both lanes of it.
        dead: it was killed.
    """

    dead = False

    def __init__(self, world: World, network: Network, name: str, node: str) -> None:
        self.name = name
        self.mind = ClientMind(name, node)
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        self.first_seq: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        self.versions: dict[str, int] = {}
        self.renumbered: dict[str, int] = {}
        self.ended: set[str] = set()
        self.names: dict[str, str] = {}
        self.lanes: dict[str, LaneReader] = {}
        self._world = world
        self._network = network
        self._codecs: dict[str, TrainCodec] = {}
        self._promised_us: dict[str, int] = {}
        self._next_seq: dict[str, int] = {}
        self._wake_at_us = -1
        world.after(1, self._settle)

    @property
    def nodes(self) -> Sequence[str]:
        """Nodes with which it may speak."""
        return (self.mind.node,)

    @property
    def minds(self) -> Sequence[ClientMind]:
        """One for each node with which it speaks."""
        return (self.mind,)

    def publication(self, name: str) -> ClientPublication | None:
        """What it publishes into a source."""
        return next((mind.publications[name] for mind in self.minds if name in mind.publications), None)

    # --- what a program does ------------------------------------------------------------------

    def publish(self, name: str, rows: pa.Table | pa.RecordBatch, schema: Schema) -> None:
        """Publish rows into a source."""
        codec = self._codecs.setdefault(f"out {name}", TrainCodec(schema, timed=False))
        publication = self._publication(name, schema)
        batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()
        for batch in batches:
            for payload, count, _late in codec.encode(Train(batch=batch)):
                publication.sender.train(self._world.now_us, memoryview(payload), count)
        self._settle()

    def finish(self, name: str, schema: Schema) -> None:
        """No more rows of ours will come into that source."""
        self._publication(name, schema).sender.boundary(self._world.now_us, END_US)
        self._settle()

    def read(self, name: str) -> None:
        """Read a stream from its oldest row on."""
        self.do(lambda mind: mind.subscribe(self._world.now_us, name, OLDEST))

    def read_lanes(self, name: str, lanes: LaneReader) -> None:
        """The same, and its tentative lane too."""
        self.lanes[name] = lanes
        self.do(lambda mind: mind.subscribe(self._world.now_us, name, OLDEST, tentative=True))

    def deploy(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]],
        reads: Sequence[tuple[str, str, str, int]] = (),
        *,
        standby: Mapping[str, Sequence[str]] | None = None,
        witnesses: Sequence[str] = (),
        checkpoint_every: Mapping[str, int] | None = None,
    ) -> int:
        """Ask for a query; the number of the request.

        Args:
            reads: (source, node, stream, epoch) of sources that read streams of other queries.
            standby: node, box, fragment or ``*`` -> who stands by for it; nobody: the node chooses.
            witnesses: nodes that vote on who takes over, and run nothing of it.
            checkpoint_every: node, box, fragment or ``*`` -> us between two checkpoints.
        """
        places = tuple((node, tuple(boxes)) for node, boxes in at.items())
        deploy: Deploy | DeployGuarded = Deploy(request=0, at=places, reads=tuple(reads))
        if standby or witnesses or checkpoint_every:
            deploy = DeployGuarded(
                request=0,
                at=places,
                reads=tuple(reads),
                standby=tuple((key, tuple(nodes)) for key, nodes in (standby or {}).items()),
                witnesses=tuple(witnesses),
                checkpoint_every=tuple((checkpoint_every or {}).items()),
            )
        document = graph_to_msgpack(q.graph)
        return self.ask(
            lambda mind: mind.request(lambda n: msgspec.structs.replace(deploy, request=n), document)
        )

    def deploy_guarded(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]],
        standby: Mapping[str, Sequence[str]],
        witnesses: Sequence[str],
        *,
        reads: Sequence[tuple[str, str, str, int]] = (),
    ) -> int:
        """Ask for a query whose fragments others stand by for; the number of the request."""
        message = DeployGuarded(
            request=0,
            at=tuple((node, tuple(boxes)) for node, boxes in at.items()),
            standby=tuple((key, tuple(nodes)) for key, nodes in standby.items()),
            witnesses=tuple(witnesses),
            reads=tuple(reads),
        )
        document = graph_to_msgpack(q.graph)
        return self.ask(lambda mind: mind.request(lambda n: replace(message, request=n), document))

    def undeploy(self, name: str) -> int:
        """Ask for its removal; the number of the request."""
        return self.ask(lambda mind: mind.request(lambda n: Remove(request=n, query=name)))

    def status(self) -> int:
        """Ask how the node is; the number of the request."""
        return self.ask(lambda mind: mind.request(lambda n: StatusRequest(request=n)))

    def die(self) -> None:
        """It is killed: it hears and says nothing."""
        self.dead = True

    def wake(self) -> None:
        """It was thought dead, and goes on."""
        self.dead = False
        self._settle()

    def do(self, action: Callable[[ClientMind], object]) -> None:
        """Do something with the mind, and then what it wants."""
        action(self.mind)
        self._settle()

    def ask(self, action: Callable[[ClientMind], int]) -> int:
        """Ask for something; the number of the request."""
        number = action(self.mind)
        self._settle()
        return number

    def give_up(self, request: int) -> None:
        """Wait for its answer no longer."""
        self.mind.give_up(request)

    def take_reply(self, request: int) -> Reply:
        """The answer that has come, once."""
        reply, _ = self.mind.replies[request]
        self.give_up(request)
        return reply

    def _publication(self, name: str, schema: Schema) -> ClientPublication:
        return self.publication(name) or self._publishes(self.mind, name, schema)

    def _publishes(self, mind: ClientMind, name: str, schema: Schema) -> ClientPublication:
        durable = self.names.get(name, "")
        made = mind.publish(self._world.now_us, name, schema, timed=False, name=durable)
        if self._world.dice("gathers").randrange(2):  # Else more trains come, and more happens
            codec = self._codecs.setdefault(f"out {name}", TrainCodec(schema, timed=False))
            made.sender.gathers_by(codec.gathered, over_boundaries=False)
        return made

    # --- what happens -------------------------------------------------------------------------

    def deliver(self, source: str, frames: list[Buffer]) -> None:
        """A message arrived."""
        if self.dead:
            return
        mind = next((mind for mind in self.minds if mind.node == source), self.mind)
        try:
            mind.receive(self._world.now_us, *decode_frame(frames, peer=source))
        except (RemoteProtocolError, LinkError) as error:
            raise SimulationError(f"rules: {self.name} hears of {source}: {error}") from error
        self._settle()

    def _settle(self) -> None:
        if self.dead:
            return
        now_us = self._world.now_us
        wake_at_us = min(self._settle_one(now_us, mind) for mind in self.minds)
        if not now_us < self._wake_at_us <= wake_at_us:
            self._wake_at_us = wake_at_us
            self._world.at(wake_at_us, self._settle)

    def _settle_one(self, now_us: int, mind: ClientMind) -> int:
        """Do what it wants; when it wants something again."""
        mind.tick(now_us)
        for name, subscription in mind.subscriptions.items():
            while (delivery := subscription.take(now_us)) is not None:
                self._take(name, subscription.receiver, delivery)
        for effect in mind.outbox.take():
            if isinstance(effect, Send):
                frames: list[Buffer] = [bytes(each) for each in encode_frame(effect.message, effect.payload)]
                self._network.send(self.name, effect.peer, frames)
        return max(mind.wake_at_us(now_us) or now_us + 1_000_000, now_us + 1)

    def _take(self, name: str, receiver: Receiver, delivery: Delivery | TentativeDelivery) -> None:
        """Keep it; numbers follow each other, and no row comes below a promise."""
        match delivery:
            case ReceivedRows():
                self._renumber(name, delivery.seq, receiver.stream_version)
                self._number(name, delivery.seq, delivery.message.seq + delivery.message.rows)
                train = self._codec(name, receiver).decode(
                    delivery.message, delivery.payload, skip=delivery.skip
                )
                self.rows.setdefault(name, []).append(train.batch)
                if name in self.lanes:
                    self.lanes[name].stable(train)
            case LostRows():
                self._number(name, delivery.from_seq, delivery.to_seq)
                self.lost[name] = self.lost.get(name, 0) + delivery.to_seq - delivery.from_seq
                self.gaps.setdefault(name, []).append((delivery.from_seq, delivery.to_seq))
            case ReceivedPromise(time_us=time_us):
                if time_us <= self._promised_us.get(name, START_US):
                    raise SimulationError(f"promises: {self.name} got {time_us} of {name} again")
                self._promised_us[name] = time_us
                if name in self.lanes:
                    self.lanes[name].promised(time_us)
                if time_us >= END_US:
                    self.ended.add(name)

            case StateChanged() | TentativeRowsCame() | TentativePromise():
                self._take_tentative(name, receiver, delivery)

    def _take_tentative(self, name: str, receiver: Receiver, delivery: TentativeDelivery) -> None:
        lanes = self.lanes.get(name)
        match delivery:
            case _ if lanes is None:
                pass
            case StateChanged():
                lanes.turned(delivery)
            case TentativeRowsCame():
                train = self._codec(name, receiver).decode(delivery.message, delivery.payload)
                lanes.tentative(delivery, train)
            case TentativePromise():
                lanes.promised_tentatively(delivery)

    def _codec(self, name: str, receiver: Receiver) -> TrainCodec:
        """For its rows, on either lane."""
        if name not in self._codecs:
            assert receiver.schema is not None
            self._codecs[name] = TrainCodec(receiver.schema, timed=bool(receiver.timed))
        return self._codecs[name]

    def _renumber(self, name: str, seq: int, version: int) -> None:
        """Rows may come again, under much higher numbers."""
        self.versions[name] = version
        if seq - self._next_seq.get(name, seq) >= FAR:
            self.renumbered[name] = self.renumbered.get(name, 0) + 1
            self._next_seq[name] = seq

    def _number(self, name: str, seq: int, end: int) -> None:
        self.first_seq.setdefault(name, seq)
        wanted = self._next_seq.get(name, seq)
        if seq != wanted:
            raise SimulationError(f"delivered: {self.name}: row {seq} of {name} came, row {wanted} is next")
        self._next_seq[name] = end
