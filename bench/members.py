"""Members of the catalog between participants, by themselves: thousands of them, in virtual time.

No nodes, no engines and no bytes of frames: the minds of ``medusa.nodes.dht.member`` exchange their messages
through a heap of events. Members come, leave and crash; what is looked up is compared with what was last
published. The same seed gives the same run, under any ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from medusa.errors import LinkError
from medusa.nodes.dht.member import DhtMember, DhtSettings
from medusa.nodes.dht.put import PutOutcome
from medusa.nodes.dht.routing_table import place_of
from medusa.nodes.dht.search import REPLICAS, SearchOutcome
from medusa.nodes.dht.storage import DhtStorage, StorageQuota
from medusa.ports import Buffer
from medusa.wire.dht_entry import Age, DhtEntry, Whereabouts, age_of, sign_entry
from medusa.wire.messages import Message
from medusa.wire.messages.dht import DhtMessage
from medusa.wire.outbox import Outbox

__all__ = ["Churn", "Members", "Tally", "forged", "verify"]

FEDERATION = "sim"
WALL_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


class Key:
    """A participant's key whose signatures anybody here could forge, and only a liar does."""

    def __init__(self, name: str) -> None:
        self.key = "ed25519:" + blake2b(name.encode(), digest_size=32).hexdigest()

    def sign(self, data: Buffer) -> bytes:
        return blake2b(bytes(data), key=self.key.encode()[:64], digest_size=64).digest()


def verify(key: str, data: Buffer, signature: bytes) -> bool:
    """Whether a ``Key`` signed this."""
    return blake2b(bytes(data), key=key.encode()[:64], digest_size=64).digest() == signature


def forged(entry: DhtEntry, key: str) -> bytes:
    """The entry as somebody would bring it who has the name of a key and not the key."""

    class _Forger:
        def __init__(self) -> None:
            self.key = key

        def sign(self, data: Buffer) -> bytes:
            return bytes(64)

    return sign_entry(entry, _Forger())


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """How members come and go.

    Attributes:
        life_s: mean time that a member stays; half of them crash, half say goodbye. 0: they stay.
        away_s: mean time until its place is taken again, by the same name, with nothing.
        loss_permille: messages lost.
    """

    life_s: float = 0.0
    away_s: float = 30.0
    loss_permille: int = 0
    delay_us: int = 20_000
    jitter_us: int = 20_000


@dataclass(slots=True)
class Tally:
    """What was counted since it was made.

    Attributes:
        nothing: look-ups that found nothing, the owner being there.
        lost: the same, the owner being away: who crashes with all who held its entry is found no more.
    """

    messages: int = 0
    member_us: int = 0
    right: int = 0
    older: int = 0
    nothing: int = 0
    lost: int = 0
    hops: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    took_us: list[int] = field(default_factory=list)

    @property
    def looked_up(self) -> int:
        return self.right + self.older + self.nothing + self.lost


class _Mail(Outbox):
    """Hands what a member says to the network at once."""

    __slots__ = ("_give", "_name")

    def __init__(self, name: str, give: Callable[[str, str, DhtMessage], None]) -> None:
        super().__init__()
        self._name = name
        self._give = give

    def send(self, peer: str, message: Message, payload: Buffer | None = None) -> None:
        self._give(self._name, peer, message)  # type: ignore[arg-type]


class Members:
    """A catalog of ``count`` members, each a participant of its own with one stream.

    Args:
        make: makes a member, as ``DhtMember``.
        stays: members that never end.

    Attributes:
        up: members that are there.
        truth: name -> (age, bytes) that its owner published last.
        acked: name -> the youngest age of which most holders said that they hold it.
    """

    def __init__(
        self,
        count: int,
        *,
        seed: int,
        churn: Churn | None = None,
        settings: DhtSettings | None = None,
        make: Callable[..., DhtMember] = DhtMember,
        stays: Collection[str] = (),
    ) -> None:
        self.churn = churn or Churn()
        self.settings = settings or DhtSettings()
        self.now_us = 0
        self.up: dict[str, DhtMember] = {}
        self.truth: dict[str, tuple[Age, bytes]] = {}
        self.acked: dict[str, Age] = {}
        self.tally = Tally()
        self.broken: list[str] = []
        """Answers that no member may ever get."""
        self.refused: dict[str, int] = {}
        """Entries and messages that didn't count, by code."""
        self._make = make
        self._stays = frozenset(stays)
        self._dice = Random(f"members {seed}")
        self._heap: list[tuple[int, int, str, str, Any]] = []
        self._order = 0
        self._wakes: dict[str, int] = {}
        self._lives: dict[str, int] = {}
        self._given: dict[tuple[str, int, str], Age] = {}
        """Member, its life, and name -> the age that it was given last."""
        self.keys = {f"p{number}": Key(f"p{number}") for number in range(count)}
        self.registered = {name: key.key for name, key in self.keys.items()}
        self.names = [f"m{number}" for number in range(count)]
        self._places = {name: place_of(f"key of {name}") for name in self.names}

    # --- members ------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A member comes, with nothing, by some that are there."""
        shelf = DhtStorage(
            federation=FEDERATION, key_of=self.registered.get, verify=verify, quota=StorageQuota()
        )
        member = self._make(
            name,
            outbox=_Mail(name, self._send),
            shelf=shelf,
            where=self._places.get,
            wall=lambda now_us: WALL_US + now_us,
            count=self._count,
            settings=self.settings,
        )
        there = list(self.up)
        via = self._dice.sample(there, min(3, len(there)))
        self.up[name] = member
        self._lives[name] = self._lives.get(name, 0) + 1
        member.join(self.now_us, via)
        self.publish(name)
        self._wake(name)
        if self.churn.life_s:
            self._ends(name)

    def _ends(self, name: str) -> None:
        """It will, some time."""
        life_us = int(self._dice.expovariate(1 / self.churn.life_s) * SECOND_US)
        if name not in self._stays:
            self._at(self.now_us + life_us, "end", name, self._lives[name])

    def _count(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    def stop(self, name: str, *, leave: bool) -> None:
        """A member goes, with what it held; it says goodbye or crashes."""
        member = self.up.pop(name)
        if leave:
            member.leave(self.now_us)
        self._wakes.pop(name, None)

    def publish(self, name: str, *, gone: bool = False) -> None:
        """The member says where its participant's stream is, with a higher sequence."""
        number = name[1:]
        full = f"p{number}/s"
        (epoch, sequence), _ = self.truth.get(full, ((1, 0), b""))
        entry = DhtEntry(
            federation=FEDERATION,
            participant=f"p{number}",
            epoch=epoch,
            sequence=sequence + 1,
            expiry_us=WALL_US + self.now_us + 3_000 * SECOND_US,
            name=full,
            kind="stream",
            nodes=(Whereabouts(name, "tcp://10.0.0.7:5557"),),
            gone=gone,
        )
        data = sign_entry(entry, self.keys[f"p{number}"])
        self.truth[full] = (age_of(entry), data)

        def stored(now_us: int, put: PutOutcome) -> None:
            if put.enough:
                self.acked[full] = max(age_of(entry), self.acked.get(full, (0, 0)))

        self.up[name].publish(self.now_us, data, stored)

    # --- looking up ---------------------------------------------------------------------------------

    def look_up(self, name: str, full: str, then: Callable[[SearchOutcome], None] | None = None) -> None:
        """A member looks up a name; it is counted when it ends."""
        begun_us, acked = self.now_us, self.acked.get(full)

        def found(now_us: int, answer: SearchOutcome) -> None:
            tally, (age, _) = self.tally, self.truth.get(full, ((0, 0), b""))
            tally.hops.append(answer.hops)
            tally.asked.append(answer.asked)
            tally.took_us.append(now_us - begun_us)
            if answer.entry is None:
                there = f"m{full[1:-2]}" in self.up
                tally.nothing += there
                tally.lost += not there
            elif answer.age == age or (acked is not None and answer.age is not None and answer.age >= acked):
                tally.right += 1
            else:
                tally.older += 1
            self._check(name, full, answer)
            if then is not None:
                then(answer)

        try:
            self.up[name].find(self.now_us, full, found)
        except LinkError:
            self.tally.nothing += 1
        self._wake(name)

    def _check(self, name: str, full: str, answer: SearchOutcome) -> None:
        """What never happens, whatever others say."""
        if answer.entry is None or answer.age is None:
            return
        who = answer.entry.participant
        before = self._given.setdefault((name, self._lives[name], full), answer.age)
        if answer.age < before:
            self.broken.append(f"{name} was given {full} of {answer.age} after {before}")
        self._given[name, self._lives[name], full] = answer.age
        if who not in self.registered:
            self.broken.append(f"{name} was given an entry of {who}, which isn't registered")
        elif answer.data != self._signed(answer.entry, who):
            self.broken.append(f"{name} was given an entry of {full} that its owner didn't sign")
        if answer.entry.name != full:
            self.broken.append(f"{name} asked for {full} and was given {answer.entry.name}")

    def _signed(self, entry: DhtEntry, who: str) -> bytes:
        return sign_entry(entry, self.keys[who]) if who in self.keys else b""

    def look_ups(self, per_s: int, for_s: float) -> None:
        """Look-ups of some names by some members, evenly over a time that passes."""
        end_us = self.now_us + int(for_s * SECOND_US)
        for number in range(int(per_s * for_s)):
            self._at(self.now_us + number * SECOND_US // per_s, "look", "", None)
        self.run(end_us)

    # --- time -----------------------------------------------------------------------------------------

    def _at(self, when_us: int, kind: str, name: str, what: Any) -> None:
        heapq.heappush(self._heap, (when_us, self._order, kind, name, what))
        self._order += 1

    def say(self, source: str, target: str, message: DhtMessage) -> None:
        """A member says this, whatever its mind thinks."""
        self._send(source, target, message)

    def _send(self, source: str, target: str, message: DhtMessage) -> None:
        self.tally.messages += 1
        churn, dice = self.churn, self._dice
        if churn.loss_permille and dice.randrange(1000) < churn.loss_permille:
            return
        arrival_us = self.now_us + churn.delay_us + int(dice.random() * churn.jitter_us)
        self._at(arrival_us, "say", target, (source, message))

    def _wake(self, name: str) -> None:
        member = self.up.get(name)
        if member is None:
            return
        due_us = member.wake_at_us()
        known_us = self._wakes.get(name)
        if due_us is not None and (known_us is None or due_us < known_us):
            self._wakes[name] = due_us
            self._at(max(due_us, self.now_us), "wake", name, due_us)

    def run(self, until_us: int) -> None:
        """Let time pass."""
        heap, pop = self._heap, heapq.heappop
        begun_us, there = self.now_us, len(self.up)
        while heap and heap[0][0] <= until_us:
            self.now_us, _, kind, name, what = pop(heap)
            member = self.up.get(name)
            if kind == "say" and member is not None:
                source, message = what
                member.receive(self.now_us, source, message)
                self._wake(name)
            elif kind == "wake" and member is not None and self._wakes.get(name) == what:
                del self._wakes[name]
                member.tick(self.now_us)
                self._wake(name)
            elif kind == "end" and member is not None and self._lives[name] == what:
                self.stop(name, leave=self._dice.random() < 0.5)
                if self.churn.life_s:
                    away_us = int(self._dice.expovariate(1 / self.churn.away_s) * SECOND_US)
                    self._at(self.now_us + away_us, "begin", name, None)
            elif kind == "begin" and member is None:
                self.start(name)
            elif kind == "look":
                self._look_up_some()
        self.now_us = until_us
        self.tally.member_us += (until_us - begun_us) * max(there, len(self.up))

    def _look_up_some(self) -> None:
        if self.up and self.truth:
            who = self.names[self._dice.randrange(len(self.names))]
            while who not in self.up:
                who = self.names[self._dice.randrange(len(self.names))]
            self.look_up(who, f"p{self._dice.randrange(len(self.names))}/s")

    def build(self) -> None:
        """All members come, so many at once as are there already, and rest for some rounds."""
        churn, self.churn = self.churn, Churn()
        for number, name in enumerate(self.names):
            self.start(name)
            if number & (number + 1) == 0 or number % 256 == 0:
                self.run(self.now_us + SECOND_US)
        self.run(self.now_us + 3 * self.settings.round_us)
        self.churn_is(churn)

    def churn_is(self, churn: Churn) -> None:
        """From now on members come and go so. Who is away stays away, where nobody comes and goes."""
        self.churn = churn
        ends = churn.life_s > 0
        self._heap = [each for each in self._heap if each[2] != "end" and (ends or each[2] != "begin")]
        heapq.heapify(self._heap)
        for name in self.up if ends else ():
            self._ends(name)
        self.tally = Tally()

    # --- what should be ---------------------------------------------------------------------------------

    def holders(self, full: str) -> list[str]:
        """Who should hold an entry, the nearest first."""
        place = place_of(full)
        return sorted(self.up, key=lambda name: self._places[name] ^ place)[:REPLICAS]

    def held_by(self, full: str) -> list[str]:
        """Of these, who holds what its owner published last."""
        data = self.truth[full][1]
        found = [(name, self.up[name].shelf.held(full)) for name in self.holders(full)]
        return [name for name, held in found if held is not None and held.data == data]
