"""Keys whose hashes lie right below and right above the cuts of a box that is split."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np
import pyarrow as pa

from medusa.engine.repartition.tables import hashes_of
from medusa.query.rewrite.key_ranges import even_cuts

__all__ = ["keys_at_cuts", "keys_of_rows"]

CANDIDATES = 50_000
"""The nearest of so many is 2^64 / 50,000 away from a cut, about."""

SLICES = 5
"""Of the time of a table: each has keys of its own, so that many have rows, and some of them several."""


@lru_cache(maxsize=1)
def keys_at_cuts(parts: tuple[int, ...] = (2, 3), near: int = 3) -> tuple[str, ...]:
    """The ``near`` nearest keys on either side of each even cut; each once, in order of their hashes.

    Args:
        parts: how many parts there may be.
    """
    names = [f"k{number}" for number in range(CANDIDATES)]
    hashes = hashes_of([pa.array(names)])
    order = np.argsort(hashes)
    found: set[int] = set()
    for count in parts:
        for cut in even_cuts(count):
            at = int(hashes[order].searchsorted(np.uint64(cut)))
            found |= set(order[max(at - near, 0) : at + near].tolist())
    return tuple(names[place] for place in sorted(found, key=lambda place: int(hashes[place])))


def keys_of_rows(dice: Random, rows: int) -> list[str]:
    """A key for each row, in order of time: most near a cut, many come again at once and some later."""
    near, seen = keys_at_cuts(), list[str]()
    keys: list[str] = []
    for row in range(rows):
        if row * SLICES // rows != (row - 1) * SLICES // rows or not seen:
            pool = dice.sample(near, 6) + [f"k{dice.randrange(CANDIDATES)}" for _ in range(8)]
            seen += pool
        again = keys[-3:] if dice.random() < 0.4 else []
        keys.append(dice.choice(again or (pool if dice.random() < 0.8 else seen)))
    return keys
