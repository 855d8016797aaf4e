"""A fragment that follows another node's: it feeds what that one fed, and shows nothing until it may."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from medusa.elements import WHOLE_PPM, Boundary, Shed, Train
from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment.change_feed import PASSED
from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.input_log_records import JOINED, LOST, PROMISE, ROWS, SHED, Decision
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.named_subscriptions import is_key
from medusa.wire.link.sender import Sender
from medusa.wire.messages.base import Count, Note
from medusa.wire.messages.links import Data
from medusa.wire.messages.move import Fed

__all__ = ["Clients", "ReaderPosition", "StandbyFragment", "saved_from"]


class ReaderPosition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a reader of a stream is.

    Attributes:
        durable: rows below it are never wanted again.
        plain: it is a subscriber without a disk.
        note: what it left with the owner.
    """

    durable: Count
    plain: bool = False
    note: Note = b""


class Clients(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who reads the streams of a fragment, and who feeds its sources under names.

    Attributes:
        readers: how far they are, by sink and by node, client or subscription.
        holders: source, key of a named publisher, and the client that has the name; empty: nobody has it.
    """

    readers: dict[str, dict[str, ReaderPosition]]
    holders: tuple[tuple[str, str, str], ...] = ()


def saved_from(record: FragmentRecord, logs: Mapping[int, Buffer]) -> SavedCheckpoint:
    """A checkpoint of another node as what to begin with: all of its output is in memory."""
    outputs = tuple(msgspec.structs.replace(output, segments=()) for output in record.outputs)
    return SavedCheckpoint(record=msgspec.structs.replace(record, outputs=outputs), logs=logs)


class StandbyFragment(FragmentHost):
    """A fragment as its target has it: first it follows, then it is one like others.

    Args:
        owner: the node that it follows.
        secondary: for as long as it can: so it takes checkpoints, when its owner does.
        abroad: that node is of another participant, and the fragment of ours: it may leave out nothing that
            comes.
    """

    def __init__(
        self, *args: Any, owner: str, secondary: bool = False, abroad: bool = False, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._uncovered.clear()  # That checkpoint is the owner's; the first of our own is on its way.
        self.checkpoint_on_disk = 0
        self._owner = owner
        self._secondary, self._abroad = secondary, abroad
        self._again_us: int | None = None
        """When a secondary takes a checkpoint again that couldn't be written: its owner may take no other."""
        if secondary:  # Another secondary may not have a decision of which nothing has left yet.
            self.durability.require((owner,))
        for output in self.outputs.values():
            output.all_in_memory()
        self.hold(follow=True)

    @property
    def _may_checkpoint(self) -> bool:
        return super()._may_checkpoint or (self._secondary and self.follows)

    @property
    def writing(self) -> int:
        """The token of the checkpoint on its way to disk; 0: none is."""
        return self._writing.token if self._writing is not None else 0

    def persisted(self, now_us: int, token: int, ok: bool, why: str = "") -> bool:
        if self.follows and token == self.writing:
            for input in self.inputs.values():
                input.stand_where_fed()
        ours = super().persisted(now_us, token, ok, why)
        if ours and not ok and self._secondary and self.follows:
            self._again_us = now_us + self._every_us
        waits, newest = self._uncovered, self.checkpoint_on_disk
        while self.follows and len(waits) > 1 and waits[1].token <= newest:
            waits.popleft()  # The last one says all that it may acknowledge as the owner.
        return ours

    def follow(self, now_us: int, message: Fed, payload: Buffer | None) -> bool:
        """Feed what the owner fed; whether the engine has it to do.

        Raises:
            RemoteProtocolError: it doesn't fit what came before.
        """
        input = self._input_for(message)
        moved = message.next_seq - input.fed_seq
        rows = message.kind in (ROWS, LOST)
        if moved < rows or (message.number >= 0 and message.number != self.decided.at):
            raise self._unfit(message, "doesn't follow what came before")
        element = self._element(message, input, payload)
        work = Work(input, element, next_seq=message.next_seq, boundary_us=message.boundary_us, cost=0)
        work.number, work.note = self.decided.at, message.note  # The last piece of a train is the decision.
        if message.last and message.number >= 0:
            self.decided.note(self._decision(message, input) if self.mixed else None)
        if message.kind != JOINED:
            input.issued(work)
        elif input.named:
            input.taken(bytes(message.note).decode())
        if isinstance(element, Boundary) and not input.judged:
            self._entries.fed_us[input.source] = max(element.time_us, self._entries.fed_us[input.source])
        self._dirty = True
        if element is None:
            self._pump(now_us)
            return False
        if isinstance(element, Train):
            self.rows_in += len(element)
        self._run(work, element)
        self._pump(now_us)
        return True

    def _decision(self, message: Fed, input: FragmentInput) -> Decision:
        to = {JOINED: 0, PROMISE: message.time_us, SHED: message.time_us}.get(message.kind, message.next_seq)
        return Decision(message.kind, input.source, input.peer, to, message.arrival_us)

    def _input_for(self, message: Fed) -> FragmentInput:
        source, peer = message.source, message.peer
        if (known := self.inputs.get((source, peer))) is not None:
            return known
        if self._secondary and self._sources[source].judged if source in self._sources else False:
            # It has one feed; its owner and we needn't hear in the same moment that another node sends it.
            return next(each for (of, _), each in self.inputs.items() if of == source)
        if peer == self._owner and (own := self._feeding.own.get((source, self.spec.node))) is not None:
            return own
        if source not in self.spec.entries:
            raise self._unfit(message, "is of an input that it hasn't")
        return self._add_input(source, self.spec.entries[source], peer)

    def _element(
        self, message: Fed, input: FragmentInput, payload: Buffer | None
    ) -> Train | Boundary | Shed | None:
        if message.rows and payload is not None:
            data = Data(
                stream=input.stream,
                epoch=0,
                frame=0,
                seq=message.seq,
                rows=message.rows,
                tentative=message.tentative,
                late=message.late,
            )
            train = input.codec.decode(data, payload, peer=self._owner)
            return msgspec.structs.replace(train, arrival_us=message.arrival_us)
        if message.kind == PROMISE:
            return Boundary(message.time_us)
        if message.kind in (JOINED, PASSED, LOST):
            return None
        if message.kind == SHED and self.sheds(message.source):
            if 0 <= message.time_us <= (0 if self._abroad else WHOLE_PPM):
                return Shed(message.time_us)
            raise self._unfit(
                message, f"leaves out {message.time_us} millionths, which isn't for its node to say"
            )
        raise self._unfit(message, "has no rows")

    def _unfit(self, message: Fed, why: str) -> RemoteProtocolError:
        text = f"decision {message.number} of fragment {self.spec.name!r} {why}"
        return RemoteProtocolError(text, peer=self._owner, code="E_STATE")

    def standing(self, now_us: int, readers: Mapping[str, Mapping[str, ReaderPosition]]) -> None:
        """How far readers are, by sink: what all have is forgotten, as the owner forgot it."""
        for sink, known in readers.items():
            if (output := self.outputs.get(sink)) is None:
                continue
            views = output.sender.receivers
            for key in [key for key in views if key not in known]:
                del views[key]
            for key, reader in known.items():
                output.sender.expect(key, reader.durable)
                view = views[key]
                at = output.sender.log.next_seq
                view.durable = min(max(view.durable, reader.durable), at)
                view.plain = reader.plain
                view.moved(now_us)
                view.note = reader.note
            output.sender.settle(now_us)

    def held_by(self, holders: Iterable[tuple[str, str, str]]) -> None:
        """Which client has the name of each named publisher: another one may have opened it since."""
        for source, key, by in holders:
            input = self.inputs.get((source, key))
            if input is not None and input.named and input.by != by:
                input.taken(by)

    def let_go(self, now_us: int, decided: int) -> None:
        """What came of the decisions below this one may have left the owner: it is kept for readers here
        too."""
        self.durability.heard(self._owner, decided=decided, covered=0)
        self._release(now_us)

    def rewired(self, now_us: int, spec: FragmentSpec) -> None:
        """What it reads comes from other nodes now, or other nodes read it."""
        before = {feed.source: feed.node for feed in self.spec.feeds}
        self.spec = spec
        for feed in spec.feeds:
            if before[feed.source] != feed.node:
                self.redirect(now_us, feed.source, feed.node, up=False)
        for sink, output in self.outputs.items():
            _succeed_readers(now_us, output.sender, spec.readers.get(sink, ()))

    def redirect(self, now_us: int, source: str, node: str, *, up: bool) -> None:
        """While it follows nobody is asked for rows, also where it is to be the owner once a disk says so."""
        super().redirect(now_us, source, node, up=up and not self.follows)

    def _link_anew(self, now_us: int) -> None:
        if not self.follows:
            super()._link_anew(now_us)
            return
        for input in self.inputs.values():
            input.stand_where_fed()
        for output in self.outputs.values():
            for view in output.sender.receivers.values():
                view.moved(now_us)

    def tick(self, now_us: int) -> None:
        if self.follows:
            if self._again_us is not None and now_us >= self._again_us:
                self._again_us = None
                self._wanted = self._wanted or self._dirty
            self._pump(now_us)  # What was noted goes to disk; nothing is fed.
        else:
            super().tick(now_us)

    def wake_at_us(self) -> int | None:
        if not self.follows:
            return super().wake_at_us()
        times = (self.decided.wake_at_us(), self._again_us)
        return min((time for time in times if time is not None), default=None)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        if not self.follows:
            super().peer_event(now_us, peer, event)


def _succeed_readers(now_us: int, sender: Sender, readers: Collection[str]) -> None:
    """Nodes that read no more hold nothing up: what was kept for them is for those that have their place."""
    views = sender.receivers
    gone = {key: view for key, view in views.items() if not (view.plain or is_key(key) or key in readers)}
    if not gone:
        return
    durable = min(view.durable for view in gone.values())
    note = next((view.note for view in gone.values() if view.note), b"")
    for reader in readers:
        if reader not in views:
            sender.expect(reader, durable)
            views[reader].leave(note)
    for key in gone:
        sender.forget(now_us, key)
