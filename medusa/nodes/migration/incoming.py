"""Fragments that are moved to this node: one attempt each at a time. No IO.

What is over stays over: by an attempt that this node has called off it never takes the fragment, whatever
of it is still under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from medusa.errors import LinkError, QueryError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.message_table import Heard
from medusa.nodes.migration.automaton import MoveEvent, TargetState
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.migration.state_receiver import Carried, StateReceiver
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.units import size_text
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import (
    Fed,
    FedTogether,
    GiveUp,
    Handover,
    Piece,
    Receive,
    Settle,
    Settled,
    Standing,
    Whole,
)
from medusa.wire.messages.rerouting import Placed
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import ComingStatus

__all__ = ["IncomingMoves"]

ASK_AGAIN_US = 500_000
"""A coordinator that hasn't said that it knows is told again after this."""

TAKINGS_MAX = 16
"""Fragments that come at once. Their checkpoints are in memory, together at most ``limits.memory``."""

SILENT_US = 15_000_000
"""An attempt of which nothing comes for so long is over."""

OVER_MAX = 10_000
"""Attempts that are remembered as over; one that is forgotten is over by its ticket."""


NUMBERS_KEPT = 16
"""A coordinator is told the same under so many numbers that are known: its answer may be 8 s late."""


@dataclass(slots=True)
class _Place:
    """What a coordinator hasn't answered: who, what, when it was said last, and under which numbers."""

    coordinator: str
    message: Placed
    said_us: int
    numbers: deque[int]


class IncomingMoves:
    """The target's side, for all fragments that come to a node.

    Args:
        fragments: what runs here, by name; what is taken is put in.
        parsing: reads specs that owners send.
        make: makes the mind of a fragment from a checkpoint of an owner.
        check: raises LinkError if there is no room for a fragment.
        owned: called when a fragment is ours and may begin.
        orphaned: called when the query of one was removed meanwhile.
        next_token: gives tickets: of this life only.
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
        parsing: BackgroundParsing,
        make: Callable[[FragmentSpec, SavedCheckpoint, str], StandbyFragment],
        check: Callable[[FragmentSpec], None],
        owned: Callable[[int, StandbyFragment], None],
        orphaned: Callable[[str], None],
        next_token: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._kept = catalog.ownership
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._diverting = diverting
        self._parsing = parsing
        self._make = make
        self._check = check
        self._owned = owned
        self._orphaned = orphaned
        self._next_token = next_token
        self._takings: dict[str, StateReceiver] = {}
        self._over: dict[tuple[str, str], int] = {}
        """Owner and fragment -> the last attempt that was called off."""
        self._places: dict[str, _Place] = {}
        """What coordinators haven't answered, by fragment."""

    def start(self, now_us: int) -> None:
        """After a start: coordinators that may not know yet are told."""
        for name, coordinator in self._kept.unplaced.items():
            if (spec := self._catalog.fragments.get(name)) is not None:
                self._say_placed(now_us, spec, coordinator)

    def shadow(self, fragment: str) -> FragmentHost | None:
        """What follows the owner of this fragment."""
        taking = self._takings.get(fragment)
        return None if taking is None else taking.shadow

    def status(self) -> dict[str, ComingStatus]:
        """What is coming."""
        return {
            name: ComingStatus(origin=taking.owner, state=taking.state.value)
            for name, taking in self._takings.items()
        }

    # --- messages -----------------------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """Take what an owner says."""
        now_us, peer, message = heard.now_us, heard.peer, heard.message
        match message:
            case Receive():
                self.asked(now_us, peer, message, heard.payload or b"", heard.caller)
            case Settle():
                self.settle(now_us, peer, message)
            case Piece() | Whole() | Fed() | FedTogether() | Standing() | Handover():
                self.frame(now_us, peer, message, heard.payload)

    def asked(
        self, now_us: int, peer: str, message: Receive, payload: Buffer, caller: Caller | None = None
    ) -> None:
        """An owner wants us to take a fragment."""
        if self._is_settled(peer, message):
            return
        try:
            self._check_free(message)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        self._parsing.read_fragment(
            now_us,
            peer,
            caller,
            ("receive", message.fragment, message.attempt),
            bytes(payload),
            then=lambda now_us, spec: self._begin(now_us, peer, message, spec),
            refuse=partial(self._refuse, peer, message),
        )

    def _is_settled(self, peer: str, message: Receive) -> bool:
        """Whether this attempt is under way, or over; then the owner hears so."""
        key, taking = (peer, message.fragment), self._takings.get(message.fragment)
        if taking is not None and (taking.owner, taking.attempt) == (peer, message.attempt):
            if taking.state is TargetState.FILLING:
                taking.ready()
            return True
        if message.attempt <= self._over.get(key, -1):
            self._say_over(peer, message.fragment, message.attempt, "", "that attempt is over")
            return True
        return False

    def _refuse(self, peer: str, message: Receive, error: LinkError | QueryError) -> None:
        self._say_over(peer, message.fragment, message.attempt, error.code, error.message, error.hint)

    def _begin(self, now_us: int, peer: str, message: Receive, spec: FragmentSpec) -> None:
        if self._is_settled(peer, message):
            return
        try:
            if (taking := self._takings.get(message.fragment)) is not None:
                self._may_replace(peer, message, taking)
            self._check_spec(message, spec)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        made = StateReceiver(
            spec,
            owner=peer,
            attempt=message.attempt,
            epoch=message.epoch,
            coordinator=message.coordinator,
            ticket=self._next_token(),
            make=self._make,
            outbox=self._outbox,
        )
        made.heard_us = now_us
        self._takings[spec.name] = made
        made.ready()

    def _may_replace(self, peer: str, message: Receive, taking: StateReceiver) -> None:
        if taking.owner != peer or taking.state is TargetState.TAKING or message.attempt < taking.attempt:
            raise LinkError(
                f"fragment {message.fragment!r} is just coming from {taking.owner!r}", code="E_BUSY"
            )
        self._drop(taking)

    def _check_free(self, message: Receive) -> None:
        """Whether this fragment may come here at all, whatever it is. Raises LinkError."""
        me, name = self._settings.name, message.fragment
        if self._settings.forgets:
            hint = "move it to a node with a disk"
            raise LinkError(f"node {me!r} keeps nothing over its end", hint=hint, code="E_STORE")
        if name in self._fragments or name in self._catalog.fragments:
            raise LinkError(f"fragment {name!r} is at node {me!r} already", code="E_BUSY")
        left = self._catalog.left.get(name)
        if left is not None and left.epoch >= message.epoch:
            raise LinkError(f"fragment {name!r} was here in epoch {left.epoch - 1}", code="E_BUSY")
        coming = self._takings.get(name)
        if coming is None and len(self._takings) >= TAKINGS_MAX:
            raise LinkError(f"{TAKINGS_MAX} fragments are coming already", code="E_BUSY")

    def _check_spec(self, message: Receive, spec: FragmentSpec) -> None:
        me, name = self._settings.name, message.fragment
        if (spec.name, spec.node) != (name, me):
            raise LinkError(f"the spec is of {spec.name!r} at {spec.node!r}", code="E_SPEC")
        self._check_free(message)
        streams = {feed.stream for feed in spec.feeds}
        for other in self._fragments.values():  # One that was taken from here, and that isn't known yet.
            if not streams.isdisjoint(feed.stream for feed in other.spec.feeds):
                text = f"fragment {other.spec.name!r}, which is at node {me!r}, reads a stream of {name!r}"
                raise LinkError(text, code="E_BUSY")
        if self._catalog.coordinator_of(spec.query, message.coordinator) != message.coordinator:
            where = self._catalog.owners[spec.query]
            raise LinkError(f"query {spec.query!r} is there from node {where!r}", code="E_DEPLOYED")
        others = {feed.node for feed in spec.feeds} | {message.coordinator}
        others |= {node for nodes in spec.readers.values() for node in nodes}
        strangers = sorted(others - {me, *self._settings.peers})
        if strangers:
            text = f"{strangers[0]!r}, which fragment {name!r} is linked with, is no peer of {me!r}"
            raise LinkError(text, hint=f"add {strangers[0]} to [peers] of {me}", code="E_PEER")
        self._check(spec)

    def frame(self, now_us: int, peer: str, message: Carried, payload: Buffer | None) -> None:
        """A frame of an attempt; of one that isn't there it is dropped."""
        taking = self._takings.get(message.fragment)
        if taking is None or (taking.owner, taking.attempt) != (peer, message.attempt):
            return
        try:
            taking.heard(now_us)
            taking.receive(now_us, message, payload)
            self._check_room(taking)
        except RemoteProtocolError as error:
            self._call_off(taking, MoveEvent.REFUSED, error.code, error.message)
        self._look(now_us, taking)

    def _check_room(self, taking: StateReceiver) -> None:
        """All checkpoints that come at once are in memory. Raises RemoteProtocolError if they don't fit."""
        node, most = self._settings.name, self._settings.limits.memory_bytes
        others = sum(each.held_bytes for each in self._takings.values() if each is not taking)
        if taking.held_bytes + others <= most:
            return
        alone = taking.held_bytes > most
        text = f"fragment {taking.spec.name!r} has {size_text(taking.held_bytes)} of state"
        text += "" if alone else f", and others that come have {size_text(others)}"
        text += f"; node {node!r} takes {size_text(most)} at once: raise limits.memory of {node!r}"
        raise RemoteProtocolError(text, peer=taking.owner, code="E_MEMORY" if alone else "E_BUSY")

    def gave_up(self, peer: str, message: GiveUp) -> None:
        """The owner goes on by itself."""
        if message.text:
            return  # From a target, of an attempt of ours: its own have other numbers.
        key = peer, message.fragment
        taking = self._takings.get(message.fragment)
        if taking is not None and (taking.owner, taking.attempt) == (peer, message.attempt):
            if taking.state is TargetState.TAKING:
                return  # It is settled by what is on disk.
            self._drop(taking)
        self._note_over(key, message.attempt)

    def settle(self, now_us: int, peer: str, message: Settle) -> None:
        """The owner wants to know."""
        name, attempt = message.fragment, message.attempt
        taking = self._takings.get(name)
        if taking is not None and (taking.owner, taking.attempt) == (peer, attempt):
            if taking.state is TargetState.TAKING or not message.gone:
                return  # It hears when it is on disk; or what is under way decides.
            self._drop(taking)
        if self._kept.taken.get(name, {}).get(peer) == attempt:
            self._outbox.send(peer, Settled(fragment=name, attempt=attempt, taken=True))
            return
        self._note_over((peer, name), attempt)
        self._outbox.send(peer, Settled(fragment=name, attempt=attempt, taken=False))

    def answered(self, peer: str, reply: Reply) -> bool:
        """A coordinator knows where it is; whether the question was ours."""
        asked = (each for each in self._places.values() if reply.request in each.numbers)
        place = next((each for each in asked if each.coordinator == peer), None)
        if place is None:
            return False
        if reply.code in ("E_BUSY", "E_PEER"):
            return True
        fragment, query = place.message.fragment, place.message.query
        del self._places[fragment]
        self._kept.unplaced.pop(fragment, None)
        if reply.code == "E_REMOVED":  # While it was on its way: nobody else will ever tell us.
            self._orphaned(query)
            return True
        if reply.code:  # It has lost its disk, say: what is here may be all that there is.
            about = {"fragment": fragment, "node": peer, "code": reply.code, "why": reply.text}
            self._outbox.report("warning", "its coordinator doesn't know it", **about)
        self._saver.save()
        return True

    def coordinated(self, now_us: int, spec: FragmentSpec, coordinator: str) -> None:
        """Another node coordinates the query of a fragment of ours, and hears that it is here."""
        self._kept.unplaced[spec.name] = coordinator
        self._say_placed(now_us, spec, coordinator)

    def peer_event(self, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted: what it was sending is over."""
        if event is LinkEvent.PEER_UP:
            return
        for taking in [each for each in self._takings.values() if each.owner == peer]:
            self._call_off(taking, MoveEvent.BROKEN, "", f"node {peer!r} was away")

    def stop(self) -> None:
        """The node ends: what isn't ours yet never will be."""
        for taking in list(self._takings.values()):
            self._call_off(taking, MoveEvent.BROKEN, "", f"node {self._settings.name!r} ends")

    def removed(self, query: str, fragments: Collection[str], *, whole: bool) -> None:
        """Fragments of a query are gone from here.

        Args:
            fragments: those that were in the catalog.
            whole: the query is no more, so nothing of it shall come either.
        """
        for taking in [each for each in self._takings.values() if each.spec.query == query]:
            if taking.state is TargetState.TAKING:
                if taking.spec.name in fragments:
                    del self._takings[taking.spec.name]  # It was in the catalog, and went with that.
            elif whole:
                self._call_off(taking, MoveEvent.REFUSED, "E_REMOVED", f"query {query!r} was removed")
        for name in [name for name, each in self._places.items() if each.message.query == query]:
            if whole or name in fragments:
                del self._places[name]

    # --- the engine and the disk ----------------------------------------------------------------------

    def ran(self, now_us: int, fragment: str) -> None:
        """What follows fed its oldest element."""
        if (taking := self._takings.get(fragment)) is not None:
            taking.ran(now_us)
            self._look(now_us, taking)

    def failed(self, fragment: str, why: str, code: str = "") -> None:
        """What follows can't; ``code``: it takes more than it may here."""
        if (taking := self._takings.get(fragment)) is not None:
            text = f"node {self._settings.name!r} has no room for it: {why}" if code else why
            self._call_off(taking, MoveEvent.REFUSED, code or "E_FAILED", text)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint of what follows is on disk, or isn't; whether it was of one."""
        for taking in list(self._takings.values()):
            if taking.shadow is not None and taking.shadow.persisted(now_us, token, ok, why):
                taking.persisted(now_us, token, ok, why)
                if taking.broken is not None and taking.state is not TargetState.TAKING:
                    self._call_off(taking, MoveEvent.REFUSED, *taking.broken)
                else:
                    self._look(now_us, taking)
                return True
        return False

    # --- steps ----------------------------------------------------------------------------------------

    def _look(self, now_us: int, taking: StateReceiver) -> None:
        """Whether it can be ours now, or is."""
        if self._takings.get(taking.spec.name) is not taking:
            return
        taking.tick(now_us)
        try:
            caught_up = taking.state is TargetState.FOLLOWING and taking.caught_up
        except RemoteProtocolError as error:
            self._call_off(taking, MoveEvent.REFUSED, error.code, error.message)
            return
        if caught_up and taking.shadow is not None and taking.move(MoveEvent.HANDOVER):
            name = taking.spec.name
            self._diverting.back(name)
            self._catalog.add(taking.shadow.spec, self._coordinator_of(taking))
            self._kept.epochs[name] = taking.epoch
            self._kept.taken.setdefault(name, {})[taking.owner] = taking.attempt
            self._kept.unplaced[name] = self._coordinator_of(taking)
            self._fragments[name] = taking.shadow
            taking.owns_with(self._saver.save())
        if taking.state is TargetState.TAKING and self._saver.durable >= taking.token:
            self._take(now_us, taking)

    def _take(self, now_us: int, taking: StateReceiver) -> None:
        taking.move(MoveEvent.DURABLE)
        name, shadow = taking.spec.name, taking.shadow
        del self._takings[name]
        self._outbox.send(taking.owner, Settled(fragment=name, attempt=taking.attempt, taken=True))
        assert shadow is not None
        self._owned(now_us, shadow)
        about: dict[str, Any] = {"fragment": name, "peer": taking.owner, "epoch": taking.epoch}
        with self._outbox.caused_by(taking.owner, taking.attempt):
            self._outbox.report("info", "fragment taken", **about)
        self._say_placed(now_us, shadow.spec, self._coordinator_of(taking))

    def _coordinator_of(self, taking: StateReceiver) -> str:
        """The role may have become another node's since the move began."""
        kept = self._catalog.configuration(taking.spec.query)
        if kept is None or kept.current.parts is None or kept.current.number == 1:
            return taking.coordinator
        return kept.current.coordinator

    def _say_placed(self, now_us: int, spec: FragmentSpec, coordinator: str) -> None:
        place = Placed(
            request=self._diverting.number(),
            query=spec.query,
            fragment=spec.name,
            node=self._settings.name,
            streams=(*spec.streams.values(), *spec.entries.values()),
        )
        self._places[spec.name] = _Place(coordinator, place, now_us, deque([place.request], NUMBERS_KEPT))
        self._outbox.send(coordinator, place)

    def _call_off(self, taking: StateReceiver, event: MoveEvent, code: str, text: str) -> None:
        """This attempt is over, unless the disk decides."""
        if taking.move(event) and taking.state is TargetState.ABSENT:
            self._drop(taking)
            self._say_over(taking.owner, taking.spec.name, taking.attempt, code, text)

    def _drop(self, taking: StateReceiver) -> None:
        taking.drop()
        self._takings.pop(taking.spec.name, None)
        self._note_over((taking.owner, taking.spec.name), taking.attempt)

    def _note_over(self, key: tuple[str, str], attempt: int) -> None:
        last = max(self._over.pop(key, -1), attempt)
        self._over[key] = last
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    def _say_over(self, peer: str, fragment: str, attempt: int, code: str, text: str, hint: str = "") -> None:
        self._note_over((peer, fragment), attempt)
        most = limits.TEXT_CHARS_MAX
        over = GiveUp(fragment=fragment, attempt=attempt, code=code, text=text[:most], hint=hint[:most])
        self._outbox.send(peer, over)

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        for taking in list(self._takings.values()):
            if now_us - taking.heard_us >= SILENT_US:
                self._call_off(taking, MoveEvent.BROKEN, "", f"nothing came in {SILENT_US // 1_000_000} s")
            self._look(now_us, taking)
        for name, place in list(self._places.items()):
            if name not in self._catalog.fragments:
                del self._places[name]  # It has gone on: who has it now says so.
            elif now_us - place.said_us >= ASK_AGAIN_US:
                self._say_again(now_us, place)

    def _say_again(self, now_us: int, place: _Place) -> None:
        """Under a new number: the coordinator drops what is older than the question of an attempt to move it
        on. While such an attempt is under way nothing is said: it could come after the next owner's word."""
        place.said_us = now_us
        if not self._diverting.moving(place.message.fragment):
            number = self._diverting.number()
            place.message = msgspec.structs.replace(place.message, request=number)
            place.numbers.append(number)
            self._outbox.send(place.coordinator, place.message)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        if not (self._takings or self._places):
            return None
        times = [at for each in self._takings.values() if (at := each.wake_at_us()) is not None]
        times += [each.heard_us + SILENT_US for each in self._takings.values()]
        times += [place.said_us + ASK_AGAIN_US for place in self._places.values()]
        return min(times, default=None)
