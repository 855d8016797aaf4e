"""Scenarios as text: commands, ``----``, and the complete trace that followed. One chain per text.

Commands: ``chain relays=2 window=1200 ...`` (first), ``publish ROWS``, ``boundary``, ``run 300ms``,
``cut a > b`` or ``cut a - b`` (one way, both), ``heal a - b``, ``crash r1``, ``start r1``,
``fail r1 2`` (its next two writes), ``deaf`` and ``listen`` (the reader takes nothing, takes again),
``crash r1 torn`` (or ``kept``: its unsynced writes), ``lose r1`` (its disk), ``flip r1 9`` (a bit of its
newest checkpoint), ``pause r1 400ms``, ``reconnect a > b 5ms`` (what was sent in the last 5 ms is lost).

In the trace ``r2 <- r1 Data 0..9`` is a frame that arrived. Heartbeats are left out, and so are
acks that say nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from medusa.ports import Buffer
from medusa.sim.actors.chain_ends import PublisherActor, SubscriberActor
from medusa.sim.actors.relay import pack_rows
from medusa.sim.trials.chain import Chain, ChainClasses, ChainOptions
from medusa.sim.world.network import Faults, Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.codec import decode_frame
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.messages import Message
from medusa.wire.messages.links import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Heartbeat,
    Hello,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows, TentativeTaken

__all__ = ["Script"]

Act: TypeAlias = tuple[int, tuple[Buffer, int] | None, int | None]


class TracedChain(Chain):
    """Says what arrives; publishes only when told."""

    def __init__(self, world: World, options: ChainOptions, parts: ChainClasses | None) -> None:
        super().__init__(world, options, parts)
        self.published = 0
        self._epochs: dict[str, list[int]] = {}
        self._acked: dict[tuple[str, str], tuple[int, int, int]] = {}

    def _script(self) -> Iterator[Act]:
        return iter(())

    def next_values(self, count: int) -> list[int]:
        """Those that the publisher publishes next."""
        first = self.published
        self.published += count
        return list(range(first, self.published))

    def act(self, rows: tuple[Buffer, int] | None, boundary_us: int | None) -> None:
        """The publisher does this now."""
        actor = self.hosts["pub"].mind
        assert isinstance(actor, PublisherActor)
        actor.add((0, rows, boundary_us))
        self.hosts["pub"].call(actor.work)

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        message, _ = decode_frame(frames)
        text = self._words(source, target, message)
        if text and self.hosts[target].alive:
            self.world.trace(target, f"<- {source} {type(message).__name__}{text}")
        super()._deliver(source, target, frames)

    def _epoch(self, stream: str, epoch: int) -> str:
        """Epochs as #1, #2 ... per stream, in the order in which they came up."""
        known = self._epochs.setdefault(stream, [])
        if epoch not in known:
            known.append(epoch)
        return f"#{known.index(epoch) + 1}"

    def _words(self, source: str, target: str, message: Message) -> str:
        match message:
            case Heartbeat():
                return ""
            case Hello():
                return f" life {message.incarnation}{' ?' if message.answer else ''}"
            case OpenPublisher():
                return f" {message.stream}"
            case Refuse():
                return f" {message.stream} {message.code}"
            case Ack():
                news = (message.epoch, message.received, message.durable)
                if self._acked.get((source, message.stream)) == news:
                    return ""
                self._acked[source, message.stream] = news
                return (
                    f" {message.stream}{self._epoch(message.stream, message.epoch)}"
                    f" received {message.received} durable {message.durable}"
                )
            case Attach() | Attached() | Data() | Boundary() | Progress() | TentativeTaken():
                words = f" {message.stream}{self._epoch(message.stream, message.epoch)}"
            case StreamState() | TentativeRows() | TentativeBoundary():
                words = f" {message.stream}{self._epoch(message.stream, message.epoch)}"
            case _:
                return " "
        match message:
            case Attach():
                return f"{words} from row {message.next_seq}, credit {message.granted}"
            case Attached():
                return f"{words} at row {message.next_seq}"
            case Data():
                return f"{words} frame {message.frame}: rows {message.seq}..{message.seq + message.rows - 1}"
            case Boundary():
                return f"{words} frame {message.frame}: no time below {message.time_us}"
            case Progress():
                return f"{words} sent {message.frames} frames{', pressed' if message.pressed else ''}"
            case StreamState():
                return f"{words} {message.state}, fork {message.fork}"
            case TentativeRows():
                last = message.seq + message.rows - 1
                return f"{words} fork {message.fork}: rows {message.seq}..{last}"
            case TentativeBoundary():
                return f"{words} fork {message.fork}: no time below {message.time_us}"
        return words


class Script:
    """Runs texts: see the top of this module.

    Args:
        parts: classes under test.
    """

    def __init__(self, parts: ChainClasses | None = None) -> None:
        self._chain: TracedChain | None = None
        self._parts = parts

    @property
    def chain(self) -> TracedChain:
        """The chain of the text.

        Raises:
            SimulationError: the text doesn't begin with ``chain``.
        """
        if self._chain is None:
            raise SimulationError("a text begins with the command chain")
        return self._chain

    @property
    def _world(self) -> World:
        return self.chain.world

    @property
    def _network(self) -> Network:
        return self.chain.network

    def run(self, text: str) -> str:
        """The text with the traces that now follow.

        Raises:
            SimulationError: there is no such command, or an invariant doesn't hold.
        """
        out = []
        for block in text.split("\n\n"):
            if not block.strip():
                continue
            commands = [line for line in block.split("----")[0].splitlines() if line.strip()]
            shown = [line for line in commands if not line.startswith("#")]
            before = len(self._chain.world.lines) if self._chain else 0
            for line in shown:
                self._command(*line.split())
            if not shown:
                out.append("\n".join(commands))
                continue
            trace = list(self.chain.world.lines)[before:]
            out.append("\n".join([*commands, "----", *trace]))
        return "\n\n".join(out) + "\n"

    def _command(self, name: str, *words: str) -> None:
        do = getattr(self, f"do_{name}", None)
        if do is None:
            raise SimulationError(f"no command {name!r}")
        do(*words)

    def do_chain(self, *pairs: str) -> None:
        knobs = {key: int(value) for key, _, value in (pair.partition("=") for pair in pairs)}
        link = LinkSettings(
            window_bytes=knobs.get("window", 4000),
            frame_bytes_max=600,
            retained_bytes_max=knobs.get("retained", 1 << 20),
            keep_bytes=knobs.get("keep", 1 << 20),
            idle_us=knobs.get("idle_ms", 10_000) * 1000,
        )
        options = ChainOptions(
            relays=knobs.get("relays", 1),
            rows=100_000,
            faults=Faults(delay_us=1000),
            link=link,
            checkpoint_us=knobs.get("checkpoint_ms", 1000) * 1000,
            twin=bool(knobs.get("twin", 0)),
            lost_ok=bool(knobs.get("lost_ok", 0)),
            damage=bool(knobs.get("damage", 0)),
        )
        self._chain = TracedChain(World(1, keep_trace=True), options, self._parts)
        self._chain.start()
        self.do_run("100ms")

    def do_run(self, duration: str) -> None:
        delay_us = int(duration.removesuffix("ms")) * 1000
        world = self._world
        world.run(until_us=world.now_us + delay_us, events_max=100_000)

    def do_publish(self, rows: str) -> None:
        chain = self.chain
        values = chain.next_values(int(rows))
        self._world.trace("pub", f"publishes rows {values[0]}..{values[-1]}")
        chain.act((pack_rows(values), len(values)), None)

    def do_boundary(self) -> None:
        time_us = self.chain.published
        self._world.trace("pub", f"promises no time below {time_us}")
        self.chain.act(None, time_us)

    def do_cut(self, source: str, how: str, target: str) -> None:
        self._world.trace("world", f"cut {source} {how} {target}")
        for way in [(source, target), (target, source)][: 1 + (how == "-")]:
            self._network.cut(*way)

    def do_heal(self, source: str, how: str, target: str) -> None:
        self._world.trace("world", f"heal {source} {how} {target}")
        for way in [(source, target), (target, source)][: 1 + (how == "-")]:
            self._network.heal(*way)

    def do_reconnect(self, source: str, how: str, target: str, since: str) -> None:
        world = self._world
        world.trace("world", f"reconnect {source} {how} {target}, the last {since} are lost")
        since_us = world.now_us - int(since.removesuffix("ms")) * 1000
        for way in [(source, target), (target, source)][: 1 + (how == "-")]:
            self._network.reconnect(*way, since_us)

    def do_crash(self, name: str, unsynced: str = "lost") -> None:
        self.chain.hosts[name].crash(unsynced)

    def do_lose(self, name: str) -> None:
        self._world.trace("world", f"the disk of {name} is gone")
        self.chain.hosts[name].disk.lose()

    def do_flip(self, name: str, bit: str) -> None:
        self._world.trace("world", f"bit {bit} of the newest checkpoint of {name} flips")
        self.chain.hosts[name].disk.flip(int(bit))

    def do_start(self, name: str) -> None:
        self.chain.hosts[name].start()

    def do_pause(self, name: str, duration: str) -> None:
        self.chain.hosts[name].pause(int(duration.removesuffix("ms")) * 1000)

    def do_fail(self, name: str, writes: str) -> None:
        self.chain.hosts[name].disk.fail_next = int(writes)

    def do_deaf(self) -> None:
        self._reader().listen(False)

    def do_listen(self) -> None:
        actor = self._reader()
        actor.listen(True)
        self.chain.hosts["reader"].call(actor.work)

    def _reader(self) -> SubscriberActor:
        actor = self.chain.hosts["reader"].mind
        assert isinstance(actor, SubscriberActor)
        return actor
