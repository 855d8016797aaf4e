"""Whole nodes in virtual time: the brain, its driver, the engine and recovery as in a process; only
the clock, the network, the disk and the threads are simulated. One seed, one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.errors import RemoteProtocolError, StateError
from medusa.node.brain import Brain
from medusa.node.settings import Limits, Settings
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.host import FragmentHost
from medusa.runtime.loop import NodeLoop
from medusa.runtime.recovery import recover
from medusa.runtime.zeromq import Arrival
from medusa.sim.disk import Disk
from medusa.sim.network import Faults, Network
from medusa.sim.world import World
from medusa.wire.client import ClientMind
from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
from medusa.wire.messages import OLDEST, Deploy, Remove, StatusRequest
from medusa.wire.outbox import Send
from medusa.wire.receiver import Lost, Promise, Rows

EVENTS_MAX = 3_000_000


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + self._world.now_us

    def monotonic_us(self) -> int:
        return self._world.now_us


class _Worker:
    """A thread in virtual time: each job takes a little, and dies with its life."""

    idle = True

    def __init__(self, world: World, alive: Callable[[], bool], job_us: int) -> None:
        self._world = world
        self._alive = alive
        self._job_us = job_us
        self._free_us = 0

    def give(self, job: Callable[[], None]) -> None:
        took = self._world.random.randrange(1, 2 * self._job_us)
        self._free_us = max(self._free_us, self._world.now_us) + took
        self._world.at(self._free_us, lambda: job() if self._alive() else None)

    def stop(self) -> None:
        """Nothing runs beside us."""


class _Links:
    """The transport of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def wait(self, timeout_ms: int):
        raise AssertionError("virtual nodes are never waited for")

    def send(self, link: str, frames: Sequence) -> None:
        node = self._node
        copies = [bytes(frame) for frame in frames]
        node.network.send(node.name, link.removeprefix("in-").split("#")[0], copies)

    def cut(self, link: str, *, shun: bool = True) -> None:
        """Connections come back by themselves."""

    def calls(self, link: str) -> bool:
        return link in self._node.settings.peers

    def wake(self) -> None:
        self._node.soon()


class Node:
    """One machine: a disk, and a node while it is alive."""

    def __init__(
        self, world: World, network: Network, settings: Settings, *, sync_us: int, job_us: int
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.world = world
        self.network = network
        self.disk = Disk(self.name)
        self.lives = 0
        self.loop: NodeLoop | None = None
        self.reports: list = []
        self._sync_us = sync_us
        self._job_us = job_us
        self._clock = _Clock(world)
        self._wake_at_us = -1

    def start(self) -> None:
        self.lives += 1
        life = self.lives

        def alive() -> bool:
            return self.lives == life and self.loop is not None

        def worker(name: str) -> _Worker:
            return _Worker(self.world, alive, self._sync_us if name == "medusa-disk" else self._job_us)

        found = recover(self.disk, self._clock, node=self.name, warn=self._warn)
        host = FragmentHost(self.disk, self._clock, wake=self.soon, worker=worker)
        for name, fragment in found.fragments.items():
            host.resume(name, fragment, found.needed.get(name, {}))
        self.brain = Brain(
            self.settings,
            incarnation=found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
        )
        self.loop = NodeLoop(self.brain, _Links(self), host, self._clock, say=self._say)
        self.world.trace(self.name, f"starts, life {life}")
        self.loop.begin()
        self.soon()

    def _say(self, report) -> None:
        self.reports.append(report)
        self.world.trace(self.name, f"{report.level}: {report.what} {dict(report.fields)}")

    def _warn(self, text: str) -> None:
        self.world.trace(self.name, f"warning: {text}")

    def crash(self) -> None:
        """``kill -9``."""
        if self.loop is not None:
            self.world.trace(self.name, "crashes")
            self.loop = None
            self.disk.crash()
            self.network.forget(self.name)

    def deliver(self, source: str, frames: list) -> None:
        link = f"in-{source}"
        self._turn([Arrival(link, tuple(memoryview(frame) for frame in frames))])

    def soon(self) -> None:
        """Something has finished: look at it in a moment."""
        self.world.after(10, lambda: self._turn([]))

    def _turn(self, events: list) -> None:
        if self.loop is None:
            return
        life = self.lives
        wake_at_us = max(self.loop.turn(events), self.world.now_us + 1)
        if not self.world.now_us < self._wake_at_us <= wake_at_us:
            self._wake_at_us = wake_at_us
            self.world.at(wake_at_us, lambda: self._turn([]) if self.lives == life else None)


class Client:
    """A client of one node."""

    def __init__(self, world: World, network: Network, name: str, node: str) -> None:
        self.name = name
        self.mind = ClientMind(name, node)
        self.rows: dict[str, list[pa.RecordBatch]] = {}
        self.lost: dict[str, int] = {}
        self.ended: set[str] = set()
        self._world = world
        self._network = network
        self._wake_at_us = -1
        world.after(1, lambda: self.do(lambda mind: None))

    def do(self, action: Callable[[ClientMind], object]) -> object:
        """Do something with the mind, and then what it wants."""
        answer = action(self.mind)
        self._settle()
        return answer

    def deliver(self, source: str, frames: list) -> None:
        try:
            self.mind.receive(self._world.now_us, *decode_frame(frames, peer=source))
        except RemoteProtocolError as error:
            raise AssertionError(f"a node broke a rule: {error}") from error
        self._settle()

    def _settle(self) -> None:
        now_us = self._world.now_us
        self.mind.tick(now_us)
        for name, subscription in self.mind.subscriptions.items():
            while (delivery := subscription.take(now_us)) is not None:
                self._take(name, subscription.receiver, delivery)
        for effect in self.mind.outbox.take():
            if isinstance(effect, Send):
                frames = [bytes(frame) for frame in encode_frame(effect.message, effect.payload)]
                self._network.send(self.name, effect.peer, frames)
        wake_at_us = self.mind.wake_at_us(now_us) or now_us + 1_000_000
        wake_at_us = max(wake_at_us, now_us + 1)
        if not now_us < self._wake_at_us <= wake_at_us:
            self._wake_at_us = wake_at_us
            self._world.at(wake_at_us, self._settle)

    def _take(self, name: str, receiver, delivery) -> None:
        match delivery:
            case Rows():
                codec = TrainCodec(receiver.schema, timed=receiver.timed)
                train = codec.decode(delivery.message, delivery.payload, skip=delivery.skip)
                self.rows.setdefault(name, []).append(train.batch)
            case Lost():
                self.lost[name] = self.lost.get(name, 0) + delivery.to_seq - delivery.from_seq
            case Promise(time_us=time_us) if time_us >= END_US:
                self.ended.add(name)
            case Promise():
                pass

    def publish(self, name: str, table: pa.Table, schema) -> None:
        codec = TrainCodec(schema, timed=False)
        publication = self._publication(name, schema)
        for batch in table.combine_chunks().to_batches():
            for payload, rows, _late in codec.encode(Train(batch=batch)):
                publication.sender.train(self._world.now_us, memoryview(payload), rows)
        self._settle()

    def finish(self, name: str, schema) -> None:
        self._publication(name, schema).sender.boundary(self._world.now_us, END_US)
        self._settle()

    def _publication(self, name: str, schema):
        known = self.mind.publications.get(name)
        return known or self.mind.publish(self._world.now_us, name, schema, timed=False)

    def read(self, name: str) -> None:
        self.do(lambda mind: mind.subscribe(self._world.now_us, name, OLDEST))

    def deploy(self, q, at) -> int:
        places = tuple((node, tuple(boxes)) for node, boxes in at.items())
        document = graph_to_msgpack(q.graph)
        return self.do(lambda mind: mind.request(lambda n: Deploy(request=n, at=places), document))

    def undeploy(self, name: str) -> int:
        return self.do(lambda mind: mind.request(lambda n: Remove(request=n, query=name)))

    def status(self) -> int:
        return self.do(lambda mind: mind.request(lambda n: StatusRequest(request=n)))


class Federation:
    """Nodes that all know each other, and clients."""

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        *,
        faults: Faults | None = None,
        limits: Limits | None = None,
        sync_us: int = 2000,
        job_us: int = 50,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world, faults or Faults(), self._deliver)
        self.nodes: dict[str, Node] = {}
        self.clients: dict[str, Client] = {}
        limits = limits or Limits(checkpoint_every_us=200_000)
        for name in names:
            peers = {other: f"ipc:///{other}" for other in names if other != name}
            settings = Settings(name=name, listen=f"ipc:///{name}", data=name, peers=peers, limits=limits)
            self.nodes[name] = Node(self.world, self.network, settings, sync_us=sync_us, job_us=job_us)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def client(self, name: str, node: str) -> Client:
        made = self.clients[name] = Client(self.world, self.network, name, node)
        return made

    def _deliver(self, source: str, target: str, frames: list) -> None:
        if target in self.nodes:
            self.nodes[target].deliver(source, frames)
        elif target in self.clients:
            self.clients[target].deliver(source, frames)

    def run(self, done: Callable[[], bool] = lambda: False, *, for_us: int = 60_000_000) -> bool:
        return self.world.run(until_us=self.world.now_us + for_us, events_max=EVENTS_MAX, done=done)

    def answer(self, client: Client, request: int):
        """The reply to a request."""
        assert self.run(lambda: request in client.mind.replies), self.last()
        return client.mind.replies.pop(request)

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        if node.loop is None:
            try:
                node.start()
            except StateError as error:
                # The disk fails: whoever looks after the process starts it again.
                self.world.trace(name, f"can't start: {error}")
                self.world.after(100_000, lambda: self.restart(name))

    def last(self) -> str:
        return "\n".join(self.world.lines)
