"""A query over whole nodes, under faults: the answer is that of one program, each row once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from medusa.nodes.catalog.catalog import RUNNING
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_delay import DelayRules
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.nodes.config.settings_streams import StreamRule
from medusa.ports import Buffer
from medusa.query.boxes import Schema, Source
from medusa.query.builder import Query
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.actors.malicious_client import MaliciousClient
from medusa.sim.actors.node import NodeMachine
from medusa.sim.actors.program import Program
from medusa.sim.checkers.catalog import check_catalogs
from medusa.sim.checkers.delivery import check_node, check_restarted
from medusa.sim.checkers.losses import FEWER, Losses, more_than
from medusa.sim.checkers.names import names_agree, wrong_names
from medusa.sim.checkers.publisher_names import Holders, check_told
from medusa.sim.checkers.rest import unsaved
from medusa.sim.world.fault_kinds import Scene
from medusa.sim.world.keyring import Keyring
from medusa.sim.world.network import Faults
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.codec import decode_frame
from medusa.wire.link.named_subscriptions import key_of
from medusa.wire.link.session import PeerState
from medusa.wire.messages.links import Attach

__all__ = ["QueryOptions", "QueryTrial"]

AGAIN_US = 300_000
CRASH_ALL = 0.25
"""Of so many runs all machines die once all has come to rest, and nothing has changed when they are back."""
LOOK_US = 50_000
NAMES_US = 2_000_000
"""A node looks every second at what it runs, and tells the others."""
ATTACH = b"\xa6attach"
"""How the header of an ``Attach`` goes on after its first byte."""
PATIENCE_US = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """What a seed decided about a query over nodes; printed when it fails.

    Attributes:
        at: node -> sources and boxes that it has, as for ``deploy``.
        publish_us: rows come over so long a time.
        piece_rows: published at once, at most.
        publishers: clients that publish into one source at one node.
        deaths: each of them goes by a name, and is killed so often.
        sync_us: what a synced write takes.
        job_us: what a step of the engine takes, about.
        liar: a client that keeps no rule is there.
        damage: disks give back what they never should; rows may be missing where a node says so.
        delay_us: of every frame.
        memory: nodes that keep nothing over their end; then ``n`` of the first sink counts rows.
        limits: of every node.
        waits: what nodes may hold that waits for a missing input; None: as they usually may.
        streams: rules of every node.
        load, scale: of every node, where they aren't as usual.
    """

    at: Mapping[str, Sequence[str]]
    publish_us: int = 1_000_000
    piece_rows: int = 40
    publishers: int = 1
    deaths: int = 0
    sync_us: int = 2000
    job_us: int = 50
    liar: bool = False
    damage: bool = False
    delay_us: int = 500
    memory: Sequence[str] = ()
    limits: Limits = field(default_factory=lambda: Limits(checkpoint_every_us=200_000))
    waits: DelayRules | None = None
    streams: Sequence[StreamRule] = ()
    load: LoadRules | None = field(default=None, repr=False)
    scale: ScaleSettings | None = field(default=None, repr=False)


class QueryTrial(Federation):
    """Nodes with one query, a publisher for each source at each node, a reader of all sinks.

    Args:
        tables: source -> its rows, in the order in which they are published. Where a source stands at
            several nodes, or has several publishers, the rows are dealt out one by one.
        want: sink -> rows; None: what ``md.collect`` gives.
        nodes: names of all nodes; None: those of ``at``.
        peers: node -> nodes it knows; None: all know each other.
        keyring: keys of all; None: names are believed.
    """

    def __init__(
        self,
        world: World,
        q: Query,
        tables: Mapping[str, pa.Table],
        options: QueryOptions,
        *,
        want: Mapping[str, pa.Table] | None = None,
        nodes: Sequence[str] | None = None,
        peers: Mapping[str, Sequence[str]] | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        super().__init__(
            world,
            list(nodes or options.at),
            peers=peers,
            faults=Faults(delay_us=options.delay_us),
            limits=options.limits,
            delay=options.waits,
            memory=options.memory,
            streams=options.streams,
            load=options.load,
            scale=options.scale,
            sync_us=options.sync_us,
            job_us=options.job_us,
            watch=self._watch,
            keyring=keyring,
        )
        self.options = options
        self.q = q
        self.tables = tables
        self.want = collect(q, **tables) if want is None else want
        self.reader = self.client("reader", list(options.at)[-1])
        self._dice = world.dice("input")
        self._deployed = self._resting = False
        self._look_at_us = self._wrong_since_us = 0
        self._lives: dict[str, int] = {}
        self._holders = Holders()
        self._losses = Losses(self.nodes)
        self._sources: dict[str, Schema] = {
            box.id: box.schema for box in q.graph.boxes if isinstance(box, Source)
        }
        self.publishers = {
            f"pub-{node}-{source}-{number}": (source, node)
            for node, boxes in options.at.items()
            for source in boxes
            if source in self._sources
            for number in range(options.publishers)
        }
        self.programs: dict[str, Program] = {}
        for name, (_, node) in self.publishers.items() if not options.deaths else ():
            self.client(name, node)

    # --- the trial ----------------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        span_us = self.options.publish_us + 500_000
        return Scene(machines=list(self.nodes), links=self.links, span_us=span_us)

    @property
    def rows_in(self) -> int:
        return sum(len(table) for table in self.tables.values())

    @property
    def rows(self) -> int:
        return sum(
            len(batch) for client in self.clients.values() for each in client.rows.values() for batch in each
        )

    @property
    def lost(self) -> int:
        return sum(sum(client.lost.values()) for client in self.clients.values())

    @property
    def may_lose(self) -> bool:
        return self.options.damage

    @property
    def input_us(self) -> int:
        return self.options.publish_us

    def start(self) -> None:
        super().start()
        if self.options.liar:
            name = self.q.graph.name
            streams = [f"{name}.{each}" for each in (*self._sources, *self.want)]
            liar = MaliciousClient(self.world, self.network, "liar", list(self.options.at), streams)
            self.strangers["liar"] = liar.hear
            self.world.after(1000, lambda: liar.start(self.options.publish_us + 1_000_000))
        self._deploy()

    def _deploy(self) -> None:
        """Ask until it is done; then publish and read."""
        request = self._ask_for_it()
        asked_us = self.world.now_us

        def look() -> None:
            if request not in self.reader.mind.replies:
                if self.world.now_us - asked_us < PATIENCE_US:
                    self.world.after(20_000, look)
                else:  # The network lost a frame and kept the connection, as ZeroMQ never does.
                    self.reader.give_up(request)
                    self._deploy()
                return
            reply = self.reader.take_reply(request)
            self.world.trace("reader", f"deployed: {reply.code or 'done'} {reply.text}")
            if reply.code and not self._everywhere():
                self.world.after(AGAIN_US, self._deploy)
            else:
                self._begin()

        look()

    def _ask_for_it(self) -> int:
        return self.reader.deploy(self.q, self.options.at)

    def _everywhere(self) -> bool:
        """A deployment may be done and its answer lost: the next one is told that it is there already, by
        whoever coordinates it by then. One that took it over may list what was never there in full."""
        query = self.q.graph.name
        living = [node.brain.catalog for node in self.nodes.values() if node.alive]
        known = [made for catalog in living if (made := catalog.deployment(query)) is not None]
        running = [each for each in known if each.state == RUNNING]
        there = {name for catalog in living for name in (*catalog.entry_names(), *catalog.stream_names())}
        whole = there.issuperset(f"{query}.{each}" for each in (*self._sources, *self.want))
        return any(whole or not each.taken_over for each in running)

    def _begin(self) -> None:
        self._losses.deployed()
        name = self.q.graph.name
        by_source: dict[str, list[str]] = {}
        for publisher, (source, _) in self.publishers.items():
            by_source.setdefault(source, []).append(publisher)
        for source, publishers in by_source.items():
            for place, publisher in enumerate(publishers):
                part = self.tables[source].take(
                    pa.array(range(place, len(self.tables[source]), len(publishers)))
                )
                self._publish(publisher, f"{name}.{source}", part, self._sources[source])
        for sink in self.want:
            self._read(name, sink)

    def _program(self, publisher: str, stream: str, part: pa.Table, schema: Schema) -> None:
        """Its rows come as it says, but it dies now and then."""
        world, for_us, node = self.world, self.options.publish_us, self.publishers[publisher][1]
        dice = world.dice(f"program {publisher}")

        def left(client: Client) -> None:
            self.strangers[client.name] = self.clients.pop(client.name).deliver

        program = self.programs[publisher] = Program(
            world,
            dice,
            f"{publisher}/of-it",
            client=lambda life: self.client(f"{publisher}-{life}", node),
            left=left,
            stream=stream,
            record=part,
            schema=schema,
            piece_rows=self.options.piece_rows,
        )
        for rows in range(0, len(part) + 1, self.options.piece_rows):
            world.after(for_us * rows // max(len(part), 1), lambda rows=rows: program.has(rows))  # type: ignore[misc]
        for _ in range(self.options.deaths):
            world.after(dice.randrange(1, for_us + 300_000), program.die)
        world.after(for_us, lambda: program.has(len(part)))
        world.after(for_us + 1, lambda: self._finish_program(program, stream))

    def _finish_program(self, program: Program, stream: str) -> None:
        """Once the node knows all of the source: see ``_finish``."""
        of = [
            each
            for name, each in self.programs.items()
            if self.publishers[name][0] == stream.rpartition(".")[2]
        ]
        if all(each.answered for each in of) and len(of) == self._expected(stream):
            program.finish()
        else:
            self.world.after(AGAIN_US, lambda: self._finish_program(program, stream))

    def _publish(self, publisher: str, stream: str, part: pa.Table, schema: Schema) -> None:
        if self.options.deaths:
            self._program(publisher, stream, part, schema)
            return
        client, world, begin = self.clients[publisher], self.world, 0
        client.publish(stream, part.slice(0, 0), schema)
        for_us = self.options.publish_us
        while begin < len(part):
            piece = part.slice(begin, self._dice.randrange(1, self.options.piece_rows + 1))
            at_us = world.now_us + self._due_us(begin, len(part))
            world.at(at_us, lambda piece=piece: self._push(client, stream, piece, schema))  # type: ignore[misc]
            begin += len(piece)
        world.after(for_us, lambda: self._finish(client, stream, schema))

    def _due_us(self, begin: int, rows: int) -> int:
        """When a row of so many is published, from the first on."""
        return self.options.publish_us * begin // rows

    def _push(self, client: Client, stream: str, piece: pa.Table, schema: Schema) -> None:
        client.publish(stream, piece, schema)

    def _finish(self, client: Client, stream: str, schema: Schema) -> None:
        """End a source; not before the node knows all its publishers, or it ends without them."""
        known = [each.publication(stream) for each in self.clients.values()]
        here = [each for each in known if each is not None]
        told = all(each.attached for each in here) and len(here) == self._expected(stream)
        # A client may not have noticed yet that its node has died, and has forgotten it.
        if told and len(self._known(stream)) == len(here):
            client.finish(stream, schema)
        else:
            self.world.after(AGAIN_US, lambda: self._finish(client, stream, schema))

    def _known(self, stream: str) -> set[str]:
        """Publishers of a source, of which the living nodes know."""
        living = (node for node in self.nodes.values() if node.alive)
        hosted = [each for node in living for each in node.brain.fragments.values()]
        inputs = [each for one in hosted for each in one.inputs.values() if not each.judged]
        return {each.peer for each in inputs if each.stream == stream}

    def _expected(self, stream: str) -> int:
        name = self.q.graph.name
        return len([1 for source, _ in self.publishers.values() if f"{name}.{source}" == stream])

    def _read(self, name: str, sink: str, tries: int = 20) -> None:
        """Each sink is read at the node that has it; when that is dead, a little later.

        When nobody has it any more, the node that was asked to deploy it shall say so.
        """
        stream = f"{name}.{sink}"
        for at, node in self.nodes.items():
            if node.alive and stream in node.brain.catalog.stream_names():
                other = f"reader-{at}"
                if at == self.reader.mind.node:
                    self._begin_to_read(self.reader, stream)
                else:
                    self._begin_to_read(self.clients.get(other) or self.client(other, at), stream)
                return
        if tries:
            self.world.after(AGAIN_US, lambda: self._read(name, sink, tries - 1))
        else:
            self.reader.read(stream)

    def _begin_to_read(self, client: Client, stream: str) -> None:
        client.read(stream)

    # --- what must hold -------------------------------------------------------------------------

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        if self.programs and source in self.nodes and frames[0][1:8] == ATTACH and target in self.clients:
            self._check_told(self.nodes[source], self.clients[target], frames)
        super()._deliver(source, target, frames)

    def _check_told(self, node: NodeMachine, client: Client, frames: list[Buffer]) -> None:
        """A life of a named publisher is answered for the first time."""
        message, _ = decode_frame(frames)
        if isinstance(message, Attach) and (name := client.names.get(message.stream)):
            publication = client.publication(message.stream)
            if publication is not None and not publication.begun:
                check_told(node, client.name, key_of("", name), message)

    def _watch(self, node: NodeMachine) -> None:
        if self._lives.get(node.name) != node.lives:
            self._lives[node.name] = node.lives
            if not self.options.damage:
                self._check_restarted(node)
        if self.options.damage:
            self._losses.look(node)
        check_node(node)
        self._check_complaints(node)

    def _check_restarted(self, node: NodeMachine) -> None:
        check_restarted(node, self.nodes, self.clients)

    def _check_complaints(self, node: NodeMachine) -> None:
        """Nobody breaks a rule and no rows are lost where nobody lies, and all have disks that keep what
        they were given."""
        options = self.options
        if options.deaths:
            self._holders.look(node)
        if node.complaint and not (options.liar or options.damage or options.memory):
            raise SimulationError(f"rules: {node.name}: {node.complaint}")

    @property
    def ended(self) -> bool:
        name, clients = self.q.graph.name, self.clients.values()
        done = all(any(f"{name}.{sink}" in client.ended for client in clients) for sink in self.want)
        return done and self._rests()

    def _rests(self) -> bool:
        """Looked at now and then: it asks all nodes."""
        now_us = self.world.now_us
        if now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_US
            self._resting = self._together() and self._all_saved() and self._names_agree()
        return self._resting

    @property
    def owned(self) -> Sequence[Sequence[NodeMachine]]:
        """All nodes, by participant: those of one know the same names."""
        return [list(self.nodes.values())]

    def _names_agree(self) -> bool:
        """What they agree on and is wrong has some time to change."""
        agreed = all(map(names_agree, self.owned))
        wrong = agreed and any(map(self._wrong_names, self.owned))
        self._wrong_since_us = (self._wrong_since_us or self.world.now_us) if wrong else 0
        return agreed and (not wrong or self.world.now_us - self._wrong_since_us > NAMES_US)

    def _wrong_names(self, nodes: Sequence[NodeMachine]) -> str:
        """What a directory of these nodes is wrong in; empty: nothing."""
        return wrong_names(nodes)

    def _all_saved(self) -> bool:
        """Where rows may be lost whoever has them may wait for ever for what comes before them."""
        return self.options.damage or not unsaved(self.nodes.values(), self.clients.values())

    def _together(self) -> bool:
        """Every node is there, and sees all its peers."""
        return all(
            node.alive
            and all(node.brain.sessions[peer].state is PeerState.UP for peer in node.settings.peers)
            for node in self.nodes.values()
        )

    @property
    def said(self) -> bool:
        """Disks were damaged, and somebody has said that rows may be missing."""
        minds = [mind for client in self.clients.values() for mind in client.minds]
        refusals = [each.refusal for mind in minds for each in mind.publications.values()]
        refusals += [each.receiver.refusal for mind in minds for each in mind.subscriptions.values()]
        told = any(node.unable or node.told for node in self.nodes.values())
        return self.options.damage and (told or self.lost > 0 or any(refusals))

    def check_end(self) -> None:
        if self.said:
            self._check_losses()
            return
        for nodes in self.owned:
            if names := self._wrong_names(nodes):
                raise SimulationError(f"names: {names}")
        check_catalogs(self.nodes.values())
        if self.lost:
            raise SimulationError(f"delivered: {self.lost} rows reported lost")
        if self.options.memory:
            self._check_counted()
            return
        self.check_exact(self.want)

    def check_exact(self, sinks: Iterable[str]) -> None:
        """Each row of these came, once.

        Raises:
            SimulationError: others came, or fewer.
        """
        for sink in sinks:
            if (wrong := difference(self._got(sink), self.want[sink])) is not None:
                raise SimulationError(f"delivered: sink {sink!r}: {wrong}")

    def _check_losses(self) -> None:
        """Somebody said that rows may be missing: those that are come through what that was said of."""
        check_catalogs(self.nodes.values())
        self._losses.check_refusals(self.clients.values())
        self._losses.check_kept()
        for sink, want in self.want.items():
            got = self._got(sink)
            if (wrong := difference(got, want)) is None:
                continue
            told = self._losses.of(f"{self.q.graph.name}.{sink}", self.clients.values())
            if not told:
                raise SimulationError(f"untold: sink {sink!r}: {wrong}")
            if told == FEWER and (more := more_than(got, want)):
                raise SimulationError(f"delivered: sink {sink!r}: {more}; {wrong}")

    def _got(self, sink: str) -> pa.Table:
        """What was read of a sink."""
        return pa.Table.from_batches(self._read_of(f"{self.q.graph.name}.{sink}"), self.want[sink].schema)

    def _read_of(self, stream: str) -> list[pa.RecordBatch]:
        """What was read of a stream."""
        return [batch for client in self.clients.values() for batch in client.rows.get(stream, [])]

    def crash_all(self) -> bool:
        if self.options.damage or self.options.memory or self.world.dice("the end").random() > CRASH_ALL:
            return False
        self._look_at_us, self._resting = 0, False
        super().crash_all()
        return True

    def _check_counted(self) -> None:
        """What is missing is what the nodes without a disk say is lost."""
        statuses = {name: node.brain.status(0) for name, node in self.nodes.items() if node.alive}
        told = sum(statuses[name]["lost_rows"] for name in self.options.memory)
        others = sum(each["lost_rows"] for name, each in statuses.items() if name not in self.options.memory)
        unknown = any(f["lost_unknown"] for each in statuses.values() for f in each["fragments"])
        if others or unknown:
            return  # Results that were only in the memory of a reader died with that: it says so.
        sink, want = next(iter(self.want.items()))
        stream = f"{self.q.graph.name}.{sink}"
        batches = [batch for client in self.clients.values() for batch in client.rows.get(stream, [])]
        missing = sum(want.column("n").to_pylist()) - sum(sum(b.column("n").to_pylist()) for b in batches)
        if missing != told:
            raise SimulationError(f"counted: {missing} rows are missing, {told} are told lost")


def difference(got: pa.Table, want: pa.Table) -> str | None:
    """What is not the same, rows in any order; None: nothing."""
    have, need = counted(got), counted(want)
    if have == need:
        return None
    more = [row for row, count in have.items() if count > need.get(row, 0)]
    less = [row for row, count in need.items() if count > have.get(row, 0)]
    return (
        f"{len(got)} rows, expected {len(want)}; {len(less)} missing (as {less[:1]}), "
        f"{len(more)} that should not be there (as {more[:1]})"
    )


def counted(table: pa.Table) -> dict[str, int]:
    counts: dict[str, int] = {}
    names = sorted(table.column_names)
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    for row in zip(*columns, strict=True):
        text = repr(dict(zip(names, row, strict=True)))
        counts[text] = counts.get(text, 0) + 1
    return counts
