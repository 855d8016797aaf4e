"""A fragment on a node that keeps nothing: what dies with it is known to its neighbours, and counted.

    no disk ──asks all neighbours──> gathered ──goes on at the newest cut──> runs
                                                                              │ a run of the engine
       upstream forgets <── settled: all receivers have the output <── cut ───┘

Instead of checkpoints there are *cuts* (``sealed_cuts``). One is settled once every receiver has what was
put out before it; then upstream hears that what it covers is durable, and keeps the cut with that.

So it is with a fragment that is recovered by amnesia at any node: who takes it over begins with nothing, asks
the same neighbours, and goes on at the newest cut of its predecessor. An owner that hears half of the voters
or fewer feeds nothing meanwhile: others may have taken over, and what it acknowledged would die unseen.

After a start nothing is fed before every node of the plan that is linked with this fragment has said what
it has, and the clients that the newest cut names had time to. A node that never says it holds the
fragment up as it would if it were dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.held_rows_count import NOTHING, RowsAtRisk, row_by_row, uncounted
from medusa.errors import LinkError
from medusa.nodes.diskless.sealed_cuts import CutSealer, SealedCut
from medusa.nodes.fragment.automaton import TurnEvent, TurnState
from medusa.nodes.fragment.checkpoint_record import InputRecord
from medusa.nodes.fragment.clock_decisions import decides
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.wire.link.attach_claims import check_attach
from medusa.wire.link.automaton import LinkEvent, ReceiverState, SenderState
from medusa.wire.link.receiver import ReceiverMessage
from medusa.wire.messages.links import Ack, Attach, Detach, Refuse

__all__ = ["MemoryOnlyFragmentHost"]

CUTS_MAX = 256
"""Cuts that wait until their output was received; the last one gives way to a later one."""

CLIENTS_US = 2_000_000
"""So long after its start a node waits for clients to come back: of some of them only they know."""

CUT_US = 2_000
"""Runs without output leave a cut only so often."""


class MemoryOnlyFragmentHost(FragmentHost):
    """One installed fragment of a node with ``store = "memory"``.

    Args:
        seal: of this node, or of those who may have the fragment.
        born_us: since when clients of an earlier life could have come back.
        leads: whether nobody else can have taken it over, as far as is heard now.
        begins: it is ours; else ``own`` says so.

    Attributes:
        known_lost: rows that died with earlier lives of the node; ``lost_unknown``: and more may have.
        known_lost_by: those rows by the source that they came by, as far as that is known.
    """

    forgets = True

    def __init__(
        self,
        spec: FragmentSpec,
        *,
        seal: CutSealer,
        now_us: int,
        born_us: int,
        leads: Callable[[], bool] = lambda: True,
        begins: bool = True,
        **rest: Any,
    ) -> None:
        self._seal = seal
        self._leads = leads
        self._begins = begins
        self._successors: tuple[str, ...] = ()
        self.known_lost = 0
        self.known_lost_by: dict[str, int] = {}
        self.lost_unknown = False
        self._base: SealedCut | None = None
        self._told: dict[tuple[str, str], SealedCut | None] = {}
        """Input -> the cut that its sender had of us."""
        self._asked: dict[tuple[str, str], tuple[Attach, str, int]] = {}
        """(sink, reader) -> how it wants to attach, once we know what we have."""
        self._heard: set[str] = set()
        """Who has said what they hold."""
        self._fed_any = False
        self._ran_seq: dict[tuple[str, str], int] = {}
        self._ran_note: dict[str, bytes] = {}
        self._read: dict[str, int] = {}
        """Sink -> somebody has acknowledged the rows below it."""
        self._up: set[str] = set()
        """Nodes and clients that are there."""
        self._number = 0
        self._cuts: deque[SealedCut] = deque()
        self._cut_at_us = self._looked_at_us = now_us
        self._ticked_us = now_us
        self._waited = False
        """The clients that may come back had their time."""
        super().__init__(spec, **rest)
        self._turns(TurnEvent.ASK)
        self._repeats = not decides(spec.graph) and all(row_by_row(box) for box in spec.graph.boxes)
        self.uncounted = tuple(uncounted(spec.graph))
        self._begun_us = now_us
        # Where nodes read all of our output, they have all that any client knows.
        self._clients = bool(spec.entries) or any(not spec.readers.get(sink) for sink in spec.streams)
        self._clients_until_us = born_us + CLIENTS_US if self._clients else now_us

    # --- whose it is ------------------------------------------------------------------------------

    def begin(self, now_us: int) -> None:
        """Its node starts, and has had it before."""
        super().begin(now_us)
        self._begun_us = now_us
        self._clients_until_us = now_us + CLIENTS_US if self._clients else now_us

    def own(self, now_us: int, secondaries: Collection[str] = ()) -> None:
        """It is ours: go on once all have said what they know."""
        self._begins = True
        self.count_on(now_us, secondaries)
        self._start_if_told(now_us)

    def count_on(self, now_us: int, secondaries: Collection[str]) -> None:
        """Who could take it over; none of them has to have anything."""
        self._successors = tuple(secondaries)

    @property
    def counted(self) -> Collection[str]:
        return self._successors

    @property
    def frozen(self) -> bool:
        return super().frozen or not self._begins

    def freeze(self) -> None:
        """Another node has it; one that hasn't begun never does."""
        if self._started:
            super().freeze()
        self._begins = False

    def stands_in(self, secondary: str) -> bool:
        """Whoever takes over needs nothing of it."""
        return True

    @property
    def _whose(self) -> tuple[int, int]:
        return self.epoch(), self._incarnation

    def redirect(self, now_us: int, source: str, node: str, *, up: bool) -> None:
        old = next(key for key in self.inputs if key[0] == source)
        input = self.inputs[old]
        if old in self._ran_seq:
            self._ran_seq[source, node] = self._ran_seq.pop(old)
        if not input.receiver.asking:
            self._told[source, node] = self._told.pop(old, None)
        else:
            self._told.pop(old, None)
            input.receiver.ask_first()
        if up:
            self._up.add(node)
        super().redirect(now_us, source, node, up=up and not input.receiver.asking)
        self._ask(now_us)

    def _add_input(
        self, source: str, stream: str, peer: str, record: InputRecord | None = None
    ) -> FragmentInput:
        made = super()._add_input(source, stream, peer, record)
        made.receiver.ask_first()
        return made

    # --- what the neighbours say ----------------------------------------------------------------

    def receive(
        self, now_us: int, input: FragmentInput, message: ReceiverMessage, payload: Buffer | None
    ) -> None:
        super().receive(now_us, input, message, payload)
        key = input.source, input.peer
        if input.receiver.told is not None and key not in self._told:
            _, note = input.receiver.told
            self._told[key] = self._seal.cut(note, self.spec.name)
            self._heard.add(input.peer)
            self._learnt(now_us, self._told[key])
            if self._started:
                self._late(now_us, input)
            self._start_if_told(now_us)

    def from_reader(
        self, now_us: int, sink: str, peer: str, message: Attach | Ack | Detach, *, owner: str, others: int
    ) -> None:
        """Raises: LinkError: a named subscription (``E_STORE``). RemoteProtocolError: a false claim."""
        if isinstance(message, Attach):
            if message.name:
                raise self._no_name(message)
            # It may be answered much later, while somebody else speaks: who is wrong hears it now.
            check_attach(message, peer)
            cut = self._seal.cut(message.note, self.spec.name)
            self._heard.add(peer)
            self._asked[sink, peer] = message, owner, others
            self._learnt(now_us, cut)
            self._start_if_told(now_us)
        elif self._started:
            super().from_reader(now_us, sink, peer, message, owner=owner, others=others)
            self._note_read(sink, peer)
            self._settle(now_us)

    def _note_read(self, sink: str, peer: str) -> None:
        """What a reader that may go has acknowledged, beyond where it began."""
        view = self.outputs[sink].sender.receivers.get(peer)
        if view is not None and view.acked > view.wanted_seq:
            self._read[sink] = max(view.acked, self._read.get(sink, 0))

    def _no_name(self, message: Attach) -> LinkError:
        if self.spec.keeps_nothing:
            text = f"nothing is kept of what puts out stream {message.stream!r} when its node is lost"
            hint = 'subscribe without durable=, or deploy its output with another method than "amnesia"'
        else:
            text = f"the node of stream {message.stream!r} keeps nothing over its end"
            hint = 'subscribe without durable=, or run that node with store = "disk"'
        return LinkError(
            f"{text}, so no rows for a subscription {message.name!r} either", hint=hint, code="E_STORE"
        )

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        if event is LinkEvent.PEER_DOWN:
            self._up.discard(peer)
        else:
            self._up.add(peer)
        super().peer_event(now_us, peer, event)
        self._ask(now_us)
        self._pump(now_us)  # We may lead by now.
        if event is not LinkEvent.PEER_UP:
            for key in [key for key in self._asked if key[1] == peer]:
                del self._asked[key]
            if not self._started:
                self._heard.discard(peer)

    def _waits(self, input: FragmentInput) -> bool:
        """While its readers haven't said what they have: if its sender is lost too, they say how far that
        was."""
        return super()._waits(input) or self._asks_later(self._ticked_us, input)

    def _asks_later(self, now_us: int, input: FragmentInput) -> bool:
        later = self.spec.keeps_nothing and input.judged and input.receiver.asking
        return later and input.receiver.state is ReceiverState.IDLE and not self._readers_told(now_us)

    def _readers_told(self, now_us: int) -> bool:
        for sink, readers in self.spec.readers.items():
            if any((sink, reader) not in self._asked for reader in readers):
                return self._waited
        if self._waited:
            return True
        known = set() if self._base is None else set(self._base.readers)
        return now_us >= self._clients_until_us and known <= self._heard

    def _ask(self, now_us: int) -> None:
        """Ask the senders what they have of us, if it is time."""
        for input in self.inputs.values() if self.spec.keeps_nothing and not self._started else ():
            receiver = input.receiver
            there = input.judged and receiver.asking and input.peer in self._up
            if there and receiver.state is ReceiverState.IDLE and not self._asks_later(now_us, input):
                note = b"" if self._base is None else self._base.note_of(input.source)
                if note and (seq := self._position(input)) is not None:
                    receiver.stand_at(seq, receiver.boundary_us, note)
                receiver.peer_event(now_us, LinkEvent.PEER_UP)

    def _learnt(self, now_us: int, cut: SealedCut | None) -> None:
        if cut is None or (self._base is not None and cut.order <= self._base.order):
            return
        if cut.epoch > self.epoch():  # Another node has it by now: we hear so any moment.
            self._begins = False
            return
        if cut.whose == self._whose:
            return
        if not self._started:
            self._base = cut
        elif not self._fed_any and not self._running:
            # Nobody we could have asked knew of an earlier life, and nothing has happened in this one.
            self._base = cut
            self._begin_anew(now_us)

    def _begin_anew(self, now_us: int) -> None:
        self._turns(TurnEvent.ASK)
        for output in self.outputs.values():
            for view in output.sender.receivers.values():
                if view.state is not SenderState.DETACHED:
                    text = "this node was restarted"
                    refusal = Refuse(code="E_DETACHED", text=text, stream=output.stream, epoch=view.epoch)
                    self._outbox.send(view.peer, refusal)
            output.reset()
        for input in self.inputs.values():
            input.receiver.ask_first()
            self._told.pop((input.source, input.peer), None)
            if input.silent_since_us is None:
                input.receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED)

    def _late(self, now_us: int, input: FragmentInput) -> None:
        """Somebody has come who wasn't waited for."""
        assert input.receiver.told is not None
        durable, _ = input.receiver.told
        cut = self._told[input.source, input.peer]
        seq = self._position(input)
        if cut is not None and cut.whose != self._whose and self._base is not None:
            if cut.order > self._base.order:
                self._tell_unknown("a publisher that knows of later rows came too late")
        elif cut is None and durable:
            self._tell_unknown("a publisher's rows were taken in a life that nobody knows of")
        self._begin_at(now_us, input, durable if seq is None else seq)

    def _position(self, input: FragmentInput) -> int | None:
        """The next row of an input by the cut with which we began; None: it doesn't know that one."""
        if self._base is None:
            return None
        return self._base.input_at(input.source, input.peer, any_peer=input.judged)

    def _begin_at(self, now_us: int, input: FragmentInput, seq: int) -> None:
        key = input.source, input.peer
        input.fed_seq = self._ran_seq[key] = seq
        if self._base is not None and (note := self._base.note_of(input.source)):
            input.fed_note = self._ran_note[input.source] = note
        input.receiver.begin_at(now_us, seq)
        promise_us = (
            dict(self._base.promises).get(input.source, START_US) if self._base is not None else START_US
        )
        if promise_us > self._entries.fed_us.get(input.source, END_US):
            # What was late stays late: windows that have left don't open again.
            self._entries.fed_us[input.source] = promise_us
            promise = Boundary(promise_us)
            work = Work(input, promise, next_seq=seq, boundary_us=input.fed_us, cost=0)
            self._run(work, promise)

    # --- the start --------------------------------------------------------------------------------

    def _start_if_told(self, now_us: int) -> None:
        self._ask(now_us)
        if not self._started and self._all_told(now_us):
            self._start(now_us)
        if self._started:
            self._answer_readers(now_us)
        self._pump(now_us)

    def _all_told(self, now_us: int) -> bool:
        if not (self._begins and self._leads()):
            return False
        if any((feed.source, feed.node) not in self._told for feed in self.spec.feeds):
            return False
        for sink, readers in self.spec.readers.items():
            if any((sink, reader) not in self._asked for reader in readers):
                return False
        if self._waited:
            return True
        if any(key not in self._told for key in self.inputs):
            return False
        if now_us < self._clients_until_us:
            return False
        if self._base is None:
            return True
        clients = {peer for source, peer, _ in self._base.inputs if source in self.spec.entries}
        return (clients | set(self._base.readers)) <= self._heard

    @property
    def _started(self) -> bool:
        return self._turn is not TurnState.ASKING

    def _start(self, now_us: int) -> None:
        self._turns(TurnEvent.ANSWERED)
        base = self._base
        repeats = self._repeatable and not self._sender_forgot
        if repeats and (base is None or len(base.inputs) == 1):
            # It comes to the same rows again, so where upstream stands is right too, and no row is lost
            # of which a receiver had only a part.
            (base,) = self._told.values() or (base,)
        for sink, output in self.outputs.items():
            # Of those in the plan: rows that a client has are in the note that it gives back.
            plan = self.spec.readers.get(sink, ())
            asked = [(who, message) for (at, who), (message, *_) in self._asked.items() if at == sink]
            seqs = [max(message.next_seq, message.durable) for who, message in asked if who in plan]
            begin = base.output_at(sink) if base is not None else 0
            unread = base.unread_from(sink) if base is not None else 0
            if not repeats and (ahead := max(seqs, default=0)) > begin:
                begin = unread = ahead
                self._tell_unknown(f"the readers of {output.stream} have more than anybody can say")
            # Who had read it meanwhile says so.
            unread = max([unread, *(each.next_seq for _, each in asked if each.resumed)])
            if unread < begin:
                why = "put out before the node died, and read by nobody"
                about = {"fragment": self.spec.name, "stream": output.stream, "why": why}
                self._outbox.report("error", "rows lost", rows=begin - unread, first=unread, **about)
            output.begin_at(begin, min(unread, begin))
        if base is not None:
            self.known_lost = base.lost + max(base.held, 0)
            self.known_lost_by = base.lost_after(self._sources)
            self.lost_unknown = base.unknown
            if base.held < 0:
                boxes = ", ".join(self.uncounted) or "its boxes"
                self._tell_unknown(f"nobody can say how many rows {boxes} held")
            if base.held > 0:
                by = ", ".join(f"{source} {held:,}" for source, held, _ in base.sources if held)
                self._outbox.report(
                    "error",
                    "rows lost",
                    fragment=self.spec.name,
                    rows=base.held,
                    **({"by": by} if by else {}),
                    why="held when the node died",
                )
        self._base = base
        for input in self.inputs.values():
            if input.receiver.told is None:
                continue
            durable, _ = input.receiver.told
            seq = self._position(input)
            if seq is None and durable:
                self._tell_unknown(f"rows of {input.stream} were taken in a life that nobody knows of")
            elif seq is not None and seq < durable and not self._sender_forgot:
                self._tell_unknown(f"the newest cut stands before what {input.peer} has forgotten")
            self._begin_at(now_us, input, durable if seq is None else seq)

    @property
    def _repeatable(self) -> bool:
        """One input, and no box that remembers: the same rows have the same numbers again."""
        return self._repeats and len(self.inputs) == 1 and len(self._told) == 1

    @property
    def _sender_forgot(self) -> bool:
        """One that we read from was lost as well, and goes on behind rows that we have to count as lost."""
        if not self.spec.keeps_nothing:
            return False
        told = ((i.receiver.told, i) for i in self.inputs.values() if i.judged)
        return any(each is not None and each[0] and not each[1] for each, _ in told)

    def _tell_unknown(self, why: str) -> None:
        self.lost_unknown = True
        self._outbox.report("error", "rows lost, and nobody knows how many", fragment=self.spec.name, why=why)

    def _answer_readers(self, now_us: int) -> None:
        asked, self._asked = self._asked, {}
        for (sink, peer), (message, owner, others) in asked.items():
            planned = peer in self.spec.readers.get(sink, ())
            if not message.plain and not planned:
                continue  # Another node has taken its place: nobody would acknowledge what is kept for it.
            if planned and message.next_seq > self.outputs[sink].rows and not self._repeatable:
                self._tell_unknown(f"a reader of {self.outputs[sink].stream} has more than anybody said")
            super().from_reader(now_us, sink, peer, message, owner=owner, others=others)

    # --- cuts -------------------------------------------------------------------------------------

    def _pump(self, now_us: int) -> None:
        if self._started and self._leads():
            super()._pump(now_us)
            self._fed_any = self._fed_any or bool(self._running)

    def _noted(self, now_us: int, work: Work, outputs: list[tuple[str, Element]], dying: RowsAtRisk) -> bytes:
        """The cut after this run of the engine, for the frames that it made."""
        self._ran_seq[work.input.source, work.input.peer] = work.next_seq
        if self.spec.keeps_nothing and work.input.judged:
            self._ran_note[work.input.source] = bytes(work.note)
        if not outputs and now_us - self._cut_at_us < CUT_US and self._cuts:
            return b""
        self._cut_at_us = now_us
        self._number += 1
        rows = {sink: output.rows for sink, output in self.outputs.items()}
        for sink, element in outputs:
            if isinstance(element, Train):
                rows[sink] += len(element)
        running = {(each.input.source, each.input.peer) for each in self._running}
        cut = SealedCut(
            fragment=self.spec.name,
            life=self._incarnation,
            epoch=self.epoch(),
            number=self._number,
            inputs=tuple(
                (*key, self._ran_seq.get(key, 0) if key in running else input.fed_seq)
                for key, input in self.inputs.items()
            ),
            outputs=tuple(rows.items()),
            held=-1 if dying.rows is None else dying.rows,
            lost=self.lost_rows,
            sources=self._by_source(dict(dying.sources)),
            unknown=self.lost_unknown,
            readers=tuple(
                view.peer
                for output in self.outputs.values()
                for view in output.sender.receivers.values()
                if view.plain
            ),
            promises=dying.promises,
            notes=tuple(self._ran_note.items()),
            unread=self._unread(rows),
        )
        if len(self._cuts) >= CUTS_MAX:
            self._cuts.pop()
        self._cuts.append(cut)
        return self._seal.note(cut) if outputs else b""

    def _unread(self, rows: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """As a cut has it that says where outputs stand.

        An output that somebody reads isn't there: a cut settles once all who read have the rows before it,
        and who comes back later says what it has.
        """
        found = []
        for sink, seq in rows.items():
            output = self.outputs[sink]
            first = max(output.kept_from, self._read.get(sink, 0))
            if output.received is None and first < seq:
                found.append((sink, first))
        return tuple(found)

    def _by_source(self, held: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """As a cut has them; with one source its sums say it all."""
        lost = self.lost_by
        names = sorted({*held, *lost}) if len(self._sources) > 1 else ()
        found = ((name, held.get(name, 0), lost.get(name, 0)) for name in names)
        return tuple(each for each in found if each[1] or each[2])

    def _settle(self, now_us: int) -> None:
        """Tell upstream of the last cut that the policy holds for durable."""
        if self.frozen or not self._cuts or now_us - self._looked_at_us < self._link.ack_us:
            return
        self._looked_at_us = now_us
        settled = self.durability.acknowledged(self._cuts, self)
        if not settled:
            return
        newest = settled[-1]
        # Who read it then may have gone since.
        newest = msgspec.structs.replace(newest, unread=self._unread(dict(newest.outputs)))
        note = self._seal.note(newest)
        for source, peer, seq in newest.inputs:
            input = self.inputs.get((source, peer)) or self._moved_input(source)
            if input is not None and not input.receiver.asking:
                input.receiver.own_note = note
                input.receiver.durable(now_us, min(seq, input.receiver.next_seq))
                input.durable_us = input.fed_us

    def _moved_input(self, source: str) -> FragmentInput | None:
        """What a judged source reads by now, where a cut names the node that it read from then."""
        found = (input for (of, _), input in self.inputs.items() if of == source and input.judged)
        return next(found, None)

    def ran(
        self,
        now_us: int,
        outputs: list[tuple[str, Element]],
        refused: str = "",
        dying: RowsAtRisk = NOTHING,
        shed: int = 0,
    ) -> None:
        super().ran(now_us, outputs, refused, dying, shed)
        self._settle(now_us)

    def tick(self, now_us: int) -> None:
        super().tick(now_us)
        self._ticked_us = now_us
        self._waited = self._waited or (self._begins and now_us - self._begun_us >= self._link.idle_us)
        self._start_if_told(now_us)
        self._settle(now_us)

    def wake_at_us(self) -> int | None:
        times = [super().wake_at_us()]
        if self._cuts:
            times.append(self._looked_at_us + self._link.ack_us)
        if not self._started and not self._waited:
            times.append(self._begun_us + self._link.idle_us)
            if self._ticked_us < self._clients_until_us:
                times.append(self._clients_until_us)
        return min((time for time in times if time is not None), default=None)
