"""Box sliding at one node: both sides of it, and the commands of who orders it. No IO.

A client may order a move at any node: one that doesn't have the fragment passes the order on to the node
that has, and passes the answer back. Asked twice, it is done once.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.message_table import Heard
from medusa.nodes.migration.incoming import IncomingMoves
from medusa.nodes.migration.outgoing import OutgoingMoves
from medusa.nodes.names.lookup import NameLookup
from medusa.nodes.names.startup_grace import NEWS_US, StartupGrace
from medusa.nodes.recovery.handovers import Handovers
from medusa.nodes.recovery.recovery import Recovery
from medusa.nodes.recovery.unheard_senders import UnheardSenders
from medusa.nodes.repartition.coordinator import RepartitionCoordinator
from medusa.nodes.repartition.parallel_restore import ParallelRestore
from medusa.nodes.reports import Copied
from medusa.nodes.requests import Requests
from medusa.nodes.security.registry import Caller, no_deploy
from medusa.nodes.security.sessions import refusal_of
from medusa.ports import Buffer
from medusa.query.suggest import did_you_mean
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import (
    Fed,
    FedTogether,
    GiveUp,
    Got,
    Grant,
    Move,
    Piece,
    Ready,
    Settled,
    Standing,
    Whole,
)
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import AwayStatus, MovesStatus, SplitStatus

__all__ = ["MoveOrders"]


Order = Move | Grant | Split | Merge
Answered = Ready | Got | GiveUp | Settled
Seeding = Piece | Whole | Fed | FedTogether | Standing
"""Who stands by for a fragment gets these too; it is handed over to nobody."""


PATIENCE_US = 10_000_000
"""Who has the fragment may be away for so long, or for the time that a move is given, before its order is
refused."""

RELAYED_MAX = 1000
"""Orders of clients that are passed on and not answered; older ones are asked again by who waits."""


class MoveOrders:
    """Fragments that come to a node and go from it.

    Args:
        number: gives the numbers of questions.
        names: of the participant: which node has a fragment.
        early: where orders wait of which this node may hear in a moment who has their fragment.
        own_peer: whether a node is one of our participant's.
        recovery: takes what secondaries are sent, and what they say of it.
        handovers: moves what others stand by for.
        unheard: has it moved where its owner misses a sender.
        abroad: takes what nodes of other participants order, and says what may go to them.
        by_plan: has a fragment go to another participant, or come home, where a contract says that it does
            at a signal; whether one does.
    """

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        moves: OutgoingMoves,
        arrivals: IncomingMoves,
        splits: RepartitionCoordinator,
        restoring: ParallelRestore,
        *,
        outbox: Outbox,
        number: Callable[[], int],
        names: NameLookup,
        early: StartupGrace,
        own_peer: Callable[[str], bool],
        recovery: Recovery,
        handovers: Handovers,
        unheard: UnheardSenders,
        abroad: AbroadMoves,
        by_plan: Callable[[int, str, Move], bool],
    ) -> None:
        self._by_plan = by_plan
        self._abroad = abroad
        self.moves = moves
        self._recovery = recovery
        self._handovers = handovers
        self._unheard = unheard
        self._away = moves.away
        self.arrivals = arrivals
        self.splits = splits
        self.restoring = restoring
        self._me = me
        self._catalog = catalog
        self._outbox = outbox
        self._number = number
        self._names = names
        self._early = early
        self._where = names.fragment_at
        self._own_peer = own_peer
        self._relayed: Requests[Order] = Requests(RELAYED_MAX)
        """Orders that were passed on; said again to who has the fragment by then."""

    # --- life -----------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """Go on with what was begun in an earlier life."""
        self.moves.start(now_us)
        self.arrivals.start(now_us)

    def stop(self, now_us: int) -> None:
        """The node ends."""
        self.moves.stop(now_us)
        self.arrivals.stop()
        self.splits.stop(now_us)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted."""
        self.moves.peer_event(now_us, peer, event)
        self.arrivals.peer_event(peer, event)

    def on_its_way(self, fragment: str) -> bool:
        """Whether a fragment of ours is being moved, split or merged just now."""
        return self.moves.attempted(fragment) or self.splits.busy(fragment)

    def alone(self, fragment: str) -> bool:
        """Whether nobody may stand by for a fragment of ours, since it is to be split or merged."""
        return self.splits.alone(fragment)

    def gives_way(self, fragment: str) -> bool:
        """Whether a move of it has only begun: of both ends of a stream the sender goes first."""
        return self.moves.prepares(fragment)

    def not_let_in(self, now_us: int, peer: str, why: str) -> None:
        """A peer that was called lets us not in."""
        self._away.refused(now_us, peer, why)

    def removed(self, query: str, fragments: list[str], *, whole: bool) -> None:
        """These fragments of a query, which were here, are no more; ``whole``: nor is the query."""
        self.arrivals.removed(query, fragments, whole=whole)
        self.splits.removed(fragments)
        if whole:
            self.restoring.removed(query)
        for fragment in fragments:
            self.moves.removed(fragment)

    def tick(self, now_us: int) -> None:
        """Do what is due; also after anything was written."""
        self._say_again(now_us)
        self.moves.tick(now_us)
        self.arrivals.tick(now_us)
        self.splits.tick(now_us)
        self.restoring.tick(now_us)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times = [self.moves.wake_at_us(now_us), self.arrivals.wake_at_us(), self.splits.wake_at_us()]
        times += [self._relayed.wake_at_us(), self.restoring.wake_at_us()]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def status(self) -> MovesStatus:
        """Fragments on their way: those that go, those that come."""
        going = self.moves.status() | self._handovers.status()
        return MovesStatus(going=going, coming=self.arrivals.status())

    def splits_status(self) -> tuple[SplitStatus, ...]:
        """Boxes that are being split or merged."""
        return self.splits.status()

    def away_status(self, now_us: int) -> dict[str, AwayStatus]:
        """Nodes that don't answer."""
        return self._away.status(now_us)

    # --- messages -------------------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """Take an order."""
        assert isinstance(heard.message, Order)
        if self._abroad.takes(heard):
            self._recovery.tick(heard.now_us)
            return
        self._ordered(heard.now_us, heard.peer, heard.message, heard.caller if heard.client else None)

    def from_owner(self, heard: Heard) -> None:
        """Take what the owner of a fragment says to who gets it, or stands by for it."""
        message = heard.message
        if isinstance(message, Seeding) and self._recovery.concerns(heard.peer, message):
            self._recovery.frame(heard.now_us, heard.peer, message, heard.payload)
        else:
            self.arrivals.receive(heard)

    def from_target(self, heard: Heard) -> None:
        """Take what is answered to the owner of a fragment. Both sides give up in the same words."""
        now_us, peer, message = heard.now_us, heard.peer, heard.message
        assert isinstance(message, Answered)
        if not isinstance(message, Settled) and self._recovery.concerns(peer, message):
            self._recovery.frame(now_us, peer, message, heard.payload)
            return
        if isinstance(message, GiveUp):
            self._recovery.gave_up(peer, message)
            self.arrivals.gave_up(peer, message)
        self.moves.receive(now_us, peer, message)

    def _ordered(self, now_us: int, peer: str, message: Order, caller: Caller | None) -> None:
        self._early.drop(peer, message.request)
        name = message.fragment
        query = name.partition("/")[0]
        if caller is not None and not caller.may("deploy", query):
            why = no_deploy(caller, query)
            self._refuse(peer, message.request, why.code, why.text, why.hint)
        elif (
            isinstance(message, Split | Merge)
            and (self.splits.known(peer, message.request) or self.splits.already(peer, message))
        ) or (isinstance(message, Move) and message.reads is None and self._by_plan(now_us, peer, message)):
            pass
        elif name not in self._catalog.fragments and self._asked(now_us, peer, message):
            self._recovery.tick(now_us)
        elif host := self._abroad.abroad_at(name):
            text = f"fragment {name!r} is at node {host!r} of participant {self._abroad.whose(host)!r}"
            hint = "it comes home when it is recalled, or its contract ends; order it then"
            self._refuse(peer, message.request, "E_MOVE", text, hint)
        elif name not in self._catalog.fragments:
            self._pass_on(now_us, peer, message, caller)
        elif isinstance(message, Grant):
            self._granted(now_us, peer, message)
        elif isinstance(message, Split | Merge):
            self.splits.order(now_us, peer, message)
        elif self.splits.busy(name):
            text = f"fragment {name!r} is being split or merged"
            self._refuse(peer, message.request, "E_BUSY", text, "try again in a moment")
        elif self._catalog.fragments[name].standby:
            self._guarded(now_us, peer, message)
        else:
            timeout_us = message.timeout_ms * 1000
            self.moves.order(now_us, peer, message.request, name, message.to, timeout_us)

    def _asked(self, now_us: int, peer: str, message: Order) -> bool:
        """Whether its owner wants us to have it, or asks whether we could."""
        if not (isinstance(message, Move) and self._own_peer(peer)):
            return False
        return self._unheard.asked(now_us, peer, message) or self._handovers.asked(now_us, peer, message)

    def _guarded(self, now_us: int, peer: str, message: Move) -> None:
        """What others stand by for goes elsewhere by their decision."""
        name, request = message.fragment, message.request
        why = self.moves.may_not(name, message.to)
        if why is not None and why.code == "E_ROLE" and self._abroad.may_go(now_us, name, message.to):
            why = None
        if why is not None:
            self._refuse(peer, request, why.code, why.text, why.hint)
        else:
            self._handovers.order(now_us, peer, request, name, message.to, message.timeout_ms * 1000)

    def _granted(self, now_us: int, peer: str, message: Grant) -> None:
        if not self.moves.handed(message.fragment):
            text = f"fragment {message.fragment!r} runs at node {self._me!r} and needs no grant"
            hint = "only one that was handed over to a lost node, and not taken, is granted"
            self._refuse(peer, message.request, "E_GRANT", text, hint)
        elif message.to != self._me:
            hint = f"node {self._me!r} has what is left of it: grant it to that node"
            self._refuse(peer, message.request, "E_GRANT", f"node {message.to!r} has nothing of it", hint)
        else:
            self.moves.grant(now_us, peer, message.request, message.fragment)

    def _refuse(self, peer: str, request: int, code: str, text: str, hint: str) -> None:
        self._outbox.send(peer, refusal_of(request, code, text, hint))

    def _place(self, fragment: str) -> str | None:
        """The other node of our participant that has it."""
        left = self._catalog.left.get(fragment)
        node = self._where(fragment)
        if node in (None, self._me) and left is not None:
            node = left.node
        return node if node not in (None, self._me) and self._own_peer(node or "") else None

    def _pass_on(self, now_us: int, peer: str, message: Order, caller: Caller | None) -> None:
        name = message.fragment
        if self._own_peer(peer) and name in self._catalog.left:
            return  # It was here, maybe by this very order: who passed it on asks where the catalog says.
        node = self._place(name)
        if node is None and not self._own_peer(peer) and self._waits(now_us, peer, message, caller):
            return
        if node is None or self._own_peer(peer):
            known = sorted({*self._catalog.fragments, *self._names.fragments()})
            there = ", ".join(known)[:500] or "none"
            text = f"node {self._me!r} knows no fragment {name[:100]!r}; there are: {there}"
            hint = did_you_mean(name, known) or "fed.status() of its node shows its name"
            self._refuse(peer, message.request, "E_FRAGMENT", text, hint)
            return
        cause = peer, message.request
        if self._relayed.waits(cause):
            return
        number = self._number()
        order = msgspec.structs.replace(message, request=number)
        if isinstance(order, Move):  # Only an owner asks whether a node could have it.
            order = msgspec.structs.replace(order, reads=None, links=(), fragments=0, streams=0, hears=())
        self._relayed.open(now_us, number, node, order, cause=cause, said=False)
        self._say_again(now_us)

    def _waits(self, now_us: int, client: str, message: Order, caller: Caller | None) -> bool:
        name = message.fragment
        return self._early.waits(
            now_us,
            client,
            message.request,
            stands=lambda: name in self._catalog.fragments or self._place(name) is not None,
            again=lambda at_us: self._ordered(at_us, client, message, caller),
        )

    def _say_again(self, now_us: int) -> None:
        for each in self._relayed.due(now_us):
            order = each.order
            patience_us = order.timeout_ms * 1000 if isinstance(order, Move) else PATIENCE_US
            if now_us - each.since_us >= patience_us and (why := self._away.told(now_us, [each.to])):
                self._relayed.close(each)
                text = f"{why}: it has fragment {order.fragment!r}"
                self._refuse(*each.cause, "E_TIMEOUT", text, "order it again when it is back")
                continue
            each.said(now_us, self._place(order.fragment) or each.to)
            self._outbox.send(each.to, order)

    def answered(self, now_us: int, peer: str, reply: Reply, payload: Buffer | None) -> bool:
        """Take an answer; whether it was to a question of ours."""
        relayed = self._relayed.get(reply.request)
        if relayed is None:
            if self._abroad.answered(now_us, peer, reply) or self._handovers.answered(now_us, peer, reply):
                return True
            if self._unheard.answered(now_us, peer, reply, payload):
                self._recovery.tick(now_us)
                return True
            if self.splits.answered(now_us, peer, reply):
                return True
            if self.restoring.answered(now_us, peer, reply, payload):
                return True
            return self.moves.answered(now_us, peer, reply) or self.arrivals.answered(peer, reply)
        # Who moved it may say so after it was asked for elsewhere: that is the answer with its figures.
        theirs = peer == relayed.to or (not reply.code and self._own_peer(peer))
        # Until then where a fragment is needn't be known everywhere, so nobody's "not here" counts.
        if theirs and (reply.code != "E_FRAGMENT" or now_us - relayed.since_us >= NEWS_US):
            self._relayed.close(relayed)
            client, request = relayed.cause
            self._outbox.send(client, msgspec.structs.replace(reply, request=request), payload)
        return True

    # --- what the driver brings -------------------------------------------------------------------

    def shadow(self, fragment: str) -> FragmentHost | None:
        """What follows another node's fragment of this name, or is to take the place of one of ours."""
        return self.arrivals.shadow(fragment) or self.splits.shadow(fragment)

    def failed(self, fragment: str, why: str, code: str = "") -> None:
        """The engine can't run what follows; ``code``: there is no room for it here."""
        self.arrivals.failed(fragment, why, code)

    def ran(self, now_us: int, fragment: str) -> None:
        """What follows fed its oldest element."""
        self.arrivals.ran(now_us, fragment)
        self.splits.tick(now_us)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> None:
        """A checkpoint was written, or not."""
        if not self.splits.persisted(now_us, token, ok, why):
            self.arrivals.persisted(now_us, token, ok, why)

    def copied(self, now_us: int, done: Copied) -> None:
        """A checkpoint was read."""
        self.moves.copied(now_us, done)
