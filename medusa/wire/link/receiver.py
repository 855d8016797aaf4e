"""The receiving end of a stream. Pure: no IO, no clock.

Whatever the network does, ``receive`` gives each row position once and in order, or says exactly
which rows are lost. Credit follows what the owner has *consumed*, so a slow owner slows the sender
and holds at most one window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from medusa.elements import START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.wire import limits
from medusa.wire.link.attach_claims import ANEW
from medusa.wire.link.automaton import ORDINARY, PEER_EVENTS, RECEIVER, LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.fence import OUTDATED, Fence
from medusa.wire.link.tentative_receiver import TentativeReceiver
from medusa.wire.messages.links import RESUME, Ack, Attach, Attached, Boundary, Data, Detach, Progress, Refuse
from medusa.wire.messages.tentative import LaneMessage, StreamState, TentativeBoundary, TentativeRows
from medusa.wire.outbox import Outbox

__all__ = ["Delivery", "LostRows", "ReceivedPromise", "ReceivedRows", "Receiver"]

ReceiverMessage: TypeAlias = Attached | Data | Boundary | Progress | Refuse | LaneMessage

EPOCHS_PER_LIFE = 1 << 30
"""Attachments of one incarnation before they reach into the next one's epochs."""

EPOCH_MAX = limits.SEQ_MAX - EPOCHS_PER_LIFE
"""Beyond this nobody is followed: what we attach with next must be an epoch that a peer may say."""

PATIENCE_US = 5_000_000
"""A node may lack a stream for this long, as while a query is being deployed, before that is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRows:
    """A train that came in order. Consume it with ``Receiver.consumed``.

    Attributes:
        skip: rows at its start that came before (a resent train that straddles the position).
        seq: position of the first row after those.
        cost: bytes to give to ``consumed``.
    """

    message: Data
    payload: Buffer
    skip: int
    seq: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPromise:
    """A boundary that is higher than the last one."""

    time_us: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """The sender kept no rows from ``from_seq`` to below ``to_seq``: exactly so many are lost."""

    from_seq: int
    to_seq: int

    @property
    def cost(self) -> int:
        return 0


Delivery: TypeAlias = ReceivedRows | ReceivedPromise | LostRows


class Receiver:
    """One incoming stream.

    Attributes:
        state: where the automaton stands.
        name: of a named subscription; empty: it goes by the name of its node or client.
        next_seq: the next row wanted; ``OLDEST`` or ``NOW`` until a plain or named receiver is attached.
        durable_seq: rows below it survive our crash.
        boundary_us: the highest promise so far.
        schema, timed: expected; a plain receiver takes what ``Attached`` says (None until then).
        held_bytes: delivered and not yet consumed.
        pressed: the sender is near its bound: a checkpoint soon helps.
        refusal: what the sender answered to our last ``Attach`` if it refused; None once it attached.
        duplicates, stale, lost_rows, skipped, attachments: counts since the start.
        note: the sender's last one, given back with ``Attach``.
        own_note: left with the sender, with every ``Ack``.
        asking: we have nothing, and only want to know what the sender keeps for us: no rows come until
            ``begin_at``.
        told: what it answered: the first row that isn't durable, and our note.
        stream_version: as the sender said when we attached last; 0: we never did.
        life: of the stream, as the sender said; 0: unknown.
        may_lose: rows that the sender may say are lost when it attaches next; None: any number. Who forgets
            only what we have durably has lost nothing, once it has attached in this life of ours.
        known: of a named receiver: its name is known to the sender, which shall not begin it anew.
        fragment_epoch: in which the fragment that reads is its node's, asked with each ``Attach``.
        tentative: the lane beside, for rows that may be wrong; what it brings waits there (``take``).
        shed_rows: of the stream, that we have left out under overload; told with each ``Ack``.
        thinned: place above the stream -> rows left out there, as the sender said; by the name of the stream
            those that it doesn't tell apart.

    Args:
        tentative: ask for that lane too; not under a name.
        fence: by which configuration of its query it goes; None: by none.

    Invariants: ``granted - received bytes + held_bytes <= window``; ``durable_seq <= next_seq``.
    """

    def __init__(
        self,
        stream: str,
        peer: str,
        *,
        incarnation: int,
        outbox: Outbox,
        settings: LinkSettings | None = None,
        schema: Schema | None = None,
        timed: bool | None = None,
        next_seq: int = 0,
        boundary_us: int = START_US,
        plain: bool = False,
        name: str = "",
        fence: Fence | None = None,
        tentative: bool = False,
    ) -> None:
        if tentative and name:
            raise LocalProtocolError(f"stream {stream!r}: a named receiver gets no tentative rows")
        if next_seq < 0 and not (plain or name):
            raise LocalProtocolError(
                f"stream {stream!r}: only a plain or named receiver starts at {next_seq}"
            )
        self.stream = stream
        self.peer = peer
        self.plain = plain
        self.name = name
        self.settings = settings or LinkSettings()
        self.schema = schema
        self.timed = timed
        self.state = ReceiverState.IDLE
        self.next_seq = next_seq
        self.durable_seq = max(next_seq, 0)
        self.boundary_us: int = boundary_us
        self.held_bytes = 0
        self.pressed = False
        self.duplicates = self.stale = self.lost_rows = self.skipped = self.attachments = 0
        self.refusal: Refuse | None = None
        self.note = self.own_note = b""
        self.shed_rows = 0
        self.thinned: dict[str, int] = {}
        self.asking = self.known = False
        self.may_lose: int | None = None
        self.told: tuple[int, bytes] | None = None
        self.stream_version = self.life = 0
        self.fragment_epoch: Callable[[], int] = lambda: 0
        self._missing_since_us: int | None = None
        self._missing_told = False
        self.tentative = TentativeReceiver(stream, outbox=outbox, settings=self.settings, wanted=tentative)
        self._end_seq, self._end_us = 0, int(START_US)
        """The number after the last row, and the last promise, that the sender had when it attached us."""
        self._outbox = outbox
        self._fence = fence or Fence()
        self._was_attached = False
        self._epoch = incarnation * EPOCHS_PER_LIFE
        self._frames = self._received_bytes = 0
        self._epoch_boundary_us: int = START_US
        self._asked_at_us, self._retry_us = 0, self.settings.retry_us
        self._acked: Ack | None = None
        self._ack_at_us: int | None = None
        self._acked_at_us = 0

    # --- the peer ---------------------------------------------------------------------------

    def peer_event(self, now_us: int, event: LinkEvent) -> None:
        """The peer came, went or restarted (``session.PeerSession`` says so)."""
        if event not in PEER_EVENTS:
            raise LocalProtocolError(f"{event.value!r} is no event of a peer")
        target = RECEIVER[self.state][event]
        before, self.state = self.state, target
        if event is LinkEvent.PEER_RESTARTED:
            self.tentative.has_another_sender()
        elif event is LinkEvent.PEER_DOWN:
            self.tentative.is_not_heard()
        if target is ReceiverState.ATTACHING and (
            before is not ReceiverState.ATTACHING or event is LinkEvent.PEER_RESTARTED
        ):
            self._attach(now_us)

    def _attach(self, now_us: int) -> None:
        self._epoch += 1
        self.attachments += 1
        self._frames = self._received_bytes = 0
        self._epoch_boundary_us = START_US
        self._asked_at_us = now_us
        self._acked = self._ack_at_us = None
        self.tentative.rests()
        self._outbox.send(
            self.peer,
            Attach(
                stream=self.stream,
                epoch=self._epoch,
                next_seq=RESUME if self.asking else self.next_seq,
                durable=self._claimed(),
                granted=0 if self.asking else self._granted(),
                plain=self.plain,
                resumed=self._was_attached,
                name=self.name,
                known=self.known,
                note=self.note,
                fragment_epoch=self.fragment_epoch(),
                life=0 if self.own_note else self.life,
                configuration=self._fence.number,
                tentative=self.tentative.wanted and not self.asking,
            ),
        )

    def _claimed(self) -> int:
        """What we say is durable."""
        if self.asking and self.note:  # We are told where one stood whom we succeed; who we ask may not know.
            return self.next_seq
        # What is durable by a note of ours goes with the note: the first ``Ack`` says it.
        return 0 if self.own_note else self.durable_seq

    def _granted(self) -> int:
        return max(self._received_bytes + self.settings.window_bytes - self.held_bytes, 0)

    @property
    def attached_us(self) -> int:
        """The highest promise since we attached; a sender that fell back makes lower ones than before."""
        return self._epoch_boundary_us

    @property
    def backlog_over(self) -> bool:
        """All rows and promises have come that the sender had when it attached us last, where we ask for the
        tentative lane, and it has said how the stream is; False: we aren't attached."""
        has_all = self.next_seq >= self._end_seq and self.boundary_us >= self._end_us
        has_all = has_all and not self.tentative.unsaid
        return self.state is ReceiverState.FLOWING and has_all

    def redirect(self, peer: str) -> None:
        """The stream comes from another peer from now on; ``peer_event`` says when that is there."""
        self.peer, self.state, self.pressed = peer, ReceiverState.IDLE, False
        self.tentative.has_another_sender()

    def forget_refusal(self) -> None:
        """What was said against it was said elsewhere."""
        self.refusal = None

    def knows_name(self) -> None:
        """The sender keeps our name by now: it is to say so if it doesn't any more."""
        self.known = True

    # --- frames -------------------------------------------------------------------------------

    def receive(self, now_us: int, message: ReceiverMessage, payload: Buffer | None = None) -> list[Delivery]:
        """Take one message of the sender; what it brings, in order.

        Raises:
            RemoteProtocolError: it broke a rule. Nothing changed; call ``refuse`` with it.
        """
        if isinstance(message, Refuse):
            self._refused(now_us, message)
            return []
        if message.epoch != self._epoch or self.state not in _LISTENING:
            self.stale += 1
            return []
        if isinstance(message, Attached):
            return self._attached(now_us, message)
        if isinstance(message, Progress):
            return self._progress(now_us, message)
        if isinstance(message, StreamState | TentativeRows | TentativeBoundary):
            return self._of_lane(now_us, message, payload)
        if message.frame < self._frames:
            self.duplicates += 1
            return []
        if self.state is not ReceiverState.FLOWING:
            # It overtook ``Attached``, or that was lost: then the retry asks again. To ask at once
            # would, where frames overtake each other, have every burst cut off by its own next one.
            self.stale += 1
            return []
        if message.frame > self._frames:
            self._again(now_us, LinkEvent.FRAME_MISSING)
            return []
        if isinstance(message, Boundary):
            return self._boundary(now_us, message)
        return self._rows(now_us, message, payload)

    def _of_lane(self, now_us: int, message: LaneMessage, payload: Buffer | None) -> list[Delivery]:
        if self.state is ReceiverState.FLOWING:
            self.tentative.receive(now_us, message, payload, self.next_seq, self.boundary_us)
        else:  # As below: it is said again, or is missing.
            self.stale += 1
        return []

    def _attached(self, now_us: int, message: Attached) -> list[Delivery]:
        if self._frames:
            self.duplicates += 1
            return []
        if (refusal := self._fence.refusal(now_us, self.peer, message)) is not None:
            self.stale += 1
            self._outbox.send(self.peer, refusal)
            return []  # The retry asks again; by then both know the newer one.
        if message.next_seq < (message.lost if self.asking else max(self.next_seq, message.lost)):
            raise self._broken("E_SEQ", f"starts at row {message.next_seq}, asked for {self.next_seq}")
        wanted = self.next_seq if self.next_seq >= 0 else message.next_seq - message.lost
        if not self.asking and message.skipped > max(message.next_seq - wanted, 0):
            text = f"says that {message.skipped:,} numbers from {wanted} on belong to no row"
            raise self._broken("E_SEQ", f"{text}, and starts at row {message.next_seq}")
        if self.may_lose is not None and not self.asking and message.next_seq - wanted > self.may_lose:
            text = f"says that {message.next_seq - wanted:,} rows from {wanted} on are lost"
            raise self._broken("E_SEQ", f"{text}, and may have lost {self.may_lose:,} at most")
        self._check_schema(message)
        self.schema, self.timed = message.schema, message.timed
        if (message.stream_version, message.life) != (self.stream_version, self.life):
            self.tentative.has_other_forks()
        self.stream_version, self.life = message.stream_version, message.life
        self.state = RECEIVER[self.state][LinkEvent.ATTACHED]
        self._frames = 1
        self._was_attached = True
        self._acked_at_us, self._retry_us = now_us, self.settings.retry_us
        self.refusal = self._missing_since_us = None
        self._missing_told = False
        if self.asking:
            self.told = message.next_seq - message.lost, message.note
            return []
        self.may_lose = None if self.may_lose is None else 0
        out: list[Delivery] = []
        self.skipped += message.skipped
        if message.next_seq - message.skipped > wanted:
            lost = LostRows(from_seq=wanted, to_seq=message.next_seq - message.skipped)
            self.lost_rows += lost.to_seq - lost.from_seq
            about = {"rows": lost.to_seq - lost.from_seq, "first": lost.from_seq}
            self._outbox.report("error", "rows lost", stream=self.stream, peer=self.peer, **about)
            out.append(lost)
        if self.next_seq < 0:
            self.durable_seq = wanted
        self.next_seq = message.next_seq
        self._end_seq, self._end_us = message.tentative or (0, START_US)
        self.tentative.attached(self.peer, self._epoch, given=message.tentative is not None)
        self._epoch_boundary_us = message.boundary_us
        self._note_thinned(message)
        out += self._promise(message.boundary_us, 0)
        self._ack_soon(now_us)
        return out

    def _check_schema(self, message: Attached) -> None:
        if self.schema is None:
            return
        for index, (want, came) in enumerate(zip(self.schema, message.schema, strict=False)):
            if want != came:
                raise self._broken(
                    "E_SCHEMA",
                    f"column {index} is {came.name!r} of {came.type}, expected {want.name!r} of {want.type}",
                )
        if len(self.schema) != len(message.schema):
            raise self._broken("E_SCHEMA", f"has {len(message.schema)} columns, expected {len(self.schema)}")
        if self.timed is not None and self.timed is not message.timed:
            raise self._broken("E_SCHEMA", f"timed is {message.timed}, expected {self.timed}")

    def _rows(self, now_us: int, message: Data, payload: Buffer | None) -> list[Delivery]:
        if payload is None:
            raise self._broken("E_FRAME", "a train without payload")
        if message.seq > self.next_seq:
            raise self._broken("E_SEQ", f"brings row {message.seq}, expected {self.next_seq}")
        if message.rows > limits.SEQ_MAX - message.seq:  # No ``Ack`` could name the row after it.
            text = f"brings {message.rows} rows from {message.seq} on, the last position is {limits.SEQ_MAX}"
            raise self._broken("E_SEQ", text)
        cost = self._count(message, memoryview(payload).nbytes)
        end = message.seq + message.rows
        if end <= self.next_seq:
            self.duplicates += 1
            self.consumed(now_us, cost)
            return []
        skip = self.next_seq - message.seq
        rows = ReceivedRows(message=message, payload=payload, skip=skip, seq=self.next_seq, cost=cost)
        self.next_seq = end
        self.tentative.reached(now_us, end, self.boundary_us)
        self.note = message.note or self.note
        self._ack_soon(now_us)
        return [rows]

    def _boundary(self, now_us: int, message: Boundary) -> list[Delivery]:
        if message.seq > self.next_seq:
            raise self._broken("E_SEQ", f"a boundary at row {message.seq}, expected {self.next_seq}")
        if message.time_us < self._epoch_boundary_us:
            raise self._broken(
                "E_BOUNDARY", f"boundary {message.time_us} after {self._epoch_boundary_us}: it went back"
            )
        cost = self._count(message, 0)
        self._epoch_boundary_us = message.time_us
        self.note = message.note or self.note
        out = self._promise(message.time_us, cost)
        if out:
            self.tentative.reached(now_us, self.next_seq, self.boundary_us)
        else:
            self.consumed(now_us, cost)
        self._ack_soon(now_us)
        return out

    def _promise(self, time_us: int, cost: int) -> list[Delivery]:
        """A sender that restarted repeats lower promises until it has caught up: they add nothing."""
        if time_us <= self.boundary_us:
            return []
        self.boundary_us = time_us
        return [ReceivedPromise(time_us=time_us, cost=cost)]

    def _count(self, message: Data | Boundary, nbytes: int) -> int:
        """Account for a frame that came in order.

        Raises:
            RemoteProtocolError: it goes beyond what was granted.
        """
        cost = nbytes + limits.ENTRY_BYTES + len(message.note)
        if self._received_bytes + cost > self._granted():
            raise self._broken("E_CREDIT", f"{cost} bytes beyond the credit")
        self._received_bytes += cost
        self.held_bytes += cost
        self._frames = message.frame + 1
        self._note_thinned(message)
        return cost

    def _note_thinned(self, message: Attached | Data | Boundary) -> None:
        """Counts only grow: a sender that fell back to a checkpoint comes to them again."""
        told = dict(message.thinned)
        if self.stream in told or self.stream in self.thinned:
            # Of some only the sum is told, and another sender may sum others: what is told is all there is.
            if sum(told.values()) >= sum(self.thinned.values()):
                self.thinned = told
            return
        for place, rows in told.items():
            if place in self.thinned or len(self.thinned) < limits.THINNED_MAX:
                self.thinned[place] = max(self.thinned.get(place, 0), rows)

    def _progress(self, now_us: int, message: Progress) -> list[Delivery]:
        self.pressed = message.pressed
        if self.state is not ReceiverState.FLOWING:
            self.stale += 1
        elif message.frames > self._frames:
            self._again(now_us, LinkEvent.FRAME_MISSING)
        else:
            self._ack(now_us)
        return []

    def _again(self, now_us: int, event: LinkEvent) -> None:
        """Attach anew from the row we want."""
        self.state = RECEIVER[self.state][event]
        self._attach(now_us)

    def _refused(self, now_us: int, message: Refuse) -> None:
        if message.code == OUTDATED:  # An attachment is asked for again, and the next ``Ack`` says all.
            self.stale += 1
            return
        if (message.code in _FORGOTTEN and self.state is ReceiverState.FLOWING) or (
            # Shed before its ``Attached`` came, or overtaking it.
            message.code == "E_DETACHED" and self.state is ReceiverState.ATTACHING
        ):
            if message.epoch == self._epoch:
                self.tentative.has_other_forks()  # Who knows us no more may have been made anew.
                self._again(now_us, LinkEvent.FORGOTTEN)
            return
        if message.code == "E_EPOCH":
            # Somebody of our name was there with a higher epoch (a lost disk): go beyond it.
            if self._epoch < message.epoch <= EPOCH_MAX and self.state in _LISTENING:
                self._epoch = message.epoch
                self._again(now_us, LinkEvent.FORGOTTEN)
            return
        target = RECEIVER[self.state].get(LinkEvent.REFUSE)
        if target is None or message.epoch not in (0, self._epoch):
            self.stale += 1
            return
        self.state = target
        self.tentative.is_not_heard()
        self.refusal = message
        self._outbox.report(
            self._level(now_us, message),
            "sender refused",
            stream=self.stream,
            peer=self.peer,
            code=message.code,
            text=message.text,
        )

    def _level(self, now_us: int, message: Refuse) -> str:
        """How loud to say that we were refused: a stream that moved, or may come, is no error at first."""
        if self.plain or message.code != "E_STREAM":
            said = message.code == ANEW and not self.plain  # It begins anew, and says so then.
            return "info" if message.code in ORDINARY or said else "error"
        if self._missing_since_us is None:
            self._missing_since_us = now_us
            return "warning" if self._was_attached or self.next_seq else "info"  # There it was, or will be.
        if self._missing_told or now_us - self._missing_since_us < PATIENCE_US:
            return "debug"
        self._missing_told = True
        return "error"

    def refuse(self, error: RemoteProtocolError, rows: ReceivedRows | None = None) -> None:
        """The peer broke a rule: tell it, and rest until it starts anew.

        Args:
            rows: what ``receive`` gave and couldn't be decoded. It counts as never received: the
                owner decodes before it calls ``receive`` again.
        """
        self.state = RECEIVER[self.state][LinkEvent.BROKEN_RULE]
        self.tentative.is_not_heard()
        if rows is not None:
            self.next_seq = rows.seq
            self.held_bytes -= rows.cost
        text = error.message[: limits.TEXT_CHARS_MAX]
        self._outbox.send(
            self.peer,
            Refuse(code=error.code, text=text, hint=error.hint, stream=self.stream, epoch=self._epoch),
        )
        about = {"stream": self.stream, "peer": self.peer, "code": error.code, "text": text}
        self._outbox.report("info" if error.code in ORDINARY else "error", "stream refused", **about)

    # --- the owner ----------------------------------------------------------------------------

    def consumed(self, now_us: int, cost: int) -> None:
        """The owner took a delivery of this cost: room for as much more."""
        assert 0 <= cost <= self.held_bytes, "consumed more than was delivered"
        self.held_bytes -= cost
        self._ack_soon(now_us)

    def durable(self, now_us: int, seq: int) -> None:
        """A synced checkpoint covers the rows below ``seq``; the sender hears it at once.

        Of a plain receiver: they were taken; the sender hears it with the next ``Ack``.

        Raises:
            LocalProtocolError: beyond what was received. Nothing changed.
        """
        if seq > self.next_seq:
            raise LocalProtocolError(f"stream {self.stream!r}: durable to {seq}, received {self.next_seq}")
        if seq > self.durable_seq:
            self.durable_seq = seq
            self.pressed = False
            if self.plain:
                self._ack_soon(now_us)
            elif self.state is ReceiverState.FLOWING:
                self._ack(now_us)

    def has_shed(self, rows: int) -> None:
        """So many of its rows an earlier life of ours has left out."""
        self.shed_rows = rows

    def sheds(self, now_us: int, rows: int) -> None:
        """So many of its rows we have left out by now; the sender hears it with the next ``Ack``."""
        self.shed_rows = rows
        self._ack_soon(now_us)

    def durable_again(self, seq: int) -> None:
        """Before anything is attached: of what an earlier life received, only rows below this one are
        durable."""
        self.durable_seq = min(seq, self.durable_seq)

    def stand_at(self, seq: int, boundary_us: int, note: bytes) -> None:
        """The rows below this one came by another way; nothing is attached."""
        assert self.state not in _LISTENING, "rows of it may come"
        self.next_seq, self.boundary_us, self.note = seq, boundary_us, note

    def read_again(self, now_us: int, seq: int, boundary_us: int, note: bytes) -> None:
        """The rows from this one on are to come once more; all that came was consumed."""
        self.next_seq, self.boundary_us, self.note = seq, boundary_us, note
        if self.state in _LISTENING:
            self._again(now_us, LinkEvent.FORGOTTEN)

    def has_promised(self, time_us: int) -> None:
        """Whoever sent the stream before had promised this: rows below it that come again are late."""
        self.boundary_us = max(self.boundary_us, time_us)

    def ask_first(self) -> None:
        """Before rows come we want to know what the sender keeps for us: it hasn't told us yet."""
        self.asking, self.told = True, None

    def begin_at(self, now_us: int, seq: int) -> None:
        """We were asking: now we want the rows from here on."""
        self.asking = False
        self.next_seq = self.durable_seq = seq
        if self.state in _LISTENING:
            self._again(now_us, LinkEvent.FORGOTTEN)

    def begin_anew(self) -> None:
        """The sender began a new life of the stream: we want its rows from 0 on. Promises stand.

        All that came was consumed, and nothing is attached.
        """
        assert self.state not in _LISTENING, "rows of the stream as it was may come"
        self.next_seq = self.durable_seq = self.life = 0
        self.note = b""

    def detach(self, now_us: int) -> None:
        """Want nothing more; the sender keeps nothing for us."""
        self._outbox.send(self.peer, Detach(stream=self.stream, epoch=self._epoch))
        self.state = ReceiverState.IDLE
        self.tentative.is_not_heard()

    # --- acknowledging ------------------------------------------------------------------------

    def _ack_soon(self, now_us: int) -> None:
        if self.state is not ReceiverState.FLOWING:
            return
        before = self._acked.granted if self._acked else self.settings.window_bytes
        if 4 * (self._granted() - before) >= self.settings.window_bytes:
            self._ack(now_us)
        elif self._ack_at_us is None:
            self._ack_at_us = now_us + self.settings.ack_us

    def _ack(self, now_us: int) -> None:
        self._ack_at_us = None
        self._acked_at_us = now_us
        if self.asking:
            return
        self._acked = Ack(
            stream=self.stream,
            epoch=self._epoch,
            frames=self._frames,
            received=self.next_seq,
            durable=self.durable_seq,
            granted=self._granted(),
            note=self.own_note,
            configuration=self._fence.number,
            shed=self.shed_rows,
        )
        self._outbox.send(self.peer, self._acked)

    def tick(self, now_us: int) -> None:
        """Send what is due: an ``Ack`` that waited, a probe, or the ``Attach`` again."""
        if self.state is ReceiverState.FLOWING and now_us >= self._ack_due_us():
            self._ack(now_us)
        self.tentative.tick(now_us)
        if self.state is ReceiverState.ATTACHING and now_us - self._asked_at_us >= self._retry_us:
            # Each answer brings all that is kept: asked for as often as it can't come, it never would.
            self._retry_us = min(2 * self._retry_us, 8 * self.settings.retry_us)
            self._again(now_us, LinkEvent.RETRY)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: not before something else happens."""
        if self.state is ReceiverState.ATTACHING:
            return self._asked_at_us + self._retry_us
        if self.state is not ReceiverState.FLOWING:
            return None
        lane_us = self.tentative.wake_at_us()
        return self._ack_due_us() if lane_us is None else min(self._ack_due_us(), lane_us)

    def _ack_due_us(self) -> int:
        probe_us = self._acked_at_us + self.settings.probe_us
        return probe_us if self._ack_at_us is None else min(self._ack_at_us, probe_us)

    def _broken(self, code: str, text: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"stream {self.stream!r}: {text}", peer=self.peer, code=code)


_LISTENING = (ReceiverState.ATTACHING, ReceiverState.FLOWING)
_FORGOTTEN = ("E_DETACHED", "E_STREAM")
