"""A fragment that takes over from others on its node: their state, their inputs, and their readers. No IO."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from medusa.elements import Element
from medusa.mind.checkpointing import Saved
from medusa.mind.hosting import Hosted
from medusa.mind.outputs import leaving
from medusa.mind.record import FragmentRecord, InputRecord, OutputRecord
from medusa.mind.replanning import Arcs
from medusa.mind.spec import Fragment
from medusa.query.boxes import Source
from medusa.wire.link import LinkEvent

__all__ = ["Regrouped", "begins_with"]


class Regrouped(Hosted):
    """It rests until all of it, and that it is there, is on disk; then it goes on where the others stood.

    Attributes:
        linked: it has taken over, so that what happens to its peers concerns it.
    """

    linked = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._inner: set[str] = set()
        """Sources and sinks that link it with others of the set."""
        self._token = 0
        self._flushed: dict[str, int] = {}
        self.freeze()

    def adopt(
        self, olds: Iterable[Hosted], inner: Collection[str], outputs: Sequence[tuple[str, Element]] = ()
    ) -> None:
        """Take the links of those that were; they keep them too, until ``take_over``.

        Args:
            inner: sources and sinks that none of those has.
            outputs: what came out on the way; it leaves in the end.
        """
        self._inner = set(inner)
        for old in olds:
            for key, input in old.inputs.items():
                if key in self.inputs and key[0] not in self._inner:
                    self.inputs[key] = input
            for sink, output in old.outputs.items():
                if sink in self.outputs and sink not in self._inner:
                    own = output.for_fragment(self.spec.name, self._outbox, self._next_token)
                    self.outputs[sink] = own
            self.rows_in = max(self.rows_in, old.rows_in)
        for output, element in leaving(self.outputs, self.spec.guests, outputs):
            output.take(0, element, hold=True)
        self._flushed = {sink: output.held for sink, output in self.outputs.items() if output.held}

    def base(self, now_us: int) -> int:
        """Write what it begins with; the token."""
        self._checkpoint(now_us)
        assert self._writing is not None
        self._token = self._writing.token
        return self._token

    def take_over(self, olds: Iterable[Hosted]) -> None:
        """From now on what comes for the others is for this one."""
        self.linked = True
        mine = [input for (source, _), input in self.inputs.items() if source not in self._inner]
        for old in olds:
            self._feeding.waits(work for work in old.waiting() if work.input in mine)
            self._retry |= {key: at_us for key, at_us in old._retry.items() if self.inputs.get(key) in mine}

    def go(self, now_us: int, me: str) -> None:
        """All is on disk: feed and emit."""
        self.persisted(now_us, self._token, True)
        self.thaw(now_us)
        for sink, count in self._flushed.items():
            self.outputs[sink].release(now_us, count)
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
        if self.linked:
            super().peer_event(now_us, peer, event)


def begins_with(
    spec: Fragment, olds: Sequence[Hosted], arcs: Arcs, reached_us: Mapping[str, int], node: str
) -> Saved:
    """What a new fragment has instead of a checkpoint, beside the state of its boxes.

    Args:
        arcs: the ends of the old ones that aren't any more.
        reached_us: source or sink that is new -> the boundary that stands there.
    """
    sources = {each.id for each in spec.graph.boxes if isinstance(each, Source)} - reached_us.keys()
    inputs = [
        InputRecord(source=feed.source, peer=node, next_seq=0, boundary_us=reached_us[feed.source])
        for feed in spec.feeds
        if feed.source in reached_us
    ]
    fed_us: dict[str, int] = {}
    mixed = False
    for old in olds:
        gone = arcs.get(old.spec.name, {})
        mine = [each for each in old.inputs.values() if each.source in sources and each.source not in gone]
        inputs += [each.record() for each in mine]
        fed_us |= {source: at_us for source, at_us in old.fed_us.items() if source in sources}
        mixed = mixed or (
            old.mixed and bool(sources & {*old.spec.entries, *(f.source for f in old.spec.feeds)})
        )
    outputs = [
        OutputRecord(sink=sink, first_seq=0, first_boundary_us=reached_us[sink], entries=(), receivers={})
        for sink in spec.streams
        if sink in reached_us
    ]
    record = FragmentRecord(
        token=0,
        fragment=spec.name,
        mixed=mixed,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        fed_us=fed_us,
    )
    return Saved(record=record, logs={})
