"""One query under each method of recovery: which there are, where each runs, and its input.

    publisher ── a rows ── kept ──┬── b counted ── out ── reader      b2 stands by for b
                                  ├── c counted ── out ── reader      c2 stands by for c
                                  └── ...
                 w votes, and stands by for what runs at a

The rows are numbered, and row n is of group ``n mod groups``. A window's row says how many rows of its group
it holds, and their first, last and total number: so which numbers came, and how often, follows from the
output alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, max, min, sum
from medusa.query.recovery import METHODS, PRECISE_UPSTREAM, UPSTREAM

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ENTRY",
    "POSTER",
    "WITNESS",
    "HaMethod",
    "HaShape",
    "known_methods",
    "placed",
    "query",
    "traffic",
]

ENTRY, WITNESS = "a", "w"


@dataclass(frozen=True, slots=True)
class HaMethod:
    """A query of the poster.

    Attributes:
        letter: that the poster gives it.
        recovery, method: as ``Query.sink`` has them; None: nobody stands by.
    """

    letter: str
    recovery: str | None
    method: str | None

    @property
    def name(self) -> str | None:
        """Of the method, told from the others; None: nobody stands by."""
        return PRECISE_UPSTREAM if (self.recovery, self.method) == ("precise", UPSTREAM) else self.method

    @property
    def title(self) -> str:
        return (self.name or "no standby").replace("_", " ")

    @property
    def query(self) -> str:
        return self.letter.lower()

    @property
    def primary(self) -> str:
        return self.letter.lower()

    @property
    def secondary(self) -> str:
        return f"{self.primary}2"

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.primary,) if self.method is None else (self.primary, self.secondary)

    @property
    def fragment(self) -> str:
        return f"{self.query}/counted"


POSTER = (
    HaMethod("B", "precise", "passive_standby"),
    HaMethod("C", "precise", "active_standby"),
    HaMethod("D", "rollback", "upstream_backup"),
    HaMethod("E", "precise", "upstream_backup"),
    HaMethod("F", "gap", "amnesia"),
)


def known_methods() -> list[HaMethod]:
    """Those of the poster that this release has."""
    return [each for each in POSTER if each.method in METHODS.get(each.recovery or "", ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class HaShape:
    """How much there is to do.

    Attributes:
        rate: rows a second, by their own time and by the clock.
        groups: by which each window counts.
        window_ms: its rows are the state that a failure may cost.
        checkpoint_every: between two checkpoints of a fragment.
    """

    rate: int = 2_000
    groups: int = 10
    window_ms: int = 100
    checkpoint_every: str = "200ms"


def query(of: HaMethod, shape: HaShape) -> Query:
    """Rows by window and group."""
    q = Query(of.query)
    columns = {"ts": "timestamp", "n": "int64", "k": "int64", "sent": "int64"}
    kept = q.source("rows", columns, time="ts").filter("n >= 0", name="kept")
    counted = (
        kept.window(f"{shape.window_ms}ms")
        .group_by("k")
        .aggregate(
            rows=count(), first=min("n"), last=max("n"), total=sum("n"), sent=max("sent"), name="counted"
        )
    )
    if of.method is None:
        q.sink("out", counted)
    else:
        q.sink("out", counted, recovery=of.recovery, method=of.method)
    return q


def placed(of: HaMethod, q: Query) -> dict[str, Sequence[str]]:
    """Source and filter at the entry, the rest at the primary."""
    ahead = ["rows", "kept"]
    return {ENTRY: ahead, of.primary: [box.id for box in q.graph.boxes if box.id not in ahead]}


def traffic(begin: int, end: int, shape: HaShape, sent_ns: int) -> pa.Table:
    """The rows of these numbers.

    Args:
        sent_ns: when they are published.
    """
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(begin, end)
    return pa.table(
        {
            "ts": pa.array(numbers * 1_000_000 // shape.rate, pa.timestamp("us", "UTC")),
            "n": numbers,
            "k": numbers % shape.groups,
            "sent": np.full(end - begin, sent_ns),
        }
    )
