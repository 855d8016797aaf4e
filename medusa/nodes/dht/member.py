"""One member of the catalog between participants: a distributed hash table of signed entries. Pure: no IO.

Kademlia (Maymounkov and Mazières, IPTPS 2002), whose members know each other by talking (2.2), searched
iteratively (2.3), an entry held by the three members nearest to its name. Differently from there: who is
near is asked each round, as Chord's *stabilise* does (Stoica et al., SIGCOMM 2001, 4.4), so that an entry
moves when its members change and not only when it is published again (2.5); all that hold an entry are
asked, and the youngest that its owner signed counts, so one that lies or fell behind decides nothing.

Only registered members take part, by their names: who that is, and where a member stands, comes from
outside, as does the time, and what checks signatures. A member holds bounded state: its table, its shelf
with quotas per participant, a bounded number of searches, and the last ages that it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

from medusa.errors import LinkError, RemoteProtocolError
from medusa.nodes.dht.put import EntryPut, OwnEntry, PutOutcome
from medusa.nodes.dht.replication import DhtReplication
from medusa.nodes.dht.requests import Answer, DhtRequests
from medusa.nodes.dht.routing_table import BUCKET, RoutingTable, place_of
from medusa.nodes.dht.search import REPLICAS, DhtSearch, Ended, SearchOutcome
from medusa.nodes.dht.storage import DhtStorage
from medusa.wire import limits
from medusa.wire.dht_entry import Age, age_of, opened_entry
from medusa.wire.messages.dht import DhtFind, DhtFound, DhtLeave, DhtMessage, DhtStore, DhtStored
from medusa.wire.outbox import Outbox

__all__ = ["DhtMember", "DhtSettings"]

SEARCHES_MAX = 256
DEAD_MAX = 256
PROBES = 8
"""Members that were only named and are asked, each round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtSettings:
    """Knobs of a member."""

    timeout_us: int = 500_000
    """A question not answered by then is asked again. Too small: slow members are asked for nothing; too
    large: each dead one holds up a search for so long."""

    tries: int = 2
    deadline_us: int = 5_000_000
    """A search ends then with what there is."""

    round_us: int = 5_000_000
    """So often the neighbours are asked who is near. Too small: messages for nothing; too large: entries
    stay with fewer members for so long."""

    refresh_rounds: int = 6
    """One bucket is searched every so many rounds, far members being known from searches anyhow."""

    republish_us: int = 60_000_000
    """Who owns an entry, and else who holds it, says it again so often."""

    dead_us: int = 10_000_000
    """Who didn't answer isn't believed to live because others name it, for so long."""

    floors: int = 10_000
    """Names whose last age is remembered, so that nothing older is given again."""


class DhtMember:
    """One member.

    Args:
        name: own.
        where: place of a registered member by name; None: it isn't one.
        wall: microseconds since the Unix epoch at a time; None: not known.
        count: told the code of each entry and message that doesn't count.
        owns: whether a node is of a participant: an older entry that one of its owner's nodes brings is told
            the younger and not counted, as several may sign.

    Attributes:
        joined: it counts as one of those that hold entries.
    """

    def __init__(
        self,
        name: str,
        *,
        outbox: Outbox,
        shelf: DhtStorage,
        where: Callable[[str], int | None],
        wall: Callable[[int], int | None],
        count: Callable[[str], None],
        settings: DhtSettings | None = None,
        owns: Callable[[str, str], bool] = lambda node, participant: False,
    ) -> None:
        place = where(name)
        if place is None:
            raise LinkError(f"{name!r} is no member", code="E_IDENTITY")
        self.name, self.place = name, place
        self.settings = settings or DhtSettings()
        self.shelf = shelf
        self.table = RoutingTable(place)
        self.joined = False
        self._outbox = outbox
        self._where = where
        self._wall = wall
        self._count = count
        self._owns = owns
        self._requests = DhtRequests(
            outbox, timeout_us=self.settings.timeout_us, tries=self.settings.tries, gone=self.lost
        )
        self._keeper = DhtReplication(name, place, self.table, shelf)
        self._searches: dict[int, DhtSearch] = {}
        self._number = self._rounds = self._probes = 0
        self._via: tuple[str, ...] = ()
        self._round_at_us: int | None = None
        self._dead: dict[str, int] = {}
        self._floors: dict[str, Age] = {}
        self._mine: dict[str, OwnEntry] = {}
        """What I publish, by name."""

    # --- life -----------------------------------------------------------------------------------

    def join(self, now_us: int, via: Sequence[str]) -> None:
        """Become a member by some that may be ones already."""
        self._via = tuple(name for name in via if name != self.name)
        self._round_at_us = now_us + 1 + self.place % self.settings.round_us
        self._seek_place(now_us)

    def _seek_place(self, now_us: int) -> None:
        search = self._search(now_us, self.place, "", self._has_joined)
        for name in self._via:
            place = self._where(name)
            if place is not None:
                search.add(name, place ^ self.place, 1)
        self._go(now_us, search)

    def _has_joined(self, now_us: int, found: SearchOutcome) -> None:
        self.joined = True
        self._say_mine(now_us)

    def meet(self, now_us: int, peer: str) -> None:
        """A member may be there, again or for the first time: ask it."""
        place = self._where(peer)
        if place is not None and peer != self.name and self._round_at_us is not None:
            self._dead.pop(peer, None)
            self._requests.find(now_us, peer, self.place, "", self._named)

    def leave(self, now_us: int) -> None:
        """Hand on what is held and say goodbye; nothing is heard after that."""
        for peer, data in self._keeper.leaving():
            self._outbox.send(peer, DhtStore(request=0, entry=data))
        for peer in self.table.names():
            self._outbox.send(peer, DhtLeave())
        self._round_at_us = None
        self.joined = False

    # --- what is wanted ---------------------------------------------------------------------------

    def find(self, now_us: int, name: str, then: Ended) -> None:
        """Look up a full name; ``then`` gets what was found, at the latest after the deadline.

        Raises:
            LinkError: too many searches are under way (``E_LIMIT``).
        """
        self._check_room()
        self._go(now_us, self._search(now_us, place_of(name), name, partial(self._looked_up, then)))

    def _looked_up(self, then: Ended, now_us: int, found: SearchOutcome) -> None:
        if found.age is not None and found.age < self._floors.get(found.name, found.age):
            found = replace(found, entry=None, data=b"", age=None, stale=(), whole=False)
        elif found.age is not None:
            self._seen(found.name, found.age)
            for peer in found.stale:
                if peer != self.name:
                    self._requests.store(now_us, peer, found.data, _ignored)
        then(now_us, found)

    def publish(self, now_us: int, data: bytes, then: Callable[[int, PutOutcome], None]) -> None:
        """Store an own entry at those nearest to its name, and again and again until ``withdraw``.

        Args:
            then: told how it went, each time.

        Raises:
            RemoteProtocolError: it doesn't count here.
        """
        entry = self.shelf.read(data, self._time(now_us))
        self._mine[entry.name] = OwnEntry(data, now_us, then)
        if self.joined:
            self._say_mine(now_us)

    def withdraw(self, name: str) -> None:
        """Say it no more; what others hold counts until it expires (publish one that is gone before)."""
        self._mine.pop(name, None)

    def _say_mine(self, now_us: int) -> None:
        """Say again what is due of what I publish; the rest in the next round."""
        for own in list(self._mine.values()):
            if own.due_us <= now_us and len(self._searches) < SEARCHES_MAX:
                own.say_again(now_us + self.settings.republish_us)
                self._put(now_us, own.data, partial(self._said, own))

    def _said(self, own: OwnEntry, now_us: int, put: PutOutcome) -> None:
        if not put.enough:
            own.say_again(now_us)  # In the next round.
        own.then(now_us, put)

    def _put(self, now_us: int, data: bytes, then: Callable[[int, PutOutcome], None]) -> None:
        name = opened_entry(data)[1].name
        self._go(now_us, self._search(now_us, place_of(name), "", partial(self._place_found, data, then)))

    def _place_found(
        self, data: bytes, then: Callable[[int, PutOutcome], None], now_us: int, found: SearchOutcome
    ) -> None:
        putting = EntryPut(len(found.nearest), then)
        for peer in found.nearest:
            if peer == self.name:
                code, newer = self._keep(now_us, data, of=self.name)
                putting.one(now_us, DhtStored(request=0, code=code, entry=newer))
            else:
                self._requests.store(now_us, peer, data, partial(self._stored, putting, data))
        if not found.nearest:
            putting.end(now_us)

    def _stored(self, putting: EntryPut, data: bytes, now_us: int, answer: Answer | None) -> None:
        stored = answer if isinstance(answer, DhtStored) else None
        if stored is not None and stored.entry:
            code, _ = self._keep(now_us, stored.entry)
            if code:
                stored = DhtStored(request=0, code=code)
        if putting.one(now_us, stored):
            entry = opened_entry(data)[1]
            self._seen(entry.name, age_of(entry))

    def _seen(self, name: str, age: Age) -> None:
        """Nothing older than this is given any more."""
        age = max(age, self._floors.pop(name, age))
        self._floors[name] = age
        if len(self._floors) > self.settings.floors:
            del self._floors[next(iter(self._floors))]

    # --- searches -----------------------------------------------------------------------------------

    def _check_room(self) -> None:
        if len(self._searches) >= SEARCHES_MAX:
            raise LinkError(f"{SEARCHES_MAX} searches are under way", hint="ask again later", code="E_LIMIT")

    def _search(self, now_us: int, target: int, name: str, then: Ended) -> DhtSearch:
        search = DhtSearch(target, name, deadline_us=now_us + self.settings.deadline_us, then=then)
        for distance, member in self.table.closest(target, BUCKET):
            search.add(member, distance, 1)
        if self.joined:
            search.add(self.name, self.place ^ target, 0, answered=True)
            if name and (data := self.shelf.answer(name, self._time(now_us))):
                search.holds(self.name, self.shelf.read(data, self._time(now_us)), data)
        self._number += 1
        search.number = self._number
        self._searches[search.number] = search
        return search

    def _go(self, now_us: int, search: DhtSearch) -> None:
        for member in search.next():
            then = partial(self._found, search, member)
            late = partial(self._late, search, member)
            self._requests.find(now_us, member, search.target, search.name, then, late)
        if search.done:
            self._end(now_us, search)

    def _late(self, search: DhtSearch, member: str, now_us: int) -> None:
        if search.number in self._searches:
            search.slow(member)
            self._go(now_us, search)

    def _found(self, search: DhtSearch, member: str, now_us: int, answer: Answer | None) -> None:
        if search.number not in self._searches:
            return
        if not isinstance(answer, DhtFound):
            search.failed(member)
        else:
            depth = search.answered(member)
            for name in answer.members:
                if not search.knows(name) and (place := self._alive(now_us, name)) is not None:
                    search.add(name, place ^ search.target, depth)
            if answer.entry and search.name:
                try:
                    entry = self.shelf.read(answer.entry, self._time(now_us))
                    if entry.name != search.name:
                        raise RemoteProtocolError(f"asked for {search.name!r}", code="E_MESSAGE")
                    search.holds(member, entry, answer.entry)
                except RemoteProtocolError as error:
                    self._count(error.code)
        self._go(now_us, search)

    def _end(self, now_us: int, search: DhtSearch) -> None:
        if self._searches.pop(search.number, None) is not None:
            search.then(now_us, search.found())

    # --- members --------------------------------------------------------------------------------------

    def _alive(self, now_us: int, name: str) -> int | None:
        """Place of somebody who was named, if that may be a living member and not me."""
        if name == self.name or self._dead.get(name, -1) > now_us:
            return None
        return self._where(name)

    def _heard(self, now_us: int, peer: str, place: int) -> None:
        self._dead.pop(peer, None)
        if self.table.heard(peer, place):
            for other, data in self._keeper.appeared(peer, place):
                self._requests.store(now_us, other, data, _ignored)

    def lost(self, now_us: int, peer: str, *, left: bool = False) -> None:
        """A member doesn't answer, or its link broke, or it has left."""
        place = self.table.place(peer) or self._where(peer)
        if place is None:
            return
        if not left:
            self._dead[peer] = now_us + self.settings.dead_us
            if len(self._dead) > DEAD_MAX:
                del self._dead[next(iter(self._dead))]
        self._requests.give_up(now_us, peer)
        if self.table.gone(peer, place):
            for other, data in self._keeper.went(peer, place):
                self._requests.store(now_us, other, data, _ignored)

    # --- messages -------------------------------------------------------------------------------------

    def receive(self, now_us: int, peer: str, message: DhtMessage) -> None:
        """Take a message of a peer, whose name the transport and the registry vouch for."""
        place = self._where(peer)
        if place is None or self._round_at_us is None:
            self._count("E_ROLE")
            return
        if isinstance(message, DhtLeave):
            self.lost(now_us, peer, left=True)
            return
        self._heard(now_us, peer, place)
        match message:
            case DhtFind():
                target = int.from_bytes(message.place, "big")
                names = [name for _, name in self.table.closest(target, BUCKET) if name != peer]
                entry = self.shelf.answer(message.name, self._time(now_us)) if message.name else b""
                found = DhtFound(request=message.request, members=tuple(names), entry=entry)
                self._outbox.send(peer, found)
            case DhtStore():
                code, newer = self._keep(now_us, message.entry, of=peer)
                if message.request:
                    self._outbox.send(peer, DhtStored(request=message.request, code=code, entry=newer))
            case DhtFound() | DhtStored():
                self._requests.answered(now_us, peer, message)

    def _keep(self, now_us: int, data: bytes, *, of: str | None = None) -> tuple[str, bytes]:
        """Hold an entry; (what stands against it, the younger one that is held).

        Args:
            of: who brought it; None: it was told, not brought, and only replaces an older one.
        """
        try:
            if of is None and self.shelf.held(self.shelf.read(data, self._time(now_us)).name) is None:
                return "", b""
            self.shelf.put(data, now_us, self._time(now_us))
        except RemoteProtocolError as error:
            if error.code != "E_REPLAY":
                self._count(error.code)
                return error.code, b""
            entry = opened_entry(data)[1]
            if of is None or not self._owns(of, entry.participant):
                self._count(error.code)
            return error.code, self.shelf.answer(entry.name, self._time(now_us))
        return "", b""

    def _time(self, now_us: int) -> int:
        """The wall's; before it is known nothing counts, so it is said to be at its end."""
        wall_us = self._wall(now_us)
        return limits.SEQ_MAX if wall_us is None else wall_us

    # --- rounds ---------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        self._requests.tick(now_us)
        for search in list(self._searches.values()):
            if search.deadline_us > now_us:
                break
            self._end(now_us, search)
        if self._round_at_us is not None and now_us >= self._round_at_us:
            self._round_at_us = now_us + self.settings.round_us
            self._round(now_us)

    def _round(self, now_us: int) -> None:
        self._rounds += 1
        self._probes = 0
        self.shelf.expire(self._time(now_us))
        for name in self.table.names():
            if self._where(name) != self.table.place(name):
                self.lost(now_us, name)  # Its participant isn't registered any more, or has another key.
        near = [name for _, name in self.table.closest(self.place, BUCKET)]
        if not near:
            self._seek_place(now_us)
            return
        rest = near[REPLICAS:]
        for name in near[:REPLICAS] + rest[self._rounds % len(rest) :][:1] if rest else near:
            self._requests.find(now_us, name, self.place, "", self._named)
        if self._rounds <= self.settings.refresh_rounds or not self._rounds % self.settings.refresh_rounds:
            self._refresh(now_us)
        if self.joined:
            self._say_mine(now_us)
        for held in self._keeper.due(now_us, self.settings.republish_us):
            if len(self._searches) < SEARCHES_MAX and held.entry.name not in self._mine:
                held.brought(now_us)
                self._put(now_us, held.data, partial(self._said_again, held.entry.name))

    def _said_again(self, name: str, now_us: int, put: PutOutcome) -> None:
        """Others hold it; where they are nearer, I needn't."""
        if put.enough and not self._keeper.should_hold(name):
            self.shelf.drop(name)

    def _named(self, now_us: int, answer: Answer | None) -> None:
        """A neighbour says who is near me; those whom I don't know are asked too."""
        for name in answer.members if isinstance(answer, DhtFound) else ():
            if name in self.table or self._probes >= PROBES:
                continue
            place = self._alive(now_us, name)
            if place is not None and self.table.room_for(place):
                self._probes += 1
                self._requests.find(now_us, name, self.place, "", self._named)

    def _refresh(self, now_us: int) -> None:
        """Search some place in one of the buckets, another each time."""
        bits = self.table.some_bucket(self._rounds)
        if bits is None or len(self._searches) >= SEARCHES_MAX:
            return
        some = blake2b(f"{self.place} {self._rounds}".encode(), digest_size=20).digest()
        beyond = int.from_bytes(some, "big") & ((1 << (bits - 1)) - 1)
        target = self.place ^ (1 << (bits - 1)) ^ beyond
        self._go(now_us, self._search(now_us, target, "", _found_ignored))

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [self._round_at_us, self._requests.wake_at_us()]
        times += [search.deadline_us for search in list(self._searches.values())[:1]]
        return min((time for time in times if time is not None), default=None)


def _ignored(now_us: int, answer: Answer | None) -> None:
    """Nobody waits for the answer."""


def _found_ignored(now_us: int, found: SearchOutcome) -> None:
    """The answers on the way were what was wanted."""
