"""What a sender knows of each of its receivers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.wire.link.automaton import SenderState
from medusa.wire.link.output_log import OutputEntry
from medusa.wire.messages.links_and_commands import Boundary, Data

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

    def outstanding(self, end: int) -> bool:
        """Whether it has still to take something of a log that ends with this entry."""
        if self.plain and self.state is not SenderState.FLOWING:
            return True
        return self.acked_frames < self.frames or self.durable < self.sent_seq or self.cursor < end


def frame_of(stream: str, view: ReceiverView, entry: OutputEntry) -> Data | Boundary:
    """The next frame for this receiver."""
    if entry.time_us is not None:
        return Boundary(
            stream=stream,
            epoch=view.epoch,
            frame=view.frames,
            seq=entry.seq,
            time_us=entry.time_us,
            note=entry.note,
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
    )
