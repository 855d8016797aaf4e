"""Places of members and names in the catalog between participants, and whom a member knows. Pure.

Consistent hashing: a name and a member's key are hashed to places of 160 bits, and a name belongs to the
members nearest to it. Nearness is Kademlia's (Maymounkov and Mazières, IPTPS 2002, 2.1): the exclusive or
of two places, as a number. It is symmetric, so that whoever asks a member is worth knowing to it, which
keeps tables fresh without messages of their own. What a member knows is sorted into *buckets* by the number
of bits in that distance (2.2): few far away, everybody near.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["BUCKET", "RoutingTable", "place_of"]

BUCKET = 8
"""Members kept of one bucket. Too small: a bucket whose members all went at once leads nowhere; too large:
more to keep."""

SPARE = 8
"""Members remembered beside a full bucket, to take the place of one that goes."""


_NONE: dict[str, int] = {}


def place_of(text: str) -> int:
    """Of a name or a key."""
    return int.from_bytes(blake2b(text.encode(), digest_size=20).digest(), "big")


class RoutingTable:
    """Whom a member knows: at most ``BUCKET`` at each of 160 distances.

    Args:
        me: own place.
    """

    __slots__ = ("_buckets", "_me", "_places", "_spare")

    def __init__(self, me: int) -> None:
        self._me = me
        self._buckets: dict[int, dict[str, int]] = {}
        """Bits of the distance -> name -> place; who was heard last stands at the end."""
        self._spare: dict[int, dict[str, int]] = {}
        self._places: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def names(self) -> list[str]:
        """All who are in it."""
        return list(self._places)

    def place(self, name: str) -> int | None:
        """Where a member stood when it came in; None: it isn't in the table."""
        return self._places.get(name)

    def heard(self, name: str, place: int) -> bool:
        """A member spoke; whether it is in the table now and wasn't before."""
        bits = (place ^ self._me).bit_length()
        bucket = self._buckets.setdefault(bits, {})
        if name in bucket:
            del bucket[name]
            bucket[name] = place
            return False
        if not bits:
            return False  # That is me.
        if len(bucket) < BUCKET:
            bucket[name] = self._places[name] = place
            return True
        spare = self._spare.setdefault(bits, {})
        spare.pop(name, None)
        spare[name] = place
        if len(spare) > SPARE:
            del spare[next(iter(spare))]
        return False

    def gone(self, name: str, place: int) -> bool:
        """A member doesn't answer, or left; whether it was in the table. A spare one takes its place."""
        bits = (place ^ self._me).bit_length()
        spare = self._spare.get(bits, {})
        spare.pop(name, None)
        if name not in self._places:
            return False
        bucket = self._buckets[bits]
        del bucket[name], self._places[name]
        if spare:
            other, where = spare.popitem()
            bucket[other] = self._places[other] = where
        if not bucket:
            del self._buckets[bits]
        return True

    def room_for(self, place: int) -> bool:
        """Whether one more at this place would be taken in."""
        return len(self._buckets.get((place ^ self._me).bit_length(), ())) < BUCKET

    def closest(self, target: int, count: int) -> list[tuple[int, str]]:
        """(distance, name) of those nearest to a place, the nearest first.

        The bucket into which the target falls holds the nearest; then come those nearer to me than it, all
        alike in their highest bits; then bucket by bucket those farther away.
        """
        buckets = self._buckets
        bits = (target ^ self._me).bit_length()
        found = [(place ^ target, name) for name, place in buckets.get(bits, _NONE).items()]
        if len(found) < count:
            for near, bucket in buckets.items():
                if near < bits:
                    found += [(place ^ target, name) for name, place in bucket.items()]
            if len(found) < count:
                for far in sorted([each for each in buckets if each > bits]):
                    found += [(place ^ target, name) for name, place in buckets[far].items()]
                    if len(found) >= count:
                        break
        found.sort()
        return found[:count]

    def some_bucket(self, turn: int) -> int | None:
        """Bits of the distance of one of the buckets, another each turn; None: nobody is known."""
        kept = sorted(self._buckets)
        return kept[turn % len(kept)] if kept else None
