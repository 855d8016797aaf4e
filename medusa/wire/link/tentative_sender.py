"""The sending end of the tentative lane of a stream: how the stream is, and what may be wrong. Pure.

    state("up_failure", fork 1) ─> StreamState ──────────┐
    train, boundary ─────────────> TentativeRows, ... ───┼──> each receiver that asked for the lane
    state("stable") ─────────────> StreamState ──────────┘

Nothing is kept: a receiver that is silent, or has so much under way that the window is full, misses rows,
which are counted. How the stream is is said again until it is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from medusa.elements import END_US, START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.link.automaton import LinkSettings, SenderState
from medusa.wire.link.receiver_views import ReceiverView
from medusa.wire.link.tentative_view import TentativeView
from medusa.wire.messages.tentative import (
    FAILURE,
    STABLE,
    STREAM_STATES,
    StreamState,
    StreamStateName,
    TentativeBoundary,
    TentativeRows,
    TentativeTaken,
)
from medusa.wire.outbox import Outbox

__all__ = ["TentativeSender"]


class TentativeSender:
    """The tentative lane of one outgoing stream.

    Attributes:
        is_in: the state of the stream, one of ``STREAM_STATES``.
        fork: from which rows come now, as the fragment calls it; 0: there is none.
        rows: of all forks so far, whether or not somebody read them.
        sent_rows, dropped_rows: of those, over all receivers: sent; and not, since there was no room, or the
            receiver was silent.

    Args:
        receivers: of the sender, by key; what each has of the lane is this one's to change.
        end: gives the number after the last row of the stream that counts, and its last promise.
    """

    def __init__(
        self,
        stream: str,
        receivers: Mapping[str, ReceiverView],
        *,
        outbox: Outbox,
        settings: LinkSettings,
        end: Callable[[], tuple[int, int]],
    ) -> None:
        self._stream = stream
        self._receivers = receivers
        self._outbox = outbox
        self._settings = settings
        self._end = end
        self.is_in: StreamStateName = STABLE
        self.fork = 0
        self.rows = self.sent_rows = self.dropped_rows = 0
        self._forks = 0
        """How many there were: said of the one that there is, so that another one never has its number."""
        self._stable_from: tuple[int, int] = 0, int(START_US)
        """The number after the last correction, and what was promised then."""
        self._seq = 0
        """Of the next row of the fork."""
        self._boundary_us: int = START_US
        self._before_end_us: int = START_US
        """What the fork promised last before its end: who waits for room hears that first."""
        self._behind = 0
        """It holds behind so many rows of the stream."""

    # --- from the fragment --------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Somebody reads it."""
        return any(view.state is SenderState.FLOWING for view, _ in self._lanes())

    def state(self, now_us: int, state: str, fork: int) -> None:
        """The stream is so from here on, and tentative rows come from this fork (0: from none).

        Said twice it adds nothing. ``stable`` stands behind all rows and promises that were sent before.

        Raises:
            LocalProtocolError: no such state, or a stable stream with a fork. Nothing changed.
        """
        if state not in STREAM_STATES or fork < 0 or (fork and state == STABLE):
            raise LocalProtocolError(
                f"stream {self._stream!r}: state {state!r} with fork {fork}",
                hint=f"{', '.join(STREAM_STATES)}; a stable stream has fork 0",
            )
        if (state, fork) == (self.is_in, self.fork):
            return
        if fork != self.fork:
            self._forks += fork > 0
            self._seq, self._boundary_us, self._before_end_us = 0, START_US, START_US
        if state == STABLE:
            self._stable_from = self._end()
        self.is_in, self.fork = cast(StreamStateName, state), fork
        for view, lane in self._lanes():
            self._begins_anew(lane, lane.turned)
            if view.state is SenderState.FLOWING:
                self._say(now_us, view, lane)

    def train(self, now_us: int, payload: Buffer, rows: int, *, late: bool = False) -> None:
        """Send encoded rows of the fork to who has room for them.

        Raises:
            LocalProtocolError: there is no fork, or an impossible size. Nothing changed.
        """
        nbytes = memoryview(payload).nbytes
        if not 1 <= rows <= limits.ROWS_MAX or nbytes > limits.PAYLOAD_BYTES_MAX:
            raise LocalProtocolError(
                f"a train of {rows:,} rows and {nbytes:,} bytes",
                hint=f"1 to {limits.ROWS_MAX:,} rows, at most {limits.PAYLOAD_BYTES_MAX:,} bytes",
                code="E_LIMIT",
            )
        seq, cost = self._seq, nbytes + limits.ENTRY_BYTES
        self.pass_over(rows)
        for view, lane in self._lanes():
            if not self._has_room(view, lane, cost):
                self.dropped_rows += rows
                continue
            self.sent_rows += rows
            message = TentativeRows(
                stream=self._stream,
                epoch=view.epoch,
                frame=lane.sent(now_us, cost),
                fork=self._forks,
                seq=seq,
                rows=rows,
                late=late,
            )
            self._outbox.send(view.peer, message, payload)

    def pass_over(self, rows: int) -> None:
        """The fork has put out so many rows that nobody is sent.

        Raises:
            LocalProtocolError: there is no fork. Nothing changed.
        """
        self._check_fork("rows")
        self._seq += rows
        self.rows += rows

    def boundary(self, now_us: int, time_us: int, *, follows: bool = False) -> None:
        """The fork promises this; one that isn't higher than the last adds nothing.

        Args:
            follows: the stream itself has the rows of the fork: it holds once those have come that were sent
                so far.

        Raises:
            LocalProtocolError: there is no fork, or it is no time. Nothing changed.
        """
        self._check_fork("a boundary")
        if not START_US <= time_us <= END_US:
            raise LocalProtocolError(f"a boundary of {time_us}", code="E_BOUNDARY")
        if time_us <= self._boundary_us:
            return
        if time_us < END_US:
            self._before_end_us = time_us
        self._boundary_us, self._behind = time_us, self._end()[0] if follows else 0
        for view, lane in self._lanes():
            self._promise(now_us, view, lane)

    def _check_fork(self, what: str) -> None:
        if not self.fork:
            raise LocalProtocolError(f"stream {self._stream!r}: {what} of a fork, and there is none")

    # --- from the link ------------------------------------------------------------------------

    def attached(self, now_us: int, view: ReceiverView, *, asked: bool) -> None:
        """A receiver was told that it is attached: it hears how the stream is, if it asked for the lane."""
        view.reads_lane(TentativeView() if asked else None)
        self.resumed(now_us, view)

    def resumed(self, now_us: int, view: ReceiverView) -> None:
        """A receiver is heard again: what was under way to it may be lost."""
        if (lane := view.lane) is not None:
            self._begins_anew(lane, lane.lost)
            self._say(now_us, view, lane)
            self._promise(now_us, view, lane)

    def taken(self, now_us: int, view: ReceiverView, message: TentativeTaken) -> None:
        """A receiver of the lane says how far it is; lower counts are old ones and change nothing.

        Raises:
            RemoteProtocolError: it has what was never sent. Nothing changed.
        """
        lane = view.lane
        if lane is None:
            view.refuse_stale()
            return
        if max(message.frames, message.said) > lane.frames:
            text = f"stream {self._stream!r}: takes frame {max(message.frames, message.said)}"
            raise RemoteProtocolError(f"{text} of {lane.frames}", peer=view.peer, code="E_SEQ")
        lane.taken(message)
        self._promise(now_us, view, lane)

    def tick(self, now_us: int, *, muted: bool) -> None:
        """Ask again who hasn't heard how the stream is, or has something under way for long."""
        for view, lane in self._lanes():
            at_us = self._asks_at_us(view, lane)
            if at_us is not None and now_us >= at_us:
                lane.asked(now_us)
                if not muted:
                    self._say(now_us, view, lane)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: not before something else happens."""
        times = (self._asks_at_us(view, lane) for view, lane in self._lanes())
        return min((time_us for time_us in times if time_us is not None), default=None)

    def _asks_at_us(self, view: ReceiverView, lane: TentativeView) -> int | None:
        """When to ask this one; None: there is nothing to ask."""
        waits = view.state is SenderState.FLOWING and lane.outstanding
        return lane.asked_at_us + self._settings.progress_us if waits else None

    # --- out ----------------------------------------------------------------------------------

    def _lanes(self) -> Iterator[tuple[ReceiverView, TentativeView]]:
        """Of those that are attached."""
        for view in self._receivers.values():
            if view.lane is not None and view.state is not SenderState.DETACHED:
                yield view, view.lane

    def _has_room(self, view: ReceiverView, lane: TentativeView, cost: int) -> bool:
        """Any one frame fits into an empty window."""
        under_way = lane.under_way_bytes
        fits = not under_way or under_way + cost <= self._settings.tentative_bytes_max
        return fits and view.state is SenderState.FLOWING

    def _say(self, now_us: int, view: ReceiverView, lane: TentativeView) -> None:
        seq, boundary_us = self._stable_from if self.is_in == STABLE else (0, START_US)
        message = StreamState(
            stream=self._stream,
            epoch=view.epoch,
            frame=lane.said_state(now_us),
            state="up_failure" if self.is_in == FAILURE else self.is_in,
            fork=self._forks if self.fork else 0,
            seq=seq,
            lost=self.is_in == FAILURE,
            boundary_us=None if boundary_us <= START_US else boundary_us,
        )
        self._outbox.send(view.peer, message)

    def _begins_anew(self, lane: TentativeView, begins: Callable[[], None]) -> None:
        """What was promised is to be said again: of a fork that has ended only that it has, since who has
        heard it takes no lower promise."""
        begins()
        if self._boundary_us >= END_US:
            lane.promised(self._before_end_us)

    def _promise(self, now_us: int, view: ReceiverView, lane: TentativeView) -> None:
        """What the fork promised last, and last before its end, unless it was sent; later, where there is no
        room."""
        for time_us in (self._before_end_us, self._boundary_us) if self.fork else ():
            if lane.promised_us >= time_us:
                continue
            if not self._has_room(view, lane, limits.ENTRY_BYTES):
                return
            message = TentativeBoundary(
                stream=self._stream,
                epoch=view.epoch,
                frame=lane.sent(now_us, limits.ENTRY_BYTES),
                fork=self._forks,
                seq=self._seq,
                time_us=time_us,
                behind=self._behind,
            )
            lane.promised(time_us)
            self._outbox.send(view.peer, message)
