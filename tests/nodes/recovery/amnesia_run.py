"""A query whose middle is recovered by amnesia, in virtual time: what is missing, and what is counted.

e (publishers, coordinator) ── m (amnesia) ── c (readers)        s1, s2, s3 stand by; w, x vote

Rows have unique values. Where the middle counts rows per window, what is missing is what was published less
the counts that came; else it is the rows that didn't come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.placement import standby_plan
from medusa.nodes.placement.placement import PlacementPlan
from tests.nodes.taken_over import ROWS, SCHEMA, Run

WAIT_US = 2_000_000
SPAN_US = 100_000
"""Between two rows."""


def by_amnesia(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is guarded is recovered by amnesia."""

    def with_methods(plan: PlacementPlan) -> PlacementPlan:
        fragments = (
            msgspec.structs.replace(each, method="amnesia") if each.standby else each
            for each in plan.fragments
        )
        return replace(plan, fragments=tuple(fragments))

    monkeypatch.setattr(standby_plan, "with_methods", with_methods)


def table(source: int = 0, sources: int = 1, count: int = ROWS) -> pa.Table:
    """Rows of one of several sources: values are unique over all."""
    numbers = range(count)
    return pa.table(
        {
            "ts": pa.array([n * SPAN_US for n in numbers], pa.timestamp("us", "UTC")),
            "k": ["abcd"[n * n % 4] for n in numbers],
            "v": pa.array([n * sources + source for n in numbers], pa.int64()),
        }
    )


def rows_query() -> tuple[md.Query, dict[str, list[str]]]:
    """The middle passes rows on, one by one."""
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    s = s.filter("v % 3 > 0", name="some").select("ts", "k", "v", name="kept")
    q.sink("out", s.filter("true", name="last"))
    return q, {"e": ["rows", "first"], "m": ["some", "kept"], "c": ["last", "out"]}


def windows_query() -> tuple[md.Query, dict[str, list[str]]]:
    """The middle counts rows per window."""
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    s = s.window("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("out", s.filter("true", name="last"))
    return q, {"e": ["rows", "first"], "m": ["per_k"], "c": ["last", "out"]}


def union_query() -> tuple[md.Query, dict[str, list[str]]]:
    """The middle puts two sources in one order, and passes rows on."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    q.sink("out", left.union(right, name="both").filter("true", name="last"))
    return q, {"e": ["left", "l", "right", "r"], "m": ["both"], "c": ["last", "out"]}


def union_windows_query() -> tuple[md.Query, dict[str, list[str]]]:
    """The middle puts two sources in one order, and counts rows per window."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    s = (
        left.union(right, name="both")
        .window("1s")
        .group_by("k")
        .aggregate(n=md.count(), t=md.sum("v"), odd=md.sum("v % 2"), name="per_k")
    )
    q.sink("out", s.filter("true", name="last"))
    return q, {"e": ["left", "l", "right", "r"], "m": ["both", "per_k"], "c": ["last", "out"]}


def whole_query() -> tuple[md.Query, dict[str, list[str]]]:
    """Clients publish into what counts rows per window, and read it."""
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("out", s.window("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="per_k"))
    return q, {"m": ["rows", "first", "per_k", "out"]}


def chain_query() -> tuple[md.Query, dict[str, list[str]]]:
    """Three fragments one behind the other, of which the middle one counts rows per window."""
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    s = s.window("1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("out", s.filter("true", name="last"))
    return q, {"e": ["rows", "first"], "m": ["per_k"], "c": ["last", "out"]}


def passing_chain_query() -> tuple[md.Query, dict[str, list[str]]]:
    """Three fragments one behind the other, which pass rows on."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    s = left.union(right, name="both").filter("v >= 0", name="some")
    q.sink("out", s.filter("true", name="last"))
    return q, {"e": ["left", "l", "right", "r", "both"], "m": ["some"], "c": ["last", "out"]}


CHAINS = {"a chain": chain_query, "a chain that passes rows": passing_chain_query}

KINDS = {
    "row by row": rows_query,
    "windows": windows_query,
    "a union": union_query,
    "windows behind a union": union_windows_query,
    "clients at both ends": whole_query,
}


class AmnesiaRun(Run):
    """One run; ``by_amnesia`` comes before. The fragments of a chain are all guarded.

    Attributes:
        fragments: those that are recovered by amnesia.
        fragment: the one of ``m``.
    """

    def __init__(
        self,
        kind: str,
        *,
        seed: int = 1,
        standby: Sequence[str] = ("s1", "s2"),
        witnesses: Sequence[str] = ("w",),
        rows: int = ROWS,
        **more: Any,
    ) -> None:
        q, at = (KINDS | CHAINS)[kind]()
        sources = list(q.sources)
        tables = {name: table(place, len(sources), rows) for place, name in enumerate(sources)}
        chain = kind in CHAINS
        guarded = {node: list(standby) for node in (at if chain else ["m"])}
        deploys = "x" if chain else "e"
        super().__init__(
            q, at, standby=guarded, witnesses=witnesses, seed=seed, tables=tables, deploys=deploys, **more
        )
        self.fed.run(for_us=2_100_000)  # So long a node waits for clients of an earlier life.
        self.deploy()
        [self.fragment] = self.fed.nodes["m"].brain.fragments
        self.fragments = [name for node in guarded for name in self.fed.nodes[node].brain.fragments]
        self.read()
        for each in self.fragments:
            self.until_guarded(each, len(standby))
        self.until(self.begun, "its neighbours have told it that they have nothing")

    def begun(self) -> bool:
        """Whether whoever has a fragment has heard all its neighbours."""
        hosted = [self.hosted(each) for each in self.fragments]
        return all(
            each is not None and not any(input.receiver.asking for input in each.inputs.values())
            for each in hosted
        )

    # --- what is counted --------------------------------------------------------------------------

    def status(self, fragment: str = "") -> Mapping[str, Any]:
        """Of a fragment, at its owner."""
        fragment = fragment or self.fragment
        fragments = self.fed.nodes[self.owner(fragment)].brain.status(self.fed.world.now_us)["fragments"]
        return next(each for each in fragments if each["fragment"] == fragment)

    def missing_by(self) -> dict[str, int]:
        """The same by the source that they were published to: of two the second has the odd values."""
        sources = list(self.tables)
        if len(sources) == 1:
            return {sources[0]: self.missing()}
        got, want = self.got("out").to_pylist(), self.want["out"].to_pylist()

        def odd(rows: Sequence[Mapping[str, Any]]) -> int:
            return sum(row["odd"] if "odd" in row else row["v"] % 2 for row in rows)

        second = odd(want) - odd(got)
        return {sources[0]: self.missing() - second, sources[1]: second}

    def told_by(self) -> dict[str, int]:
        """Rows that are counted as lost, by the source that they were published to, or by the box that united
        them before: boxes of one source alone are called ``l`` and ``r``, or as the source."""
        found = Counter(dict.fromkeys(self.tables, 0))
        of = {"l": "left", "r": "right"}
        for fragment in self.fragments:
            told = self.status(fragment)
            assert sum(told["lost_by"].values()) == told["lost_rows"]
            for source, rows in told["lost_by"].items():
                only = next(iter(self.tables)) if len(self.tables) == 1 else of.get(source, source)
                found[only] += rows
        return {source: rows for source, rows in found.items() if rows or source in self.tables}

    def missing(self) -> int:
        """Input rows of the fragment of which nothing came; asserts that no row came twice."""
        got, want = self.got("out").to_pylist(), self.want["out"].to_pylist()
        if "n" not in self.want["out"].schema.names:
            came, all_rows = Counter(row["v"] for row in got), Counter(row["v"] for row in want)
            assert not came - all_rows, "a row came twice, or from nowhere"
            return (all_rows - came).total()
        columns = [name for name in got[0] if name not in ("n", "t", "odd")]
        counts: Counter[Any] = Counter()
        totals: Counter[Any] = Counter()
        for row in got:
            key = tuple(row[name] for name in columns)
            counts[key] += row["n"]
            totals[key] += row["t"]
        of = {tuple(row[name] for name in columns): row for row in want}
        for key in counts:
            assert counts[key] <= of[key]["n"], f"a row of {key} was counted twice"
            assert totals[key] <= of[key]["t"], f"a row of {key} was counted twice"
        return sum(row["n"] for row in want) - counts.total()

    def check_gap(self) -> int:
        """All that comes has come: no row twice, and what is missing is what is counted; how many that is."""
        self.until_ended()
        self.until(self.begun, "its owner knows what its neighbours have")
        assert not any(self.reader.lost.values())
        missing, told = self.missing(), [self.status(each) for each in self.fragments]
        assert not any(each["lost_unknown"] for each in told), "nobody knows\n" + self.fed.last()[-3000:]
        counted = [each["lost_rows"] for each in told]
        assert sum(counted) == missing, f"{missing} are missing, {counted} are counted"
        if (by := self.told_by()).keys() == self.tables.keys():
            assert by == self.missing_by(), "by source"
        return missing
