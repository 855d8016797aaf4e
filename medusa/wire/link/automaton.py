"""The automaton of a link: one stream from one sender to one receiver, as two tables.

``Sender`` (sender.py) and ``Receiver`` (receiver.py) look every event up here, the tests walk over
these tables, and docs/protocol.md draws them. Nothing else decides what is legal when.

    receiver                                sender
      |  Attach(epoch, next row, credit)       |
      |--------------------------------------->|
      |  Attached (frame 0), Data, Boundary    |
      |<---------------------------------------|   never beyond the credit
      |  Ack(received, durable, granted)       |
      |--------------------------------------->|   trims what every receiver holds durably
      |  Progress(frames) while unacknowledged |
      |<---------------------------------------|   a lost last frame shows here

A frame that is missing (its number is not the next) ends the attachment: the receiver attaches
anew, in a higher epoch, from the row it wants. A message of an older epoch is dropped and counted.
The tentative lane beside it has no states of its own: ``tentative_sender`` and ``tentative_receiver``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from medusa.errors import LocalProtocolError
from medusa.wire import limits

__all__ = [
    "AT_LIMIT",
    "ORDINARY",
    "PEER_EVENTS",
    "RECEIVER",
    "SENDER",
    "LinkEvent",
    "LinkSettings",
    "ReceiverState",
    "SenderState",
]


class ReceiverState(Enum):
    """Of the side that wants rows."""

    IDLE = "idle"  # the peer is not there
    ATTACHING = "attaching"  # asked; nothing has come in this epoch
    FLOWING = "flowing"  # frames come in order
    REFUSED = "refused"  # a rule was broken; rests until the peer starts anew


class SenderState(Enum):
    """Of the side that has rows, for each receiver."""

    DETACHED = "detached"  # known, and rows are kept for it, but it hasn't asked in this life
    FLOWING = "flowing"  # rows go out as credit allows
    PAUSED = "paused"  # the peer is silent; nothing goes out, the epoch stands


class LinkEvent(Enum):
    """What can happen to either side. Messages bear the name of their struct."""

    PEER_UP = "peer up"
    PEER_DOWN = "peer down"
    PEER_RESTARTED = "peer restarted"
    ATTACHED = "Attached"
    FRAME = "Data or Boundary"
    FRAME_MISSING = "frame missing"
    PROGRESS = "Progress"
    FORGOTTEN = "sender doesn't know us"
    RETRY = "no answer in time"
    REFUSE = "Refuse"
    BROKEN_RULE = "rule broken"
    ATTACH = "Attach"
    ACK = "Ack"
    DETACH = "Detach"
    CUT_OFF = "cut off"


PEER_EVENTS = (LinkEvent.PEER_UP, LinkEvent.PEER_DOWN, LinkEvent.PEER_RESTARTED)
"""What ``session.PeerSession`` tells; every state of either side has a move for each."""

ORDINARY = ("E_MOVED", "E_REMOVED", "E_TAKEN", "E_CONFIGURATION")
"""Codes of refusals that follow from an order, to move a fragment or to undeploy a query, from another
program that takes a name over, or from a node that hasn't heard of a takeover yet: no error to log."""

_R, _S, _E = ReceiverState, SenderState, LinkEvent

# A pair that is missing here is no move: a message is then left over from an earlier attachment
# (dropped and counted), a call of our own side is a LocalProtocolError.
RECEIVER: dict[ReceiverState, dict[LinkEvent, ReceiverState]] = {
    _R.IDLE: {
        _E.PEER_UP: _R.ATTACHING,
        _E.PEER_DOWN: _R.IDLE,
        _E.PEER_RESTARTED: _R.ATTACHING,
        _E.BROKEN_RULE: _R.REFUSED,
    },
    _R.ATTACHING: {
        _E.PEER_UP: _R.ATTACHING,
        _E.PEER_DOWN: _R.IDLE,
        _E.PEER_RESTARTED: _R.ATTACHING,
        _E.ATTACHED: _R.FLOWING,
        _E.FORGOTTEN: _R.ATTACHING,
        _E.RETRY: _R.ATTACHING,
        _E.REFUSE: _R.REFUSED,
        _E.BROKEN_RULE: _R.REFUSED,
    },
    _R.FLOWING: {
        _E.PEER_UP: _R.FLOWING,
        _E.PEER_DOWN: _R.IDLE,
        _E.PEER_RESTARTED: _R.ATTACHING,
        _E.FRAME: _R.FLOWING,
        _E.FRAME_MISSING: _R.ATTACHING,
        _E.FORGOTTEN: _R.ATTACHING,
        _E.PROGRESS: _R.FLOWING,
        _E.REFUSE: _R.REFUSED,
        _E.BROKEN_RULE: _R.REFUSED,
    },
    _R.REFUSED: {
        _E.PEER_UP: _R.REFUSED,
        _E.PEER_DOWN: _R.REFUSED,
        _E.PEER_RESTARTED: _R.ATTACHING,
        _E.BROKEN_RULE: _R.REFUSED,
    },
}

SENDER: dict[SenderState, dict[LinkEvent, SenderState]] = {
    _S.DETACHED: {
        _E.PEER_UP: _S.DETACHED,
        _E.PEER_DOWN: _S.DETACHED,
        _E.PEER_RESTARTED: _S.DETACHED,
        _E.ATTACH: _S.FLOWING,
        _E.DETACH: _S.DETACHED,
        _E.CUT_OFF: _S.DETACHED,
    },
    _S.FLOWING: {
        _E.PEER_UP: _S.FLOWING,
        _E.PEER_DOWN: _S.PAUSED,
        _E.PEER_RESTARTED: _S.DETACHED,
        _E.ATTACH: _S.FLOWING,
        _E.ACK: _S.FLOWING,
        _E.DETACH: _S.DETACHED,
        _E.REFUSE: _S.DETACHED,
        _E.CUT_OFF: _S.DETACHED,
    },
    _S.PAUSED: {
        _E.PEER_UP: _S.FLOWING,
        _E.PEER_DOWN: _S.PAUSED,
        _E.PEER_RESTARTED: _S.DETACHED,
        _E.ATTACH: _S.FLOWING,
        _E.ACK: _S.PAUSED,
        _E.DETACH: _S.DETACHED,
        _E.REFUSE: _S.DETACHED,
        _E.CUT_OFF: _S.DETACHED,
    },
}


AT_LIMIT = ("slow", "spill", "shed")
"""``slow``: the fragment takes no more input. ``spill``: rows go to disk, and only what is in memory counts
for the bound. ``shed``: the oldest rows are forgotten and counted; a receiver that still wanted some of them
attaches anew, and counts the same rows as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Knobs of every link of a node. Checked at construction."""

    window_bytes: int = 8 << 20
    """Bytes a sender may have under way to us, unread ones included. From ``frame_bytes_max`` to
    1 GiB. Too small: a link of r seconds round trip carries window/r bytes a second (8 MiB at
    100 ms: 84 MB/s). Too large: so much memory per incoming stream."""

    frame_bytes_max: int = limits.PAYLOAD_BYTES_MAX + limits.ENTRY_BYTES + limits.NOTE_BYTES_MAX
    """The largest cost of one frame. Smaller only in tests, which want small windows."""

    retained_bytes_max: int = 64 << 20
    """Output kept until durable, per stream; ``at_limit`` says what happens then.
    Too small: fragments wait for their receivers' checkpoints; too large: memory, and a long
    resend after a crash."""

    at_limit: str = "slow"
    """What happens when so much is kept, one of ``AT_LIMIT``."""

    keep_bytes: int = 64 << 20
    """What a stream without receivers keeps of its end."""

    fragment_bytes_max: int = 128 << 20
    """What is kept in memory of all streams of one fragment together. Too small: receivers of one stream
    hold up the others; too large: memory."""

    tentative_bytes_max: int = 4 << 20
    """Of the tentative lane of a stream, under way to one receiver and not yet taken; beyond it rows are
    dropped and counted. Too small: a reader that is slow for a moment misses some; too large: memory, and
    what it reads is old. One frame of any size fits."""

    waiting_bytes_max: int = 32 << 20
    """By so much a fragment's state may grow while an input is missing; beyond it what waits for that goes to
    disk. Too small: it is written and read back in short failures already; too large: memory."""

    waiting_disk_bytes_max: int = 1 << 30
    """So much of it may be on disk; beyond it what waits gets no more credit. Too small: nothing new shows in
    a failure that lasts; too large: the disk is full."""

    retry_us: int = 300_000
    """An ``Attach`` without answer is repeated after this. Too small: rows are sent twice on slow
    links; too large: so long does a lost ``Attach`` hold the stream up."""

    progress_us: int = 100_000
    """``Progress`` is sent this often while something is not acknowledged."""

    probe_us: int = 1_000_000
    """A receiver that has said nothing for this long says its ``Ack`` again, and hears if the
    sender has forgotten it. Too small: noise; too large: so long does a lost word hold it up."""

    ack_us: int = 20_000
    """An ``Ack`` waits at most this for more to acknowledge. Too small: an ack per train."""

    idle_us: int = 10_000_000
    """A plain subscriber that takes nothing for this long, or is gone so long, is cut off."""

    def __post_init__(self) -> None:
        if not limits.ENTRY_BYTES < self.frame_bytes_max <= self.window_bytes <= limits.CREDIT_BYTES_MAX:
            raise LocalProtocolError(
                f"window_bytes is {self.window_bytes:,}",
                hint=f"from {self.frame_bytes_max:,} (the largest frame) to {limits.CREDIT_BYTES_MAX:,}",
            )
        if self.at_limit not in AT_LIMIT:
            raise LocalProtocolError(f"at_limit is {self.at_limit!r}", hint=" or ".join(AT_LIMIT))
        for name in self.__slots__:
            least = 0 if name == "waiting_disk_bytes_max" else 1
            if name != "at_limit" and getattr(self, name) < least:
                raise LocalProtocolError(f"{name} is {getattr(self, name)}", hint=f"at least {least}")
