"""One output of a fragment: encoded, numbered, kept until durable, part of each checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import msgspec

from medusa.elements import START_US, Boundary, Element, Kind, Train
from medusa.errors import LocalProtocolError
from medusa.nodes.fragment.checkpoint_record import EntryRecord, OutputRecord, entries_from
from medusa.nodes.fragment.spilling import OutputSpilling
from medusa.nodes.spec.fragment_spec import ForeignReader, FragmentSpec, SoldStream
from medusa.nodes.upstream_backup.records import MarksRecord, OutputSkips
from medusa.ports import Buffer
from medusa.query.boxes import Input as Arc
from medusa.query.boxes import Sink
from medusa.query.shape import StreamShape
from medusa.query.structs import Schema
from medusa.wire import limits
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkSettings, SenderState
from medusa.wire.link.fence import Fence
from medusa.wire.link.named_subscriptions import is_key
from medusa.wire.link.output_log import OutputEntry
from medusa.wire.link.sender import Sender
from medusa.wire.outbox import Outbox

__all__ = ["FragmentOutput", "OutgoingElement", "all_full", "leaving", "outputs_of", "some_columns"]


def all_full(outputs: Collection[FragmentOutput], coming: int, most: int) -> bool:
    """Whether the fragment has to wait with what it is fed.

    Args:
        coming: bytes under way to the engine, taken for as many bytes of output.
        most: bytes that all outputs together may keep in memory, or what one of them may, if that is more.
    """
    if any(output.full(coming) for output in outputs):
        return True
    if len(outputs) < 2:
        return False
    most = max(most, max(output.sender.settings.retained_bytes_max for output in outputs))
    return coming + sum(output.waits_bytes for output in outputs) >= most


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingElement:
    """A train, encoded, or a boundary; where it is held back it leaves once a checkpoint covers it."""

    payload: Buffer | None
    rows: int = 0
    late: bool = False
    tentative: bool = False
    time_us: int = 0
    note: bytes = b""


def _cost(held: OutgoingElement) -> int:
    return memoryview(held.payload or b"").nbytes + limits.ENTRY_BYTES


class FragmentOutput:
    """A sink of the fragment and the stream it feeds.

    Attributes:
        sender: its links.
        window_us: of results of windows, their size and advance.
        rows: of the stream since it began.
        given: how many of them the fragment has given. Fewer where it took the place of one that was ahead
            of it: the others come once more, and are dropped.
        held_bytes: what is held back counts for so many, as it will once it is kept.
        spilling: what is on disk only.

    Args:
        guest: whose it is, where another query reads.
        sold: by what it is read, where that is paid for: of its rows only some columns leave.
        guarded: others stand by for the fragment: what the checkpoint says was held back is so again.
        marks: as in ``outputs_of``.
    """

    def __init__(
        self,
        sink: str,
        stream: str,
        shape: StreamShape,
        *,
        readers: Iterable[str],
        outbox: Outbox,
        settings: LinkSettings,
        fragment: str,
        next_token: Callable[[], int],
        clean: bool = False,
        record: OutputRecord | None = None,
        logs: Mapping[int, Buffer] | None = None,
        guest: ForeignReader | None = None,
        sold: SoldStream | None = None,
        guarded: bool = False,
        fence: Fence | None = None,
        marks: MarksRecord | None = None,
    ) -> None:
        self.sink = sink
        self._guest = guest
        self._columns, self._begin = ((), 0) if sold is None else (sold.columns, sold.begin)
        schema, self._clean = some_columns(shape.schema, self._columns), clean
        self.stream = stream
        self.window_us = None if shape.window is None else (shape.window.size_us, shape.window.advance_us)
        self._codec = TrainCodec(schema, timed=shape.timed, clean=clean)
        start = {"first_seq": self._begin}
        if record is not None:
            start = {"first_seq": record.first_seq, "boundary_us": record.first_boundary_us}
        skips = () if marks is None else marks.skips.get(sink, ())
        self.sender = Sender(
            stream,
            schema,
            timed=shape.timed,
            outbox=outbox,
            settings=settings,
            fence=fence,
            skips=skips,
            **start,
        )
        self.sender.gathers_by(self._codec.gathered, over_boundaries=True)
        self._held: list[OutgoingElement] = []
        self.held_bytes = 0
        self._stored: dict[int, tuple[int, int]] = {}
        """Index in the log -> (token, offset) of its payload on disk."""
        readers = tuple(readers)
        self.sender.life = 0 if record is None else record.life
        if record is not None:
            # One that went elsewhere after the checkpoint isn't waited for.
            known = {key: at for key, at in record.receivers.items() if is_key(key) or key in readers}
            entries = list(entries_from(record, logs or {}, where=stream))
            whole = len(entries) - (record.held if guarded else 0)
            self.sender.load(entries[:whole], known, record.notes)
            self._held = list(map(_held_again, entries[whole:]))
            self.held_bytes = sum(map(_cost, self._held))
            # Boundaries may have merged on the way; trains stand in the same order.
            places = [(e.token, e.offset) for e in record.entries[:whole] if e.time_us is None]
            log = self.sender.log
            trains = [i for i, e in enumerate(log.entries(), start=log.base) if e.time_us is None]
            self._stored = dict(zip(trains, places, strict=True))
        self.spilling = OutputSpilling(
            self.sender,
            self._stored,
            fragment=fragment,
            outbox=outbox,
            next_token=next_token,
            segments=() if record is None else record.segments,
        )
        for reader in readers:
            self.sender.expect(reader)
        self._engine_seq = 0 if guest is None else self._begin - guest.first
        if marks is not None:
            self._engine_seq = marks.ahead.get(sink, 0)
        """What the fragment calls row 0; more only where it began anew, with nothing; less where rows before
        it aren't for this stream."""
        self.rows = self.sender.log.next_seq + sum(piece.rows for piece in self._held)
        self.given = self.rows - (0 if record is None else record.again)
        promised = [piece.time_us for piece in self._held if piece.payload is None]
        self.boundary_us = max([self.sender.log.boundary_us, *promised])
        self._again_us = self.boundary_us if self.given < self.rows else int(START_US) - 1
        """Boundaries up to this one are there already."""

    @property
    def is_foreign(self) -> bool:
        """Another participant reads it."""
        return self._guest is not None and self._guest.foreign

    @property
    def _recorded(self) -> str:
        return recorded_as(self.sink, self._guest)

    @property
    def _first(self) -> int:
        """What the fragment calls the first row of this stream, where that began later than it."""
        return self._begin - self._engine_seq

    def begun(self, life: int) -> None:
        """Its fragment was installed by this request, which so names the life of the stream.

        One that a checkpoint names stays; what another query reads has none: it begins when that one asks.
        """
        if not (self.sender.life or self._recorded != self.sink):
            self.sender.life = life

    def begin_at(self, seq: int, unread: int | None = None) -> None:
        """The fragment begins anew, with nothing, and its first row has this number; before all else.

        Args:
            unread: as in ``Sender.begin_log``.
        """
        assert self.sender.log.end == self.sender.log.base, "there is output already"
        self.sender.begin_log(seq, unread)
        self.rows = self.given = self._engine_seq = seq

    def reset(self) -> None:
        """Forget what readers took in; nothing was appended yet."""
        receivers = self.sender.receivers
        for peer in [peer for peer, view in receivers.items() if view.plain]:
            del receivers[peer]

    @property
    def ahead(self) -> int:
        """By so much more than the fragment the stream calls its rows."""
        return self._engine_seq

    @property
    def skips(self) -> OutputSkips:
        """Numbers that no row has."""
        return self.sender.skips

    def skip(self, now_us: int, rows: int) -> None:
        """No row has the next numbers, so many; what is held back has those behind them."""
        self.sender.skip(now_us, rows)
        self.rows += rows
        self.given += rows
        self._engine_seq += rows

    def pass_over(self, element: Element) -> None:
        """This was put out before, by whose place the fragment took."""
        if isinstance(element, Train):
            self._engine_seq -= len(element)

    def passed_over(self) -> None:
        """What comes out from now on is new; what was promised stands."""
        self._again_us = self.boundary_us

    @property
    def held_durably(self) -> int | None:
        """Every receiver that stands holds the rows below it durably; None: there is none."""
        views = self.sender.receivers.values()
        there = (v.durable for v in views if not v.plain or v.state is not SenderState.DETACHED)
        held = min(there, default=None)
        return None if held is None else self.sender.behind_skips(held)

    @property
    def kept_from(self) -> int:
        """The first row that is kept, or the next one where none is."""
        return self.sender.behind_skips(self.sender.log.start_seq)

    @property
    def received(self) -> int | None:
        """Every receiver that stands has the rows below it; None: there is none."""
        views = self.sender.receivers.values()
        there = (v.acked for v in views if not v.plain or v.state is not SenderState.DETACHED)
        return min(there, default=None)

    def take(
        self, now_us: int, element: Element, *, hold: bool, note: bytes = b""
    ) -> Sequence[OutgoingElement]:
        """Append what came out of the fragment, but what is there already; the pieces in which it leaves.

        Args:
            hold: keep it back until ``release``.
            note: goes with each frame of it.

        Raises:
            LocalProtocolError: it doesn't go on where the stream is, as where it began from state whose boxes
                say otherwise than what lies beside them. Nothing changed.
        """
        if isinstance(element, Train) and (early := self._first - element.first_seq) > 0:
            if early >= len(element):
                return ()
            element = element.part(early, len(element) - early)
        if isinstance(element, Boundary):
            if element.time_us <= self._again_us:
                return ()
            self.boundary_us = max(self.boundary_us, element.time_us)
            pieces = [OutgoingElement(payload=None, time_us=element.time_us, note=note)]
        else:
            assert isinstance(element, Train), "only trains and boundaries leave a fragment"
            first_seq = element.first_seq + self._engine_seq
            if first_seq != self.given:
                raise LocalProtocolError(
                    f"rows of sink {self.sink!r} are numbered without gaps: {self.given:,} is the next, and"
                    f" {first_seq:,} came",
                    code="E_STATE",
                )
            self.given += len(element)
            if self.given <= self.rows:
                return ()
            if self.rows > first_seq:
                skip = self.rows - first_seq
                element = element.part(skip, len(element) - skip)
            self.rows = self.given
            tentative = element.kind is Kind.TENTATIVE
            pieces = [
                OutgoingElement(
                    payload=memoryview(payload), rows=rows, late=late, tentative=tentative, note=note
                )
                for payload, rows, late in self._codec.encode(self._leaving(element))
            ]
        if hold:
            self._held += pieces
            self.held_bytes += sum(map(_cost, pieces))
        else:
            self._send(now_us, pieces)
        return pieces

    def tentative_take(self, now_us: int, element: Element, *, rows: bool) -> None:
        """Send on the tentative lane what came out of a fork; nothing of it is kept.

        Args:
            rows: its rows too; else the stream itself has them, and only boundaries leave, behind these.

        Raises:
            LocalProtocolError: ``sender.tentative.state`` was told of no fork. Nothing changed.
        """
        lane = self.sender.tentative
        if isinstance(element, Boundary):
            lane.boundary(now_us, element.time_us, follows=not rows)
        elif isinstance(element, Train) and rows and len(element):
            if not lane.wanted:
                lane.pass_over(len(element))
                return
            for payload, count, late in self._codec.encode(self._leaving(element)):
                lane.train(now_us, memoryview(payload), count, late=late)

    def _leaving(self, train: Train) -> Train:
        """What of the columns leaves."""
        if not self._columns:
            return train
        return msgspec.structs.replace(train, batch=train.batch.select(list(self._columns)))

    def _send(self, now_us: int, pieces: Iterable[OutgoingElement]) -> None:
        for piece in pieces:
            if piece.payload is None:
                self.sender.boundary(now_us, piece.time_us, piece.note)
            else:
                self.sender.train(
                    now_us,
                    piece.payload,
                    piece.rows,
                    late=piece.late,
                    tentative=piece.tentative,
                    note=piece.note,
                )
        self.spilling.settle(now_us)

    def for_fragment(self, fragment: str, outbox: Outbox, next_token: Callable[[], int]) -> FragmentOutput:
        """The same stream as the output of another fragment of this node: its readers notice nothing. Only
        where nothing is held back or on disk only."""
        made = copy(self)
        made._held = []
        made._again_us = self.boundary_us
        made._stored = {}
        made.spilling = OutputSpilling(
            self.sender, made._stored, fragment=fragment, outbox=outbox, next_token=next_token
        )
        return made

    def for_guest(
        self,
        id: str,
        stream: str,
        guest: ForeignReader,
        reader: str,
        outbox: Outbox,
        sold: SoldStream | None = None,
    ) -> FragmentOutput:
        """What another query reads of this sink: what comes out from now on, as a stream of its own.

        Args:
            sold: as of the class.
        """
        made = copy(self)
        made.sink, made.stream = id, stream
        schema = made._sells(sold)
        made.sender = Sender(
            stream,
            schema,
            timed=self.sender.timed,
            outbox=outbox,
            settings=guest_link(guest, self.sender.settings),
            first_seq=made._begin,
            boundary_us=self.boundary_us,
            fence=self.sender.fence,
        )
        made.sender.gathers_by(made._codec.gathered, over_boundaries=True)
        made.sender.stream_version = self.sender.stream_version
        made.sender.expect(reader)
        made._held, made.held_bytes = [], 0
        made._stored = {}
        made.spilling = self.spilling.like(made.sender, made._stored)
        made.rows, made.given, made._engine_seq = made._begin, made._begin, made._begin - guest.first
        made._guest = guest
        return made

    def _sells(self, sold: SoldStream | None) -> Schema:
        """Of its rows only what is sold leaves; the schema of that."""
        self._columns, self._begin = ((), 0) if sold is None else (sold.columns, sold.begin)
        schema = some_columns(self.sender.schema, self._columns)
        self._codec = TrainCodec(schema, timed=self.sender.timed, clean=self._clean)
        return schema

    def all_in_memory(self) -> None:
        """Nothing of what is kept is on the disk of this node: the next checkpoint stores all of it."""
        self._stored.clear()

    # --- the bound ----------------------------------------------------------------------------

    def full(self, coming: int) -> bool:
        """Whether the fragment has to wait, since so much is kept, or held back, which nothing can shed.

        Args:
            coming: bytes under way to the engine, taken for as many bytes of output.
        """
        held = self.held_bytes + coming
        return self.sender.full_with(held) or held >= self.sender.settings.retained_bytes_max

    @property
    def waits_bytes(self) -> int:
        """What is in memory of it that nothing but its receivers can make less."""
        sheds = self.sender.settings.at_limit == "shed"
        kept = self.sender.log.memory_bytes if self.sender.receivers and not sheds else 0
        return self.held_bytes + kept

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        self.sender.tick(now_us)
        self.spilling.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: not before something else happens."""
        times = (self.sender.wake_at_us(), self.spilling.wake_at_us())
        return min((time for time in times if time is not None), default=None)

    # --- checkpoints ------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many pieces wait for a checkpoint; give it to ``release`` once that is durable."""
        return len(self._held)

    def release(self, now_us: int, count: int) -> None:
        """The first ``count`` held pieces are durable: they may leave."""
        pieces, self._held = self._held[:count], self._held[count:]
        self.held_bytes -= sum(map(_cost, pieces))
        self._send(now_us, pieces)

    def tokens(self) -> set[int]:
        """The checkpoints on disk in which kept output lies, beside that in segments."""
        self._forget_trimmed()
        whole = self.spilling.spilled_to
        return {token for index, (token, _) in self._stored.items() if index >= whole}

    def _forget_trimmed(self) -> None:
        base = self.sender.log.base
        for index in [index for index in self._stored if index < base]:
            del self._stored[index]

    def record(
        self, token: int, offset: int, *, compact: bool
    ) -> tuple[OutputRecord, list[Buffer], dict[int, tuple[int, int]]]:
        """What a checkpoint stores of this stream; nothing is changed.

        Args:
            token: of the checkpoint.
            offset: where in its ``log`` our payloads begin.
            compact: store all payloads again that are in no segment, so that older checkpoints can go.

        Returns:
            The record; the payloads for ``log``, in order; and where payloads then lie, for
            ``stored`` once the checkpoint is durable.
        """
        log = self.sender.log
        payloads: list[Buffer] = []
        places: dict[int, tuple[int, int]] = {}
        entries: list[EntryRecord] = []
        whole = self.spilling.spilled_to
        segments: set[int] = set()

        def put(payload: Buffer, index: int | None) -> tuple[int, int]:
            nonlocal offset
            if index is not None and not compact and index in self._stored:
                place = self._stored[index]
            else:
                place = (token, offset)
                payloads.append(payload)
                offset += memoryview(payload).nbytes
            if index is not None:
                places[index] = place
            return place

        for index, entry in enumerate(log.entries(), start=log.base):
            if entry.time_us is not None:
                entries.append(EntryRecord(entry.seq, entry.end, entry.time_us))
            elif entry.payload is None or index < whole:
                place = places[index] = self._stored[index]
                segments.add(place[0])
                nbytes = entry.cost - limits.ENTRY_BYTES
                entries.append(
                    EntryRecord(entry.seq, entry.end, None, entry.late, entry.tentative, *place, nbytes)
                )
            else:
                place = put(entry.payload, index)
                nbytes = memoryview(entry.payload).nbytes
                entries.append(
                    EntryRecord(entry.seq, entry.end, None, entry.late, entry.tentative, *place, nbytes)
                )
        seq = log.next_seq
        for held in self._held:
            if held.payload is None:
                entries.append(EntryRecord(seq, seq, held.time_us))
            else:
                place = put(held.payload, None)
                nbytes = memoryview(held.payload).nbytes
                entries.append(
                    EntryRecord(seq, seq + held.rows, None, held.late, held.tentative, *place, nbytes)
                )
                seq += held.rows
        made = OutputRecord(
            sink=self._recorded,
            first_seq=log.start_seq,
            first_boundary_us=log.promise(log.base),
            entries=tuple(entries),
            receivers=self.sender.durable_positions(),
            notes=self.sender.notes(),
            segments=tuple(sorted(segments)),
            again=self.rows - self.given,
            life=self.sender.life,
            held=len(self._held),
        )
        return made, payloads, places

    def stored(self, places: dict[int, tuple[int, int]]) -> None:
        """A checkpoint with these places is durable."""
        # A segment may have become durable meanwhile: what lies there needs no other place.
        whole = self.spilling.spilled_to
        self._stored.update((index, place) for index, place in places.items() if index >= whole)
        self.spilling.covered({token for token, _ in places.values()})
        self._forget_trimmed()


def _held_again(entry: OutputEntry) -> OutgoingElement:
    """An entry of a checkpoint as what waits to leave."""
    if entry.time_us is not None:
        return OutgoingElement(payload=None, time_us=entry.time_us)
    assert entry.payload is not None, "what is held back is in memory"
    rows = entry.end - entry.seq
    return OutgoingElement(payload=entry.payload, rows=rows, late=entry.late, tentative=entry.tentative)


def leaving(
    outputs: Mapping[str, FragmentOutput],
    guests: Mapping[str, ForeignReader],
    elements: Iterable[tuple[str, Element]],
) -> Iterator[tuple[FragmentOutput, Element]]:
    """What came out of sinks, for each output that it is for: those of guests take what their sink does."""
    for sink, element in elements:
        if sink in outputs:
            yield outputs[sink], element
        for id, guest in guests.items():
            if guest.sink == sink:
                yield outputs[id], element


def some_columns(schema: Schema, columns: Sequence[str]) -> Schema:
    """Of a schema, those; all where none is named."""
    return tuple(field for field in schema if field.name in columns) if columns else schema


def recorded_as(id: str, guest: ForeignReader | None) -> str:
    """What a checkpoint calls it: never as one that read under this name before."""
    return id if guest is None else f"{id}#{guest.asked}"


def guest_link(guest: ForeignReader, link: LinkSettings) -> LinkSettings:
    """What holds for a guest's stream, where this holds for the sink's: another owner never holds us up."""
    return replace(link, at_limit="shed") if guest.foreign else link


def outputs_of(
    spec: FragmentSpec,
    shapes: Mapping[Arc, StreamShape],
    *,
    outbox: Outbox,
    link_of: Callable[[str], LinkSettings],
    next_token: Callable[[], int],
    clean: bool,
    records: Iterable[OutputRecord],
    logs: Mapping[int, Buffer] | None,
    fence: Fence,
    guarded: bool = False,
    marks: MarksRecord | None = None,
) -> dict[str, FragmentOutput]:
    """The outputs of a fragment by sink, as a checkpoint has them.

    Args:
        shapes: of what each box puts out.
        link_of: what holds for a stream.
        records, logs: of the checkpoint; empty: there is none.
        fence: of the query.
        guarded: as the policy of the fragment says.
        marks: of the checkpoint, where it is recovered by upstream backup.
    """
    known = {each.sink: each for each in records}
    found: dict[str, FragmentOutput] = {}
    for id in [*(box.id for box in spec.graph.boxes if isinstance(box, Sink)), *spec.guests]:
        guest = spec.guests.get(id)
        of = id if guest is None else guest.sink
        link = link_of(spec.streams[of])
        found[id] = FragmentOutput(
            id,
            spec.streams[id],
            shapes[Arc(of)],
            readers=spec.readers.get(id, ()),
            outbox=outbox,
            settings=link if guest is None else guest_link(guest, link),
            fragment=spec.name,
            next_token=next_token,
            clean=clean,
            record=known.get(recorded_as(id, guest)),
            logs=logs,
            guest=guest,
            sold=spec.sold.get(id),
            guarded=guarded,
            fence=fence,
            marks=marks,
        )
        found[id].sender.stream_version = spec.stream_version
    return found
