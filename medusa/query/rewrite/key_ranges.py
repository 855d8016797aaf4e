"""Ranges of the 64-bit hash of keys (``hash_partition``): even ones, and such that weigh the same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

__all__ = ["HASHES", "even_cuts", "ranges_of_seen", "shares"]

HASHES = 1 << 64
"""How many hashes there are: they are below."""


def even_cuts(n: int) -> tuple[int, ...]:
    """Where n ranges of the same length end, but the last: ``part = number of cuts <= hash``."""
    return tuple(HASHES * part // n for part in range(1, n))


def ranges_of_seen(hashes: Sequence[int], loads: Sequence[float], n: int) -> tuple[int, ...]:
    """Cut the hashes into n ranges, so that the heaviest one is as light as can be.

    A binary search for the least weight that suffices, each tried by filling ranges from the left: the
    best of all contiguous cuts. Among those, ranges are filled evenly, and each cut lies in the middle
    between two hashes that were seen, so that keys not yet seen fall evenly to both. It takes a few binary
    searches for each range, so a million of keys cost little more than their sum.

    Args:
        hashes: in ascending order, each once.
        loads: their weights, such as rows seen: finite, above 0.
        n: from 2.

    Returns:
        n - 1 cuts, ascending, in (0, 2^64).
    """
    sums = [0.0, *accumulate(map(float, loads))]
    firsts = _firsts(sums, n, _least_bottleneck(sums, n, max(loads, default=0.0)))
    cuts = [(hashes[first - 1] + hashes[first] + 1) // 2 for first in firsts]
    return tuple(sorted({*cuts, *_spare(cuts, n - 1 - len(cuts))}))


def shares(weights: Mapping[int, float], cuts: tuple[int, ...]) -> list[float]:
    """The weight of each range."""
    found = [0.0] * (len(cuts) + 1)
    for hash, weight in weights.items():
        found[bisect_right(cuts, hash)] += weight
    return found


def _least_bottleneck(sums: list[float], n: int, heaviest: float) -> float:
    """The least weight of the heaviest of n ranges, to the last bit but one or two.

    Args:
        sums: of the weights before each key; of all, last.
    """
    low, high = heaviest, sums[-1] * (1 + 1e-12)
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _suffices(sums, n, middle):
            high = middle
        else:
            low = middle
    return low if _suffices(sums, n, low) else high


def _suffices(sums: list[float], n: int, most: float) -> bool:
    """Whether n ranges that weigh at most ``most`` take all: each is filled from where the last one ends."""
    first = 0
    for _ in range(n):
        first = _filled(sums, first, most)
    return first == len(sums) - 1


def _filled(sums: list[float], first: int, most: float) -> int:
    """Where a range must end that begins there; one key it has anyway."""
    return min(max(bisect_right(sums, sums[first] + most) - 1, first + 1), len(sums) - 1)


def _firsts(sums: list[float], n: int, most: float) -> list[int]:
    """Which keys begin a range, but the first: each takes its even share of what is left, if that fits.

    A range may end early as long as the rest fits into the ranges that are left.
    """
    count = len(sums) - 1
    fits = [count]  # From which key on all fits into 0, 1, 2 ... ranges.
    for _ in range(n - 1):
        fits.append(min(bisect_left(sums, sums[fits[-1]] - most), fits[-1]))
    firsts: list[int] = []
    first = 0
    for left in range(n, 1, -1):
        share = sums[first] + (sums[-1] - sums[first]) / left
        even = bisect_right(range(count), 2 * share, key=lambda place: sums[place] + sums[place + 1])
        first = min(_filled(sums, first, most), max(even, fits[left - 1], first + 1))
        if first >= count:
            break
        firsts.append(first)
    return firsts


def _spare(cuts: list[int], count: int) -> list[int]:
    """Further cuts, where there are fewer keys than ranges: each halves the longest range."""
    edges = [0, *cuts, HASHES]
    for _ in range(count):
        low, high = max(pairwise(edges), key=lambda pair: pair[1] - pair[0])
        edges = sorted([*edges, (low + high) // 2])
    return [edge for edge in edges[1:-1] if edge not in cuts]
