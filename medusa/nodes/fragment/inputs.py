"""One input of a fragment: a stream of another node, or what one client publishes into a source."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from medusa.elements import START_US, Boundary, Shed, Silent, Train
from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment.checkpoint_record import InputRecord
from medusa.ports import Buffer
from medusa.query.boxes import Source
from medusa.wire import limits
from medusa.wire.codec import TrainCodec, late_below
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.fence import Fence
from medusa.wire.link.named_subscriptions import is_key
from medusa.wire.link.receiver import (
    Delivery,
    LostRows,
    ReceivedPromise,
    ReceivedRows,
    Receiver,
    ReceiverMessage,
)
from medusa.wire.link.tentative_receiver import (
    StateChanged,
    TentativeDelivery,
    TentativePromise,
    TentativeRowsCame,
)
from medusa.wire.messages.links import Attached, Refuse
from medusa.wire.messages.tentative import STABLE, StreamState, TentativeBoundary, TentativeRows
from medusa.wire.outbox import Outbox

__all__ = ["FragmentInput", "TentativeCame", "TentativeWork", "Work"]


OUSTED_KEPT = 16
"""Clients that had a name of a publisher and lost it. What one of them said before it lost the name is under
way for seconds at most, and it takes that long until a program is started again."""

LOST_MAX = 1 << 32
"""Rows that a named publisher may say are lost, once after a start: it forgot what a checkpoint held that the
disk has lost since. Too small: after damage it can't go on; too large: a false figure. No link brings more in
a minute. It has forgotten nothing else: without damage we have all that we acknowledged."""


class Work:
    """Something to feed, and what follows once it is fed.

    Attributes:
        input: where it came from.
        element: what to feed, ask or tell; None: it only moves the position.
        next_seq, boundary_us: where ``input`` stands after it.
        cost: bytes of credit it holds.
        payload: of the frame that brought these very rows, as the input's codec encodes them; None: it isn't
            known.
        note: the sender's, as it stood then.
        number: of the decision to feed it.
        is_over: it was run, or only the position has moved.
    """

    __slots__ = (
        *("boundary_us", "cost", "element", "input", "is_over", "next_seq", "note", "number", "payload"),
    )

    def __init__(
        self,
        input: FragmentInput,
        element: Train | Boundary | Shed | Silent | None,
        *,
        next_seq: int,
        boundary_us: int,
        cost: int,
        payload: Buffer | None = None,
        note: bytes | None = None,
    ) -> None:
        self.input = input
        self.element = element
        self.next_seq = next_seq
        self.boundary_us = boundary_us
        self.cost = cost
        self.payload = payload
        self.note = input.receiver.note if note is None else note
        self.number = -1
        self.is_over = False

    def is_decided(self, number: int) -> Work:
        """It is the decision of this number; itself."""
        self.number = number
        return self

    def end(self) -> None:
        """It was run."""
        self.is_over = True

    def holds_no_credit(self) -> None:
        """Its sender was given its credit back."""
        self.cost = 0

    def leave_rows(self) -> None:
        """Its rows are on disk."""
        self.element = self.payload = None

    def bring_rows(self, train: Train, payload: Buffer) -> None:
        """They were read back."""
        self.element, self.payload = train, payload


@dataclass(frozen=True, slots=True, kw_only=True)
class TentativeWork:
    """Something that may be wrong, for a fork alone; ``FragmentInput.took`` it says that it was fed.

    Attributes:
        fork: of the sender, as ``TentativeReceiver.fork`` counts: of another one than that it is void.
        element: rows of kind ``TENTATIVE``, or what the fork promises.
        cost: bytes of the lane's window that it holds.
    """

    input: FragmentInput
    fork: int
    element: Train | Boundary
    cost: int


TentativeCame: TypeAlias = StateChanged | TentativeWork
"""What the tentative lane of an input brings, in order."""


class FragmentInput:
    """A receiver and how far what it brought was fed.

    Attributes:
        source: id of the source box.
        judged: the rows come from another node of ours, else from a publisher.
        peer: the node or client; of a named publisher its key, ``by`` then is the client that has the name.
        fed_seq, fed_us, fed_note: where the fragment stands: the next row, the last promise, the
            sender's note.
        ousted: of a named publisher, the clients that had the name last, oldest first.
        durable_us: the last promise that a checkpoint holds.
        rows: fed since the process started.
        came_bytes: of rows and promises, since then, as credit counts them.
        refused_rows: rows that could not be taken.
        codec: of its rows.
        silent_since_us: since when the peer is silent; None: it is there.
        gone: nobody waits for it any more.
        anew_since: how many checkpoints were durable when it began the stream anew; None: it goes on.
        overdue_rows: that came below a promise of an earlier attachment, and so count as late.
        shed_rows: left out of what it brought, under overload; since its first row, over restarts.

    Args:
        guarded: others stand by for the fragment: what our disk alone has isn't durable yet.
        fence: of its query; None: the rows come from another one.
        tentative: the tentative lane is wanted too (``take_tentative``).
    """

    anew_since: int | None = None

    def __init__(
        self,
        source: Source,
        stream: str,
        peer: str,
        *,
        incarnation: int,
        outbox: Outbox,
        settings: LinkSettings,
        record: InputRecord | None = None,
        guarded: bool = False,
        fence: Fence | None = None,
        tentative: bool = False,
    ) -> None:
        self.source = source.id
        self.judged = source.judged
        self.peer = peer
        self.fed_seq = record.next_seq if record else 0
        self.fed_us = record.boundary_us if record else int(START_US)
        self.durable_us = self.fed_us
        self.shed_rows = record.shed if record else 0
        self.fed_note = record.note if record else b""
        self.rows = self.refused_rows = self.overdue_rows = self.came_bytes = 0
        self.silent_since_us: int | None = None
        self.gone = False
        self._promised_by: tuple[int, int] | None = None
        """Life and version of the stream that promised what holds; None: an earlier run of the process knew,
        and the sender hasn't promised as much since. It is kept in no checkpoint: if the sender is lost in
        just that time, rows that come again are reported by the careful word (``_decode``), and counted the
        same."""
        timed = source.judged and source.timed
        self._outbox = outbox
        self._not_taken: Refuse | None = None
        self._time = None if source.judged else source.time
        self.codec = TrainCodec(source.schema, timed=timed)
        self.named = not source.judged and is_key(peer)
        self.receiver = Receiver(
            stream,
            peer if not self.named else record.holder if record else "",
            incarnation=incarnation,
            outbox=outbox,
            settings=settings,
            schema=source.schema,
            timed=timed,
            next_seq=self.fed_seq,
            boundary_us=self.fed_us,
            fence=fence,
            tentative=tentative,
        )
        self._lane = self.receiver.tentative
        self._tentative: list[TentativeCame] = []
        if guarded and record is not None and record.acknowledged >= 0:
            self.receiver.durable_again(record.acknowledged)
        self.receiver.note = self.fed_note
        self.receiver.life = record.life if record else 0
        self.receiver.has_shed(self.shed_rows)
        self.ousted: deque[str] = deque(record.ousted if record else (), maxlen=OUSTED_KEPT)
        if self.named:
            self.receiver.may_lose = 0 if record is None else LOST_MAX

    @property
    def publisher(self) -> str:
        """Who publishes into it; empty: a node sends, now this one, now another."""
        return "" if self.judged else self.peer

    @property
    def stream(self) -> str:
        return self.receiver.stream

    @property
    def by(self) -> str:
        """At the other end of the connection; of a named publisher empty while nobody has the name."""
        return self.receiver.peer

    @property
    def settled(self) -> bool:
        """Everything that came is durable, promises too."""
        receiver = self.receiver
        return receiver.durable_seq >= receiver.next_seq and self.durable_us >= receiver.boundary_us

    @property
    def fed(self) -> bool:
        """Everything that came was fed, promises too."""
        return self.fed_seq >= self.receiver.next_seq and self.fed_us >= self.receiver.boundary_us

    def receive(self, now_us: int, message: ReceiverMessage, payload: Buffer | None) -> list[Work]:
        """Take one message; what it brings to feed, in order. Broken rules are answered here.

        What is for a fork alone waits for ``take_tentative``.
        """
        before_us, skipped = self.receiver.boundary_us, self.receiver.skipped
        try:
            self._check_tentative(message)
            deliveries = self.receiver.receive(now_us, message, payload)
            for guess in self._lane.take():
                self._tentative.append(self._tentative_work(now_us, guess))
        except RemoteProtocolError as error:
            self.receiver.refuse(error)
            return []
        if isinstance(message, Attached):
            self.anew_since = None
        works: list[Work] = []
        if self.receiver.skipped > skipped:
            at = self.receiver.next_seq
            works.append(Work(self, None, next_seq=at, boundary_us=before_us, cost=0))
        for delivery in deliveries:
            self.came_bytes += delivery.cost
            try:
                works.append(self._work(delivery, before_us))
            except RemoteProtocolError as error:
                assert isinstance(delivery, ReceivedRows)
                self.refused_rows += delivery.message.rows
                self.receiver.refuse(error)
                self.receiver.consumed(now_us, delivery.cost)
                break
        return works

    def _check_tentative(self, message: ReceiverMessage) -> None:
        """A publisher has no fork: nobody has judged its rows yet."""
        guesses = isinstance(message, TentativeRows | TentativeBoundary) or (
            isinstance(message, StreamState) and message.state != STABLE
        )
        if guesses and not self.judged:
            text = f"stream {self.stream!r}: a publisher has no tentative rows"
            raise RemoteProtocolError(text, peer=self.by, code="E_FORK")

    def _tentative_work(self, now_us: int, delivery: TentativeDelivery) -> TentativeCame:
        match delivery:
            case StateChanged():
                return delivery
            case TentativePromise():
                element: Train | Boundary = Boundary(delivery.time_us)
            case TentativeRowsCame():
                message, payload, below_us = delivery.message, delivery.payload, delivery.boundary_us
                try:
                    element = self.codec.decode(message, payload, peer=self.peer, boundary_us=below_us)
                except RemoteProtocolError:
                    self._lane.taken(now_us, delivery.cost)
                    raise
        return TentativeWork(input=self, fork=delivery.fork, element=element, cost=delivery.cost)

    def take_tentative(self) -> list[TentativeCame]:
        """What the tentative lane brought since the last call, and how the stream is; nothing where the lane
        isn't wanted. Of several states in a row the last one counts."""
        # Between messages nothing comes but how the stream is.
        if not (self._lane.has_come or self._tentative):
            return []
        states = [each for each in self._lane.take() if isinstance(each, StateChanged)]
        came, self._tentative = [*self._tentative, *states], []
        return came

    def took(self, now_us: int, work: TentativeWork) -> None:
        """It was fed to a fork, or is wanted by none: room for as much more."""
        self._lane.taken(now_us, work.cost)

    def _work(self, delivery: Delivery, boundary_us: int) -> Work:
        if self.receiver.attached_us >= boundary_us:
            self._promised_by = self.receiver.life, self.receiver.stream_version
        match delivery:
            case ReceivedRows():
                train, as_sent = self._decode(delivery, boundary_us)
                end = delivery.message.seq + delivery.message.rows
                payload = delivery.payload if as_sent else None
                return Work(
                    self,
                    train,
                    next_seq=end,
                    boundary_us=boundary_us,
                    cost=delivery.cost,
                    payload=payload,
                )
            case ReceivedPromise():
                return Work(
                    self,
                    Boundary(delivery.time_us),
                    next_seq=self.receiver.next_seq,
                    boundary_us=delivery.time_us,
                    cost=delivery.cost,
                )
            case LostRows():
                return Work(self, None, next_seq=delivery.to_seq, boundary_us=boundary_us, cost=0)

    def _decode(self, rows: ReceivedRows, boundary_us: int) -> tuple[Train, bool]:
        """The rows, and whether they are all that was sent, as it was sent."""
        as_sent = rows.skip == 0
        train = self.codec.decode(
            rows.message,
            rows.payload,
            peer=self.peer,
            skip=rows.skip,
            boundary_us=self.receiver.attached_us if self.judged else None,
        )
        if self.judged and train.times is not None and self.receiver.attached_us < boundary_us:
            train, overdue = late_below(train, boundary_us)
            if overdue:
                as_sent = False
                self.overdue_rows += overdue
                about = {"stream": self.stream, "peer": self.peer}
                if self._come_again:  # They were here when that was promised.
                    what = "rows that come again are below an earlier promise: they count once"
                    self._outbox.report("info", what, rows=overdue, **about)
                else:  # The sender does again what it lost, and otherwise: there is no way back.
                    what = "rows below an earlier promise count as late"
                    self._outbox.report("error", what, rows=overdue, **about)
        if self._time is not None and train.batch.column(self._time).null_count:
            raise RemoteProtocolError(
                f"stream {self.stream!r}: a null in the time column {self._time!r}",
                peer=self.peer,
                code="E_DATA",
            )
        return train, as_sent

    @property
    def _come_again(self) -> bool:
        """Whoever sends has lost nothing: it took the fragment over, and began at a mark."""
        if self._promised_by is None:
            return False
        life, version = self._promised_by
        return life == self.receiver.life and version < self.receiver.stream_version

    def tell_not_taken(self, from_seq: int, to_seq: int, why: str) -> None:
        """Tell the publisher that the engine refused its rows; the stream goes on behind them."""
        text = f"rows {from_seq} to {to_seq - 1} were not taken: {why}"[: limits.TEXT_CHARS_MAX]
        self._not_taken = Refuse(code="E_ROWS", text=text, stream=self.stream)
        self.repeat_not_taken()

    def repeat_not_taken(self) -> None:
        """The publisher is back and may have missed the last such word; it knows a repeated one."""
        if self._not_taken is not None:
            self._outbox.send(self.by, self._not_taken)

    def falls_silent(self, now_us: int) -> None:
        """The peer isn't heard any more, and is waited for."""
        self.silent_since_us, self.gone = now_us, False

    def is_heard(self) -> None:
        """The peer is there."""
        self.silent_since_us, self.gone = None, False

    def wait_at_most(self, now_us: int, grace_us: int) -> None:
        """Whoever has been silent for so long is waited for no more, once all is fed that it brought: it was
        there when that was promised."""
        is_away = self.silent_since_us is not None and now_us - self.silent_since_us >= grace_us
        self.gone = is_away and (self.gone or self.fed)

    def redirect(self, now_us: int, peer: str, *, up: bool) -> None:
        """The stream comes from another node from now on; position and counts stay."""
        self.peer = peer
        self.silent_since_us = None if up else now_us
        self.receiver.redirect(peer)
        if up:
            self.receiver.peer_event(now_us, LinkEvent.PEER_UP)

    def begin_anew(self, checkpoints: int) -> None:
        """The sender has lost the stream and began it anew: the position is 0, promises stand. All that came
        was fed.

        Args:
            checkpoints: that are durable; the next one says so.
        """
        had = self.fed_seq
        self.receiver.begin_anew()
        self.anew_since, self.fed_seq, self.fed_note = checkpoints, 0, b""
        text = "its sender had lost it: rows that hadn't come are lost, and nobody can say how many"
        self._outbox.report(
            "error", "stream begins anew", stream=self.stream, peer=self.peer, had_rows=had, why=text
        )

    def taken(self, by: str) -> None:
        """Another client has the name from now on, or nobody; what came stays."""
        self.silent_since_us = None
        self.gone = False
        if self.by not in ("", by):
            self.ousted.append(self.by)
        self.receiver.redirect(by)

    def issued(self, work: Work) -> None:
        """The driver was told to feed it: it is part of the next checkpoint."""
        self.fed_seq = max(self.fed_seq, work.next_seq)
        self.fed_us = max(self.fed_us, work.boundary_us)
        self.fed_note = work.note
        if isinstance(work.element, Train):
            self.rows += len(work.element)

    def shed(self, now_us: int, rows: int) -> None:
        """So many more were left out of what it brought: its sender hears it with the next word."""
        self.shed_rows = min(self.shed_rows + rows, limits.SEQ_MAX)
        self.receiver.sheds(now_us, self.shed_rows)

    def ask_again(self, now_us: int) -> None:
        """What came since it was fed last is gone from here: it is to come once more."""
        self.receiver.read_again(now_us, self.fed_seq, self.fed_us, self.fed_note)

    def stand_where_fed(self) -> None:
        """What came was fed by another way than the link: that goes on behind it."""
        self.receiver.stand_at(self.fed_seq, self.fed_us, self.fed_note)

    def record(self) -> InputRecord:
        return InputRecord(
            source=self.source,
            peer=self.peer,
            next_seq=self.fed_seq,
            boundary_us=self.fed_us,
            note=self.fed_note,
            holder=self.by if self.named else "",
            ousted=tuple(self.ousted),
            life=self.receiver.life,
            acknowledged=self.receiver.durable_seq,
            shed=self.shed_rows,
        )
