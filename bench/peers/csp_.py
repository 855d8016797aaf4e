# ruff: noqa: RET503
"""csp: one Python call per event. It groups nothing by event time, so the windows are ours.

A csp node returns only when it ticks, so it ends without a word otherwise.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import csp
import pyarrow as pa
from csp import ts

from bench.data import DELAY_US
from bench.workloads import SECOND

BEGIN = datetime(2024, 1, 1)


@csp.node
def windows(event: ts[tuple]) -> ts[list]:
    with csp.state():
        s_open: dict[int, dict[int, list[float]]] = {}
        s_limit = 0
    if csp.ticked(event):
        at, key, value = event
        window = s_open.setdefault(at // SECOND, {})
        state = window.get(key)
        if state is None:
            window[key] = [1, value, value, value]
        else:
            state[0] += 1
            state[1] += value
            state[2] = min(state[2], value)
            state[3] = max(state[3], value)
        if at - DELAY_US > s_limit:
            s_limit = at - DELAY_US
            closed = [start for start in s_open if (start + 1) * SECOND <= s_limit]
            if closed:
                return [
                    (start * SECOND, key, *state)
                    for start in closed
                    for key, state in s_open.pop(start).items()
                ]


@csp.node
def totals(event: ts[tuple]) -> ts[tuple]:
    with csp.state():
        s_n, s_x, s_y = 0, 0.0, 0.0
    if csp.ticked(event):
        s_n += 1
        s_x += event[2] * 2.0 + 1.0
        s_y += event[2] * event[1]
        return s_n, s_x, s_y


class Engine:
    version = csp.__version__
    supports = frozenset({"W1", "W3", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        rows = zip(*(table[name].to_pylist() for name in ("ts", "key", "value")), strict=True)
        self.events = [*rows, (1 << 60, 0, 0.0)]

    def run(self, workload: str) -> list[Any]:
        # Arrival is csp's clock: a microsecond each, so that disordered events keep their order.
        arrivals = [(timedelta(microseconds=number), event) for number, event in enumerate(self.events, 1)]
        end = BEGIN + timedelta(microseconds=len(arrivals) + 1)

        def graph() -> None:
            events = csp.curve(tuple, arrivals[:-1] if workload == "W3" else arrivals)
            if workload == "W3":
                kept = csp.filter(csp.apply(events, lambda event: event[2] > 0.5, bool), events)
                csp.add_graph_output("answer", totals(kept), tick_count=1)
            else:
                csp.add_graph_output("answer", windows(events))

        return csp.run(csp.graph(graph), starttime=BEGIN, endtime=end)["answer"]

    def answer(self, workload: str, result: list[Any]) -> pa.Table:
        if workload == "W3":
            n, x, y = result[-1][1]
            return pa.table({"n": [n], "x": [x], "y": [y]})
        rows = [row for _, closed in result for row in closed]
        table = pa.table(
            dict(zip(("start", "key", "n", "s", "lo", "hi"), zip(*rows, strict=True), strict=True))
        )
        mean = [total / n for total, n in zip(table["s"].to_pylist(), table["n"].to_pylist(), strict=True)]
        return table.append_column("mean", pa.array(mean))
