"""The tentative lane of a stream: what its sender can say of it while some of its own input is missing.

It goes beside the rows that count, with an attachment that asked for it (``Attach.tentative``). Nobody keeps
or resends what it brings, and none of it is ever acknowledged as durable.

Its *frames* are numbered in each epoch by themselves: one that comes after a later one is dropped. A *fork*
names the second instance of a fragment from which the rows come. A tentative row is void once the stream has
promised more than its time, or has another fork or none.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Payload, StreamTime

__all__ = [
    "FAILURE",
    "STABLE",
    "STREAM_STATES",
    "LaneMessage",
    "StreamState",
    "StreamStateName",
    "TentativeBoundary",
    "TentativeRows",
    "TentativeTaken",
]

ForkNumber = Annotated[int, Meta(ge=1, le=limits.SEQ_MAX)]
StreamStateName: TypeAlias = Literal["stable", "up_failure", "stabilization", "failure"]
STREAM_STATES: tuple[str, ...] = get_args(StreamStateName)
"""How a stream is to its sender: all is well; an input that leads to it is missing; all are back, and the
rows that were waited for are on their way; all inputs that lead to it are missing."""

SaidState: TypeAlias = Literal["stable", "up_failure", "stabilization"]

STABLE: Final = "stable"
FAILURE: Final = "failure"


class StreamState(MessageBase, frozen=True, tag="state"):
    """How the stream is from here on; said with each attachment that asked for the tentative lane, and again
    until it is heard.

    Attributes:
        frame: its number in the tentative lane of this epoch.
        fork: from which tentative rows come; 0: none, and all that came are void.
        seq: ``stable`` holds behind the row before this one: what was to be corrected is.
        boundary_us: and behind this promise, without which the rows are of no use yet to who waits for it;
            None: behind none.
        lost: ``up_failure`` is ``failure``: nothing comes of the fork, and nobody is to wait for it. Who
            doesn't know this field waits.
    """

    TAIL: ClassVar[tuple[str, ...]] = ("boundary_us",)

    stream: Name
    epoch: Count
    frame: Count
    state: SaidState
    fork: Count
    seq: Count
    lost: bool = False
    boundary_us: StreamTime | None = None


class TentativeRows(MessageBase, frozen=True, tag="guess"):
    """Rows that may be wrong. Payload: as of ``Data``.

    Attributes:
        frame: as in ``StreamState``.
        seq: position of the first one among the rows of this fork; between are those for which there was no
            room.
        rows: how many.
        late: as in ``Data``.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED
    tentative: ClassVar[bool] = True
    """As in ``Data``: of these rows the kind is certain."""

    stream: Name
    epoch: Count
    frame: Count
    fork: ForkNumber
    seq: Count
    rows: Annotated[int, Meta(ge=1, le=limits.ROWS_MAX)]
    late: bool = False


class TentativeBoundary(MessageBase, frozen=True, tag="guessed-boundary"):
    """No row of this fork at or after position ``seq`` has a time below ``time_us``.

    Attributes:
        behind: where the stream itself has the fork's rows, it holds behind the row before this one of these;
            0: at once.
    """

    stream: Name
    epoch: Count
    frame: Count
    fork: ForkNumber
    seq: Count
    time_us: StreamTime
    behind: Count = 0


class TentativeTaken(MessageBase, frozen=True, tag="guess-taken"):
    """How far I am in the tentative lane: you may send so much more.

    Attributes:
        frames: those below this number were taken, or are lost.
        said: one more than the number of the last ``StreamState`` that came; 0: none has.
    """

    stream: Name
    epoch: Count
    frames: Count
    said: Count


LaneMessage: TypeAlias = StreamState | TentativeRows | TentativeBoundary
"""From sender to receiver."""
