"""Which boxes hang together: against looking at all pairs."""

from __future__ import annotations

from random import Random

import pytest

from medusa.nodes.spec.connected import connected


def slow(boxes):
    parts = []
    for index, (name, read) in enumerate(boxes):
        mine = [part for part in parts if part[1] & {name, *read}]
        parts = [part for part in parts if part not in mine]
        merged = [index, *(each for part in mine for each in part[0])]
        parts.append((sorted(merged), {name, *read}.union(*(part[1] for part in mine))))
    return sorted(part for part, _ in parts)


@pytest.mark.parametrize("seed", range(50))
def test_it_equals_merging_pair_by_pair(seed):
    dice = Random(seed)
    count = dice.randrange(1, 30)
    boxes = [
        (f"b{index}", [f"b{dice.randrange(index)}" for _ in range(dice.choice((0, 0, 1, 2))) if index])
        for index in range(count)
    ]
    assert connected(boxes) == slow(boxes)


def test_two_that_read_one_stream_from_elsewhere_are_one_part():
    assert connected([("a", ["from x"]), ("b", []), ("c", ["from x"])]) == [[0, 2], [1]]
