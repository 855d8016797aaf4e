"""Ranges of the 64-bit hash of keys (``hash_partition``): even ones, and such that weigh the same."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise

from medusa.errors import QueryError

__all__ = ["HASHES", "even_cuts", "ranges_by_weight", "shares"]

HASHES = 1 << 64
"""How many hashes there are: they are below."""


def even_cuts(n: int) -> tuple[int, ...]:
    """Where n ranges of the same length end, but the last: ``part = number of cuts <= hash``."""
    return tuple(HASHES * part // n for part in range(1, n))


def ranges_by_weight(weights: Mapping[int, float], n: int) -> tuple[int, ...]:
    """Cut the hashes into n ranges, so that the heaviest one is as light as can be.

    A binary search for the least weight that suffices, each tried by filling ranges from the left: the
    best of all contiguous cuts. Among those, ranges are filled evenly, and each cut lies in the middle
    between two hashes that were seen, so that keys not yet seen fall evenly to both.

    Args:
        weights: hash -> weight, such as rows seen; those of 0 are left out.
        n: from 2.

    Returns:
        n - 1 cuts, ascending, in (0, 2^64).

    Raises:
        QueryError: a weight is negative or no number, a hash out of range, or n below 2.
    """
    if n < 2:
        raise QueryError(f"ranges: at least 2 of them, got {n}", code="query.split")
    seen = sorted((hash, float(weight)) for hash, weight in weights.items() if weight != 0)
    if any(not (0 <= hash < HASHES and 0 < weight < float("inf")) for hash, weight in seen):
        raise QueryError(
            "ranges: hashes are from 0 to 2^64 - 1, weights finite and not negative", code="query.split"
        )
    hashes, loads = [hash for hash, _ in seen], [weight for _, weight in seen]
    firsts = _firsts(loads, n, _least_bottleneck(loads, n))
    cuts = [(hashes[first - 1] + hashes[first] + 1) // 2 for first in firsts]
    return tuple(sorted({*cuts, *_spare(cuts, n - 1 - len(cuts))}))


def shares(weights: Mapping[int, float], cuts: tuple[int, ...]) -> list[float]:
    """The weight of each range."""
    found = [0.0] * (len(cuts) + 1)
    for hash, weight in weights.items():
        found[bisect_right(cuts, hash)] += weight
    return found


def _least_bottleneck(loads: list[float], n: int) -> float:
    """The least weight of the heaviest of n ranges, to the last bit but one or two."""
    low, high = max(loads, default=0.0), sum(loads) * (1 + 1e-12)
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _ranges_of(loads, middle) <= n:
            high = middle
        else:
            low = middle
    return low if _ranges_of(loads, low) <= n else high


def _ranges_of(loads: list[float], most: float) -> int:
    """How many ranges it takes that weigh at most ``most``."""
    count, held = 1, 0.0
    for load in loads:
        if held + load > most:
            count, held = count + 1, 0.0
        held += load
    return count


def _firsts(loads: list[float], n: int, most: float) -> list[int]:
    """Which loads begin a range, but the first: each takes its even share of what is left, if that fits.

    A range may end early as long as the rest fits into the ranges that are left.
    """
    needed = [0] * (len(loads) + 1)  # ranges for the loads from there on
    reach = len(loads)
    held = 0.0
    for first in range(len(loads) - 1, -1, -1):
        held += loads[first]
        while held > most and reach - 1 > first:
            reach -= 1
            held -= loads[reach]
        needed[first] = needed[reach] + 1
    firsts: list[int] = []
    held, rest, left = 0.0, sum(loads), n
    for place, load in enumerate(loads):
        ends = held > 0 and (
            held + load > most or (held + load / 2 > rest / left and needed[place] <= left - 1)
        )
        if ends and left > 1:
            firsts.append(place)
            rest, held, left = rest - held, 0.0, left - 1
        held += load
    return firsts


def _spare(cuts: list[int], count: int) -> list[int]:
    """Further cuts, where there are fewer keys than ranges: each halves the longest range."""
    edges = [0, *cuts, HASHES]
    for _ in range(count):
        low, high = max(pairwise(edges), key=lambda pair: pair[1] - pair[0])
        edges = sorted([*edges, (low + high) // 2])
    return [edge for edge in edges[1:-1] if edge not in cuts]
