"""What a node orders by itself, and where the parts of a box are: by the statuses that nodes tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["PartsSample", "ScaleAct", "ScaleActs", "parts_of"]

SAME_S = 0.5
"""Two orders are at least a second apart, and when one was given is told from how long ago that was: so far
apart in two answers it is the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAct:
    """An order.

    Attributes:
        began_s: when it was given, since the first row was due.
        ended_s: by when it was carried out, or refused; None: that isn't known.
        what, why: in words of the node that gave it.
        outcome: ``done``, or why not; empty: it isn't known yet.
    """

    began_s: float
    ended_s: float | None = None
    what: str
    why: str
    outcome: str = ""

    @property
    def kind(self) -> str:
        """``split``, ``move`` or ``merge``."""
        return self.what.partition(" ")[0]

    @property
    def done(self) -> bool:
        return self.outcome == "done"

    @property
    def seconds(self) -> set[int]:
        """Whole seconds in which it was under way; of one whose end isn't known that in which it began."""
        end_s = self.began_s if self.ended_s is None else self.ended_s
        return set(range(max(int(self.began_s), 0), int(end_s) + 1))


@dataclass(slots=True)
class ScaleActs:
    """Those seen so far; ``said``: how many the node says that it has carried out."""

    seen: list[ScaleAct] = field(default_factory=list)
    said: int = 0

    def take(self, at_s: float, scaling: Mapping[str, Any]) -> Sequence[ScaleAct]:
        """Take ``status()["queries"][query]["scaling"]`` as it is at a moment; acts that are new in it, and
        those that have ended since."""
        self.said = scaling["acts"]
        if not scaling["last"]:
            return []
        told = ScaleAct(
            began_s=at_s - scaling["last_us"] / 1e6,
            ended_s=at_s if scaling["outcome"] else None,
            what=scaling["last"],
            why=scaling["why"],
            outcome=scaling["outcome"],
        )
        before = self.seen[-1] if self.seen else None
        if before is None or before.what != told.what or abs(before.began_s - told.began_s) > SAME_S:
            self.seen = [*self.seen, told]
            return [told]
        if before.ended_s is not None or told.ended_s is None:
            return []
        ended = replace(before, ended_s=told.ended_s, outcome=told.outcome)
        self.seen = [*self.seen[:-1], ended]
        return [ended]


@dataclass(frozen=True, slots=True)
class PartsSample:
    """Where the parts of the box were at a moment: node -> how many it had."""

    at_s: float
    parts: Mapping[str, int]

    @property
    def text(self) -> str:
        """In words."""
        said = [node if count == 1 else f"{node} ({count} parts)" for node, count in self.parts.items()]
        return ", ".join(said) or "nowhere"


def parts_of(query: str, statuses: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Node -> how many boxes it has that do the work of the query's one window, by what the nodes tell."""
    found: dict[str, int] = {}
    for status in statuses:
        for fragment in status["fragments"]:
            if fragment["query"] == query:
                count = sum(each["kind"] == "aggregate" for each in fragment["boxes"].values())
                if count:
                    found[status["node"]] = found.get(status["node"], 0) + count
    return found
