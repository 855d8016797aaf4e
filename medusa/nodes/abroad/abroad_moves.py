"""Fragments that go to nodes of other participants and come home, and guests of others here. No IO.

    moves.send(now_us, "q/box", "b1")      # the permit is there: HandedOver, or NotSent
    moves.recall(now_us, "q/box")          # Returned
    moves.give_back(now_us, "q/box")       # at the host: asks its owner to take it back, until that has it
    moves.take_events()                    # what became of it, since the last time
    moves.guests()                         # fragments of others that run here, and how far they are

A move abroad is a move of a guarded fragment (``nodes.recovery.handovers``) to a guest of another
participant, by a decision of the owner's voters. From then on the node that had it is the secondary, and a
passive one, whatever the fragment's method is: it holds the host's checkpoints and computes nothing, so who
lends is rid of the work. What the host shows of decisions, and what it acknowledges, waits for that. So a
host that vanishes loses the fragment as any owner does that vanishes (``Lost``), and coming home is a
takeover of which nobody is suspected. While it is abroad its secondaries stay what they are: one that was
restarted is seeded anew, and the host waits.

Everything that may happen follows from two things that are on disk: the configuration, which says who has the
fragment, and the permits (``permits``). What was asked here is forgotten by a restart, and is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from medusa.errors import LinkError
from medusa.nodes.abroad.guest_spec import check_guest, check_returned, digest_of, why_not_abroad
from medusa.nodes.abroad.host_view import check_told
from medusa.nodes.abroad.permits import PermitIn, PermitOut, Permits
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.message_table import Heard, no_contract
from medusa.nodes.migration.order import no
from medusa.nodes.recovery.recovery import Recovery
from medusa.nodes.security.registry import Caller, Refusal
from medusa.nodes.security.sessions import refusal_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Configuration, Configure, Replicas
from medusa.wire.messages.move import Move
from medusa.wire.outbox import Outbox

__all__ = ["AbroadEvent", "AbroadMoves", "Guest", "HandedOver", "Lent", "Lost", "NotSent", "Returned"]

TIMEOUT_US = 30_000_000
"""A host that hasn't begun by then has refused."""

BEGIN_US = 10_000_000
"""A host that is heard and doesn't send what it runs for so long hasn't begun: the fragment comes home."""

AWAY_US = 2_000_000
"""Another secondary of a fragment that is abroad is silent for so long: the host waits for it, so the
fragment comes home, where it can be counted out."""

AGAIN_US = 1_000_000
"""A host that gives a guest back asks again after this, the next of its owner's nodes."""

LOOK_US = 100_000
"""So often it is looked whether what is to come home can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A fragment of ours runs at a host, and we hold what it sends of it.

    Attributes:
        rows_in: how far it was then: as of ``Guest``; None: nothing has come back from there yet.
    """

    fragment: str
    node: str
    rows_in: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A fragment of ours is home again, as we wished or the host did.

    Attributes:
        node: its host.
        rows_in: how far it was there as far as is known here when that was decided, as of ``Guest``; None:
            nothing of it is here.
    """

    fragment: str
    node: str
    why: str
    rows_in: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A host has lost a fragment of ours: it was silent, and one of our nodes goes on with it.

    Attributes:
        node, rows_in: as of ``Returned``.
    """

    fragment: str
    node: str
    rows_in: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """A fragment of ours didn't go, and stays where it is."""

    fragment: str
    code: str
    text: str
    hint: str = ""


AbroadEvent: TypeAlias = HandedOver | Returned | Lost | NotSent


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A fragment of another participant that runs here.

    Attributes:
        since_us: since when, by this node's clock; of this life.
        rows_in: the sum of the numbers of the next rows of its inputs: their owners count the same, since a
            row has the same number wherever its stream stands.
        rows_out: the same of its outputs.
    """

    fragment: str
    participant: str
    since_us: int
    rows_in: int
    rows_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """A fragment of ours that is abroad, as decided."""

    fragment: str
    participant: str
    node: str
    epoch: int


@dataclass(slots=True)
class _Over:
    """A guest is to be given back.

    Attributes:
        again_us: when its owner is asked next.
        asked: how often it was.
    """

    since_us: int
    again_us: int
    asked: int = 0


class AbroadMoves:
    """At one node, both sides.

    Args:
        fragments: what runs here, by name.
        number: gives numbers for questions to nodes.
        whose: the participant of a peer; None: unknown.
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        permits: Permits,
        recovery: Recovery,
        number: Callable[[], int],
        whose: Callable[[str], str | None],
        is_up: Callable[[str], bool],
    ) -> None:
        self._settings, self._me = settings, settings.name
        self._catalog, self._kept = catalog, catalog.permits
        self._fragments = fragments
        self._outbox, self._saver = outbox, saver
        self.permits = permits
        self._recovery = recovery
        self._agreement, self._proposals = recovery.agreement, recovery.proposals
        self._handovers, self._succession = recovery.handovers, recovery.succession
        self._followings = recovery.followings
        self._number = number
        self._whose, self._is_up = whose, is_up
        self._asked: dict[int, str] = {}
        """Our own orders, by request -> fragment."""
        self._recalled: dict[str, str] = {}
        """Fragments of ours that are to come home -> why."""
        self._over: dict[str, _Over] = {}
        """Guests that are to be given back."""
        self._idle_since_us: dict[str, int] = {}
        """Fragments of ours that rest here and that their host doesn't send -> since when."""
        self._events: list[AbroadEvent] = []

    # --- what is asked ------------------------------------------------------------------------------

    def take_events(self) -> list[AbroadEvent]:
        """What happened since the last call."""
        found, self._events = self._events, []
        return found

    def guests(self) -> tuple[Guest, ...]:
        """Fragments of others that run here."""
        found = []
        for permit in self.permits.all_into():
            hosted, replicas = self._fragments.get(permit.fragment), self._replicas(permit.fragment)
            if hosted is None or hosted.frozen or replicas is None or replicas.owner != self._me:
                continue
            since_us = self._succession.taken_over_at_us(permit.fragment) or 0
            rows_in, rows_out = _counted(hosted)
            found.append(
                Guest(
                    fragment=permit.fragment,
                    participant=permit.participant,
                    since_us=since_us,
                    rows_in=rows_in,
                    rows_out=rows_out,
                )
            )
        return tuple(found)

    def lent(self) -> tuple[Lent, ...]:
        """Fragments of ours that are abroad by a permit of this node."""
        found = []
        for permit in self.permits.all_out():
            replicas = self._replicas(permit.fragment)
            if replicas is not None and replicas.abroad:
                found.append(
                    Lent(
                        fragment=permit.fragment,
                        participant=permit.participant,
                        node=replicas.owner,
                        epoch=replicas.epoch,
                    )
                )
        return tuple(found)

    def inviting(self) -> tuple[str, ...]:
        """Fragments of ours that a node of another participant follows by a permit, to have them, as far as
        is known here. Others may have decided that it has one, until it is decided that it is no guest."""
        known = [(permit.fragment, self._replicas(permit.fragment)) for permit in self.permits.all_out()]
        return tuple(
            fragment
            for fragment, replicas in known
            if replicas is not None and replicas.guest and not replicas.abroad
        )

    def progress(self, fragment: str) -> tuple[int, int] | None:
        """How far a fragment is here, as ``Guest.rows_in`` and ``rows_out``: of ours that is abroad, as the
        checkpoint of its host has it that we hold; None: nothing of it is here."""
        hosted = self._recovery.successor(fragment) or self._fragments.get(fragment)
        if hosted is not None:
            return _counted(hosted)
        held = self._followings.held(fragment)
        return None if held is None else (held.rows_in, held.rows_out)

    def row_of_host(self, fragment: str) -> int | None:
        """How far the checkpoint of its host has a fragment of ours that we hold of it, as ``Guest.rows_in``;
        None: we hold none yet."""
        held = self._followings.held(fragment)
        return None if held is None else held.rows_in

    def may_go(self, now_us: int, fragment: str, node: str) -> bool:
        """Whether a contract in force lets a fragment of ours run at this node."""
        return self.permits.goes_to(now_us, fragment, node)

    def obstacle(self, fragment: str) -> str:
        """Why a fragment of ours can go to no other participant, whatever is permitted; empty: it can."""
        hosted = self._fragments.get(fragment)
        if hosted is None:
            return f"fragment {fragment!r} doesn't run at node {self._me!r}"
        why = why_not_abroad(hosted.spec)
        unguarded = "" if hosted.spec.standby else "nobody stands by for it: deploy its query with standby="
        return hosted.failed or unguarded or ("" if why is None else why[0])

    def going(self) -> tuple[str, ...]:
        """Fragments of ours that are being handed over by our order."""
        return tuple(dict.fromkeys(self._asked.values()))

    # --- what the market says -----------------------------------------------------------------------

    def send(self, now_us: int, fragment: str, node: str) -> None:
        """Have a fragment that runs here run at a partner's node: ``HandedOver`` or ``NotSent`` follows."""
        hosted = self._fragments.get(fragment)
        if hosted is None:
            why = no("E_FRAGMENT", f"fragment {fragment!r} doesn't run at node {self._me!r}", "")
        elif not self.permits.goes_to(now_us, fragment, node):
            text = f"no contract in force lets fragment {fragment!r} run at node {node!r}"
            why = no("E_NO_CONTRACT", text, "make a contract, and put its permit in")
        elif not hosted.spec.standby:
            text = f"nobody stands by for fragment {fragment!r}: who lends it has to follow it"
            hint = "deploy its query with standby= (medusa deploy --standby), by nodes of your own"
            why = no("E_STANDBY", text, hint)
        elif hosted.failed:
            why = no("E_FAILED", f"fragment {fragment!r} has failed: {hosted.failed}", "")
        else:
            request = self._number()
            self._asked[request] = fragment
            self._handovers.order(now_us, self._me, request, fragment, node, TIMEOUT_US)
            return
        self._refused(fragment, why)

    def await_move(
        self, now_us: int, fragment: str, node: str, client: str, request: int, timeout_us: int
    ) -> None:
        """Answer a client once what is being handed over to this node is there, or stays."""
        self._handovers.order(now_us, client, request, fragment, node, timeout_us)

    def recall(self, now_us: int, fragment: str, why: str = "its owner wants it") -> None:
        """Have a fragment of ours come home: ``Returned`` follows. One that is on its way there stays."""
        replicas = self._replicas(fragment)
        if replicas is not None and replicas.abroad:
            self._recalled.setdefault(fragment, why)
        elif self._handovers.going(fragment) and replicas is not None and self._is_abroad(replicas.guest):
            self._handovers.cancel(fragment, no("E_BROKEN", f"fragment {fragment!r} was recalled", ""))

    def give_back(self, now_us: int, fragment: str) -> None:
        """Have the owner of a guest take it back; it runs here until that has it."""
        replicas = self._replicas(fragment)
        if self.permits.into(fragment) is not None and replicas is not None and replicas.owner == self._me:
            self._over.setdefault(fragment, _Over(now_us, now_us))

    def giving_back(self) -> dict[str, int]:
        """Guests that run here and are to go home -> since when."""
        return {name: each.since_us for name, each in self._over.items() if name in self._fragments}

    def gives_back(self, now_us: int, fragment: str, why: str) -> bool:
        """A fragment can't go on here: if it is a guest it goes home, where its state is; whether it is."""
        is_guest = self.permits.into(fragment) is not None and fragment in self._fragments
        if is_guest:
            if fragment not in self._over:
                self._outbox.report(
                    "warning", "a guest can't go on here, and goes home", fragment=fragment, why=why
                )
            self.give_back(now_us, fragment)
        return is_guest

    def abroad_at(self, fragment: str) -> str:
        """The node of another participant that has a fragment of ours; empty: none has, as is known here."""
        replicas = self._replicas(fragment)
        foreign = self._recovery.foreign(fragment.partition("/")[0])
        return replicas.owner if replicas is not None and replicas.abroad and not foreign else ""

    def _refused(self, fragment: str, why: Refusal) -> None:
        self._events.append(NotSent(fragment=fragment, code=why.code, text=why.text, hint=why.hint))
        self._outbox.report("info", "fragment stays at home", fragment=fragment, code=why.code, why=why.text)

    # --- what recovery asks -------------------------------------------------------------------------

    def whose(self, node: str) -> str:
        """The participant of a node; empty: nobody knows."""
        return self._whose(node) or ""

    def is_abroad(self, node: str) -> bool:
        """Whether a node is of another participant; not where nobody knows."""
        return self._is_abroad(node)

    def _is_abroad(self, node: str) -> bool:
        whose = self._whose(node) if node and node != self._me else self._settings.participant
        return whose is not None and whose != self._settings.participant

    def comes_home(self, replicas: Replicas) -> bool:
        """Whether a fragment that is abroad is to be ours again, which somebody here could have."""
        return replicas.abroad and replicas.fragment in self._recalled

    def admits(self, now_us: int, peer: str, spec: FragmentSpec) -> None:
        """Whether we may have a fragment as another participant's node sends it.

        Raises:
            LinkError: no contract in force allows it, or it isn't what we lent.
        """
        whose = self._whose(peer)
        if not self._is_abroad(peer) or whose is None:
            return
        if not self._recovery.foreign(spec.query):
            check_returned(spec, self._kept.lent.get(spec.name), self._is_abroad)
            return
        permit = self.permits.into(spec.name)
        if permit is None or permit.participant != whose or not self.permits.in_force(now_us, permit):
            text = f"no contract in force lets fragment {spec.name!r} of {whose!r} run at node {self._me!r}"
            raise LinkError(text, hint="make a contract first", code="E_NO_CONTRACT")
        check_guest(spec, permit.allows, self._me, whose)

    def told_by(self, peer: str, told: Configuration) -> None:
        """Whether a node may have us go by a configuration.

        Raises:
            LinkError: it may not.
        """
        whose = self._whose(peer)
        if not self._is_abroad(peer) or whose is None:
            return
        self._check_apart(whose, told.query)
        theirs = [node for node in self._settings.peers if self._whose(node) == whose]
        check_told(told, self._me, may_have=self.permits.fragments_of(whose, told.query), theirs=theirs)

    def _check_apart(self, whose: str, query: str) -> None:
        """Whether no other participant's query of that name is here. Raises LinkError if one is."""
        current = self._agreement.current(query)
        known = current.coordinator if current is not None else self._me
        here = current is not None or query in self._catalog.owners or query in self._catalog.deployments
        owner = self._catalog.coordinator_of(query, known)
        if here and (self._settings.participant if owner == self._me else self._whose(owner)) != whose:
            text = f"a query {query!r} that isn't of {whose!r} is at node {self._me!r}"
            raise LinkError(text, hint="give one of the two another name", code="E_DEPLOYED")

    def decided(self, now_us: int, old: Configuration | None, new: Configuration) -> None:
        """A configuration is current here."""
        owners, coordinator = self._catalog.owners, new.coordinator
        if self._is_abroad(coordinator) and owners.get(new.query, coordinator) != coordinator:
            owners[new.query] = coordinator
        changed = False
        for each in new.fragments:
            before = None if old is None else old.replicas(each.fragment)
            if not self._recovery.foreign(new.query):
                changed = self._note_lent(each) or changed
                changed = self._note_place(new.query, before, each) or changed
                if before is not None and before.abroad and not each.abroad:
                    self._is_home(before, each)
        if changed:
            self._saver.save()

    def _note_lent(self, replicas: Replicas) -> bool:
        """What may come back from a host; whether that is news."""
        name, hosted = replicas.fragment, self._fragments.get(replicas.fragment)
        if not self._is_abroad(replicas.guest):
            gone = not any(map(self._is_abroad, replicas.predecessors))
            return gone and self._kept.is_home(name)
        if replicas.abroad and name in self._kept.lent:
            return False
        spec = hosted.spec if hosted is not None else self._followings.spec_of(name)
        return spec is not None and self._kept.lends(name, digest_of(spec))

    def _note_place(self, query: str, before: Replicas | None, after: Replicas) -> bool:
        """Where it is, for whoever asks for the query; whether that is news."""
        deployment = self._catalog.deployment(query)
        if deployment is None or not (after.abroad or (before is not None and before.abroad)):
            return False
        whose = self._whose(after.owner) or ""
        return deployment.lent(after.fragment, (after.owner, whose) if after.abroad else None)

    def _is_home(self, before: Replicas, after: Replicas) -> None:
        name, host = before.fragment, before.owner
        why = self._recalled.pop(name, "")
        self._idle_since_us.pop(name, None)
        if not why and self._is_up(host):
            why = f"node {after.owner!r} has taken it home"
        if self.permits.out(name) is None:
            return
        counted = self.progress(name)
        rows_in = None if counted is None else counted[0]
        if why:
            self._events.append(Returned(fragment=name, node=host, why=why, rows_in=rows_in))
        else:
            self._events.append(Lost(fragment=name, node=host, rows_in=rows_in))
        about = {"fragment": name, "from_node": host, "to": after.owner}
        self._outbox.report(
            "info" if why else "warning", "fragment is home", why=why or "its host is silent", **about
        )

    # --- messages -------------------------------------------------------------------------------------

    def against(self, caller: Caller, message: Message) -> Refusal | None:
        """What stands against a message that only a contract allows; None: nothing does."""
        if isinstance(message, Configure):
            about = self.permits.fragments_of(caller.participant, message.configuration.query)
            return None if about else no_contract(caller, message)
        fragment = str(getattr(message, "fragment", ""))
        if self.permits.stays_with(caller.participant, fragment) or self._is_host(caller.name, fragment):
            return None
        return no_contract(caller, message)

    def _is_host(self, node: str, fragment: str) -> bool:
        """Whether a fragment of ours is at this node, or may be in a moment, as our voters have decided, or
        as we have asked it."""
        replicas = self._replicas(fragment)
        if replicas is None or self._recovery.foreign(fragment.partition("/")[0]):
            return False
        permit = self.permits.out(fragment)
        return node in (replicas.guest, *replicas.predecessors) or (
            permit is not None and permit.node == node
        )

    def takes(self, heard: Heard) -> bool:
        """Take what another participant's node says of moving a fragment; whether it is one's."""
        message, whose = heard.message, heard.caller.participant if heard.caller is not None else ""
        if heard.client or not whose or whose == self._settings.participant:
            return False
        assert isinstance(message, Move)
        try:
            self._ordered(heard.now_us, heard.peer, whose, message)
        except LinkError as error:
            why = refusal_of(message.request, error.code, error.message, error.hint)
            self._outbox.send(heard.peer, why)
        return True

    def _ordered(self, now_us: int, peer: str, whose: str, message: Move) -> None:
        fragment, to_us = message.fragment, message.to == self._me
        replicas = self._replicas(fragment)
        if to_us and replicas is not None and replicas.abroad and replicas.owner == peer:
            if self._me not in replicas.secondaries:
                text = f"node {self._me!r} doesn't stand by for fragment {fragment!r}"
                raise LinkError(text, hint="ask another of its owner's nodes", code="E_STANDBY")
            self._recalled.setdefault(fragment, f"node {peer!r} gives it back")
            self._outbox.send(peer, Reply(request=message.request))
            return
        permit = self.permits.into(fragment)
        asks = to_us and message.reads is not None and not message.fragments
        if not asks or permit is None or permit.participant != whose:
            text = f"node {peer!r} of participant {whose!r} may not move fragment {fragment!r}"
            raise LinkError(text, hint="only its owner, by a contract", code="E_NO_CONTRACT")
        if not self.permits.in_force(now_us, permit):
            text = f"the contract by which fragment {fragment!r} may run at node {self._me!r} is over"
            raise LinkError(text, hint="make another contract", code="E_NO_CONTRACT")
        self._check_apart(whose, fragment.partition("/")[0])
        self._handovers.asked(now_us, peer, message)

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to an order of this node's own."""
        if peer != self._me or reply.request not in self._asked:
            return False
        fragment = self._asked.pop(reply.request)
        replicas = self._replicas(fragment)
        if not reply.code:
            counted = self.progress(fragment)
            host = "" if replicas is None else replicas.owner
            rows_in = None if counted is None else counted[0]
            self._events.append(HandedOver(fragment=fragment, node=host, rows_in=rows_in))
            return True
        if replicas is not None and replicas.abroad:
            self.recall(now_us, fragment, f"its host hasn't begun: {reply.text}")
        self._refused(fragment, Refusal(code=reply.code, text=reply.text, hint=reply.hint))
        return True

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Bring home what is to come, give back what is over."""
        for fragment in [each for each in self._recalled if not self._comes(each)]:
            del self._recalled[fragment]
        for permit in self.permits.all_out():
            self._look_at_lent(now_us, permit)
        for kept in self._catalog.configurations.values():
            for replicas in kept.current.fragments:
                if replicas.abroad and self._me in replicas.secondaries:
                    self._look_at_host(now_us, replicas)
        for guest in self.permits.all_into():
            self._look_at_guest(now_us, guest)

    def _comes(self, fragment: str) -> bool:
        replicas = self._replicas(fragment)
        return replicas is not None and replicas.abroad

    def _look_at_lent(self, now_us: int, permit: PermitOut) -> None:
        if not self.permits.is_over(now_us, permit):
            return
        name, replicas = permit.fragment, self._replicas(permit.fragment)
        if replicas is not None and permit.node in (replicas.guest, *replicas.predecessors):
            self.recall(now_us, name, "its contract is over")
        elif not self._handovers.going(name):
            self.permits.forget(permit)

    def _look_at_host(self, now_us: int, replicas: Replicas) -> None:
        """A fragment of our participant is abroad, and we are to have it should its host be lost."""
        name = replicas.fragment
        rests = self._succession.stands_by(name) and self._is_up(replicas.owner)
        if not rests:
            self._idle_since_us.pop(name, None)
        elif now_us - self._idle_since_us.setdefault(name, now_us) >= BEGIN_US:
            self._recalled.setdefault(name, f"node {replicas.owner!r} hasn't begun with it")
        others = (node for node in replicas.secondaries if node != self._me)
        silent = ((node, self._proposals.silent_us(now_us, node)) for node in others)
        for node, silent_us in silent:
            if silent_us is not None and silent_us >= AWAY_US:
                self._recalled.setdefault(name, f"node {node!r}, which stands by for it, is silent")

    def _look_at_guest(self, now_us: int, permit: PermitIn) -> None:
        name, over = permit.fragment, self.permits.is_over(now_us, permit)
        replicas, hosted = self._replicas(name), self._fragments.get(name)
        owns = replicas is not None and replicas.owner == self._me
        stateless = replicas is not None and self._has_lost(replicas)
        if not owns and not over:
            self._over.pop(name, None)
            return
        if over or stateless:
            self._over.setdefault(name, _Over(now_us, now_us))
        if (asking := self._over.get(name)) is None:
            return
        if over and not self._has_any(name, replicas):
            self._leave(permit)
        elif over and now_us - asking.since_us >= permit.keep_us:
            self._turn_out(permit, hosted)
        elif now_us >= asking.again_us:
            asking.again_us = now_us + AGAIN_US
            if owns and replicas is not None:
                self._ask_back(replicas, asking)

    def _has_lost(self, replicas: Replicas) -> bool:
        """Whether we were to have a guest, and have nothing of it."""
        return self._succession.began_without_state(replicas) is not None

    def _has_any(self, fragment: str, replicas: Replicas | None) -> bool:
        """Whether anything of a guest is here, or our word of it counts."""
        named = replicas is not None and self._me in (replicas.owner, replicas.guest, *replicas.predecessors)
        shadow = self._followings.shadow(fragment) is not None
        return named or shadow or fragment in self._fragments

    def _ask_back(self, replicas: Replicas, asking: _Over) -> None:
        """Of the owner's nodes that are heard one after the other."""
        homes = [node for node in replicas.secondaries if self._is_up(node)]
        if not homes:
            return
        home = homes[asking.asked % len(homes)]
        asking.asked += 1
        move = Move(request=self._number(), fragment=replicas.fragment, to=home, timeout_ms=AGAIN_US // 1000)
        self._outbox.send(home, move)

    def _turn_out(self, permit: PermitIn, hosted: FragmentHost | None) -> None:
        """It was kept for as long as was agreed, and nobody has said that its owner has it."""
        name = permit.fragment
        self._outbox.report(
            "warning",
            "guest turned out",
            fragment=name,
            participant=permit.participant,
            keep_ms=permit.keep_us // 1000,
        )
        if hosted is not None:
            self._succession.turn_out(hosted)
        self._followings.drop(name)
        self._leave(permit)

    def _leave(self, permit: PermitIn) -> None:
        """Nothing of it is here any more."""
        self._over.pop(permit.fragment, None)
        query = permit.fragment.partition("/")[0]
        others = [
            each for each in self.permits.fragments_of(permit.participant, query) if each != permit.fragment
        ]
        if not others and self._recovery.foreign(query):
            self._recovery.leave(query)
        self.permits.forget(permit)  # In one write with that.

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times = [each.again_us for each in self._over.values()]
        if self._recalled or self._idle_since_us:
            times.append(now_us + LOOK_US)
        if (over_us := self.permits.wake_at_us(now_us)) is not None:
            times.append(over_us)
        return min(times, default=None)

    def _replicas(self, fragment: str) -> Replicas | None:
        current = self._agreement.current(fragment.partition("/")[0])
        return None if current is None else current.replicas(fragment)


def _counted(hosted: FragmentHost) -> tuple[int, int]:
    rows_in = sum(each.fed_seq for each in hosted.inputs.values())
    return rows_in, sum(output.rows for output in hosted.outputs.values())
