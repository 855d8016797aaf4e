"""A query whose middle is recovered by upstream backup, in virtual time: nothing is missing or wrong.

e (publishers, coordinator) ── m (upstream backup) ── c (readers)        s1, s2, s3 stand by; w, x vote
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

import medusa as md
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.query.boxes import Sink
from medusa.query.recovery import UPSTREAM
from tests.nodes.taken_over import ROWS, SCHEMA, Run

SPAN_US = 100_000
"""Between two rows, more or less."""

OUTSIDE = ("rows", "first", "last", "out")


def table(count: int = ROWS) -> pa.Table:
    """Out of order by up to a second, a few rows later than that; values are unique."""
    numbers = range(count)
    times = [n * SPAN_US + (n * 37 % 11 - 5) * 90_000 - (3_000_000 if n % 29 == 28 else 0) for n in numbers]
    return pa.table(
        {
            "ts": pa.array([max(time, 0) for time in times], pa.timestamp("us", "UTC")),
            "k": ["abcdefg"[n * n // 5 % 7] for n in numbers],
            "v": pa.array(list(numbers), pa.int64()),
        }
    )


def count_by_key(windows: Any) -> Any:
    return windows.group_by("k").aggregate(n=md.count(), t=md.sum("v"), f=md.first("v"), name="kind")


KINDS: Mapping[str, Any] = {
    "rows": lambda s: s.filter("v % 3 > 0", name="some").select("ts", "k", "v", name="kind"),
    "tumbling": lambda s: count_by_key(s.window("1s")),
    "sliding": lambda s: count_by_key(s.window("3s", "1s")),
    "all": lambda s: s.window("2s").aggregate(n=md.count(), t=md.sum("v"), name="kind"),
    "chained": lambda s: count_by_key(s.window("500ms")).window("1s").aggregate(n=md.sum("n"), name="again"),
}


def query(kind: str, *, slack: str = "1s", whole: bool = False, recovery: str = "rollback") -> Any:
    """The query, and where its boxes go."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack=slack).filter("v >= 0", name="first")
    kept = KINDS[kind](rows)
    q.sink("out", kept.filter("true", name="last"), recovery=recovery, method=UPSTREAM)
    boxes = [box.id for box in q.graph.boxes]
    if whole:
        return q, {"m": boxes}
    middle = [id for id in boxes if id not in OUTSIDE]
    return q, {"e": ["rows", "first"], "m": middle, "c": ["last", "out"]}


def upstream(q: Any) -> Any:
    """The same query, of which each output wants to be recovered so."""
    wish = {"recovery": "rollback", "method": UPSTREAM}
    boxes = [msgspec.structs.replace(box, **wish) if isinstance(box, Sink) else box for box in q.graph.boxes]
    return md.Query.from_graph(msgspec.structs.replace(q.graph, boxes=tuple(boxes)))


class UpstreamRun(Run):
    """One run. Whoever isn't in ``others`` is stood by for by s3."""

    def __init__(
        self,
        q: Any,
        at: Any,
        *others: str,
        guarded: str = "m",
        tables: Any = None,
        reads: bool = True,
        **more: Any,
    ) -> None:
        standby = {node: others if node == guarded else ("s3",) for node in at}
        tables = tables or {source: table() for source in q.sources}
        super().__init__(q, at, standby=standby, deploys="e", witnesses=("w", "x"), tables=tables, **more)
        self.deploy()
        [self.fragment] = self.fed.nodes[guarded].brain.fragments
        if reads:
            self.read()
        self.until_guarded(self.fragment, len(others))

    def take_over(self, owner: str, successor: str) -> None:
        """The one is lost, and the other goes on."""
        self.lose(owner)
        self.until_owned(self.fragment, successor)

    def warm(self) -> bool:
        """Whether nothing is fed again any more."""
        hosted = self.hosted(self.fragment)
        return hosted is not None and (hosted.marks is None or hosted.marks.warm_up is None)

    def held(self, node: str) -> CheckpointReceiver:
        """What one that stands by has."""
        followed = self.recovery(node).followings.followed()
        [found] = [each for name, _, each in followed if name == self.fragment]
        assert isinstance(found, CheckpointReceiver)
        return found

    def doubled(self) -> int:
        """How many rows came more than once; nothing is missing, and nothing came that never should."""
        self.until_ended()
        assert not any(self.reader.lost.values())
        twice = 0
        for sink, table in self.want.items():
            assert table.num_rows > 10
            want = Counter(map(str, table.to_pylist()))
            got = Counter(map(str, self.got(sink).to_pylist()))
            assert not want - got, f"missing of {sink}: {list(want - got)[:4]}"
            assert not got.keys() - want.keys(), f"never was in {sink}: {list(got.keys() - want.keys())[:4]}"
            twice += (got - want).total()
        return twice
