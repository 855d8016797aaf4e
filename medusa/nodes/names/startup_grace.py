"""The first moments of a node: what its peers wrote it hasn't heard yet, so "unknown" is no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["NEWS_US", "StartupGrace"]

NEWS_US = 3_000_000
"""From the start on; a peer that dials anew does so within a second, and has told us soon after. Too small: a
name that was given just before is unknown here; too large: one that nobody has given waits in vain where a
peer is away."""

LOOK_US = 20_000
WAITING_MAX = 100
AT_ONCE = 10
"""So many are refused in one turn: each refusal looks for the nearest of all names."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    stands: Callable[[], bool]
    again: Callable[[int], None]


class StartupGrace:
    """Questions and orders of clients by a name that isn't known here: they wait until all peers have told
    what they wrote, for ``NEWS_US`` at most.

    Args:
        peers: of whom news may come.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._untold: dict[str, int | None] = dict.fromkeys(peers)
        """Peer -> the version up to which it wrote, as it says; None: it hasn't said."""
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        """By client and its request."""
        self._until_us: int | None = None
        self._look_at_us = 0
        self._changes = -1

    @property
    def heard_all(self) -> bool:
        """Every peer has told all that it wrote."""
        return not self._untold

    def awaits(self, peer: str) -> bool:
        """A peer hasn't told yet all that it wrote."""
        return peer in self._untold

    def told(self, peer: str, wrote: int | None, seen: int) -> None:
        """A peer spoke of its catalog.

        Args:
            wrote: the version up to which it wrote, as it says now; None: it didn't say.
            seen: that up to which we have what it wrote.
        """
        if peer in self._untold:
            version = self._untold[peer] if wrote is None else wrote
            self._untold[peer] = version
            if version is not None and seen >= version:
                del self._untold[peer]

    def waits(
        self,
        now_us: int,
        client: str,
        request: int,
        *,
        stands: Callable[[], bool],
        again: Callable[[int], None],
    ) -> bool:
        """Whether what a client asks waits, since the answer may come yet; else the caller refuses it.

        Args:
            stands: says whether the name is known now; cheap.
            again: asks once more, at a time.
        """
        key = client, request
        if not self._is_early(now_us) or (key not in self._waiting and len(self._waiting) >= WAITING_MAX):
            return False
        self._waiting[key] = _Waiting(stands, again)
        return True

    def drop(self, client: str, request: int | None = None) -> None:
        """Ask again no more what a client asked, or all of it: it may have lost the right to."""
        for key in [key for key in self._waiting if key[0] == client and request in (None, key[1])]:
            del self._waiting[key]

    def tick(self, now_us: int, changes: int) -> None:
        """Ask again what is known now; where no more is to come, all, some in a turn.

        Args:
            changes: of the catalog so far: without one there is nothing to look for.
        """
        if not self._waiting or now_us < self._look_at_us:
            return
        if not self._is_early(now_us):
            due = list(self._waiting)[:AT_ONCE]
        elif changes != self._changes:
            due = [key for key, each in self._waiting.items() if each.stands()]
        else:
            due = []
        self._changes = changes
        self._look_at_us = now_us + LOOK_US
        for key in due:
            if (each := self._waiting.pop(key, None)) is not None:
                each.again(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._look_at_us if self._waiting else None

    def _is_early(self, now_us: int) -> bool:
        if self._until_us is None:
            self._until_us = now_us + NEWS_US
        return bool(self._untold) and now_us < self._until_us
