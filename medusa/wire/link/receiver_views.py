"""What a sender knows of each of its receivers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.wire import limits
from medusa.wire.link.automaton import SENDER, LinkEvent, SenderState
from medusa.wire.link.output_log import OutputEntry
from medusa.wire.link.tentative_view import TentativeView
from medusa.wire.messages.links import Ack, Boundary, Data

__all__ = ["ReceiverView", "frame_of"]


@dataclass(slots=True, kw_only=True)
class ReceiverView:
    """What the sender knows of one receiver.

    Invariants: ``durable <= acked <= next row to send``; ``sent_bytes <= granted``;
    ``acked_frames <= frames``.

    Attributes:
        peer: its connection; empty: a named one that nobody reads just now.
        named: a named subscription: stays known whoever reads it.
        note: what it left with its last ``Ack``.
        stream_version: that it was told of the stream.
        lost_rows: it asked for so many that weren't kept any more; it counts the same.
        lane: what it has of the tentative lane; None: it didn't ask for it.
        shed_rows: of what it was sent, that it says to have left out under overload.
        told_thinned: that it was told of what is left out above the stream: as ``Sender.thins`` counts.
    """

    peer: str
    plain: bool
    durable: int
    state: SenderState = SenderState.DETACHED
    epoch: int = 0
    cursor: int = 0
    wanted_seq: int = 0
    sent_seq: int = 0
    acked: int = 0
    frames: int = 0
    acked_frames: int = 0
    sent_bytes: int = 0
    granted: int = 0
    asked_at_us: int = 0
    moved_at_us: int = 0
    stale: int = 0
    named: bool = False
    lost_rows: int = 0
    lost_below: int = 0
    note: bytes = b""
    stream_version: int = 1
    lane: TentativeView | None = None
    shed_rows: int = 0
    told_thinned: int = 0

    def outstanding(self, end: int) -> bool:
        """Whether it has still to take something of a log that ends with this entry."""
        if self.plain and self.state is not SenderState.FLOWING:
            return True
        return self.acked_frames < self.frames or self.durable < self.sent_seq or self.cursor < end

    def step(self, event: LinkEvent) -> None:
        """Something happened that may happen in its state."""
        self.state = SENDER[self.state][event]

    def is_read_by(self, peer: str) -> None:
        """By this connection; empty: nobody reads a named one just now."""
        self.peer = peer

    def begin_at(self, seq: int) -> None:
        """It has none of the rows yet; the first has this number."""
        self.durable = seq

    def look_again_at(self, index: int) -> None:
        """This entry of the log has changed: it may be sent again."""
        self.cursor = min(self.cursor, index)

    def leave(self, note: bytes) -> None:
        """It left this with us."""
        self.note = note

    def reads_lane(self, lane: TentativeView | None) -> None:
        """In this epoch it gets so much of the tentative lane; None: nothing."""
        self.lane = lane

    def refuse_stale(self) -> None:
        """It spoke of an attachment that is over."""
        self.stale += 1

    def moved(self, now_us: int) -> None:
        """It takes rows, came or went."""
        self.moved_at_us = now_us

    def asked(self, now_us: int) -> None:
        """It is asked what it has, or need not be just after it was sent something."""
        self.asked_at_us = now_us

    def tell_thinned(self, change: int) -> bool:
        """Whether it hasn't heard yet what is left out above the stream; by its next frame it has."""
        is_news, self.told_thinned = change > self.told_thinned, change
        return is_news

    def skip(self) -> None:
        """It has the next entry of the log."""
        self.cursor += 1

    def sent(self, entry: OutputEntry, end: int) -> None:
        """This has left for it: what stands in the log from the next entry on, to before this index."""
        self.cursor = end
        self.frames += 1
        self.sent_bytes += entry.cost
        self.sent_seq = max(self.sent_seq, entry.end)

    def acknowledge(self, now_us: int, message: Ack) -> None:
        """It has so much. Each count only grows; a lower one is an old ack and changes nothing."""
        if message.frames > self.acked_frames or message.durable > self.durable:
            self.moved_at_us = now_us
        self.acked = max(self.acked, message.received)
        self.acked_frames = max(self.acked_frames, message.frames)
        if message.note and not (self.plain or self.named) and message.durable >= self.durable:
            self.note = message.note
        self.durable = max(self.durable, message.durable)
        self.shed_rows = max(self.shed_rows, message.shed)
        self.granted = max(self.granted, min(message.granted, self.sent_bytes + limits.CREDIT_BYTES_MAX))


def frame_of(
    stream: str, view: ReceiverView, entry: OutputEntry, thinned: tuple[tuple[str, int], ...] = ()
) -> Data | Boundary:
    """The next frame for this receiver.

    Args:
        thinned: what it is to be told of rows left out above.
    """
    if entry.time_us is not None:
        return Boundary(
            stream=stream,
            epoch=view.epoch,
            frame=view.frames,
            seq=entry.seq,
            time_us=entry.time_us,
            note=entry.note,
            thinned=thinned,
        )
    return Data(
        stream=stream,
        epoch=view.epoch,
        frame=view.frames,
        seq=entry.seq,
        rows=entry.end - entry.seq,
        tentative=entry.tentative,
        late=entry.late,
        note=entry.note,
        thinned=thinned,
    )
