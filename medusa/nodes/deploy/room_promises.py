"""Room for fragments that this node has promised to those who asked, and that nobody uses yet. No IO.

    owner ── Move: is there room for so many? ──> here ── Reply: promised ──> owner
    owner ── Seed, one of them ──> here: that much of it is used
    owner ── GiveUp: it comes to nothing ──> here: given back

Two that ask at once would else be promised the same room, and the second would find none once it had given up
what it had.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROMISED_US", "RoomPromises", "RoomWanted"]

PROMISED_US = 60_000_000
"""So long a promise is kept that is neither used nor given back. Less than a split takes: its room may be
promised twice. More: who asked and is lost for good keeps others out for as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomWanted:
    """What an owner asks for.

    Attributes:
        request: the number of its question.
        fragment: that is to come; or in whose place others are.
        fragments: so many come in its place; 0: it comes itself.
        streams: so many are read by all that come.
    """

    request: int
    fragment: str
    fragments: int
    streams: int


@dataclass(slots=True, kw_only=True)
class _Promise:
    """What of it isn't used yet."""

    wanted: RoomWanted
    fragments: int
    streams: int
    until_us: int


class RoomPromises:
    """What one node has promised, by who asked and about which fragment."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], _Promise] = {}

    def promise(self, now_us: int, peer: str, wanted: RoomWanted) -> None:
        """Keep this room; what was promised about the fragment before is so no more."""
        self._open[peer, wanted.fragment] = _Promise(
            wanted=wanted,
            fragments=wanted.fragments or 1,
            streams=wanted.streams,
            until_us=now_us + PROMISED_US,
        )

    def beside(self, peer: str, fragment: str) -> tuple[int, int]:
        """Fragments and streams promised for all but this one of this owner."""
        others = [each for about, each in self._open.items() if about != (peer, fragment)]
        return sum(each.fragments for each in others), sum(each.streams for each in others)

    def kept_from(self, peer: str, fragment: str) -> int:
        """So many fragments have room that this one of this owner can't use."""
        total = sum(each.fragments for each in self._open.values())
        return total if self._for(peer, fragment) is None else total - 1

    def use(self, peer: str, fragment: str, streams: int) -> None:
        """A fragment of this owner begins here that wasn't here before, and reads so many streams."""
        about = self._for(peer, fragment)
        if about is None:
            return
        each = self._open[about]
        each.fragments, each.streams = each.fragments - 1, max(0, each.streams - streams)
        if not each.fragments:
            del self._open[about]

    def _for(self, peer: str, fragment: str) -> tuple[str, str] | None:
        """What was promised for a fragment. Nobody says in whose place it comes, but of the same query."""
        for about, each in self._open.items():
            itself = not each.wanted.fragments
            same_query = _query(about[1]) == _query(fragment)
            if about[0] == peer and same_query and itself == (about[1] == fragment):
                return about
        return None

    def give_back(self, peer: str, fragment: str, request: int) -> None:
        """What was asked for by this number isn't needed."""
        known = self._open.get((peer, fragment))
        if known is not None and known.wanted.request == request:
            del self._open[peer, fragment]

    def forget(self, *, peer: str = "", query: str = "") -> None:
        """All that a node asked for, which was restarted and has forgotten so; or all for a query, which is
        removed."""
        for about in [each for each in self._open if peer == each[0] or query == _query(each[1])]:
            del self._open[about]

    def expire(self, now_us: int) -> None:
        """Those whose time is over."""
        for about in [about for about, each in self._open.items() if now_us >= each.until_us]:
            del self._open[about]

    def wake_at_us(self) -> int | None:
        """When ``expire`` has work."""
        return min((each.until_us for each in self._open.values()), default=None)


def _query(fragment: str) -> str:
    return fragment.partition("/")[0]
