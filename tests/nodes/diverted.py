"""One node of a query over three, whose neighbours are played: its engine and its disk work at once."""

from __future__ import annotations

import msgspec
import pyarrow as pa

import medusa as md
from medusa.elements import START_US, Train
from medusa.engine.fragment import Fragment as Engine
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, read_record
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.node import NodeMind
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import Logged, Persisted, Ran, Started
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.wire.codec import TrainCodec
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Install, Reply
from medusa.wire.messages.links import Attach, Attached, Data, Hello, Refuse
from medusa.wire.outbox import Log, Persist, RunFragment, Send

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}
CREDIT = 8 << 20


def query() -> md.Query:
    """up: flows, f; n: g, h; down: out."""
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts")
    q.sink("out", flows.filter("v > -1", name="f").filter("v > -2", name="g").filter("v > -3", name="h"))
    return q


AT = {"up": ["flows", "f"], "n": ["g", "h"], "down": ["out"]}
FRAGMENT = "q/from f"


def spec_at(node: str):
    [fragment] = cut(query().graph, AT).at(node)
    return msgspec.structs.replace(fragment, node="n")


class Node:
    """Node ``n`` with one fragment of the query; its engine and its disk work at once, unless told not to.

    Attributes:
        sent: what it said, with to whom, since it was asked last.
        disk: it works.
    """

    PEERS = ("up", "old", "new", "third", "down")

    def __init__(self, spec, *, catalog=None, saved=None, incarnation=1, store="disk", coordinator="up"):
        settings = Settings(
            name="n",
            listen="tcp://*:1",
            data="d" if store == "disk" else "",
            store=store,
            peers=dict.fromkeys(self.PEERS, "tcp://example.org:1"),
            limits=Limits(checkpoint_every_us=100_000),
        )
        self.now_us, self.disk = 0, True
        self.engines: dict[str, Engine] = {}
        self.pending: list[Persist] = []
        self.files: dict[str, dict] = {}
        self.logs: list[bytes] = []
        self.fed: list[int] = []
        self.sent: list[tuple[str, object]] = []
        self.payloads: list[tuple[str, object, object]] = []
        self.brain = NodeMind(
            settings, incarnation=incarnation, catalog=catalog, saved=saved, first_token=1000 * incarnation
        )
        for each in self.brain.fragments.values():
            self.engines[each.spec.name] = Engine(each.spec.graph)
        self.brain.report(0, Started())
        self.settle()
        self.epochs: dict[str, int] = {}
        for peer in self.PEERS:
            self.brain.receive(0, peer, Hello(version=PROTOCOL_VERSION, node=peer, incarnation=1))
        self.settle()
        if spec is not None and catalog is None:
            install = Install(request=1, query="q", fragment=spec.name)
            assert self.says(coordinator, install, fragment_to(spec)) == ""

    @property
    def hosted(self):
        return self.brain.fragments[self.only]

    @property
    def only(self) -> str:
        [name] = self.brain.fragments
        return name

    def settle(self) -> None:
        while effects := self.brain.outbox.take():
            for effect in effects:
                self._do(effect)

    def _do(self, effect) -> None:
        match effect:
            case Persist():
                self.files[effect.fragment] = {**effect.files}
                self.pending.append(effect)
                if self.disk:
                    self.written()
            case Log():
                self.logs.append(effect.data)
                self.brain.report(self.now_us, Logged(effect.fragment, True))
            case RunFragment():
                engine = self.engines.setdefault(
                    effect.fragment, Engine(self.brain.catalog.fragments[effect.fragment].graph)
                )
                if isinstance(effect.element, Train):
                    self.fed += effect.element.batch.column("v").to_pylist()
                engine.feed(effect.stream, effect.element)
                sinks = self.brain.catalog.fragments[effect.fragment].streams
                outputs = [(sink, each) for sink in sinks for each in engine.drain(sink)]
                self.brain.report(self.now_us, Ran(effect.fragment, outputs))
            case Send(after=after) if after is not None and any(e.token == after for e in self.pending):
                self.held.append(effect)
            case Send():
                self.sent.append((effect.peer, effect.message))

    @property
    def held(self) -> list[Send]:
        return self.__dict__.setdefault("_held", [])

    def written(self) -> None:
        """What was to be written is on disk."""
        pending, self.pending = self.pending, []
        for each in pending:
            self.brain.report(self.now_us, Persisted(each.token, True))
        held, self.held[:] = list(self.held), []
        for each in held:
            self.sent.append((each.peer, each.message))
        self.settle()

    def say(self, peer: str, message, payload=None) -> list:
        """What a peer says, and what it gets for it."""
        before = len(self.sent)
        self.brain.receive(self.now_us, peer, message, payload)
        self.settle()
        return [said for to, said in self.sent[before:] if to == peer]

    def says(self, peer: str, message, payload=None) -> str | None:
        """The code of the answer; None: there is none."""
        codes = [each.code for each in self.say(peer, message, payload) if isinstance(each, Reply | Refuse)]
        assert len(codes) <= 1
        return codes[0] if codes else None

    def passes(self, us: int) -> None:
        self.now_us += us
        self.brain.tick(self.now_us)
        self.settle()

    def checkpoint(self) -> None:
        """Time passes until there is one, and not so much that a peer counts as silent."""
        for _ in range(2):
            self.passes(150_000)

    def on_disk(self) -> Catalog:
        return Catalog.from_bytes(self.files[""][CATALOG], node="n", where="disk")

    def saved(self) -> dict[str, SavedCheckpoint]:
        """Checkpoints as they are on disk."""
        found = {}
        for name, files in self.files.items():
            if name:
                record = read_record(files[RECORD], where="disk")
                log = b"".join(bytes(piece) for piece in files[LOG])
                found[name] = SavedCheckpoint(record=record, logs={record.token: log})
        return found

    def restarted(self) -> Node:
        """The node after a crash, with what was on its disk."""
        return Node(None, catalog=self.on_disk(), saved=self.saved(), incarnation=2)

    # --- a stream that comes ------------------------------------------------------------------

    def attach_of(self, peer: str) -> Attach | None:
        """The last ``Attach`` to a peer."""
        found = [each for to, each in self.sent if to == peer and isinstance(each, Attach)]
        return found[-1] if found else None

    def brings(self, peer: str, first: int, count: int, *, frame: int, begins: int | None = None) -> None:
        """A peer answers our attachment, if ``begins`` says where, and sends rows of these numbers."""
        attach = self.attach_of(peer)
        assert attach is not None
        source = next(box for box in self.hosted.spec.graph.boxes if not box.inputs)
        if begins is not None:
            opening = Attached(
                stream=attach.stream,
                epoch=attach.epoch,
                next_seq=begins,
                boundary_us=START_US,
                schema=source.schema,
                timed=source.judged and source.timed,
            )
            self.say(peer, opening)
        self.say(peer, *train(source, attach.stream, attach.epoch, frame, first, count))


def train(source, stream: str, epoch: int, frame: int, first: int, count: int):
    numbers = list(range(first, first + count))
    times = pa.array(numbers, pa.timestamp("us", tz="UTC"))
    rows = Train(
        batch=pa.record_batch({"ts": times, "v": pa.array(numbers, pa.int64())}),
        times=pa.array(numbers, pa.int64()) if source.judged and source.timed else None,
        first_seq=first,
    )
    [(payload, _, _)] = TrainCodec(source.schema, timed=source.judged and source.timed).encode(rows)
    data = Data(stream=stream, epoch=epoch, frame=frame, seq=first, rows=count)
    return data, bytes(payload)
