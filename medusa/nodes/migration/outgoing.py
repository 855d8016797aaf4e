"""Fragments of this node that go elsewhere: who ordered it, what is asked, how it is settled. No IO.

``moving`` has the automaton, ``handing`` sends the fragment, ``arrivals`` is the other side.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_moves import KeptMove
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.automaton import MoveEvent, OwnerState
from medusa.nodes.migration.order import OutgoingMove, no
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.migration.state_sender import StateSender
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.reports import Copied
from medusa.nodes.security.registry import Refusal
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_to
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import GiveUp, Got, Ready, Receive, Settle, Settled
from medusa.wire.messages.rerouting import Expect, Follow, Placed, Unexpect
from medusa.wire.outbox import CloseFragment, Outbox
from medusa.wire.status_and_metrics import GoingStatus

__all__ = ["OutgoingMoves"]

ASK_AGAIN_US = 500_000
"""An unanswered question is asked again after this."""

PREPARE_US = 5_000_000
"""Neighbours and target have so long to say that they are ready."""

REST_US = 200_000
"""So long after an attempt that broke the next one begins, and twice as long after each further one."""

REST_US_MAX = 3_200_000
"""No rest is longer. A node or neighbour that was in the way may be so for as long as a move takes."""

FINAL = (
    *("E_PEER", "E_STORE", "E_ROLE", "E_SPEC", "E_LIMIT", "E_MEMORY"),
    *("E_REMOVED", "E_QUERY", "E_DEPLOYED", "E_MOVE", "E_NO_CONTRACT", "E_DECLINED"),
)
"""After these refusals another attempt would end in the same way."""

_O, _E = OwnerState, MoveEvent


class OutgoingMoves:
    """The owner's side, for all fragments of a node.

    Args:
        fragments: what runs here, by name; one that has gone is taken out.
        diverting: the neighbours' side, and the numbers of questions.
        next_token: gives the numbers of attempts: larger than any before, over all lives.

    Attributes:
        away: which nodes don't answer.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: MutableMapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        diverting: Rerouting,
        next_token: Callable[[], int],
    ) -> None:
        self._me = settings.name
        self._settings = settings
        self._catalog = catalog
        self._kept = catalog.ownership
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._diverting = diverting
        self._next_token = next_token
        self.away = UnreachablePeers(settings.peers)
        self._orders: dict[str, OutgoingMove] = {}
        self._closing: list[tuple[int, str]] = []
        """Token of the catalog without it, and the fragment: then its files go."""

    def start(self, now_us: int) -> None:
        """After a start: what hadn't been handed over is undone, what had is settled."""
        for name, kept in list(self._kept.moves.items()):
            if name in self._orders or name not in self._fragments:
                continue  # One that lost its state is in doubt, and its move waits with it.
            order = OutgoingMove(
                fragment=name,
                to=kept.to,
                until_us=now_us,
                state=_O.HANDING if kept.handing else _O.UNDOING,
                attempt=kept.attempt,
                epoch=kept.epoch,
            )
            self._orders[name] = order
            if kept.handing:
                self._fragments[name].freeze()
            else:
                self._undo(now_us, order)

    def moving(self, fragment: str) -> bool:
        """Whether somebody wants it elsewhere; it may rest between two attempts, or wait for a neighbour."""
        return fragment in self._orders

    def attempted(self, fragment: str) -> bool:
        """Whether an attempt is under way. While it rests its neighbours may go: else two that are to go at
        once would hold each other up."""
        return fragment in self._orders and self._orders[fragment].state is not _O.RUNNING

    def prepares(self, fragment: str) -> bool:
        """Whether an attempt is under way that nothing depends on, yet or any more: one that is refused
        upstream ends, and its sender isn't to wait for that."""
        state = self._orders[fragment].state if fragment in self._orders else _O.RUNNING
        return state is _O.PREPARING or (state is _O.UNDOING and not self._fragments[fragment].frozen)

    def status(self) -> dict[str, GoingStatus]:
        """What is being moved."""
        return {order.fragment: order.status() for order in self._orders.values()}

    # --- orders -----------------------------------------------------------------------------------

    def order(self, now_us: int, peer: str, request: int, fragment: str, to: str, timeout_us: int) -> None:
        """Somebody wants a fragment of ours moved; hears when it is done, or why not."""
        order = self._orders.get(fragment)
        if order is not None and order.to == to:
            if (peer, request) not in order.answers:
                order.answers.append((peer, request))
            return
        if (why := self.may_not(fragment, to)) is not None:
            self._answer(peer, request, why)
        elif to == self._me:
            # That it is ours may be on its way to disk.
            self._saver.send(peer, Reply(request=request), _figures(to, 0, 0, 0), after=self._saver.save())
        else:
            order = OutgoingMove(
                fragment=fragment, to=to, until_us=now_us + timeout_us, answers=[(peer, request)]
            )
            self._orders[fragment] = order
            self._go(now_us, order)

    def _go(self, now_us: int, order: OutgoingMove) -> None:
        """Begin, unless a reader of it is just moving: then when that is over."""
        if why := self._diverting.busy(self._fragments[order.fragment].spec):
            order.why = no("E_BUSY", why, "try again in a moment")
            order.again_us = min(now_us + REST_US, order.until_us)
        else:
            self._begin(now_us, order)

    def may_not(self, fragment: str, to: str) -> Refusal | None:
        """Why a fragment of ours can't go there, as far as this node knows without asking."""
        hosted, me = self._fragments[fragment], self._me
        if fragment in self._orders:
            where = self._orders[fragment].to
            return no("E_BUSY", f"fragment {fragment!r} is being moved to {where!r}", "try again in a moment")
        if to == me:
            return None
        if to not in self._settings.peers:
            return no("E_PEER", f"node {to!r} is no peer of {me!r}", f"add {to} to [peers] of {me}")
        if (whose := self._diverting.whose(to)) != self._settings.participant:
            text = f"node {to!r} is one of participant {whose!r}: fragments move between nodes of one owner"
            return no("E_ROLE", text, "what another one offers to run is said by medusa remote define")
        if self._settings.forgets:
            hint = "deploy it at a node with a disk"
            return no("E_STORE", f"node {me!r} keeps nothing over its end, so no move could be settled", hint)
        if hosted.failed:
            return no("E_FAILED", f"fragment {fragment!r} has failed: {hosted.failed}", "")
        if sold := next(iter(hosted.spec.sold.values()), None):
            text = (
                f"{sold.partner!r} reads fragment {fragment!r} by contract {sold.contract!r}, and only node"
            )
            text += f" {me!r} counts the rows"
            return no("E_MOVE", text, "leave it where it is for as long as it is sold")
        if bought := self._bought(hosted.spec):
            text = f"fragment {fragment!r} reads stream {bought!r} by a contract, and only node {me!r} pays"
            return no("E_MOVE", text, "deploy its query anew to have it elsewhere")
        return None

    def _bought(self, spec: FragmentSpec) -> str:
        """What it reads by a contract; empty: nothing."""
        paid = {mark.task for mark in self._catalog.market.marks if mark.end_row is None}
        return next((feed.stream for feed in spec.feeds if feed.stream in paid), "")

    def _answer(self, peer: str, request: int, why: Refusal) -> None:
        most = limits.TEXT_CHARS_MAX
        text, hint = why.text[:most], why.hint[:most]
        self._outbox.send(peer, Reply(request=request, code=why.code, text=text, hint=hint))

    def _begin(self, now_us: int, order: OutgoingMove) -> None:
        """A new attempt; on disk before anybody hears of it."""
        spec = self._fragments[order.fragment].spec
        order.move(_E.MOVE)
        order.attempt, order.epoch = self._next_token(), self._kept.epoch(order.fragment) + 1
        order.tries += 1
        order.begun_us = order.asked_us = now_us
        order.again_us = None
        self._kept.moves[order.fragment] = KeptMove(attempt=order.attempt, to=order.to, epoch=order.epoch)
        about: dict[str, Any] = {"query": spec.query}
        ask = self._question
        for feed in spec.feeds:
            more: dict[str, Any] = {
                "like": self._me,
                "reader": order.to,
                "epoch": order.epoch,
                "stream": feed.stream,
            }
            ask(order, feed.node, Expect(request=self._diverting.number(), **about, **more))
        for sink, readers in spec.readers.items():
            for reader in readers:
                stream = {"stream": spec.streams[sink], "node": order.to}
                ask(order, reader, Follow(request=self._diverting.number(), **about, **stream))
        coordinator = self._catalog.coordinator_of(spec.query, self._me)
        place: dict[str, Any] = {"fragment": spec.name, "node": order.to}
        ask(order, coordinator, Placed(request=self._diverting.number(), **about, **place))
        order.token = self._saver.save()
        self._ask(order)

    def _question(self, order: OutgoingMove, node: str, message: Any) -> None:
        order.questions[message.request] = node, message

    def _ask(self, order: OutgoingMove) -> None:
        for node, message in order.questions.values():
            self._saver.send(node, message, after=order.token)

    def _target_asked(self, order: OutgoingMove) -> None:
        """The neighbours are ready: is the target?"""
        spec = self._fragments[order.fragment].spec
        message = Receive(
            fragment=spec.name,
            attempt=order.attempt,
            epoch=order.epoch,
            coordinator=self._catalog.coordinator_of(spec.query, self._me),
        )
        self._outbox.send(order.to, message, fragment_to(msgspec.structs.replace(spec, node=order.to)))

    # --- what comes -------------------------------------------------------------------------------

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """A neighbour answers; whether the question was ours."""
        for order in self._orders.values():
            node, _ = order.questions.get(reply.request, ("", None))
            if node != peer:
                continue
            if order.state is _O.PREPARING and reply.code:
                text = f"node {peer!r}: {reply.text}"
                self._end(now_us, order, _E.REFUSED, no(reply.code, text, reply.hint))
            elif order.state is not _O.UNDOING or reply.code not in ("E_BUSY",):
                del order.questions[reply.request]
                self._asked_all(now_us, order)
            return True
        return False

    def _asked_all(self, now_us: int, order: OutgoingMove) -> None:
        if order.questions:
            return
        if order.state is _O.PREPARING:
            order.asked_us = now_us
            self._target_asked(order)
        elif order.state is _O.UNDOING:
            self._undone(now_us, order)

    def receive(self, now_us: int, peer: str, message: Ready | Got | GiveUp | Settled) -> None:
        """The target says something; what it says of another attempt is dropped."""
        order = self._orders.get(message.fragment)
        if order is None or (order.to, order.attempt) != (peer, message.attempt):
            if isinstance(message, Ready):
                self._outbox.send(peer, GiveUp(fragment=message.fragment, attempt=message.attempt))
            return
        match message:
            case Ready():
                if order.state is _O.PREPARING and not order.questions and order.move(_E.READY):
                    hosted = self._fragments[order.fragment]
                    order.handing = StateSender(
                        now_us, hosted, message, node=self._me, target=peer, outbox=self._outbox
                    )
            case Got():
                if order.handing is not None:
                    order.handing.got(now_us, message)
            case GiveUp():
                text = f"node {peer!r}: {message.text}"
                self._end(now_us, order, _E.REFUSED, no(message.code or "E_BROKEN", text, message.hint))
            case Settled(taken=True):
                self._taken(now_us, order)
            case Settled():
                self._never(now_us, order)
        self.tick(now_us)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted: attempts with it are over."""
        self.away.peer_event(now_us, peer, event)
        for order in list(self._orders.values()) if event is not LinkEvent.PEER_UP else ():
            if order.to == peer:
                self._end(now_us, order, _E.BROKEN, no("E_BROKEN", f"node {peer!r} went away", ""))

    def copied(self, now_us: int, done: Copied) -> None:
        """A checkpoint was read to be sent."""
        order = self._orders.get(done.fragment)
        if order is not None and order.handing is not None and order.handing.token == done.token:
            order.handing.copied(now_us, done)
            self.tick(now_us)

    def stop(self, now_us: int) -> None:
        """The node ends: what isn't handed over stays here."""
        for order in list(self._orders.values()):
            order.until_us = now_us
            self._end(now_us, order, _E.BROKEN, no("E_BROKEN", f"node {self._me!r} ends", ""))

    def removed(self, fragment: str) -> None:
        """The query is no more."""
        order = self._orders.pop(fragment, None)
        self._kept.forget(fragment)
        if order is not None:
            self._outbox.send(order.to, GiveUp(fragment=fragment, attempt=order.attempt))
            why = no("E_REMOVED", f"fragment {fragment!r} was removed", "")
            for peer, request in order.answers:
                self._answer(peer, request, why)

    # --- ends -------------------------------------------------------------------------------------

    def _end(self, now_us: int, order: OutgoingMove, event: MoveEvent, why: Refusal) -> None:
        """This attempt is over, unless it was handed over."""
        if order.state is _O.HANDING and not self._said(order):
            self._never(now_us, order, why)  # Nobody can have it: nobody was told.
            return
        if order.state not in (_O.PREPARING, _O.COPYING) or not order.move(event):
            return
        order.why, order.final = why, why.code in FINAL
        self._outbox.send(order.to, GiveUp(fragment=order.fragment, attempt=order.attempt))
        self._undo(now_us, order)

    def _said(self, order: OutgoingMove) -> bool:
        """Whether the target may have been told that the fragment is its own."""
        return order.handing is None or order.handing.handed

    def _undo(self, now_us: int, order: OutgoingMove) -> None:
        """The neighbours forget the target."""
        if order.handing is not None:
            order.nbytes += order.handing.nbytes
            order.handing.stop()
            order.handing = None
        spec = self._fragments[order.fragment].spec
        order.questions, order.asked_us = {}, now_us
        for feed in spec.feeds:
            more = {"query": spec.query, "stream": feed.stream, "reader": order.to}
            self._question(order, feed.node, Unexpect(request=self._diverting.number(), **more))
        order.token = self._saver.save()
        self._ask(order)
        self._asked_all(now_us, order)
        if (hosted := self._fragments.get(order.fragment)) is not None and not hosted.frozen:
            hosted.changed(now_us, False)

    def _undone(self, now_us: int, order: OutgoingMove) -> None:
        if self._fragments[order.fragment].frozen:
            return  # Not before the disk says that it is ours again.
        order.move(_E.TOLD)
        self._kept.end_move(order.fragment)
        self._saver.save()
        if order.answers and not order.final and now_us < order.until_us:
            rest_us = min(REST_US << min(order.tries - 1, 10), REST_US_MAX)
            order.again_us = min(now_us + rest_us, order.until_us)
            return
        self._give_up(order)

    def _give_up(self, order: OutgoingMove) -> None:
        del self._orders[order.fragment]
        for peer, request in order.answers:
            self._answer(peer, request, order.why)

    def _never(
        self, now_us: int, order: OutgoingMove, why: Refusal | None = None, event: MoveEvent = _E.NEVER
    ) -> None:
        """The target doesn't have it, and won't: it is ours again, in an epoch that nobody had.

        One that still runs, since the disk hasn't said yet that it is handed over, keeps its epoch: nobody
        was told of another, and it must not show one that a crash would take back.
        """
        if not order.move(event):
            return
        order.why = why or no("E_BROKEN", f"node {order.to!r} did not take fragment {order.fragment!r}", "")
        kept = self._kept.moves[order.fragment]
        if self._fragments[order.fragment].frozen:
            self._kept.epochs[order.fragment] = kept.epoch + 1
        self._kept.moves[order.fragment] = msgspec.structs.replace(kept, handing=False)
        self._undo(now_us, order)

    def _taken(self, now_us: int, order: OutgoingMove) -> None:
        """It is the target's: who asks is told so, and nothing is left here."""
        if not order.move(_E.TAKEN):
            return
        name = order.fragment
        hosted = self._fragments.pop(name)
        if order.handing is not None:
            order.nbytes += order.handing.nbytes
            order.handing.stop()
        for known in (self._kept.moves, self._kept.epochs, self._kept.unplaced):
            known.pop(name, None)  # Who has it now tells its coordinator.
        token = self._diverting.left(now_us, hosted, order.to, order.epoch)
        self._closing.append((token, name))
        del self._orders[name]
        with self._outbox.caused_by(self._me, order.attempt):  # The target knows that too.
            self._outbox.report("info", "fragment moved", fragment=name, to=order.to, epoch=order.epoch)
        pause_us = now_us - order.stopped_us if order.stopped_us else 0
        for peer, request in order.answers:
            figures = _figures(order.to, order.nbytes, pause_us, order.tries)
            self._saver.send(peer, Reply(request=request), figures, after=token)

    def handed(self, fragment: str) -> bool:
        """Whether it was handed over, and nobody has said yet that it has it."""
        return fragment in self._orders and self._orders[fragment].state is _O.HANDING

    def grant(self, now_us: int, peer: str, request: int, fragment: str) -> None:
        """Its operator says that who may have taken what was ``handed`` over is lost for good: it is ours
        again, and the operator hears so once the disk says it."""
        order = self._orders[fragment]
        order.until_us = now_us
        self._never(now_us, order, event=_E.GRANT)
        self._saver.send(peer, Reply(request=request), after=order.token)

    # --- time -------------------------------------------------------------------------------------

    def _coordinates(self, order: OutgoingMove) -> dict[str, str]:
        query = self._fragments[order.fragment].spec.query
        return {self._catalog.coordinator_of(query, self._me): query}

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        for token, name in [each for each in self._closing if each[0] <= self._saver.durable]:
            self._closing.remove((token, name))
            if name not in self._fragments:
                self._outbox.append(CloseFragment(fragment=name))
        for order in list(self._orders.values()):
            self._tick(now_us, order)

    def _tick(self, now_us: int, order: OutgoingMove) -> None:
        due = now_us - order.asked_us >= ASK_AGAIN_US
        if due:
            order.asked_us = now_us
            order.silent = self.away.among(order.waited_for())
            order.waits_for = self.away.told(now_us, order.silent, self._coordinates(order))
        match order.state:
            case OwnerState.RUNNING:
                if order.again_us is not None and now_us >= order.until_us:
                    self._give_up(order)
                elif order.again_us is not None and now_us >= order.again_us:
                    self._go(now_us, order)
            case OwnerState.PREPARING:
                if now_us - order.begun_us >= PREPARE_US:
                    nodes = order.waited_for()
                    silent = f"no answer from {', '.join(map(repr, nodes))} in {PREPARE_US // 1_000_000} s"
                    text = self.away.told(now_us, nodes, self._coordinates(order)) or silent
                    self._end(now_us, order, _E.BROKEN, no("E_TIMEOUT", text, ""))
                elif due and order.questions:
                    self._ask(order)
                elif due:
                    self._asked_all(now_us, order)
            case OwnerState.COPYING:
                self._copying(now_us, order)
            case OwnerState.HANDING:
                self._handing(now_us, order, due)
            case OwnerState.UNDOING:
                hosted = self._fragments[order.fragment]
                if hosted.frozen and self._saver.durable >= order.token:
                    hosted.thaw(now_us)
                    self._asked_all(now_us, order)
                elif due:
                    self._ask(order)

    def _copying(self, now_us: int, order: OutgoingMove) -> None:
        assert order.handing is not None
        order.handing.tick(now_us)
        if order.handing.broken:
            self._end(now_us, order, _E.BROKEN, no("E_BROKEN", order.handing.broken, ""))
        elif order.handing.near and order.move(_E.NEAR):
            kept = self._kept.moves[order.fragment]
            self._kept.moves[order.fragment] = msgspec.structs.replace(kept, handing=True)
            order.token = self._saver.save()

    def _handing(self, now_us: int, order: OutgoingMove, due: bool) -> None:
        if order.handing is not None and not order.handing.handed:
            order.handing.tick(now_us)
            if order.handing.broken:
                self._never(now_us, order, no("E_BROKEN", order.handing.broken, ""))
            elif self._saver.durable >= order.token:
                # It runs until here: nobody has been told, so the write is no part of the pause.
                self._fragments[order.fragment].freeze()
                order.stopped_us = now_us
                order.handing.hand_over(now_us)
            elif why := self._saver.disk_error:
                self._never(now_us, order, no("E_DISK", why, ""))
            return
        if order.handing is not None:
            order.handing.tick(now_us)
        if due:
            gone = order.handing is None
            settle = Settle(fragment=order.fragment, attempt=order.attempt, gone=gone)
            self._outbox.send(order.to, settle)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        if not self._orders:
            return None
        times = [order.asked_us + ASK_AGAIN_US for order in self._orders.values()]
        times += [order.again_us for order in self._orders.values() if order.again_us is not None]
        times += [o.handing.wake_at_us(now_us) for o in self._orders.values() if o.handing is not None]
        return min(times, default=None)


def _figures(node: str, nbytes: int, pause_us: int, attempts: int) -> bytes:
    return msgspec.json.encode({"node": node, "bytes": nbytes, "pause_us": pause_us, "attempts": attempts})
