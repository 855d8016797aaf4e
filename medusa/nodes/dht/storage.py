"""The entries that one member of the catalog between participants holds: whose, how many, how long. Pure.

Nothing comes in here, and nothing goes out, that isn't signed by a participant that is registered here
now. Of each name the youngest entry is kept: one that is gone too, as long as an older one could come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from medusa.errors import RemoteProtocolError
from medusa.nodes.dht.routing_table import place_of
from medusa.ports import Verify
from medusa.wire.dht_entry import DhtEntry, SignedEntry, age_of, check_entry, opened_entry

__all__ = ["DhtStorage", "StorageQuota", "StoredEntry"]

ENTRY_COST = 200
"""Bytes that an entry takes beside its own, so that many small ones are bounded too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageQuota:
    """Bounds of what a member holds.

    Attributes:
        entries, bytes: of one participant.
        all_bytes: of all together.
        lifetime_us: nobody may say anything for longer.
    """

    entries: int = 1_000
    bytes: int = 1 << 20
    all_bytes: int = 64 << 20
    lifetime_us: int = 3_600_000_000


@dataclass(slots=True)
class StoredEntry:
    """An entry as it came.

    Attributes:
        key: that signed it.
        place: of its name.
        since_us: when it was last brought.
        radius: no farther from it than this are those that should hold it.
    """

    entry: DhtEntry
    data: bytes
    key: str
    place: int
    since_us: int
    radius: int = 1 << 160

    def brought(self, now_us: int) -> None:
        """It is said again."""
        self.since_us = now_us

    def reaches(self, radius: int) -> None:
        """So far from it are those that should hold it."""
        self.radius = radius


class DhtStorage:
    """Entries by name.

    Args:
        federation: where we are.
        key_of: participant -> its Ed25519 key; None: it isn't registered here.
        verify: checks signatures.
    """

    def __init__(
        self, *, federation: str, key_of: Callable[[str], str | None], verify: Verify, quota: StorageQuota
    ) -> None:
        self.quota = quota
        self._federation = federation
        self._key_of = key_of
        self._verify = verify
        self._held: dict[str, StoredEntry] = {}
        self._counts: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._all_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[StoredEntry]:
        return iter(list(self._held.values()))

    def read(self, data: bytes, wall_us: int) -> DhtEntry:
        """What signed bytes say, if that counts here and now.

        Raises:
            RemoteProtocolError: as ``opened_entry`` and ``check_entry``.
        """
        return self._read(data, wall_us)[1]

    def _read(self, data: bytes, wall_us: int) -> tuple[SignedEntry, DhtEntry]:
        signed, entry = opened_entry(data)
        held = self._held.get(entry.name)
        key = self._key_of(entry.participant)
        if held is not None and held.data == data and key == held.key and wall_us <= entry.expiry_us:
            return signed, entry  # Its signature was checked.
        check_entry(
            signed,
            entry,
            verify=self._verify,
            key=key,
            federation=self._federation,
            wall_us=wall_us,
            lifetime_us=self.quota.lifetime_us,
        )
        return signed, entry

    def put(self, data: bytes, now_us: int, wall_us: int) -> DhtEntry:
        """Keep it, unless a younger one is here.

        Raises:
            RemoteProtocolError: it doesn't count (as ``read``), is older than what is held (``E_REPLAY``),
                or is too much of its participant (``E_LIMIT``). Nothing changed.
        """
        signed, entry = self._read(data, wall_us)
        held = self._held.get(entry.name)
        # Two of one age are both signed by their owner; everybody keeps the same one.
        if held is not None and (age_of(held.entry), held.data) > (age_of(entry), data):
            raise RemoteProtocolError(
                f"{entry.name!r} of age {age_of(entry)}, held is {age_of(held.entry)}", code="E_REPLAY"
            )
        self._check_room(entry.participant, data, held)
        if held is not None:
            self._forget(held)
        place = place_of(entry.name) if held is None else held.place
        self._held[entry.name] = StoredEntry(entry, data, signed.key, place, now_us)
        who, cost = entry.participant, len(data) + ENTRY_COST
        self._counts[who] = self._counts.get(who, 0) + 1
        self._bytes[who] = self._bytes.get(who, 0) + cost
        self._all_bytes += cost
        return entry

    def _check_room(self, who: str, data: bytes, held: StoredEntry | None) -> None:
        more = len(data) + ENTRY_COST - (0 if held is None else len(held.data) + ENTRY_COST)
        entries = self._counts.get(who, 0) + (held is None)
        nbytes = self._bytes.get(who, 0) + more
        if entries > self.quota.entries or nbytes > self.quota.bytes:
            raise RemoteProtocolError(
                f"participant {who!r} has {entries - 1:,} entries of {nbytes - more:,} bytes here",
                hint=f"at most {self.quota.entries:,} of {self.quota.bytes:,} bytes",
                code="E_LIMIT",
            )
        if self._all_bytes + more > self.quota.all_bytes:
            raise RemoteProtocolError("no room for more entries", code="E_LIMIT")

    def _forget(self, held: StoredEntry) -> None:
        who = held.entry.participant
        del self._held[held.entry.name]
        self._counts[who] -= 1
        self._bytes[who] -= len(held.data) + ENTRY_COST
        self._all_bytes -= len(held.data) + ENTRY_COST
        if not self._counts[who]:
            del self._counts[who], self._bytes[who]

    def drop(self, name: str) -> None:
        """Hold it no more: others do."""
        if name in self._held:
            self._forget(self._held[name])

    def held(self, name: str) -> StoredEntry | None:
        """What is held of a name, whether or not it counts."""
        return self._held.get(name)

    def answer(self, name: str, wall_us: int) -> bytes:
        """What may be said of a name; empty: nothing counts here and now."""
        held = self._held.get(name)
        if held is None or wall_us > held.entry.expiry_us:
            return b""
        return held.data if self._key_of(held.entry.participant) == held.key else b""

    def expire(self, wall_us: int) -> None:
        """Forget what counts no more, and whose participant isn't registered any more."""
        for held in list(self._held.values()):
            if wall_us > held.entry.expiry_us or self._key_of(held.entry.participant) != held.key:
                self._forget(held)
