"""A query that is being drawn: its streams, and what may be done with them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import medusa as md
from medusa.query.types import is_decimal

COLUMNS_MOST = 40
"""Of a stream that boxes may go on with: joins of joins grow fast."""


@dataclass
class Stream:
    """A stream of the query, and what may be done with it.

    Attributes:
        loose: the order of its rows is that of arrival.
        window: (size, advance, keys) of the windows of which it holds results.
        dead: failed rows; the oracle knows their box only.
        untold: the oracle doesn't know the times of its rows (what value windows hold at the end leaves with
            the last boundary), so boxes that go by time don't read it.
    """

    stream: md.Stream
    loose: bool = False
    window: Any = None
    dead: bool = False
    untold: bool = False

    @property
    def types(self) -> dict[str, str]:
        return self.stream.schema

    def then(self, stream: md.Stream, *, window: bool = False) -> Stream:
        kept = self.window if window else None
        return Stream(stream, loose=self.loose, window=kept, untold=self.untold)


@dataclass
class Pool:
    query: md.Query
    streams: list[Stream] = field(default_factory=list)
    drawn: Counter[str] = field(default_factory=Counter)
    tables: int = 0

    def pick(
        self, rng: random.Random, *needs: str, timed: bool = True, ordered: bool = True
    ) -> Stream | None:
        """A stream with these columns. ``ordered``: not one in the order of arrival."""
        fit = [
            each
            for each in self.streams
            if not each.dead
            and set(needs) <= set(each.types)
            and (each.stream.timed and not each.untold if timed else True)
            and not (ordered and each.loose)
            and len(each.types) <= COLUMNS_MOST
        ]
        return rng.choice(fit) if fit else None

    def add(self, *streams: Stream) -> bool:
        self.streams += streams
        return True


Grow = Callable[[random.Random, Pool], bool]
KINDS: dict[str, Grow] = {}
"""One function per kind of box: it adds one to a query, if there is an input for it."""


def grows(function: Grow) -> Grow:
    KINDS[function.__name__] = function
    return function


def keys(rng: random.Random, types: dict[str, str], most: int = 2) -> list[str]:
    """Columns of any type but decimals; none, one or two."""
    fit = [
        name
        for name, type in types.items()
        if not is_decimal(type) and not name.startswith("r_") and name not in ("window_start", "window_end")
    ]
    return rng.sample(fit, min(len(fit), rng.choice([0, 1, 1, 1, most])))


def suffix(pool: Pool) -> str:
    """A new one each time, so that joins of joins have no name twice."""
    pool.drawn["_suffixes"] += 1
    return f"_r{pool.drawn['_suffixes']}"
