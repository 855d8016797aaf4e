"""bytewax: one Python object per event, as its windows want it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, SlidingWindower, TumblingWindower
from bytewax.testing import TestingSink, TestingSource, run_main

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY = (0, 0.0, 1e300, -1e300)
FAR = datetime(2020, 1, 1, tzinfo=UTC)


class Engine:
    version = version("bytewax")
    supports = frozenset({"W1", "W2", "W3", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        ts, keys, values = (table[name].to_pylist() for name in ("ts", "key", "value"))
        self.events = [
            (str(key), (EPOCH + timedelta(microseconds=t), value))
            for t, key, value in zip(ts, keys, values, strict=True)
        ]

    def run(self, workload: str) -> list[Any]:
        flow, out = Dataflow("bench"), []
        events = op.input("in", flow, TestingSource(self.events, batch_size=4096))
        if workload == "W3":
            kept = op.filter("filter", events, lambda event: event[1][1] > 0.5)
            made = op.map("map", kept, lambda e: ("all", (1, e[1][1] * 2.0 + 1.0, e[1][1] * int(e[0]))))
            op.output("out", op.reduce_final("sum", made, _add), TestingSink(out))
        else:
            op.output("out", self.windows(events, workload).down, TestingSink(out))
        run_main(flow)
        return out

    def windows(self, events: Any, workload: str) -> Any:
        second = timedelta(seconds=1)
        # Ten seconds to wait: with its system clock running while it replays, less loses rows.
        clock = EventClock(lambda event: event[0], wait_for_system_duration=timedelta(days=365))
        windower: Any = TumblingWindower(align_to=FAR, length=second)
        if workload == "W2":
            windower = SlidingWindower(align_to=FAR, length=10 * second, offset=second)
        return win.fold_window("fold", events, clock, windower, lambda: EMPTY, _fold, _merge)

    def answer(self, workload: str, result: list[Any]) -> pa.Table:
        if workload == "W3":
            n, x, y = result[0][1]
            return pa.table({"n": [n], "x": [x], "y": [y]})
        base = int(FAR.timestamp()) * 1_000_000
        names = ("start", "key", "n", "s", "lo", "hi", "mean")
        rows = [
            (base + window * 1_000_000, int(key), n, s, lo, hi, s / n)
            for key, (window, (n, s, lo, hi)) in result
        ]
        return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _add(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _fold(state: tuple[int, float, float, float], event: tuple[datetime, float]) -> Any:
    n, total, low, high = state
    return n + 1, total + event[1], min(low, event[1]), max(high, event[1])


def _merge(left: Any, right: Any) -> Any:
    return left[0] + right[0], left[1] + right[1], min(left[2], right[2]), max(left[3], right[3])
