"""What is said when a fragment moves from one node to another: docs/moving.md tells the story.

An *attempt* is one try to move; its number grows with each, also over restarts of the owner. A *ticket* is
made up by the target for each attempt, so frames that are still under way to an earlier life of it say
nothing to this one. What the owner sends after ``Ready`` bears numbers (``frame``), and is sent again until
the target has got it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Names, Note, Payload, StreamTime, Text

__all__ = [
    "Fed",
    "FedTogether",
    "GiveUp",
    "Got",
    "Grant",
    "Handover",
    "Move",
    "Piece",
    "Ready",
    "Receive",
    "Seed",
    "Settle",
    "Settled",
    "Standing",
    "TOGETHER_ALIGNED",
    "TOGETHER_MAX",
    "Whole",
]

Code = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]
Crc = Annotated[int, Meta(ge=0, lt=1 << 32)]
FileName = Annotated[str, Meta(min_length=1, max_length=200)]

TOGETHER_MAX = 16
"""Most ``Fed`` in one frame."""

TOGETHER_ALIGNED = 8
"""Arrow reads rows where they are if they begin at a multiple of this."""


# --- commands ---------------------------------------------------------------------------------


class Move(MessageBase, frozen=True, tag="move"):
    """Move a fragment to a node. From a client, or from the node that the client is connected to.

    From the owner of a fragment that others stand by for also to the target, as ``docs/standby.md`` tells.

    Attributes:
        timeout_ms: begin no new attempt after this.
        reads: streams that the fragment reads. From its owner to a target that doesn't stand by for it,
            before anything changes: could you? None: it is no such question.
        links: with it: the nodes that whoever has the fragment has to reach.
        fragments, streams: with ``reads``, to a node that stands by, before the fragment is split: so many
            take its place, and read so many streams together. Is there room for them? 0: it is no such
            question.
        hears: with ``reads``, to a node that stands by: which of these do you hear? Answered by
            node -> how many us ago, as JSON; who isn't heard isn't in it. Empty: it is no such question.
    """

    request: Count
    fragment: Name
    to: Name
    timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)]
    reads: Names | None = None
    links: Names = ()
    fragments: Count = 0
    streams: Count = 0
    hears: Names = ()


class Grant(MessageBase, frozen=True, tag="grant"):
    """From a client, to the node that has the fragment's state or is to take it: the other one that may own
    it is lost for good. The word of who answers for it."""

    request: Count
    fragment: Name
    to: Name


# --- an attempt -------------------------------------------------------------------------------


class Receive(MessageBase, frozen=True, tag="receive"):
    """Owner to target: can you take this? Payload: the spec, as you are to install it.

    Attributes:
        epoch: of the fragment, if you take it.
        coordinator: of its query.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    fragment: Name
    attempt: Count
    epoch: Count
    coordinator: Name


class Seed(MessageBase, frozen=True, tag="seed"):
    """Owner to a node that is to be its secondary: can you follow this? Payload: the spec, as you are to
    install it. What follows is as after ``Receive``, but for ``Handover``: there is none.

    Attributes:
        epoch: of the fragment at its owner.
        coordinator: of its query.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    fragment: Name
    attempt: Count
    epoch: Count
    coordinator: Name


class Ready(MessageBase, frozen=True, tag="ready"):
    """Target to owner: I can.

    Attributes:
        window: bytes that may be under way to me.
        together: I take ``FedTogether``.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("together",)

    fragment: Name
    attempt: Count
    ticket: Count
    window: Annotated[int, Meta(ge=1, le=limits.CREDIT_BYTES_MAX)]
    together: bool = False


class Piece(MessageBase, frozen=True, tag="piece"):
    """A part of a file of the checkpoint. Payload: the bytes. Pieces of a file come in order.

    Attributes:
        nbytes: of the whole file.
        crc: CRC32C of this piece.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    fragment: Name
    attempt: Count
    ticket: Count
    frame: Count
    file: FileName
    offset: Count
    nbytes: Count
    crc: Crc


class Whole(MessageBase, frozen=True, tag="whole"):
    """That was the checkpoint: open the fragment from it, in silence.

    To a passive secondary: hold it, in place of the one before. Payload then: msgpack,
    ``nodes.recovery.checkpoint_shipping.CheckpointManifest``.

    Attributes:
        files: how many it has.
        token: to a passive secondary: of the checkpoint.
        base: to a passive secondary: of the checkpoint from which it keeps the files that didn't come, and on
            which deltas stand; 0: all came.
    """

    PAYLOAD: ClassVar[Payload] = Payload.OPTIONAL

    fragment: Name
    attempt: Count
    ticket: Count
    frame: Count
    files: Count
    token: Count = 0
    base: Count = 0


class Fed(MessageBase, frozen=True, tag="fed"):
    """What the owner fed next. Payload: the rows of a train, as in ``Data``.

    Attributes:
        kind: of the decision (``nodes.fragment.input_log_records``); 4: only the position moves; 5: how
            much is left out of the source from here on.
        number: of the decision; -1: it is none.
        source, peer: the input.
        next_seq, boundary_us: where the input stands after it.
        time_us: of a boundary; of kind 5 the share, in millionths.
        last: the decision ends with this piece of the train.
        seq, rows, tentative, late: as in ``Data``.
        arrival_us: when the rows came, where that is asked for.
        note: the sender's, as it stood then.
    """

    PAYLOAD: ClassVar[Payload] = Payload.OPTIONAL

    fragment: Name
    attempt: Count
    ticket: Count
    frame: Count
    kind: Annotated[int, Meta(ge=0, le=5)]
    number: Annotated[int, Meta(ge=-1, le=limits.SEQ_MAX)]
    source: Name
    peer: Name
    next_seq: Count
    boundary_us: StreamTime
    time_us: StreamTime = 0
    last: bool = True
    seq: Count = 0
    rows: Annotated[int, Meta(ge=0, le=limits.ROWS_MAX)] = 0
    tentative: bool = False
    late: bool = False
    arrival_us: StreamTime | None = None
    note: Note = b""


class FedTogether(MessageBase, frozen=True, tag="fed-together"):
    """Several ``Fed`` in one frame, since each frame costs both nodes a turn. Payload: theirs, one after the
    other, each filled up with zeros to whole ``TOGETHER_ALIGNED`` bytes.

    Attributes:
        fed: in order, of this attempt.
        nbytes: of the payload of each; 0: it has none.
    """

    PAYLOAD: ClassVar[Payload] = Payload.OPTIONAL

    fragment: Name
    attempt: Count
    ticket: Count
    fed: Annotated[tuple[Fed, ...], Meta(min_length=2, max_length=TOGETHER_MAX)]
    nbytes: Annotated[tuple[Count, ...], Meta(min_length=2, max_length=TOGETHER_MAX)]


class Standing(MessageBase, frozen=True, tag="standing"):
    """How far the readers of each stream are: what lies before needn't be kept. Payload: msgpack,
    ``nodes.migration.standby.Clients``, which says too who has the names under which sources are fed.

    Attributes:
        mark: to a secondary: the owner took a checkpoint here; 0: it didn't.
        released: to a secondary: what came of the decisions below this one may have left the owner.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    fragment: Name
    attempt: Count
    ticket: Count
    frame: Count
    mark: Count = 0
    released: Count = 0


class Handover(MessageBase, frozen=True, tag="handover"):
    """I feed nothing more, and it is on my disk that you own it from here on. ``decided``: the number of
    the next decision."""

    fragment: Name
    attempt: Count
    ticket: Count
    frame: Count
    decided: Count


class Got(MessageBase, frozen=True, tag="got"):
    """Target to owner: so many frames were taken in, and what they brought was fed. A secondary for whose
    word output waits says so of the last few once its engine has them.

    Attributes:
        opened: the fragment runs here, from the checkpoint.
        durable: of a secondary: what so many frames brought is in a checkpoint on its disk.
        held: of a passive secondary that takes deltas: the checkpoint that it holds, by token; 0: none.
        refused: the ``Whole`` that ended so many frames didn't fit what it holds, which it holds still.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("held", "refused")

    fragment: Name
    attempt: Count
    ticket: Count
    frames: Count
    opened: bool
    durable: Count = 0
    held: Count = 0
    refused: Count = 0


class GiveUp(MessageBase, frozen=True, tag="giveup"):
    """Either to the other: this attempt is over. ``code``: empty where another may do better. ``text``:
    why, from the target; an owner says nothing more.

    Also from an owner that asked by ``Move`` whether there is room: it isn't needed. ``attempt`` is that
    request.
    """

    fragment: Name
    attempt: Count
    code: Code = ""
    text: Text = ""
    hint: Text = ""


# --- afterwards -------------------------------------------------------------------------------


class Settle(MessageBase, frozen=True, tag="settle"):
    """Owner to target: have you taken it in this attempt? ``gone``: if not, you never will: I was restarted,
    and send nothing more of it."""

    fragment: Name
    attempt: Count
    gone: bool


class Settled(MessageBase, frozen=True, tag="settled"):
    """Target to owner: it is mine; or it is not, and never will be by this attempt."""

    fragment: Name
    attempt: Count
    taken: bool
