"""A fragment that takes over from others on its node: their state, their inputs, and their readers. No IO.

It begins with the state that they had at one moment. If they rest from then on it has all that it needs. If
they go on it *follows*: it is fed what they are fed since, and keeps what comes out until it is its turn.
What they have sent of that by then is dropped: the rows are the same, with the same numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from medusa.elements import Boundary, Element, Shed, Train
from medusa.engine.held_rows_count import NOTHING, RowsAtRisk
from medusa.nodes.fragment.automaton import TurnState
from medusa.nodes.fragment.change_feed import FedElement
from medusa.nodes.fragment.checkpoint_record import (
    LOG,
    RECORD,
    FragmentRecord,
    InputRecord,
    OutputRecord,
    read_record,
)
from medusa.nodes.fragment.checkpointing import SavedCheckpoint, taken
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.outputs import FragmentOutput, OutgoingElement, leaving
from medusa.nodes.placement.repartition_plan import Arcs
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.boxes import Source
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.links import Data

__all__ = ["SuccessorFragment", "begins_with", "stands"]


class SuccessorFragment(FragmentHost):
    """It rests until all of it, and that it is there, is on disk; then it goes on where the others stand."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._inner: set[str] = set()
        """Sources and sinks that link it with others of the set."""
        self._flushed: dict[str, int] = {}
        self._out: list[tuple[str, Element]] = []
        """What came out and wasn't looked at."""
        self._later: dict[str, deque[Element]] = {}
        """Sink -> what came out of it that the others haven't sent, as far as is known."""
        self.hold()

    def adopt(
        self,
        olds: Iterable[FragmentHost],
        inner: Collection[str],
        outputs: Sequence[tuple[str, Element]] = (),
    ) -> None:
        """Take the links of those that were, which rest; they keep them too, until ``take_over``.

        Args:
            inner: sources and sinks that none of those has.
            outputs: what came out on the way; it leaves in the end.
        """
        self._inner = set(inner)
        for old in olds:
            self._adopt_inputs(old, {})
            for sink, output in old.outputs.items():
                if sink in self.outputs and sink not in self._inner:
                    own = output.for_fragment(self.spec.name, self._outbox, self._next_token)
                    self.outputs[sink] = own
        for output, element in leaving(self.outputs, self.spec.guests, outputs):
            output.take(0, element, hold=True)
        self._flushed = {sink: output.held for sink, output in self.outputs.items() if output.held}

    def _adopt_inputs(self, old: FragmentHost, gone: Collection[str]) -> None:
        for key, input in old.inputs.items():
            if key[0] in self._sources and key[0] not in gone and key[0] not in self._inner:
                self.inputs[key] = input
        self.thinning.inherits(old.thinning)
        self.rows_in = max(self.rows_in, old.rows_in)

    # --- following --------------------------------------------------------------------------------

    def follow_on(self, inner: Collection[str], outputs: Sequence[tuple[str, Element]] = ()) -> None:
        """From here on it is fed what the others are; before ``base``.

        Args:
            inner: sources and sinks that none of those has.
            outputs: what came out on the way, of rows that the others hold back.
        """
        self._inner = set(inner)
        self.hold(follow=True)
        for sink, output in self.outputs.items():
            output.all_in_memory()
            if sink not in self._inner:
                self._later[sink] = deque()
        for sink, element in outputs:
            if sink in self._later:
                self.outputs[sink].take(0, element, hold=True)
                self._later[sink].append(element)

    @property
    def outer(self) -> set[str]:
        """Sources that are fed from outside the set."""
        return self._sources.keys() - self._inner

    @property
    def kept_bytes(self) -> int:
        """Of what it gave others of the set."""
        return sum(
            output.sender.log.memory_bytes for sink, output in self.outputs.items() if sink in self._inner
        )

    def follow(self, tapped: FedElement) -> bool:
        """Feed what one of the others was fed; whether the engine has something to do."""
        input = self._like(tapped.input)
        if isinstance(tapped.element, Boundary) and not input.judged:
            self._entries.fed_us[input.source] = tapped.element.time_us
        at: dict[str, int] = {"next_seq": tapped.next_seq, "boundary_us": tapped.boundary_us}
        return self._feed(input, tapped.element, tapped.note, **at)

    def _like(self, old: FragmentInput) -> FragmentInput:
        """Our input for what this one of the others was fed."""
        if old.judged:  # It has one feed, and another node may send that since it was copied.
            for (source, _), input in self.inputs.items():
                if source == old.source:
                    return input
        known = self.inputs.get((old.source, old.peer))
        return known or self._add_input(old.source, old.stream, old.peer)

    def follow_link(self, input: FragmentInput, piece: OutgoingElement) -> None:
        """Feed what another one of the set gave."""
        seq = input.fed_seq
        if piece.payload is None:
            element = Boundary(piece.time_us)
            self._feed(input, element, b"", next_seq=seq, boundary_us=piece.time_us)
            return
        data = Data(
            stream=input.stream,
            epoch=0,
            frame=0,
            seq=seq,
            rows=piece.rows,
            tentative=piece.tentative,
            late=piece.late,
        )
        train = input.codec.decode(data, piece.payload, peer=input.peer, boundary_us=input.fed_us)
        self._feed(input, train, b"", next_seq=seq + piece.rows, boundary_us=input.fed_us)

    def _feed(
        self,
        input: FragmentInput,
        element: Train | Boundary | Shed | None,
        note: bytes,
        *,
        next_seq: int,
        boundary_us: int,
    ) -> bool:
        work = Work(input, element, next_seq=next_seq, boundary_us=boundary_us, cost=0)
        work.note = note
        input.issued(work)
        self._dirty = True
        if element is None:
            return False
        self._run(work, element)
        return True

    def ran(
        self,
        now_us: int,
        outputs: list[tuple[str, Element]],
        refused: str = "",
        dying: RowsAtRisk = NOTHING,
        shed: int = 0,
    ) -> None:
        if not self.follows:
            super().ran(now_us, outputs, refused, dying, shed)
            return
        self._running.popleft()  # What was refused has been told by who was fed it first.
        self._out += outputs

    def came_out(self, now_us: int) -> list[tuple[str, Sequence[OutgoingElement]]]:
        """What came out since the last call: to others of the set by stream, as it leaves; the rest stays."""
        outputs, self._out = self._out, []
        found: list[tuple[str, Sequence[OutgoingElement]]] = []
        for sink, element in outputs:
            output = self.outputs[sink]
            if sink in self._inner:
                found.append((output.stream, output.take(now_us, element, hold=False)))
                continue
            if isinstance(element, Train):
                assert element.first_seq == output.given, "rows of a sink are numbered without gaps"
                output.given += len(element)
            self._later[sink].append(element)
        return found

    def sent(self, outputs: Mapping[str, FragmentOutput]) -> None:
        """These, of the others, have sent so much: that much needn't be kept."""
        for sink, later in self._later.items():
            log = outputs[sink].sender.log
            while later and _is_in(later[0], log.next_seq, log.boundary_us):
                later.popleft()

    # --- taking over ------------------------------------------------------------------------------

    def take_over(self, now_us: int, olds: Iterable[FragmentHost], gone: Arcs) -> None:
        """From now on what comes for the others is for this one.

        Args:
            gone: the ends of the others that aren't any more.
        """
        for old in olds:
            ends = gone.get(old.spec.name, {})
            self._switch_as(old, ends)
            if self.follows:
                self._relieve(old, ends)
            self._take_waiting(old)
            self.subscribers.take_over(now_us, old.subscribers)
        for input in self.inputs.values():
            input.receiver.fragment_epoch = lambda: self.epoch()

    def _switch_as(self, old: FragmentHost, gone: Collection[str]) -> None:
        """Its streams may come from other nodes, and go to others, since it was copied."""
        mine = self.outer - set(gone)
        now = {feed.source: feed for feed in old.spec.feeds if feed.source in mine}
        for source, feed in now.items():
            [key] = [key for key in self.inputs if key[0] == source]
            own, input = self.inputs.pop(key), old.inputs[source, feed.node]
            assert (own.fed_seq, own.fed_us) == (input.fed_seq, input.fed_us), "it was fed all of it"
            self.inputs[source, feed.node] = input
        self._forget_guests(old)
        read = {sink: nodes for sink, nodes in old.spec.readers.items() if sink not in self._inner}
        self.change_spec(
            feeds=tuple(now.get(feed.source, feed) for feed in self.spec.feeds),
            readers={sink: read.get(sink, nodes) for sink, nodes in self.spec.readers.items()},
        )

    def _forget_guests(self, old: FragmentHost) -> None:
        """Queries that read its sinks when it was copied may be gone: rows would be kept for nobody."""
        spec = self.spec
        left = {
            id
            for id, guest in spec.guests.items()
            if guest.sink in old.spec.streams and guest.sink not in self._inner and id not in old.spec.guests
        }
        if not left:
            return
        for id in sorted(left):
            self.outputs.pop(id, None)
            self._later.pop(id, None)
            self._flushed.pop(id, None)
        self.change_spec(
            streams={id: stream for id, stream in spec.streams.items() if id not in left},
            readers={id: nodes for id, nodes in spec.readers.items() if id not in left},
            guests={id: guest for id, guest in spec.guests.items() if id not in left},
            sold={id: sold for id, sold in spec.sold.items() if id not in left},
        )

    def _relieve(self, old: FragmentHost, gone: Collection[str]) -> None:
        """Take the links of one that rests now, after all that it was fed."""
        self._adopt_inputs(old, gone)
        for sink, output in old.outputs.items():
            if sink in self._later:
                made = output.for_fragment(self.spec.name, self._outbox, self._next_token)
                rows = sum(len(each) for each in self._later[sink] if isinstance(each, Train))
                made.given = self.outputs[sink].given - rows
                self.outputs[sink] = made

    def _take_waiting(self, old: FragmentHost) -> None:
        """What has come for it and wasn't fed."""
        mine = [input for (source, _), input in self.inputs.items() if source not in self._inner]
        self._feeding.waits(work for work in old.waiting() if work.input in mine)
        self._retry |= {key: at_us for key, at_us in old._retry.items() if self.inputs.get(key) in mine}

    def go(self, now_us: int, me: str) -> None:
        """All is on disk: feed and emit."""
        if self.follows:
            self._dirty = True  # What readers hold by now isn't in ``base``.
            self._checkpoint_at_us = now_us + self._every_us
            for (source, _), input in self.inputs.items():
                if source in self._inner:
                    input.receiver.next_seq = input.fed_seq
                    input.receiver.boundary_us = input.fed_us
        elif self._writing is not None:
            self.persisted(now_us, self._writing.token, True)
        for sink, later in self._later.items():
            for element in later:
                self.outputs[sink].take(now_us, element, hold=False)
        self.thaw(now_us)
        for sink, count in self._flushed.items():
            self.outputs[sink].release(now_us, count)
        self._later = {}
        for sink, output in self.outputs.items():
            if sink in self._inner:
                output.sender.peer(now_us, me, LinkEvent.PEER_UP)
        for (source, _), input in self.inputs.items():
            if source in self._inner:
                input.receiver.peer_event(now_us, LinkEvent.PEER_UP)
        self._pump(now_us)

    def tick(self, now_us: int) -> None:
        if not self.frozen:
            super().tick(now_us)

    def wake_at_us(self) -> int | None:
        return None if self.frozen else super().wake_at_us()

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        if self._turn not in (TurnState.WAITING, TurnState.FOLLOWING):  # Else others have its links.
            super().peer_event(now_us, peer, event)


def _is_in(element: Element, next_seq: int, boundary_us: int) -> bool:
    """Whether a log that stands there has it."""
    if isinstance(element, Train):
        return element.first_seq + len(element) <= next_seq
    return isinstance(element, Boundary) and element.time_us <= boundary_us


def stands(hosted: FragmentHost, token: int, *, whole: bool) -> SavedCheckpoint:
    """Where a fragment stands of which nothing runs.

    Args:
        token: names the output in it, by which it can stand beside others.
        whole: with its output, all of it in memory.
    """
    _, persist = taken(
        hosted.spec,
        token,
        inputs=hosted.inputs.values(),
        outputs=hosted.outputs.values() if whole else (),
        fed_us=hosted.fed_us,
        mixed=hosted.mixed,
        decided=0,
        alone=True,
    )
    record, log = persist.files[RECORD], persist.files[LOG]
    assert isinstance(record, bytes)
    assert isinstance(log, tuple)
    return SavedCheckpoint(record=read_record(record, where=hosted.spec.name), logs={token: b"".join(log)})


def begins_with(
    spec: FragmentSpec,
    olds: Sequence[tuple[FragmentSpec, SavedCheckpoint]],
    arcs: Arcs,
    reached_us: Mapping[str, int],
    node: str,
) -> SavedCheckpoint:
    """What a new fragment has instead of a checkpoint, beside the state of its boxes.

    Args:
        olds: those that were, and where they stood.
        arcs: the ends of the old ones that aren't any more.
        reached_us: source or sink that is new -> the boundary that stands there.
    """
    sources = {each.id for each in spec.graph.boxes if isinstance(each, Source)} - reached_us.keys()
    inputs = [
        InputRecord(source=feed.source, peer=node, next_seq=0, boundary_us=reached_us[feed.source])
        for feed in spec.feeds
        if feed.source in reached_us
    ]
    outputs = [
        OutputRecord(sink=sink, first_seq=0, first_boundary_us=reached_us[sink], entries=(), receivers={})
        for sink in spec.streams
        if sink in reached_us
    ]
    sinks = spec.streams.keys() - reached_us.keys()
    fed_us: dict[str, int] = {}
    logs: dict[int, Buffer] = {}
    mixed = False
    for old, saved in olds:
        record, gone = saved.record, arcs.get(old.name, {})
        assert record is not None
        inputs += [each for each in record.inputs if each.source in sources and each.source not in gone]
        outputs += [each for each in record.outputs if each.sink in sinks and each.sink not in gone]
        fed_us |= {source: at_us for source, at_us in record.fed_us.items() if source in sources}
        mixed = mixed or (record.mixed and bool(sources & {*old.entries, *(f.source for f in old.feeds)}))
        logs |= saved.logs
    record = FragmentRecord(
        token=0,
        fragment=spec.name,
        mixed=mixed,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        fed_us=fed_us,
    )
    return SavedCheckpoint(record=record, logs=logs)
