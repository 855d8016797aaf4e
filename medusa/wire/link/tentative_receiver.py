"""The receiving end of the tentative lane of a stream. Pure: no IO, no clock.

Frames of an epoch are taken in order: one that comes after a later one is dropped, one that never comes is
missing, and nothing is asked for again. What they bring waits for the owner (``take``).

What is ``stable`` from a row on, or promised, is so once that row is next: words may overtake rows. So
``stable`` also waits for what the sender had promised by then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from medusa.elements import END_US, START_US
from medusa.errors import RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.messages.tentative import (
    FAILURE,
    STABLE,
    LaneMessage,
    StreamState,
    TentativeBoundary,
    TentativeRows,
    TentativeTaken,
)
from medusa.wire.outbox import Outbox

__all__ = [
    "StateChanged",
    "TentativeDelivery",
    "TentativePromise",
    "TentativeReceiver",
    "TentativeRowsCame",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """How the stream is from here on.

    Attributes:
        state: what the sender says (``STREAM_STATES``); ``FAILURE`` too while it isn't heard.
        fork: from which tentative rows come; all that came from another one are void. 0: from none; while the
            state is ``FAILURE`` those of the last one still hold.
    """

    state: str
    fork: int
    cost: ClassVar[int] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TentativeRowsCame:
    """Rows that may be wrong. Consume them with ``TentativeReceiver.taken``.

    Attributes:
        boundary_us: what the fork had promised before.
        cost: bytes to give to ``taken``.
    """

    fork: int
    message: TentativeRows
    payload: Buffer
    boundary_us: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TentativePromise:
    """The fork promises more than before. Consume it with ``TentativeReceiver.taken``."""

    fork: int
    time_us: int
    cost: int


TentativeDelivery: TypeAlias = StateChanged | TentativeRowsCame | TentativePromise


class TentativeReceiver:
    """The tentative lane of one incoming stream.

    Attributes:
        wanted: it is asked for with each attachment.
        state: how the stream is, as far as we have heard: one of ``STREAM_STATES``, ``FAILURE`` too while the
            sender isn't heard.
        lost: the sender said last that all that leads to the stream is missing.
        fork: from which rows come now; 0: from none. Counted by us, so that a fork of another life of the
            sender, or of another sender, never has the number of an earlier one.
        boundary_us: what the fork has promised.
        held_bytes: delivered and not yet taken.
        missed_rows: of forks, that were put out and didn't come, or for which we had no room.
        duplicates, stale: frames that came too late, and that were of no fork that we know.
    """

    def __init__(self, stream: str, *, outbox: Outbox, settings: LinkSettings, wanted: bool) -> None:
        self._stream = stream
        self._outbox = outbox
        self._settings = settings
        self.wanted = wanted
        self.state: str = STABLE
        self.fork = 0
        self.lost = False
        self.boundary_us: int = START_US
        self.held_bytes = self.missed_rows = self.duplicates = self.stale = 0
        self._peer, self._epoch = "", -1
        self._forks = 0
        self._sender_fork: int | None = 0
        """What the sender calls ``fork``; None: another one sent the rows of that."""
        self._seq = 0
        """Of the next row of the fork."""
        self._goes_on = False
        """In this epoch something of the fork has come."""
        self._frames = self._said = 0
        self._is_given = False
        self._due: StreamState | None = None
        """It will be stable once the rows and the promise before that have come."""
        self._behind: list[TentativeBoundary] = []
        """What the fork promises once the rows before that have come. The first and the last one, and the
        end: of a stream that always lags the last is never reached."""
        self._came: deque[TentativeDelivery] = deque()
        self._held: deque[tuple[int, int, int]] = deque()
        """(epoch, frame, cost) of what was delivered and isn't taken."""
        self._part_taken_bytes = 0
        """Of the first of those."""
        self._unsaid_bytes = 0
        """Taken since the last word to the sender."""
        self._ack_at_us: int | None = None

    @property
    def has_come(self) -> bool:
        """``take`` has something."""
        return bool(self._came)

    def take(self) -> list[TentativeDelivery]:
        """What came since the last call, in order."""
        came = list(self._came)
        self._came.clear()
        return came

    # --- the attachment -----------------------------------------------------------------------

    def rests(self) -> None:
        """No epoch stands: nothing comes until ``attached``."""
        self._epoch, self._due, self._ack_at_us = -1, None, None
        self._behind.clear()

    def is_not_heard(self) -> None:
        """The sender isn't there, or refuses us."""
        self.rests()
        if self.wanted:
            self._turn(FAILURE, self.fork)

    def has_another_sender(self) -> None:
        """Whoever sends next has no fork that we know: it is another one, or has lost what it was."""
        self.has_other_forks()
        self.lost = False
        self.is_not_heard()

    def has_other_forks(self) -> None:
        """What the sender calls its fork from now on is another one, whatever its number."""
        self._sender_fork = None

    def attached(self, peer: str, epoch: int, *, given: bool) -> None:
        """A new epoch begins. Until the sender says how the stream is that is as it was.

        Args:
            given: the lane comes. Else the sender knows of none: its stream is stable.
        """
        self._peer, self._epoch = peer, epoch
        self._goes_on = False
        self._frames = self._said = self._unsaid_bytes = 0
        self._is_given = given
        if self.wanted and not given:
            self._hear(STABLE, 0)

    @property
    def unsaid(self) -> bool:
        """The sender is to say how the stream is, and hasn't in this epoch."""
        return self.wanted and self._is_given and not self._said

    # --- frames -------------------------------------------------------------------------------

    def receive(
        self, now_us: int, message: LaneMessage, payload: Buffer | None, next_seq: int, boundary_us: int
    ) -> None:
        """Take one message of the epoch; what it brings waits for ``take``.

        Args:
            next_seq: of the rows of the stream itself, the next one.
            boundary_us: what the stream itself has promised.

        Raises:
            RemoteProtocolError: it broke a rule. Nothing changed.
        """
        if not self.wanted:
            self.stale += 1
            return
        if message.frame < self._frames:
            self.duplicates += 1
            return
        match message:
            case StreamState():
                self._state(now_us, message, next_seq, boundary_us)
            case TentativeRows():
                self._rows(now_us, message, payload)
            case TentativeBoundary():
                self._boundary(now_us, message, next_seq)

    def _state(self, now_us: int, message: StreamState, next_seq: int, boundary_us: int) -> None:
        if message.fork and message.state == STABLE:
            raise self._broken("E_FORK", f"is stable and has fork {message.fork}")
        if message.lost and message.state != "up_failure":
            raise self._broken("E_FORK", f"is {message.state} and lost")
        self._frames = self._said = message.frame + 1
        waits = message.state == STABLE and not _has_all(message, next_seq, boundary_us)
        self._due = message if waits else None
        if self._due is None:
            self._hear(FAILURE if message.lost else message.state, message.fork)
        self._ack(now_us)

    def reached(self, now_us: int, next_seq: int, boundary_us: int) -> None:
        """Rows or a promise of the stream itself came: so far it is."""
        while self._behind and next_seq >= self._behind[0].behind:
            self._promise(now_us, self._behind.pop(0))
        if self._due is not None and _has_all(self._due, next_seq, boundary_us):
            self._due = None
            self._hear(STABLE, 0)

    def _hear(self, state: str, fork: int) -> None:
        """The stream is so, and the sender's fork is this one."""
        ours, self.lost = self.fork, state == FAILURE
        if fork != self._sender_fork:
            self._forks += fork > 0
            ours = self._forks if fork else 0
            self._sender_fork = fork
            self._seq, self.boundary_us = 0, START_US
            self._behind.clear()
        self._turn(state, ours)

    def _turn(self, state: str, fork: int) -> None:
        if (state, fork) == (self.state, self.fork):
            return
        self.state, self.fork = state, fork
        self._came.append(StateChanged(state=state, fork=fork))

    def _rows(self, now_us: int, message: TentativeRows, payload: Buffer | None) -> None:
        if payload is None:
            raise self._broken("E_FRAME", "tentative rows without payload")
        if message.rows > limits.SEQ_MAX - message.seq:
            text = f"brings {message.rows} tentative rows from {message.seq} on"
            raise self._broken("E_SEQ", f"{text}, the last position is {limits.SEQ_MAX}")
        if not self._is_of_fork(now_us, message):
            return
        self.missed_rows += message.seq - self._seq
        self._seq = message.seq + message.rows
        self._frames = message.frame + 1
        cost = memoryview(payload).nbytes + limits.ENTRY_BYTES
        if not self._has_room(now_us, cost):
            self.missed_rows += message.rows
            return
        self._hold(message.frame, cost)
        self._came.append(
            TentativeRowsCame(
                fork=self.fork, message=message, payload=payload, boundary_us=self.boundary_us, cost=cost
            )
        )

    def _boundary(self, now_us: int, message: TentativeBoundary, next_seq: int) -> None:
        if not self._is_of_fork(now_us, message):
            return
        promised_us = self._behind[-1].time_us if self._behind else self.boundary_us
        if message.time_us < promised_us:
            text = f"tentative boundary {message.time_us} after {promised_us}: it went back"
            raise self._broken("E_BOUNDARY", text)
        self.missed_rows += message.seq - self._seq
        self._seq = message.seq
        self._frames = message.frame + 1
        if message.behind > next_seq:
            # Before the end the last promise counts too: up to there timers set each other.
            self._behind[1 if message.time_us < END_US else 2 :] = [message]
            self._ack_soon(now_us)
        else:
            self._behind.clear()
            self._promise(now_us, message)

    def _promise(self, now_us: int, message: TentativeBoundary) -> None:
        if message.time_us == self.boundary_us or not self._has_room(now_us, limits.ENTRY_BYTES):
            self._ack_soon(now_us)
            return  # The next one says more.
        self.boundary_us = message.time_us
        self._hold(message.frame, limits.ENTRY_BYTES)
        self._came.append(TentativePromise(fork=self.fork, time_us=message.time_us, cost=limits.ENTRY_BYTES))

    def _is_of_fork(self, now_us: int, message: TentativeRows | TentativeBoundary) -> bool:
        """Whether it is of the fork from which rows come now; if not, it is counted."""
        if message.fork != self._sender_fork:
            self.stale += 1
            self._frames = message.frame + 1
            self._ack_soon(now_us)
            return False
        if message.seq < self._seq and not self._goes_on:
            # Whoever has fewer rows than came before is another sender, made anew in its place.
            self.has_other_forks()
            self._hear(self.state, message.fork)
        if message.seq < self._seq:
            text = f"goes back to tentative row {message.seq}, the next one is {self._seq}"
            raise self._broken("E_SEQ", text)
        self._goes_on = True
        return True

    def _has_room(self, now_us: int, cost: int) -> bool:
        """Whether what the owner holds leaves room; a sender with a larger window may go beyond ours."""
        if not self.held_bytes or self.held_bytes + cost <= self._settings.tentative_bytes_max:
            return True
        self._ack_soon(now_us)
        return False

    # --- the owner ----------------------------------------------------------------------------

    def _hold(self, frame: int, cost: int) -> None:
        self._held.append((self._epoch, frame, cost))
        self.held_bytes += cost

    def taken(self, now_us: int, cost: int) -> None:
        """The owner took a delivery of this cost: room for as much more."""
        assert 0 <= cost <= self.held_bytes, "took more than was delivered"
        self.held_bytes -= cost
        self._unsaid_bytes += cost
        self._part_taken_bytes += cost
        while self._held and self._held[0][2] <= self._part_taken_bytes:
            self._part_taken_bytes -= self._held.popleft()[2]
        if 4 * self._unsaid_bytes >= self._settings.tentative_bytes_max:
            self._ack(now_us)
        elif cost:
            self._ack_soon(now_us)

    def _ack_soon(self, now_us: int) -> None:
        if self._ack_at_us is None and self._epoch >= 0:
            self._ack_at_us = now_us + self._settings.ack_us

    def _ack(self, now_us: int) -> None:
        self._ack_at_us, self._unsaid_bytes = None, 0
        if self._epoch < 0:
            return
        first = next((frame for epoch, frame, _ in self._held if epoch == self._epoch), self._frames)
        self._outbox.send(
            self._peer,
            TentativeTaken(stream=self._stream, epoch=self._epoch, frames=first, said=self._said),
        )

    def tick(self, now_us: int) -> None:
        """Say what is due, while attached."""
        if self._ack_at_us is not None and now_us >= self._ack_at_us:
            self._ack(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: not before something else happens."""
        return self._ack_at_us

    def _broken(self, code: str, text: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"stream {self._stream!r}: {text}", peer=self._peer, code=code)


def _has_all(stable: StreamState, next_seq: int, boundary_us: int) -> bool:
    """Whether the rows and the promise have come that stand before it."""
    is_promised = stable.boundary_us is None or boundary_us >= stable.boundary_us
    return next_seq >= stable.seq and is_promised
