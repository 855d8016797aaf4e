"""The authors' three streams and their chain of nodes, with rows whose fate can be counted.

    publisher ── e  s0, s1 ──┬── c1 met ── c2 passed2 ── ... ── out ── reader     r1, r2, ... stand by
    publisher ── f  s2 ──────┘                                                    for c1, c2, ...

``met`` is an ``sunion`` of the three; a node behind it has a filter. Row n of a stream has its number, and
the moment at which it was published as its time. The nodes ``f`` (and ``g``, where two streams fail) carry
nothing but the filter of their stream, and fail; pairs don't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

import medusa as md
from bench.delay.policies import Policy
from bench.delay.rig import Feed, Setup

__all__ = ["ENTRY", "Shape", "rows_of", "setup_of", "source_of"]

COLUMNS = {"ts": "timestamp", "s": "int64", "n": "int64"}
ENTRY = "e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the streams go through.

    Attributes:
        within: X.
        pairs: in a row.
        bucket_ms: of ``met``.
        tick_ms: between two trains of a stream, each of which is followed by a boundary.
        rate: rows a second, of each stream.
        at: node of each stream.
        last: streams that come in at the last pair, not at the first.
    """

    within: str
    pairs: int = 1
    bucket_ms: int = 100
    tick_ms: int = 20
    rate: int = 175
    at: Sequence[str] = (ENTRY, ENTRY, "f")
    last: Sequence[int] = ()


def source_of(stream: int) -> str:
    return f"s{stream}"


def query(shape: Shape, policy: Policy) -> tuple[md.Query, list[list[str]]]:
    """The query, and the boxes of each pair."""
    q = md.Query("q")
    streams = [
        q.source(source_of(number), COLUMNS, time="ts", slack="0s").filter("n >= 0", name=f"kept{number}")
        for number in range(len(shape.at))
    ]
    bucket = f"{shape.bucket_ms}ms"
    first = [each for number, each in enumerate(streams) if number not in shape.last]
    passed = md.sunion(*first, bucket=bucket, name="met")
    boxes = [["met"]]
    for number in range(2, shape.pairs + 1):
        if number == shape.pairs and shape.last:
            late = [streams[each] for each in shape.last]
            passed = md.sunion(passed, *late, bucket=bucket, name=f"met{number}")
            boxes.append([f"met{number}"])
        else:
            passed = passed.filter("n >= 0", name=f"passed{number}")
            boxes.append([f"passed{number}"])
    q.sink("out", passed, delay=policy.wish(shape.within))
    boxes[-1].append("out")
    return q, boxes


def rows_of(stream: int, begin: int, end: int, at_us: int) -> pa.Table:
    """The rows of these numbers, published at this time."""
    count = end - begin
    return pa.table(
        {
            "ts": pa.array(np.full(count, at_us), pa.timestamp("us", "UTC")),
            "s": np.full(count, stream),
            "n": np.arange(begin, end),
        }
    )


def setup_of(shape: Shape, policy: Policy, cut: str) -> Setup:
    q, boxes = query(shape, policy)
    at: dict[str, list[str]] = {}
    for number, node in enumerate(shape.at):
        at.setdefault(node, []).extend([source_of(number), f"kept{number}"])
    pairs = [f"c{number}" for number in range(1, shape.pairs + 1)]
    standbys = [f"r{number}" for number in range(1, shape.pairs + 1)]
    at.update(zip(pairs, boxes, strict=True))
    return Setup(
        query=q,
        nodes=[ENTRY, *sorted({*shape.at} - {ENTRY}), *pairs, *standbys],
        at=at,
        standby={pair: [standby] for pair, standby in zip(pairs, standbys, strict=True)},
        feeds=[
            Feed(source_of(number), node, shape.rate, partial(rows_of, number))
            for number, node in enumerate(shape.at)
        ],
        tick_s=shape.tick_ms / 1e3,
        cut=cut,
    )
