"""A stateful query with a union over four nodes, rows that never stop, and who is killed when.

    edge-1: left ── kept_left ──┐
                                ├─ both ── per_key, per_key_odd ──── longer, met
    edge-2: right ─ kept_right ─┘    └── seen ────────────────────── all
                                  middle                             core

Rows are numbered on each side, so what is read tells at once whether one is missing, twice or out of order.
``seen`` counts and sums them in the order in which they met: whoever came back with another order shows.
What the windows and the join must say is computed by loops over the numbers that were published.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import medusa as md
from tests.system.nodes import DEADLINE_S, Nodes

EDGES = {"edge-1": "left", "edge-2": "right"}
NAMES = (*EDGES, "middle", "core")
TRAIN_ROWS = 60
AHEAD_ROWS = 1_200
"""Rows of a side under way before its publisher waits."""

STEP_US = 1_000
WINDOW_US = 50_000
TOTAL_US = 500_000
KEYS = 5
AT = {
    "edge-1": ["left", "kept_left"],
    "edge-2": ["right", "kept_right"],
    "middle": ["both", "seen", "per_key", "ones", "per_key_odd"],
    "core": ["all", "some", "longer", "met"],
}


def query(*, simple: bool = False) -> md.Query:
    """Counts and sums per key behind a union; sums of those, and a join of those, behind another link.

    Args:
        simple: of the middle only the windows are read, so that the rows that die with it can be counted.
    """
    q = md.Query("kills")
    schema = {"ts": "timestamp", "side": "utf8", "n": "int64", "k": "int32", "v": "int64"}
    kept = [
        q.source(name, schema, time="ts").filter("v <> 0", name=f"kept_{name}") for name in EDGES.values()
    ]
    both = kept[0].union(kept[1], name="both")
    per_key = (
        both.window(WINDOW_US)
        .group_by("k")
        .aggregate(c=md.count(), t=md.sum("v"), low=md.min("n"), name="per_key")
    )
    longer = per_key.window(TOTAL_US).group_by("k").aggregate(c=md.sum("c"), t=md.sum("t"), name="longer")
    q.sink("counts", per_key.filter("c > 0", name="some"))
    q.sink("totals", longer)
    if simple:
        return q
    odd = (
        both.filter("n % 2 = 1", name="ones")
        .window(WINDOW_US)
        .group_by("k")
        .aggregate(o=md.count(), name="per_key_odd")
    )
    seen = both.group_by("k").running(c=md.count(), t=md.sum("v"), name="seen")
    q.sink("rows", seen.select("side", "n", "k", "v", "c", "t", name="all"))
    q.sink("joined", per_key.join(odd, on=["window", "k"], name="met"))
    return q


# --- what was published, and what must come of it -------------------------------------------------


def columns(side: str, first: int, count: int) -> dict[str, Any]:
    """Rows ``first`` and on of a side."""
    n = np.arange(first, first + count)
    return {
        "ts": (n * STEP_US + 10).astype("datetime64[us]"),
        "side": [side] * count,
        "n": n,
        "k": (n * n // 7 % KEYS).astype(np.int32),
        "v": n * 31 % 11 - 5,
    }


def row(n: int) -> tuple[int, int, int]:
    """Time, key and value of row ``n``, by other means than ``columns``."""
    return n * STEP_US + 10, (n * n // 7) % KEYS, (31 * n) % 11 - 5


def expected(published: dict[str, int]) -> dict[str, set[tuple[int, ...]]]:
    """The rows of each sink with windows, without their starts: end in us, key, values."""
    counts: dict[tuple[int, int], list[int]] = {}
    odd: dict[tuple[int, int], int] = defaultdict(int)
    for rows in published.values():
        for n in range(rows):
            ts, k, v = row(n)
            if v == 0:
                continue
            at = (ts // WINDOW_US + 1) * WINDOW_US, k
            c, t, low = counts.get(at, [0, 0, n])
            counts[at] = [c + 1, t + v, min(low, n)]
            odd[at] += n % 2
    totals: dict[tuple[int, int], list[int]] = {}
    for (end, k), (c, t, _) in counts.items():
        at = ((end - 1) // TOTAL_US + 1) * TOTAL_US, k
        before = totals.get(at, [0, 0])
        totals[at] = [before[0] + c, before[1] + t]
    return {
        "counts": {(*at, *values) for at, values in counts.items()},
        "totals": {(*at, *values) for at, values in totals.items()},
        "joined": {(*at, *values, odd[at]) for at, values in counts.items() if odd[at]},
    }


# --- rows that never stop -------------------------------------------------------------------------


class Flow:
    """Publishes on both sides and reads all sinks at once, in threads; what is read is looked at as it comes.

    Attributes:
        sent: rows published, by side.
        rows: rows read of the union, by side, those left out by the filters counted too; in a simple query
            those of windows that were read.
        trains: trains read of them.
    """

    def __init__(self, nodes: Nodes, *, simple: bool = False) -> None:
        self.sent = dict.fromkeys(EDGES.values(), 0)
        self.rows = dict.fromkeys(EDGES.values(), 0)
        self.trains = 0
        self.results: dict[str, list[tuple[int, ...]]] = {"counts": [], "totals": []}
        if not simple:
            self.results["joined"] = []
        self._running = dict.fromkeys(range(KEYS), (0, 0))
        self._news = threading.Condition()
        self._stop = False
        self._failed: list[BaseException] = []
        self._core = md.connect(nodes.addresses["core"], timeout=f"{DEADLINE_S:.0f}s")
        self._clients = {
            edge: md.connect(nodes.addresses[edge], timeout=f"{DEADLINE_S:.0f}s") for edge in EDGES
        }
        q = query(simple=simple)
        boxes = {box.id for box in q.graph.boxes}
        self._core.deploy(q, at={node: [each for each in ids if each in boxes] for node, ids in AT.items()})
        self._simple = simple
        works: list[Callable[[], None]] = [] if simple else [self._read_rows]
        works += [lambda sink=sink: self._read(sink) for sink in self.results]
        works += [lambda edge=edge: self._publish(edge) for edge in EDGES]
        self._threads = [threading.Thread(target=self._guard, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # told to the test by `check`
            with self._news:
                self._failed.append(error)
                self._news.notify_all()

    def _publish(self, edge: str) -> None:
        side, client = EDGES[edge], self._clients[edge]
        while True:
            with self._news:
                self._news.wait_for(
                    lambda: self._stop or self._failed or self.sent[side] < self.rows[side] + AHEAD_ROWS
                )
                if self._stop or self._failed:
                    break
            client.publish(f"kills.{side}", columns(side, self.sent[side], TRAIN_ROWS))
            with self._news:
                self.sent[side] += TRAIN_ROWS
                self._news.notify_all()
        client.finish(f"kills.{side}")
        client.flush(f"{DEADLINE_S:.0f}s")

    def _read_rows(self) -> None:
        with self._core.subscribe("kills.rows", from_="oldest") as trains:
            for train in trains:
                with self._news:
                    for each in zip(*(column.to_pylist() for column in train.batch.columns), strict=True):
                        self._take(*each)
                    self.trains += 1
                    self._news.notify_all()
            assert trains.lost_rows == 0

    def _take(self, side: str, n: int, k: int, v: int, count: int, total: int) -> None:
        """The next row of a side, but for those that the filter leaves out; the next one of its key."""
        want = self.rows[side]
        while row(want)[2] == 0:
            want += 1
        assert n == want, f"{side}: row {n} came where {want} was next"
        assert (k, v) == row(n)[1:]
        count_before, total_before = self._running[k]
        assert (count, total) == (count_before + 1, total_before + v), (side, n, count, count_before)
        self._running[k] = count, total
        self.rows[side] = n + 1

    def _read(self, sink: str) -> None:
        with self._core.subscribe(f"kills.{sink}", from_="oldest") as trains:
            for train in trains:
                ends = train.batch.column("window_end").cast("int64").to_pylist()
                rest = [train.batch.column(i).to_pylist() for i in range(2, train.batch.num_columns)]
                self.results[sink] += zip(ends, *rest, strict=True)
                if self._simple and sink == "counts":
                    with self._news:
                        self.rows = dict.fromkeys(self.rows, max(ends) // STEP_US)
                        self.trains += 1
                        self._news.notify_all()
            assert trains.lost_rows == 0

    # --- what the test does -----------------------------------------------------------------------

    def check(self) -> None:
        """Raises what a thread met."""
        if self._failed:
            raise self._failed[0]

    def await_trains(self, count: int) -> None:
        """Wait until so many more trains of rows were read."""
        with self._news:
            goal = self.trains + count
            self._news.wait_for(lambda: self._failed or self.trains >= goal, DEADLINE_S)
            self.check()
            assert self.trains >= goal, f"{self.sent} rows sent, {self.rows} arrived"

    def stands(self) -> None:
        """Wait until the publishers wait: what could pass has passed."""
        with self._news:
            assert self._news.wait_for(
                lambda: (
                    self._failed or any(self.sent[side] >= self.rows[side] + AHEAD_ROWS for side in self.sent)
                ),
                DEADLINE_S,
            ), (self.sent, self.rows)
            self.check()

    def goes_on(self) -> None:
        """Wait until something published from now on was read, on both sides."""
        with self._news:
            goals = {side: rows + 1 for side, rows in self.sent.items()}
            self._news.wait_for(
                lambda: self._failed or all(self.rows[side] >= goals[side] for side in goals), DEADLINE_S
            )
            self.check()
            assert all(self.rows[side] >= goals[side] for side in goals), (self.sent, self.rows)

    def end(self) -> None:
        """No more rows: everything has arrived, and is right."""
        self.finish()
        for side, rows in self.sent.items():
            last = next(n for n in range(rows - 1, -1, -1) if row(n)[2] != 0)
            assert self.rows[side] == last + 1, side
        for sink, want in expected(self.sent).items():
            got = self.results[sink]
            assert len(got) == len(set(got)), f"{sink}: rows that came twice"
            assert set(got) == want, sink

    def finish(self) -> None:
        """No more rows: whatever comes has come."""
        with self._news:
            self._stop = True
            self._news.notify_all()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            self.check()
            assert not thread.is_alive(), f"{self.sent} rows sent, {self.rows} arrived"

    def uncounted(self) -> int:
        """Rows that entered the windows, less those that are in their results."""
        entered = sum(row(n)[2] != 0 for rows in self.sent.values() for n in range(rows))
        counted, in_totals = (sum(each[2] for each in self.results[sink]) for sink in ("counts", "totals"))
        assert counted == in_totals
        return entered - counted

    def close(self) -> None:
        self._core.close()
        for client in self._clients.values():
            client.close()
