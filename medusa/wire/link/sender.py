"""The sending end of a stream: one output log, any number of receivers. Pure: no IO, no clock.

The fragment appends; receivers attach, get what they want from where they want it as far as their
credit goes, and acknowledge. What every receiver holds durably is trimmed. Nothing else is, unless the
stream is one that sheds at its bound (``retention.Retention``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from medusa.elements import END_US, START_US
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.wire import limits
from medusa.wire.link.attach_claims import check_attach, other_life
from medusa.wire.link.automaton import ORDINARY, PEER_EVENTS, SENDER, LinkEvent, LinkSettings, SenderState
from medusa.wire.link.fence import Fence
from medusa.wire.link.named_subscriptions import NamedSubscriptions, is_key
from medusa.wire.link.output_log import OutputEntry, OutputLog
from medusa.wire.link.receiver_views import ReceiverView, frame_of
from medusa.wire.link.tentative_sender import TentativeSender
from medusa.wire.messages.links import OLDEST, RESUME, Ack, Attach, Attached, Detach, Progress, Refuse
from medusa.wire.messages.tentative import TentativeTaken
from medusa.wire.outbox import Outbox
from medusa.wire.retention import Retention

__all__ = ["ReceiverView", "Sender"]

SenderMessage = Attach | Ack | Detach | Refuse | TentativeTaken

SKIPS_MAX = 16
"""So often numbers are skipped, and it is remembered: who comes later hears that rows between are lost."""

BURST_FRAMES = 256
"""Frames for one receiver in one go. Too many: heartbeats wait for them, and the peer finds us silent."""

GATHERED_BYTES = 64 << 10
"""Trains that wait for one receiver go as one up to this size: each costs both ends about as much as some
thousand rows do, so that a backlog of small ones would take longer than it took to come up. Too small: it
does; too large: what is new waits behind one frame."""

GATHERED_SHARE = 32
"""Nor are they more than this part of what is kept of a stream, which what comes of one train overruns."""


class Sender:
    """One outgoing stream.

    Attributes:
        log: what is kept.
        receivers: by name of the peer, named ones by key (``named.key_of``), in the order in which they
            became known.
        seats: who reads under which key.
        tentative: the lane beside, for rows that may be wrong.
        retention: what happens when too much is kept.
        muted: nothing goes out: somebody else may be sending these rows.
        stream_version: said with each attachment; who was told another one has to attach anew.
        skips: numbers that no row has, from each first one to before the second.
        unread: numbers of rows that were kept and read by nobody, and died with an earlier node of the
            stream: from the first one to before the second, with which this log began. Who wants the oldest
            row hears that those are lost, as long as what came next is kept.
        life: of the stream; who has rows of another one is refused. 0: unknown.
        thinned: place above the stream -> rows left out there under overload; readers hear it with the next
            frame.
        fence: by which configuration of its query it goes; whoever has the sender asks it before it brings
            what readers say.
    """

    muted = False
    thinned: tuple[tuple[str, int], ...] = ()
    stream_version = 1
    life = 0

    def __init__(
        self,
        stream: str,
        schema: Schema,
        *,
        timed: bool,
        outbox: Outbox,
        settings: LinkSettings | None = None,
        first_seq: int = 0,
        boundary_us: int = START_US,
        fence: Fence | None = None,
        skips: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.skips = skips
        self.unread: tuple[int, int] = first_seq, first_seq
        self.fence = fence or Fence()
        self.stream = stream
        self.schema = schema
        self.timed = timed
        self.settings = settings or LinkSettings()
        self.log = OutputLog(first_seq=first_seq, boundary_us=boundary_us)
        self.receivers: dict[str, ReceiverView] = {}
        self.retention = Retention(stream, self.settings, outbox)
        self._outbox = outbox
        self._fetch: Callable[[int, int], None] | None = None
        self._gather: Callable[[Sequence[Buffer]], Buffer] | None = None
        self._over_boundaries = False
        self._thins = 0
        """So often has ``thinned`` changed."""
        self._more_at_us: int | None = None
        """There is credit for more than one burst."""
        self.seats = NamedSubscriptions(stream, self.receivers, outbox)
        self.tentative = TentativeSender(
            stream,
            self.receivers,
            outbox=outbox,
            settings=self.settings,
            end=lambda: (self.log.next_seq, self.log.boundary_us),
        )

    def fetches_by(self, fetch: Callable[[int, int], None]) -> None:
        """``fetch`` is called with the time and the index of an entry that is wanted and not in memory; the
        sender goes on with ``settle`` once it is."""
        self._fetch = fetch

    def gathers_by(self, gather: Callable[[Sequence[Buffer]], Buffer], *, over_boundaries: bool) -> None:
        """Trains that wait go as one: ``gather`` makes one payload of several (``TrainCodec.gathered``).

        Args:
            over_boundaries: no row ever lies below an earlier boundary, unless it is called late: so of two
                boundaries that wait, the first says nothing. Where it stood between rows is lost; boxes
                don't count on that.
        """
        self._gather, self._over_boundaries = gather, over_boundaries

    def thins(self, thinned: Mapping[str, int]) -> None:
        """So many rows were left out by now above the stream, by place; what stands there by the name of the
        stream, and what is too much to be told apart, is told together by that name."""
        # Who has been told apart stays so: else a reader would hold it by name, and in the rest.
        named = [place for place, _ in self.thinned if place in thinned and place != self.stream]
        named += sorted(thinned.keys() - {*named, self.stream})
        told = {place: thinned[place] for place in sorted(named[: limits.THINNED_MAX - 1])}
        if rest := sum(rows for place, rows in thinned.items() if place not in told):
            told[self.stream] = min(rest, limits.SEQ_MAX)
        made = tuple(told.items())
        if made != self.thinned:
            self.thinned = made
            self._thins += 1

    def begin_version(self, now_us: int, version: int) -> None:
        """The stream has this version from here on: who was told another one has to attach anew."""
        if version != self.stream_version:
            self.stream_version = version
            self.settle(now_us)

    # --- from the fragment ------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """The bound of retention is reached: feed the fragment nothing until this is over.

        Output of what was fed before is still taken, so that the bound is overrun by at most that.
        """
        return self.full_with(0)

    def full_with(self, nbytes: int) -> bool:
        """The same if so many bytes more were kept."""
        return bool(self.receivers) and self.retention.full(self.log.memory_bytes + nbytes)

    @property
    def pressed(self) -> bool:
        """Half of the bound is reached."""
        return bool(self.receivers) and self.retention.pressed(self.log.nbytes)

    def train(
        self,
        now_us: int,
        payload: Buffer,
        rows: int,
        *,
        late: bool = False,
        tentative: bool = False,
        note: bytes = b"",
    ) -> None:
        """Append encoded rows and send them as far as credit allows (``codec.encode_train``).

        Raises:
            LocalProtocolError: an impossible size. Nothing changed.
        """
        self.log.append_train(payload, rows, late=late, tentative=tentative, note=note)
        self.settle(now_us)

    def boundary(self, now_us: int, time_us: int, note: bytes = b"") -> None:
        """Append a promise.

        Raises:
            LocalProtocolError: it is below the last one. Nothing changed.
        """
        index = self.log.append_boundary(time_us, note)
        if index is None:
            return
        for view in self.receivers.values():
            view.look_again_at(index)
        self.settle(now_us)

    # --- receivers come and go --------------------------------------------------------------

    def expect(self, key: str, durable: int | None = None) -> None:
        """Keep rows for this receiver from ``durable`` on (default: the oldest kept), before it attaches."""
        if key not in self.receivers:
            position = self.log.start_seq if durable is None else durable
            named = is_key(key)
            peer = "" if named else key
            self.receivers[key] = ReceiverView(peer=peer, plain=False, durable=position, named=named)

    def forget(self, now_us: int, key: str) -> None:
        """Keep nothing more for this receiver."""
        self.seats.end(key)
        self.settle(now_us)

    def durable_positions(self) -> dict[str, int]:
        """For the checkpoint: what each receiver that has a disk holds durably."""
        return {key: view.durable for key, view in self.receivers.items() if not view.plain}

    def notes(self) -> dict[str, bytes]:
        """For the checkpoint: what receivers left with us."""
        return {key: view.note for key, view in self.receivers.items() if view.note}

    def load(
        self,
        entries: list[OutputEntry],
        receivers: Mapping[str, int],
        notes: Mapping[str, bytes] | None = None,
    ) -> None:
        """Take back ``log.entries()`` and ``durable_positions()``; only before anything was appended.

        Raises:
            LocalProtocolError: the entries don't follow ``first_seq``, or there is output already.
        """
        log = self.log
        if log.end != log.base or self.receivers:
            raise LocalProtocolError(f"stream {self.stream!r} has output or receivers already")
        ends = dict(self.skips)
        for entry in entries:
            if self.skips and entry.seq > log.next_seq:  # Of many, the last ones are remembered.
                log.skip_to(entry.seq)
            if entry.seq != log.next_seq:
                raise LocalProtocolError(f"stream {self.stream!r}: entry at {entry.seq}, not {log.next_seq}")
            rows = entry.end - entry.seq
            if entry.payload is not None:
                log.append_train(entry.payload, rows, late=entry.late, tentative=entry.tentative)
            elif entry.away > 0:
                log.append_spilled(entry.away, rows, late=entry.late, tentative=entry.tentative)
            elif entry.time_us is not None and rows == 0:
                log.append_boundary(entry.time_us)
            else:
                raise LocalProtocolError(f"stream {self.stream!r}: an entry without rows or time")
        log.skip_to(ends.get(log.next_seq, log.next_seq))
        for peer, durable in receivers.items():
            self.expect(peer, durable)
            self.receivers[peer].leave((notes or {}).get(peer, b""))

    def begin_log(self, first_seq: int, unread: int | None = None) -> None:
        """The first row has this number; nothing was appended, and nobody has attached.

        Args:
            unread: the first of the rows before it that nobody has read (``Sender.unread``); None: all that
                were kept were read.
        """
        self.log = OutputLog(first_seq=first_seq)
        self.unread = first_seq if unread is None else unread, first_seq
        for view in self.receivers.values():
            view.begin_at(first_seq)

    # --- from the link ------------------------------------------------------------------------

    def peer(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """The peer came, went or restarted (``session.PeerSession`` says so)."""
        view = self.seats.view(peer)
        if view is None:
            return
        if event not in PEER_EVENTS:
            raise LocalProtocolError(f"{event.value!r} is no event of a peer")
        target = SENDER[view.state][event]
        resumed = view.state is SenderState.PAUSED and target is SenderState.FLOWING
        if not self._stuck(view):
            view.moved(now_us)
        view.step(event)
        self.seats.vacate(view)
        if resumed:
            # Frames under way when it fell silent may be lost; this lets the receiver find out.
            self._progress(now_us, view)
            self._pump(now_us, view)
            self.tentative.resumed(now_us, view)

    def receive(self, now_us: int, peer: str, message: SenderMessage, *, key: str = "") -> None:
        """Take one message of a receiver.

        Args:
            key: with ``Attach`` of a named subscription, under which it is known (``expect``).

        Raises:
            RemoteProtocolError: it claims what can't be. Nothing changed.
        """
        if isinstance(message, Attach):
            self._attach(now_us, peer, message, key or peer)
            return
        view = self.seats.view(peer)
        if isinstance(message, TentativeTaken):
            self._tentative_taken(now_us, view, message)
            return
        event = _EVENTS[type(message)]
        if isinstance(message, Ack) and (
            view is None or (view.state is SenderState.DETACHED and message.epoch >= view.epoch)
        ):
            # It believes to be attached; it hears that it isn't, and asks anew.
            refusal = Refuse(code="E_DETACHED", text="not attached", stream=self.stream, epoch=message.epoch)
            self._outbox.send(peer, refusal)
            return
        if view is None:
            return
        target = SENDER[view.state].get(event)
        if target is not None and message.epoch > view.epoch and isinstance(message, Ack):
            raise self._broken(peer, "E_EPOCH", f"acknowledges epoch {message.epoch}, never attached")
        if target is None or message.epoch < view.epoch:
            view.refuse_stale()
            return
        if isinstance(message, Ack):
            self._ack(now_us, view, message)
        elif isinstance(message, Refuse):
            self._outbox.report(
                "info" if message.code in ORDINARY else "error",
                "receiver refused",
                stream=self.stream,
                peer=peer,
                code=message.code,
                text=message.text,
            )
        view.step(event)
        if not self.seats.vacate(view) and (
            isinstance(message, Detach) or (view.plain and target is SenderState.DETACHED)
        ):
            del self.receivers[peer]
        self.settle(now_us)

    def _tentative_taken(self, now_us: int, view: ReceiverView | None, message: TentativeTaken) -> None:
        if view is None:
            return
        if message.epoch != view.epoch or view.state is SenderState.DETACHED:
            view.refuse_stale()
            return
        self.tentative.taken(now_us, view, message)

    def begin_at(self, peer: str, message: Attach) -> int | None:
        """Where a named receiver that is not yet known begins; None: beyond the end, and it was told.

        Raises:
            RemoteProtocolError: it claims what can't be.
        """
        asked = self._asked(peer, message, None)
        if asked > self.log.next_seq and not message.resumed:
            self._refuse_beyond(peer, message)
            return None
        return message.durable if message.resumed else asked

    def _attach(self, now_us: int, peer: str, message: Attach, key: str) -> None:
        view = self.receivers.get(key)
        if key != peer and (view is None or not self.seats.may_read(peer, key, message)):
            return
        known = view.epoch if view is not None and view.peer == peer else 0
        if message.epoch <= known:
            if view is not None and message.epoch < known:
                view.refuse_stale()
                text = f"an attachment of epoch {known} came before"
                self._outbox.send(peer, Refuse(code="E_EPOCH", text=text, stream=self.stream, epoch=known))
            return
        if (refusal := other_life(message, self.life)) is not None:
            self._outbox.send(peer, refusal)
            return
        asked = self._asked(peer, message, view)
        wanted = self.behind_skips(self.log.behind_lost(max(asked, self.log.start_seq)))
        if wanted > self.log.next_seq and not self._may_be_ahead(peer, message):
            return
        stuck = view is not None and self._stuck(view) and wanted <= view.durable
        if view is None:
            view = ReceiverView(peer=peer, plain=message.plain, durable=message.durable)
            self.receivers[peer] = view
        self.seats.take(peer, key, view)
        skipped = self._skipped(asked, wanted)
        if asked < wanted:
            begins = message.plain and not message.resumed  # There it has missed nothing that came to it.
            said = ("info", "rows not kept") if begins else ("error", "rows lost")
            if rows := wanted - asked - skipped:
                self._outbox.report(*said, stream=self.stream, peer=peer, rows=rows)
            since = max(asked, view.lost_below)  # Each once: it may have to ask again.
            view.lost_rows += wanted - since - self._skipped(since, wanted)
            view.lost_below = wanted
        view.state = SENDER[view.state][LinkEvent.ATTACH]
        view.epoch = message.epoch
        view.plain = message.plain
        view.cursor = self.log.find(wanted)
        view.wanted_seq = view.sent_seq = view.acked = wanted
        known_durable = view.durable if key != peer or message.next_seq == RESUME else 0
        # What was acknowledged under a name, or is held by a node without a disk, stays so.
        view.durable = wanted if message.plain else max(min(message.durable, wanted), known_durable)
        view.frames, view.acked_frames, view.sent_bytes = 1, 0, 0
        view.granted = min(message.granted, limits.CREDIT_BYTES_MAX)
        view.asked_at_us = now_us
        view.stream_version = self.stream_version
        view.moved_at_us = view.moved_at_us if stuck else now_us
        view.tell_thinned(self._thins)
        self._outbox.send(
            peer,
            Attached(
                stream=self.stream,
                epoch=view.epoch,
                next_seq=wanted,
                boundary_us=self.log.promise(view.cursor),
                schema=self.schema,
                timed=self.timed,
                lost=wanted - asked - skipped if message.next_seq < 0 else 0,
                note=view.note if message.next_seq == RESUME else b"",
                stream_version=self.stream_version,
                life=self.life,
                configuration=self.fence.number,
                skipped=skipped if message.next_seq >= 0 else 0,
                tentative=(max(self.log.next_seq, wanted), self.log.boundary_us)
                if message.tentative
                else None,
                thinned=self.thinned,
            ),
        )
        self.tentative.attached(now_us, view, asked=message.tentative)
        self.settle(now_us)

    def skip(self, now_us: int, rows: int) -> None:
        """No row has the next numbers, so many."""
        at = self.log.next_seq
        self.log.skip_to(at + rows)
        self.skips = (*self.skips, (at, at + rows))[-SKIPS_MAX:]
        self.settle(now_us)

    def behind_skips(self, seq: int) -> int:
        """The same, or the first number behind those that no row has."""
        for first, end in self.skips:
            seq = end if first <= seq < end else seq
        return seq

    def _skipped(self, first: int, end: int) -> int:
        """Of the numbers from ``first`` to before ``end`` those that no row has."""
        return sum(max(min(end, to) - max(first, at), 0) for at, to in self.skips)

    def _asked(self, peer: str, message: Attach, view: ReceiverView | None) -> int:
        """The row that this attachment wants next."""
        check_attach(message, peer)
        if message.next_seq == RESUME:
            return self.log.start_seq if view is None else view.durable
        if message.next_seq >= 0:
            return message.next_seq
        if message.name and view is not None:
            return view.durable
        if message.next_seq != OLDEST:
            return self.log.next_seq
        first, end = self.unread
        return first if end == self.log.start_seq else self.log.start_seq

    def _may_be_ahead(self, peer: str, message: Attach) -> bool:
        """Whether a receiver may want a row that isn't here yet; if not, it is told what is.

        One with a disk, or that was attached before, may: we fell back to a checkpoint, and come to
        its row again. To a reader that begins there we'd show nothing, for who knows how long.
        """
        at = self.log.next_seq
        if not message.plain or message.resumed:
            self._outbox.report(
                "warning", "receiver ahead", stream=self.stream, peer=peer, wants=message.next_seq, at=at
            )
            return True
        self._refuse_beyond(peer, message)
        return False

    def _refuse_beyond(self, peer: str, message: Attach) -> None:
        at = self.log.next_seq
        text = f"row {message.next_seq} is beyond the end of the stream: the next row is {at}"
        hint = f"read from {at} on, or from now; a node that was restarted comes back to its old end first"
        refusal = Refuse(code="E_SEQ", text=text, hint=hint, stream=self.stream, epoch=message.epoch)
        self._outbox.send(peer, refusal)

    def _ack(self, now_us: int, view: ReceiverView, message: Ack) -> None:
        if message.received > view.sent_seq or message.frames > view.frames:
            raise self._broken(
                view.peer, "E_SEQ", f"acknowledges row {message.received}, sent up to {view.sent_seq}"
            )
        if message.durable > message.received:
            raise self._broken(
                view.peer, "E_SEQ", f"durable up to {message.durable}, received {message.received}"
            )
        view.acknowledge(now_us, message)

    def _broken(self, peer: str, code: str, text: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"stream {self.stream!r}: {text}", peer=peer, code=code)

    # --- out --------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Ask what is outstanding; cut off plain subscribers that take nothing."""
        for view in list(self.receivers.values()):
            if not view.outstanding(self.log.end):
                continue
            if view.plain and now_us - view.moved_at_us >= self.settings.idle_us:
                self._cut_off(view)
            elif view.state is SenderState.FLOWING and now_us - view.asked_at_us >= self.settings.progress_us:
                self._progress(now_us, view)
        self.tentative.tick(now_us, muted=self.muted)
        self._more_at_us = None
        self.settle(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: not before something else happens."""
        times = [at_us for at_us in (self._more_at_us, self.tentative.wake_at_us()) if at_us is not None]
        for view in self.receivers.values():
            if not view.outstanding(self.log.end):
                continue
            if view.plain:
                times.append(view.moved_at_us + self.settings.idle_us)
            if view.state is SenderState.FLOWING:
                times.append(view.asked_at_us + self.settings.progress_us)
        return min(times, default=None)

    def _stuck(self, view: ReceiverView) -> bool:
        """It is cut off some time after it last moved; to come, go or ask for the same again is no move."""
        return view.plain and view.outstanding(self.log.end)

    def _cut_off(self, view: ReceiverView) -> None:
        assert LinkEvent.CUT_OFF in SENDER[view.state]
        text = f"nothing was taken for {self.settings.idle_us / 1e6:g} s; stopped at row {view.acked}"
        self._outbox.send(
            view.peer, Refuse(code="E_CUT_OFF", text=text, stream=self.stream, epoch=view.epoch)
        )
        self._outbox.report(
            "warning", "subscriber cut off", stream=self.stream, peer=view.peer, row=view.acked
        )
        del self.receivers[view.peer]

    def _progress(self, now_us: int, view: ReceiverView) -> None:
        view.asked(now_us)
        if self.muted:
            return
        self._outbox.send(
            view.peer,
            Progress(stream=self.stream, epoch=view.epoch, frames=view.frames, pressed=self.pressed),
        )

    def settle(self, now_us: int) -> None:
        """After any change: send what may be sent, trim what may be trimmed."""
        for view in self.receivers.values():
            self._pump(now_us, view)
        self._trim(now_us)

    def _pump(self, now_us: int, view: ReceiverView) -> None:
        left = BURST_FRAMES
        if view.state is not SenderState.FLOWING or self.muted:
            return
        if view.stream_version != self.stream_version:
            self._anew(view, f"the stream has version {self.stream_version} from here on")
            return
        if view.cursor < self.log.base and self.log.base < self.log.end:
            if view.sent_bytes + self.log[self.log.base].cost <= view.granted:
                self._overtaken(view)
            return
        idle = view.acked_frames == view.frames and view.durable >= view.sent_seq
        while view.cursor < self.log.end:
            entry = self.log[view.cursor]
            if self._had(view, entry):
                view.skip()
                continue
            if self.skips and entry.seq > max(view.sent_seq, view.wanted_seq):
                self._anew(view, "its next row has a higher number")
                return
            if view.sent_bytes + entry.cost > view.granted:
                return
            if not left:
                self._more_at_us = now_us
                return
            left -= 1
            if entry.away:
                if entry.lost:
                    self._overtaken(view)
                elif self._fetch is not None:
                    self._fetch(now_us, view.cursor)
                return
            entry, end = self._gathered(view, entry)
            thinned = self.thinned if view.tell_thinned(self._thins) else ()
            self._outbox.send(view.peer, frame_of(self.stream, view, entry, thinned), entry.payload)
            view.sent(entry, end)
            if idle:
                # The first of a burst starts the clock of ``Progress`` and of the cut-off.
                view.asked(now_us)
                view.moved(now_us)
                idle = False

    def _gathered(self, view: ReceiverView, entry: OutputEntry) -> tuple[OutputEntry, int]:
        """What goes next, and the index behind it: this entry, or all that waits behind it and fits."""
        index = view.cursor + 1
        if self._gather is None or index >= self.log.end or not entry.plain:
            return entry, index
        most = min(GATHERED_BYTES, self.settings.retained_bytes_max // GATHERED_SHARE)
        room = min(most, view.granted - view.sent_bytes)
        payloads, rows_end, cost, end = [entry.payload], entry.end, entry.cost, index
        while index < self.log.end:
            entry_behind = self.log[index]
            index += 1
            if self._says_nothing(entry_behind):
                continue
            if not entry_behind.plain or entry_behind.seq != rows_end:
                break
            cost += entry_behind.cost
            if cost > room or entry_behind.end - entry.seq > limits.ROWS_MAX:
                break
            payloads.append(entry_behind.payload)
            rows_end, end = entry_behind.end, index
        if len(payloads) == 1:
            return entry, end
        payload = self._gather([each for each in payloads if each is not None])
        cost = memoryview(payload).nbytes + limits.ENTRY_BYTES
        if cost > view.granted - view.sent_bytes:
            return entry, view.cursor + 1
        return replace(entry, end=rows_end, cost=cost, payload=payload), end

    def _says_nothing(self, entry: OutputEntry) -> bool:
        """Whether it is a boundary that another one behind it makes worthless."""
        if entry.time_us is None or entry.note or not self._over_boundaries:
            return False
        return entry.time_us < self.log.boundary_us

    def _overtaken(self, view: ReceiverView) -> None:
        """What it wants next was shed, or is damaged: it attaches anew, and so learns which rows are lost.

        Only now that it has credit again, else it would do so for each entry that is shed.
        """
        self._anew(view, "rows that were to come next were shed")

    def _anew(self, view: ReceiverView, text: str) -> None:
        view.step(LinkEvent.CUT_OFF)
        self._outbox.send(
            view.peer, Refuse(code="E_DETACHED", text=text, stream=self.stream, epoch=view.epoch)
        )

    def _had(self, view: ReceiverView, entry: OutputEntry) -> bool:
        """The receiver is ahead of this entry: it had it before we restarted."""
        if entry.time_us == END_US:
            return False  # It may stand before numbers that no row has.
        return entry.end < view.wanted_seq or (entry.time_us is None and entry.end == view.wanted_seq)

    def _trim(self, now_us: int) -> None:
        if not self.receivers:
            self.log.trim_to(self.settings.keep_bytes)
            return
        floor = min(view.durable for view in self.receivers.values())
        # A detached receiver has no place in the log yet; an attached one still needs what lies
        # before it, be it only a boundary.
        ahead = [view.cursor for view in self.receivers.values() if view.state is not SenderState.DETACHED]
        self.log.trim(floor, min(ahead, default=self.log.end))
        self.retention.shed(now_us, self.log, floor)


_EVENTS: dict[type, LinkEvent] = {Ack: LinkEvent.ACK, Detach: LinkEvent.DETACH, Refuse: LinkEvent.REFUSE}
