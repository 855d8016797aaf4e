"""When each machine and each connection of a run stood, as seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

__all__ = ["Outages"]


class Outages:
    """Looked at now and then, so that an outage counts as up to two looks longer than it was.

    Args:
        parts: all that may be down, by name.
        works: whether a part does.
        starts: how often a part was started: who is back before anybody looked was down too.
    """

    def __init__(
        self, parts: Iterable[str], works: Callable[[str], bool], starts: Callable[[str], int]
    ) -> None:
        self._works, self._starts = works, starts
        self._down: dict[str, list[tuple[int, int]]] = {part: [] for part in parts}
        self._started = {part: starts(part) for part in self._down}
        self._looked_us = 0

    def look(self, now_us: int) -> None:
        """Take note of what is down."""
        for part, spans in self._down.items():
            before, self._started[part] = self._started[part], self._starts(part)
            if self._works(part) and self._started[part] == before:
                continue
            if spans and spans[-1][1] >= self._looked_us:
                spans[-1] = (spans[-1][0], now_us)
            else:
                spans.append((self._looked_us, now_us))
        self._looked_us = now_us

    def worked(self, parts: Iterable[str], from_us: int, to_us: int) -> bool:
        """Whether these were there all the time."""
        return all(
            end_us < from_us or begin_us > to_us for part in parts for begin_us, end_us in self._down[part]
        )

    def ended(self, parts: Iterable[str], from_us: int, to_us: int, *, for_us: int) -> list[tuple[int, int]]:
        """When these were down for no longer than that, and were back between two moments."""
        spans = (span for part in parts for span in self._down[part])
        return [
            (begin_us, end_us)
            for begin_us, end_us in spans
            if from_us <= end_us <= to_us and end_us - begin_us <= for_us
        ]

    def is_still(self, begun_us: int, back_us: int, to_us: int) -> bool:
        """Whether nothing went down from ``begun_us`` on, and nothing was back from ``back_us`` on."""
        return not any(
            begun_us <= begin_us <= to_us or back_us <= end_us <= to_us for begin_us, end_us in self._sorted()
        )

    def first_back_us(self, else_us: int) -> int:
        """When something that was down was back for the first time; ``else_us``: nothing was down."""
        return min((end_us for _, end_us in self._sorted()), default=else_us)

    @property
    def last_us(self) -> int:
        """When something was down last; 0: nothing was."""
        return max((end_us for spans in self._down.values() for _, end_us in spans), default=0)

    def quiet(self, to_us: int) -> list[tuple[int, int]]:
        """From when until when nothing was down, up to a moment."""
        found, since_us = [], 0
        for begin_us, end_us in self._sorted():
            if since_us < min(begin_us, to_us):
                found.append((since_us, min(begin_us, to_us)))
            since_us = max(since_us, end_us)
        return [*found, (since_us, to_us)] if since_us < to_us else found

    def longest_us(self, rest_us: int) -> int:
        """How long something was down at most; what follows within ``rest_us`` counts as one."""
        longest = since_us = until_us = 0
        for begin_us, end_us in self._sorted():
            if begin_us > until_us + rest_us:
                since_us = begin_us
            until_us = max(until_us, end_us)
            longest = max(longest, until_us - since_us)
        return longest

    def _sorted(self) -> Sequence[tuple[int, int]]:
        return sorted(span for spans in self._down.values() for span in spans)
