"""A guarded fragment that goes to another node, as ordered, while its owner lives. No IO.

    client ── Move ──> owner ── Move: could you? ──> target that doesn't stand by ── Reply ──> owner
    owner:  proposes it as a guest ── decided ──> it is seeded as a secondary is
    owner ── Move, once the target is close behind ──> target
    target: proposes itself, with the owner as secondary ── decided ──> on disk, then it feeds and emits
    owner:  rests and keeps what it has ── decided: it isn't needed ──> tells its clients, is seeded anew
    target ── Reply ──> owner ── Reply ──> client

It is a takeover of which the owner is asked first. It counts nobody out, so no voter refuses it for hearing
the owner. ``succession`` proposes it and does what is decided. Nothing of an order is on disk: the
configuration says whether it happened, and who asks again hears so. An owner that knows of no order sends
the guest away.

To a node of another participant, a *host*, it goes by the same steps, but that the host proposes nothing:
once it is close behind the owner proposes it, with itself as secondary. There is an end to the order when the
host runs it, and the old owner follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from medusa.errors import LinkError
from medusa.nodes.abroad.guest_spec import why_not_abroad
from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.agreement.changes import changed, with_guest
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.room_promises import RoomWanted
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.order import no
from medusa.nodes.placement.standby_plan import StandbyNode, against
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.rewiring import streams_read
from medusa.nodes.security.registry import Refusal
from medusa.nodes.security.sessions import refusal_of
from medusa.wire import limits
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import FORMER_MAX, VOTERS_MAX, Configuration, Replicas
from medusa.wire.messages.move import GiveUp, Move
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import GoingStatus

__all__ = ["Handovers"]

AGAIN_US = 300_000
"""A target that hasn't answered is asked again after this."""

LOOK_US = 20_000
"""So often it is looked whether the target is close behind. Too long: a busy fragment waits in vain."""

NOT_HEARD = ("E_FRAGMENT", "E_BUSY", "E_ROLE", "E_SUCCEEDED")
"""After these a host is asked again to follow: it goes by an older configuration."""

PREPARING, HANDING = "preparing", "handing"
"""As other moves call these states."""

NOT_YET = ("E_FRAGMENT", "E_BUSY")
"""After these a target is asked again: it hasn't heard of the configuration by which the owner goes."""


@dataclass(slots=True, kw_only=True)
class _Order:
    """Somebody wants a fragment of ours at another node.

    Attributes:
        number: of our question to the target.
        could: of the question whether a target could that doesn't stand by for it.
        comes: it doesn't stand by as the order is given.
        fit: it stands by, or has said that it could.
        abroad: the target is of another participant.
        answers: (peer, number of the request) of those that wait for the end of it -> until when.
        asked_us: when the target was asked last; None: never.
        look_at_us: when it is looked at again.
        stopped_us: since when the fragment rests here; 0: it doesn't.
        pause_us: for how long it had rested when the target said that it has it; None: that hasn't been said.
    """

    fragment: str
    to: str
    number: int
    could: int
    comes: bool
    fit: bool
    abroad: bool
    answers: dict[tuple[str, int], int] = field(default_factory=dict)
    asked_us: int | None = None
    look_at_us: int = 0
    stopped_us: int = 0
    pause_us: int | None = None

    @property
    def until_us(self) -> int:
        """For so long somebody waits."""
        return max(self.answers.values(), default=0)

    def late(self, now_us: int) -> list[tuple[str, int]]:
        """Who waits no longer; it is forgotten."""
        found = [about for about, until_us in self.answers.items() if until_us <= now_us]
        for about in found:
            del self.answers[about]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The owner of what we follow wants us to have it, by this request and until then."""

    owner: str
    request: int
    until_us: int


class Handovers:
    """Both sides, at one node.

    Args:
        fragments: what runs here, by name.
        number: gives numbers for questions to nodes.
        is_up: whether a node is heard here; this node always is.
        leaves: whether a fragment that is here rests, since another node is to have it.
        nodes: as they are known here, by name.
        room: promises an owner room for what it asks for, or raises LinkError.
        permitted: whether a fragment of ours may run at a node of another participant now.
        abroad: whether a node is of another participant.
    """

    def __init__(
        self,
        settings: Settings,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        agreement: Agreement,
        replication: Replication,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
        leaves: Callable[[str], bool],
        nodes: Callable[[], Mapping[str, StandbyNode]],
        room: Callable[[int, str, RoomWanted], None],
        permitted: Callable[[int, str, str], bool],
        abroad: Callable[[str], bool],
    ) -> None:
        self._permitted = permitted
        self._is_abroad = abroad
        self._settings = settings
        self._me = settings.name
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._agreement = agreement
        self._replication = replication
        self._number = number
        self._is_up = is_up
        self._leaves = leaves
        self._nodes = nodes
        self._room = room
        self._orders: dict[str, _Order] = {}
        self._wishes: dict[str, _Wish] = {}

    def _configuration(self, fragment: str) -> Configuration | None:
        return self._agreement.current(fragment.partition("/")[0])

    def _replicas(self, fragment: str) -> Replicas | None:
        configuration = self._configuration(fragment)
        return None if configuration is None else configuration.replicas(fragment)

    # --- the owner --------------------------------------------------------------------------------------

    def order(self, now_us: int, peer: str, request: int, fragment: str, to: str, timeout_us: int) -> None:
        """Somebody wants a guarded fragment that is here elsewhere; hears when that has it, or why not."""
        order = self._orders.get(fragment)
        if order is not None and order.to == to:
            order.answers.setdefault((peer, request), now_us + timeout_us)
        elif (why := self._may_not(now_us, fragment, to)) is not None:
            self._refuse(peer, request, why)
        elif to == self._me:
            self._answer(peer, request, to, 0)
        else:
            fit = self._follows(fragment, to)
            order = _Order(
                fragment=fragment,
                to=to,
                number=self._number(),
                could=self._number(),
                comes=not fit,
                fit=fit,
                abroad=self._is_abroad(to),
            )
            order.answers[peer, request] = now_us + timeout_us
            self._orders[fragment] = order
            self._go_on(now_us, order)

    def _may_not(self, now_us: int, fragment: str, to: str) -> Refusal | None:
        """Why nothing is even begun."""
        configuration, replicas = self._configuration(fragment), self._replicas(fragment)
        again = "try again in a moment"
        if configuration is None or replicas is None:
            text = f"node {self._me!r} hasn't heard who stands by for fragment {fragment!r}"
            return no("E_BUSY", text, again)
        if fragment in self._orders or replicas.owner not in (self._me, to):
            where = self._orders[fragment].to if fragment in self._orders else replicas.owner
            return no("E_BUSY", f"fragment {fragment!r} is being moved to {where!r}", again)
        if to == self._me:
            return None
        if fragment in self._fragments and self._fragments[fragment].forgets:
            text = f"fragment {fragment!r} is recovered by amnesia: it would begin empty at node {to!r}"
            return no("E_STORE", text, "leave it where it is, or deploy its query anew")
        if fragment in self._fragments and self._fragments[fragment].spec.reads_again:
            text = f"fragment {fragment!r} is recovered by upstream backup: its rows would be read again"
            return no("E_STORE", text, "leave it where it is, or deploy its query anew")
        if fragment in self._fragments and to in self._fragments[fragment].spec.backup_nodes:
            text = f"node {to!r} holds the state of fragment {fragment!r} for others, and would give it back"
            return no("E_MOVE", text, "move it to another node, or deploy its query anew")
        if to not in replicas.followers and (why := self._may_not_come(now_us, configuration, replicas, to)):
            return why
        if silent := self.majority_away(fragment, to):
            return no("E_STANDBY", silent, "order it again when more than half of them are there")
        return None

    def _against(self, now_us: int, fragment: str, to: str) -> tuple[str, str, str] | None:
        """Why a node can't have a fragment of ours, whatever the configuration: reason, hint and code."""
        node = self._nodes()[to]
        if not node.abroad:
            return against(node, self._me)
        if not self._permitted(now_us, fragment, to):
            why = (
                f"it is of participant {node.abroad!r}, and no contract in force lets the fragment run there"
            )
            return (
                why,
                "make a contract with it first, and have the market lend the fragment",
                "E_NO_CONTRACT",
            )
        if fragment in self._fragments and (why_not := why_not_abroad(self._fragments[fragment].spec)):
            return why_not
        return against(replace(node, abroad=""), self._me)

    def _may_not_come(
        self, now_us: int, configuration: Configuration, replicas: Replicas, to: str
    ) -> Refusal | None:
        """Why a node that doesn't stand by for a fragment of ours can't have it, as far as we know without
        asking."""
        label = f"node {to!r} doesn't stand by for fragment {replicas.fragment!r}"
        others = f"move it to {' or '.join(node for node in replicas.members if node != self._me)}"
        query = configuration.query
        if found := self._against(now_us, replicas.fragment, to):
            why, hint, code = found
            return no(code, f"{label}, and {why}", f"{hint}; or {others}")
        if len(replicas.members) > limits.STANDBY_MAX:
            return no("E_STANDBY", f"{label}, and {limits.STANDBY_MAX} do: as many as may", others)
        if configuration.parts is None:
            text = (
                f"{label}, and only who deployed query {query!r} can remove it: a part of it is at another "
            )
            return no("E_STANDBY", f"{text}participant, or its names are too long", others)
        fragments = (with_guest(each, to) if each is replicas else each for each in configuration.fragments)
        try:
            after = changed(configuration, tuple(fragments), abroad=self._is_abroad)
        except ValueError as error:
            return no("E_LIMIT", f"{label}, and with it there would be {error}", others)
        if (after is not None and len(after.voters) > VOTERS_MAX) or len(replicas.former) >= FORMER_MAX:
            text = f"{label}, and query {query!r} has been at as many nodes as it may"
            return no("E_LIMIT", text, f"{others}; or undeploy {query}, and deploy it again")
        return None

    def _follows(self, fragment: str, node: str) -> bool:
        """Whether it stands by for a fragment, or is its guest."""
        replicas = self._replicas(fragment)
        return replicas is not None and node in replicas.followers

    def guest(self, replicas: Replicas) -> str:
        """The node that is no member and is to have a fragment of ours; empty: none is."""
        order = self._orders.get(replicas.fragment)
        return order.to if order is not None and order.fit and order.to not in replicas.members else ""

    def lends(self, replicas: Replicas) -> str:
        """The host that is to have a fragment of ours now; empty: none is."""
        order = self._orders.get(replicas.fragment)
        if order is None or not order.abroad or order.asked_us is None or replicas.owner != self._me:
            return ""
        return order.to if order.to in replicas.secondaries else ""

    def cancel(self, fragment: str, why: Refusal) -> None:
        """A fragment of ours is to go nowhere any more."""
        if (order := self._orders.get(fragment)) is not None:
            self._end(order, why)

    def target(self, fragment: str) -> str:
        """The node that is to have a fragment of ours; empty: none is."""
        order = self._orders.get(fragment)
        return "" if order is None else order.to

    def going(self, fragment: str) -> bool:
        """Whether somebody wants a fragment of ours elsewhere."""
        return fragment in self._orders

    def majority_away(self, fragment: str, to: str) -> str:
        """Who has to be there so that anything is decided, also when the target is lost that votes from then
        on; empty: enough are."""
        configuration = self._configuration(fragment)
        if configuration is None:
            return ""
        voters = configuration.voters
        silent = [node for node in voters if not self._is_up(node)]
        comes = to not in voters and not self._is_abroad(to)
        number = len(voters) + comes
        if len(voters) - len(silent) >= number // 2 + 1:
            return ""
        told = f"node {self._me!r} doesn't hear {', '.join(map(repr, silent))}"
        with_it = f", {to!r} among them" if comes else ""
        return f"more than half of {number} voters{with_it} decide that, and {told}"

    def _hinders(self, order: _Order) -> str:
        """Why the target isn't asked yet; empty: it is."""
        replicas = self._replicas(order.fragment)
        if replicas is None or replicas.owner != self._me:
            return ""
        if not self._is_up(order.to):
            return f"node {order.to!r} is silent"
        if not order.fit:
            return f"node {order.to!r} hasn't said yet whether it could have it"
        if not (order.to in replicas.secondaries and self._replication.near(order.fragment, order.to)):
            why = self._replication.why(order.fragment, order.to)
            return f"node {order.to!r} hasn't caught up with it yet" + (why and f": {why}")
        return self.majority_away(order.fragment, order.to)

    def decided(self, now_us: int, new: Configuration) -> None:
        """A configuration is known here."""
        for order in self._orders.values():
            replicas = new.replicas(order.fragment)
            if replicas is None or replicas.owner == self._me:
                order.stopped_us = 0
            elif not order.stopped_us:
                order.stopped_us = now_us

    def _go_on(self, now_us: int, order: _Order) -> None:
        replicas = self._replicas(order.fragment)
        if replicas is None or replicas.owner not in (self._me, order.to):
            where = "" if replicas is None else f": node {replicas.owner!r} has taken it over"
            text = f"fragment {order.fragment!r} left node {self._me!r} before it was moved{where}"
            self._end(order, no("E_BROKEN", text, "order it again"))
            return
        late, here = now_us >= order.until_us, order.fragment in self._fragments
        if order.abroad and self._goes_abroad(now_us, order, replicas, late=late, here=here):
            return
        if order.pause_us is not None and replicas.owner == order.to and (late or not here):
            self._done(order, order.pause_us)
        elif late:
            self._end(order, self._too_late(order))
        else:
            for peer, request in order.late(now_us):
                self._refuse(peer, request, self._too_late(order))
            if now_us >= order.look_at_us:
                self._ask(now_us, order)

    def _goes_abroad(self, now_us: int, order: _Order, replicas: Replicas, *, late: bool, here: bool) -> bool:
        """Whether there is nothing to ask of the host of an order in this turn."""
        if replicas.owner == order.to:
            if not here:  # It runs there, and we follow it.
                self._done(order, now_us - order.stopped_us if order.stopped_us else 0)
            elif late:
                self._end(order, self._too_late(order))
            order.look_at_us = now_us + LOOK_US
            return True
        code, why = self._replication.refused(order.fragment, order.to)
        if code and code not in NOT_HEARD:
            self._end(order, no(code, why, "the contract says what it takes"))
            return True
        if not self._permitted(now_us, order.fragment, order.to):
            text = f"no contract in force lets fragment {order.fragment!r} run at node {order.to!r}"
            self._end(order, no("E_NO_CONTRACT", text, "make another contract"))
            return True
        return False

    def _ask(self, now_us: int, order: _Order) -> None:
        """Unless something is in the way, or it has said that it has it."""
        if not order.fit:
            self._ask_whether(now_us, order)
            return
        hindered = bool(self._hinders(order))
        taken = order.pause_us is not None and order.stopped_us > 0
        if order.abroad:  # We propose it ourselves, for as long as nothing is in the way.
            order.asked_us = None if hindered else now_us
        elif not (hindered or taken):
            order.asked_us = now_us
            left_ms = max((order.until_us - now_us) // 1000, 1)
            move = Move(request=order.number, fragment=order.fragment, to=order.to, timeout_ms=left_ms)
            self._outbox.send(order.to, move)
        order.look_at_us = now_us + (LOOK_US if hindered else AGAIN_US)

    def _ask_whether(self, now_us: int, order: _Order) -> None:
        """A target that doesn't stand by: before anything changes."""
        configuration, replicas = self._configuration(order.fragment), self._replicas(order.fragment)
        hosted = self._fragments.get(order.fragment)
        order.look_at_us = now_us + AGAIN_US
        if configuration is None or replicas is None or hosted is None:
            return
        spec = hosted.spec
        beside = [feed.node for feed in spec.feeds]
        beside += [node for nodes in spec.readers.values() for node in nodes]
        others = replicas.members if order.abroad else configuration.voters  # A host knows no voters.
        links = dict.fromkeys((*others, configuration.coordinator, *beside))
        left_ms = max((order.until_us - now_us) // 1000, 1)
        self._outbox.send(
            order.to,
            Move(
                request=order.could,
                fragment=order.fragment,
                to=order.to,
                timeout_ms=left_ms,
                reads=replicas.reads,
                links=tuple(links),
            ),
        )

    def _too_late(self, order: _Order) -> Refusal:
        why = self._hinders(order)
        if order.asked_us is None:
            return no("E_TIMEOUT", why or "there was no time for it", "order it again")
        text = f"node {order.to!r} was asked, and hasn't said in time that it has it" + (why and f": {why}")
        return no("E_TIMEOUT", text, "it may yet happen: medusa status --all says who owns it")

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer of a target; whether it was one."""
        numbers = ((each, (each.number, each.could)) for each in self._orders.values())
        order = next((each for each, asked in numbers if reply.request in asked), None)
        if order is None or order.to != peer:
            return False
        if reply.request == order.could:
            self._could(now_us, order, reply)
        elif not reply.code:  # Clients hear it once it isn't here any more: then it may be moved again.
            order.pause_us = now_us - order.stopped_us if order.stopped_us else 0
            self._go_on(now_us, order)
        elif reply.code not in NOT_YET:
            self._end(order, no(reply.code, reply.text, reply.hint))
        return True

    def _could(self, now_us: int, order: _Order, reply: Reply) -> None:
        """A target has said whether it could have what it doesn't stand by for."""
        if order.fit:
            return
        if not reply.code:
            order.fit, order.look_at_us = True, now_us
        elif reply.code == "E_FRAGMENT":
            text = f"the release of node {order.to!r} gives it no fragment that it doesn't stand by for"
            self._end(order, no("E_VERSION", text, "update it"))
        elif reply.code not in NOT_YET:
            self._end(order, no(reply.code, reply.text, reply.hint))

    def _answer(self, peer: str, request: int, node: str, pause_us: int) -> None:
        """That it is there may be on its way to our disk."""
        figures = msgspec.json.encode({"node": node, "bytes": 0, "pause_us": pause_us, "attempts": 1})
        self._saver.send(peer, Reply(request=request), figures, after=self._saver.save())

    def _done(self, order: _Order, pause_us: int) -> None:
        del self._orders[order.fragment]
        for peer, request in order.answers:
            self._answer(peer, request, order.to, pause_us)

    def _end(self, order: _Order, why: Refusal) -> None:
        del self._orders[order.fragment]
        if order.comes and self._is_up(order.to):  # It keeps room for what doesn't come.
            self._outbox.send(order.to, GiveUp(fragment=order.fragment, attempt=order.could))
        for peer, request in order.answers:
            self._refuse(peer, request, why)

    def _refuse(self, peer: str, request: int, why: Refusal) -> None:
        self._outbox.send(peer, refusal_of(request, why.code, why.text, why.hint))

    def status(self) -> dict[str, GoingStatus]:
        """What is on its way from here."""
        return {
            order.fragment: GoingStatus(
                to=order.to,
                state=PREPARING if order.asked_us is None else HANDING,
                attempts=1,
                silent=() if self._is_up(order.to) else (order.to,),
                waits_for=self._hinders(order),
            )
            for order in self._orders.values()
        }

    # --- the target -------------------------------------------------------------------------------------

    def asked(self, now_us: int, peer: str, message: Move) -> bool:
        """The owner of what we follow wants us to have it, or that of another fragment asks whether we could;
        whether this is either."""
        if message.fragments and message.to == self._me:
            self._asked_room(now_us, peer, message, message.streams)
            return True
        if message.reads is not None and message.to == self._me:
            self._asked_whether(now_us, peer, message, message.reads)
            return True
        replicas = self._replicas(message.fragment)
        if replicas is None or (replicas.owner, message.to) != (peer, self._me):
            return False
        if why := self._reads_already(replicas.reads):
            self._refuse(peer, message.request, why)
        else:
            until_us = now_us + message.timeout_ms * 1000
            self._wishes[message.fragment] = _Wish(owner=peer, request=message.request, until_us=until_us)
        return True

    def _reads_already(self, streams: Collection[str]) -> Refusal | None:
        """Another fragment here reads one of these, and a stream has one reader at a node."""
        reads = {name: streams_read((each,)) & {*streams} for name, each in self._fragments.items()}
        colliding = [name for name, read in reads.items() if read]
        if not colliding:
            return None
        passes = all(map(self._leaves, colliding))  # It is gone in a moment, or runs here again.
        read = ", ".join(sorted(set().union(*reads.values())))
        text = f"another fragment at node {self._me!r} reads {read}"
        hint = "move it to a node that doesn't read that stream"
        return no("E_BUSY" if passes else "E_MOVE", text, hint)

    def _asked_whether(self, now_us: int, peer: str, message: Move, streams: Collection[str]) -> None:
        settings, me = self._settings, self._me
        strangers = sorted({*message.links} - {me, *settings.peers})
        if settings.forgets:
            text, hint = f"node {me!r} keeps nothing over its end", "move it to a node with a disk"
            self._refuse(peer, message.request, no("E_STORE", text, hint))
        elif strangers:
            who, name = strangers[0], message.fragment
            text = f"{who!r}, which fragment {name!r} is linked with, is no peer of {me!r}"
            self._refuse(peer, message.request, no("E_PEER", text, f"add {who} to [peers] of {me}"))
        elif why := self._reads_already(streams):
            self._refuse(peer, message.request, why)
        else:
            self._asked_room(now_us, peer, message, len(streams))

    def _asked_room(self, now_us: int, peer: str, message: Move, streams: int) -> None:
        wanted = RoomWanted(
            request=message.request, fragment=message.fragment, fragments=message.fragments, streams=streams
        )
        try:
            self._room(now_us, peer, wanted)
        except LinkError as error:
            self._refuse(peer, message.request, no(error.code, error.message, error.hint))
        else:
            self._outbox.send(peer, Reply(request=message.request))

    def wanted(self, replicas: Replicas) -> bool:
        """Whether the owner wants us to have it, and we may."""
        wish = self._wishes.get(replicas.fragment)
        return wish is not None and wish.owner == replicas.owner and self._me in replicas.secondaries

    def _granted(self, now_us: int, fragment: str, wish: _Wish) -> None:
        replicas = self._replicas(fragment)
        owner = "" if replicas is None else replicas.owner
        if owner == self._me and fragment in self._fragments and not self._fragments[fragment].frozen:
            self._answer(wish.owner, wish.request, self._me, 0)
            del self._wishes[fragment]
        elif owner not in (self._me, wish.owner) or now_us >= wish.until_us:
            del self._wishes[fragment]

    # --- life -------------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Ask, answer, and give up what is out of time."""
        for order in list(self._orders.values()):
            self._go_on(now_us, order)
        for fragment, wish in list(self._wishes.items()):
            self._granted(now_us, fragment, wish)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [wish.until_us for wish in self._wishes.values()]
        times += [min(order.look_at_us, *order.answers.values()) for order in self._orders.values()]
        return min(times, default=None)

    def stop(self) -> None:
        """The node ends: who waits hears that it has to ask again."""
        for order in list(self._orders.values()):
            self._end(order, no("E_BROKEN", f"node {self._me!r} ends", "order it again"))

    def removed(self, query: str) -> None:
        """The query is no more."""
        for order in [each for each in self._orders.values() if each.fragment.partition("/")[0] == query]:
            self._end(order, no("E_REMOVED", f"fragment {order.fragment!r} was removed", ""))
        for fragment in [each for each in self._wishes if each.partition("/")[0] == query]:
            del self._wishes[fragment]
