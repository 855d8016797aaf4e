"""When a box should run in more parts, or in fewer. Pure: looks in, decisions out.

    work / parts  >  high, for `looks` looks  ──>  ceil(work / target) parts
                  <  low,  for `looks` looks  ──>  the same, if that is fewer

``low`` is below what growing leaves, and ``target`` below ``high``: so no decision is undone by the next one
unless the load has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol

__all__ = ["Resize", "ScalePolicy", "ScaleRules", "WorkPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRules:
    """The marks, as shares of what a part can do.

    Attributes:
        high: more is too much; ``low``: less is too little.
        target: what parts are planned for.
        looks: so many in a row have to say the same.
        rest_us: a box that was resized is left alone for so long: what is measured has to follow first.
        parts_max: a box never has more.
    """

    high: float = 0.7
    low: float = 0.3
    target: float = 0.5
    looks: int = 2
    rest_us: int = 15_000_000
    parts_max: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A box should run in so many parts; ``why`` is for people."""

    box: str
    parts: int
    why: str


class ScalePolicy(Protocol):
    """What decides; a user may have one of their own."""

    def look(self, now_us: int, work: Mapping[str, float], parts: Mapping[str, int]) -> tuple[Resize, ...]:
        """What should change now, the box with most to do first.

        Args:
            work: box -> threads that it would keep busy.
            parts: box -> in how many it runs; only these are looked at.
        """
        ...


class WorkPolicy:
    """By the work of each box against two marks."""

    def __init__(self, rules: ScaleRules) -> None:
        self._rules = rules
        self._said: dict[str, tuple[int, int]] = {}
        """Box -> which way it should go (1: more), and how often that was seen in a row."""
        self._rests_until_us: dict[str, int] = {}

    def look(self, now_us: int, work: Mapping[str, float], parts: Mapping[str, int]) -> tuple[Resize, ...]:
        """As ``ScalePolicy.look``. What it gives counts as done: the box rests from then on."""
        found = []
        for box in sorted(parts, key=lambda box: (-work.get(box, 0.0), box)):
            if box not in work or now_us < self._rests_until_us.get(box, now_us):
                self._said.pop(box, None)
            elif (resize := self._judge(box, work[box], parts[box])) is not None:
                self._said.pop(box, None)
                self._rests_until_us[box] = now_us + self._rules.rest_us
                found.append(resize)
        return tuple(found)

    def _judge(self, box: str, work: float, parts: int) -> Resize | None:
        rules, share = self._rules, work / parts
        wanted = min(max(ceil(work / rules.target), 1), rules.parts_max)
        way = (share > rules.high and wanted > parts) - (share < rules.low and wanted < parts)
        if not way:
            self._said.pop(box, None)
            return None
        before, times = self._said.get(box, (way, 0))
        times = times + 1 if before == way else 1
        self._said[box] = way, times
        if times < rules.looks:
            return None
        mark = f"above {rules.high:g}" if way > 0 else f"below {rules.low:g}"
        why = f"{share:.2f} of a thread in each of {parts}, {mark} in {times} looks: {wanted} for {work:.2f}"
        return Resize(box=box, parts=wanted, why=why)
