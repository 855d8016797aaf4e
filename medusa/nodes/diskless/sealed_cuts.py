"""What a fragment without a disk leaves with its neighbours: cuts, as sealed notes.

A *cut* says of one moment: so far had each input been taken, so far did each output reach, so many rows
were held (taken, and not all that comes of them had left), so many had been lost before. Every frame of
output carries the cut after it, and receivers give it back; what upstream may forget, it forgets together
with the cut that says so. Whoever begins anew goes on at the newest cut that anybody still has: no row
after it has been seen anywhere, so all come again; of those before it exactly the held ones are lost.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.wire import limits

__all__ = ["CutSealer", "SealedCut"]

TAG_BYTES = 16
VERSION = 1


class SealedCut(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One moment of one fragment.

    Attributes:
        life, number: of the node, and of the cut in it: a later one is larger.
        epoch: of the fragment at that node; one that takes over has a higher one.
        notes: of sources that other nodes feed, what those had left by then: if they are lost too, that
            says where they stood.
        inputs: (source, peer, next row) of each.
        outputs: (sink, next row) of each.
        held: rows that die with the node now; -1: nobody can say.
        lost: those that died with earlier lives.
        unknown: of some life nobody could say.
        readers: plain clients that read.
        promises: of sources that publishers feed, the time below which rows were late.
        sources: where there are several: of each by which rows are held, or came that were lost, how many
            those are: (source, held, lost). Sums are ``held`` and ``lost``, but for what an earlier release
            counted.
        unread: (sink, row) of each output of which rows before its next one, from this one on, are kept for
            who comes later: nobody reads it, and nobody has acknowledged them. They die with the node too.
    """

    fragment: str
    life: int
    number: int
    inputs: tuple[tuple[str, str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    held: int
    lost: int
    unknown: bool
    readers: tuple[str, ...]
    promises: tuple[tuple[str, int], ...] = ()
    version: int = VERSION
    epoch: int = 1
    notes: tuple[tuple[str, bytes], ...] = ()
    sources: tuple[tuple[str, int, int], ...] = ()
    unread: tuple[tuple[str, int], ...] = ()

    @property
    def token(self) -> int:
        """Of cuts of one life a later one has a larger one."""
        return self.number

    @property
    def whose(self) -> tuple[int, int]:
        """The epoch and the life of the node that made it: of two cuts the later one has a higher pair."""
        return self.epoch, self.life

    @property
    def order(self) -> tuple[int, int, int]:
        return (*self.whose, self.number)

    def lost_after(self, of: Collection[str]) -> dict[str, int]:
        """Rows that are lost if the fragment goes on here, by the source that they came by; of those that an
        earlier release counted it may be unknown.

        Args:
            of: all sources of the fragment, also those by which nothing comes now.
        """
        if len(of) == 1:
            return {name: self.lost + max(self.held, 0) for name in of}
        return {source: held + lost for source, held, lost in self.sources}

    def input_at(self, source: str, peer: str, *, any_peer: bool = False) -> int | None:
        """The next row of an input; None: there was no such input.

        Args:
            any_peer: it has one sender only, which may have been another node then.
        """
        found = (seq for of, who, seq in self.inputs if of == source and (any_peer or who == peer))
        return next(found, None)

    def note_of(self, source: str) -> bytes:
        """What its sender had left with the fragment; empty: nothing."""
        return next((note for of, note in self.notes if of == source), b"")

    def output_at(self, sink: str) -> int:
        """The number of the next row of an output."""
        return next((seq for name, seq in self.outputs if name == sink), 0)

    def unread_from(self, sink: str) -> int:
        """The first row of an output that nobody has read and that dies with the node; its next row where
        there is none."""
        return next((seq for name, seq in self.unread if name == sink), self.output_at(sink))


_CUTS = msgpack_decoder(SealedCut)


class CutSealer:
    """Makes notes of cuts, and cuts of one's own notes only.

    Args:
        key: secret of the node, or of those who may have the fragment; empty: whoever reaches
            it may do everything anyway.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def key_for(self, about: str) -> bytes:
        """A secret of this node alone, until it gives it to others; empty where it has none."""
        if not self._key:
            return b""
        return blake2b(about.encode(), key=self._key, digest_size=32, person=b"medusa note key").digest()

    def _tag(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=TAG_BYTES, person=b"medusa note").digest()

    def note(self, cut: SealedCut) -> bytes:
        """Sealed, without what is lost by source where that doesn't fit; empty where it would still be longer
        than a note may be."""
        # Without its last fields where they are empty: so wrote, and reads, the release before there were
        # any.
        fields = msgspec.structs.astuple(cut)
        data = msgspec.msgpack.encode(fields if cut.unread else fields[:-1])
        if not (cut.sources or cut.unread) or len(data) + TAG_BYTES > limits.NOTE_BYTES_MAX:
            data = msgspec.msgpack.encode(fields[:-2])
        if len(data) + TAG_BYTES > limits.NOTE_BYTES_MAX:
            return b""
        return self._tag(data) + data

    def cut(self, note: bytes, fragment: str) -> SealedCut | None:
        """What it says; None: it isn't ours, not of this fragment, or damaged."""
        tag, data = note[:TAG_BYTES], note[TAG_BYTES:]
        if not data or self._tag(data) != tag:
            return None
        try:
            cut = _CUTS.decode(data)
        except msgspec.MsgspecError:
            return None
        return cut if cut.fragment == fragment and cut.version == VERSION else None
