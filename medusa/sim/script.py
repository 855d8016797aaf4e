"""Scenarios as text: commands, ``----``, and the complete trace that followed. One chain per file.

Commands: ``chain relays=2 window=1200 ...`` (first), ``publish ROWS``, ``boundary``, ``run 300ms``,
``cut a > b`` or ``cut a - b`` (one way, both), ``heal a - b``, ``crash r1``, ``start r1``,
``fail r1 2`` (its next two writes), ``deaf`` and ``listen`` (the reader takes nothing, takes again).

In the trace ``r2 <- r1 Data 0..9`` is a frame that arrived. Heartbeats are left out, and so are
acks that say nothing new.
"""

from __future__ import annotations

from collections import deque

from medusa.sim.chain import Chain, ChainOptions
from medusa.sim.network import Faults
from medusa.sim.relay import pack_rows
from medusa.sim.world import World
from medusa.wire.codec import decode_frame
from medusa.wire.link import LinkSettings
from medusa.wire.messages import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Heartbeat,
    Hello,
    Offer,
    Progress,
    Refuse,
)


class TracedChain(Chain):
    """Says what arrives; publishes only when told."""

    def __init__(self, world, options, parts):
        super().__init__(world, options, parts)
        self.epochs = {}
        self.acked = {}
        self.published = 0
        self.told = deque()

    def _script(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        """The publisher's next act; it comes for more when it is told to."""
        if not self.told:
            raise StopIteration
        return self.told.popleft()

    def tell(self, rows, boundary_us):
        self.told.append((0, rows, boundary_us))
        actor = self.hosts["pub"].mind
        if actor._next is None:
            actor._next = next(self)
        self.hosts["pub"].call(actor.work)

    def _deliver(self, source, target, frames):
        message, _ = decode_frame(frames)
        text = self._words(source, target, message)
        if text and self.hosts[target].mind is not None:
            self.world.trace(target, f"<- {source} {type(message).__name__}{text}")
        super()._deliver(source, target, frames)

    def _epoch(self, stream, epoch):
        """Epochs as #1, #2 ... per stream, in the order in which they came up."""
        known = self.epochs.setdefault(stream, [])
        if epoch not in known:
            known.append(epoch)
        return f"#{known.index(epoch) + 1}"

    def _words(self, source, target, message):
        match message:
            case Heartbeat():
                return ""
            case Hello():
                return f" life {message.incarnation}{' ?' if message.answer else ''}"
            case Offer():
                return f" {message.stream}"
            case Refuse():
                return f" {message.stream} {message.code}"
            case Ack():
                news = (message.epoch, message.received, message.durable)
                if self.acked.get((source, message.stream)) == news:
                    return ""
                self.acked[source, message.stream] = news
                return (
                    f" {message.stream}{self._epoch(message.stream, message.epoch)}"
                    f" received {message.received} durable {message.durable}"
                )
        words = f" {message.stream}{self._epoch(message.stream, message.epoch)}"
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
        return words


class Script:
    """Runs one file."""

    def __init__(self, parts=None):
        self.chain = None
        self.parts = parts

    def run(self, text):
        """The text with the traces that now follow."""
        out = []
        for block in text.split("\n\n"):
            if not block.strip():
                continue
            commands = [line for line in block.split("----")[0].splitlines() if line.strip()]
            shown = [line for line in commands if not line.startswith("#")]
            before = len(self.chain.world.lines) if self.chain else 0
            for line in shown:
                self.command(line.split())
            if not shown:
                out.append("\n".join(commands))
                continue
            trace = list(self.chain.world.lines)[before:]
            out.append("\n".join([*commands, "----", *trace]))
        return "\n\n".join(out) + "\n"

    def command(self, words):
        name, *rest = words
        getattr(self, f"do_{name}")(*rest)

    def do_chain(self, *pairs):
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
            lost_ok=bool(knobs.get("lost_ok", 0)),
        )
        self.chain = TracedChain(World(1, keep_trace=True), options, self.parts)
        self.chain.start()
        self.do_run("100ms")

    def do_run(self, duration):
        delay_us = int(duration.removesuffix("ms")) * 1000
        world = self.chain.world
        world.run(until_us=world.now_us + delay_us, events_max=100_000)

    def do_publish(self, rows):
        chain, count = self.chain, int(rows)
        values = list(range(chain.published, chain.published + count))
        chain.published += count

        chain.world.trace("pub", f"publishes rows {values[0]}..{values[-1]}")
        chain.tell((pack_rows(values), count), None)

    def do_boundary(self):
        chain = self.chain
        time_us = chain.published
        chain.world.trace("pub", f"promises no time below {time_us}")
        chain.tell(None, time_us)

    def do_cut(self, source, how, target):
        self.chain.world.trace("world", f"cut {source} {how} {target}")
        for way in [(source, target), (target, source)][: 1 + (how == "-")]:
            self.chain.network.cut(*way)

    def do_heal(self, source, how, target):
        self.chain.world.trace("world", f"heal {source} {how} {target}")
        for way in [(source, target), (target, source)][: 1 + (how == "-")]:
            self.chain.network.heal(*way)

    def do_crash(self, name):
        self.chain.hosts[name].crash()

    def do_start(self, name):
        self.chain.hosts[name].start()

    def do_fail(self, name, writes):
        self.chain.hosts[name].disk.fail_next = int(writes)

    def do_deaf(self):
        self.chain.hosts["reader"].mind.deaf = True

    def do_listen(self):
        reader = self.chain.hosts["reader"]
        reader.mind.deaf = False
        reader.call(reader.mind.work)
