# ruff: noqa: RET503
"""csp in ``bench.latency``: filter, window of 10 ms and join as Python nodes; prints us a train as JSON."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta

import csp
import numpy as np
from csp import ts

ROWS, KEYS, BEGIN = 64, 100, datetime(2024, 1, 1)


@csp.node
def filtered(train: ts[list]) -> ts[list]:
    if csp.ticked(train):
        return [row for row in train if row[2] > 0.5]


@csp.node
def windows(train: ts[list]) -> ts[list]:
    with csp.state():
        s_start, s_open = 0, {}
    if csp.ticked(train):
        out = []
        for at, key, value in train:
            if at // 10_000 > s_start:
                out = [(s_start, key, *state) for key, state in s_open.items()]
                s_start, s_open = at // 10_000, {}
            state = s_open.setdefault(key, [0, 0.0])
            state[0] += 1
            state[1] += value
        return out


@csp.node
def joined(rows: ts[list], prices: ts[dict]) -> ts[list]:
    if csp.ticked(rows):
        if csp.valid(prices):
            return [(*row, prices[row[1]]) for row in rows]
        return []


@csp.node
def stamps(rows: ts[list]) -> ts[int]:
    if csp.ticked(rows):
        return time.perf_counter_ns()


def main() -> None:
    count = int(sys.argv[1])
    rng = np.random.default_rng(7)
    keys, values = rng.integers(0, KEYS, (count, ROWS)), rng.random((count, ROWS))
    trains = [
        (
            timedelta(milliseconds=number + 1),
            [(number * 1_000, key, value) for key, value in zip(keys[number], values[number], strict=True)],
        )
        for number in range(count)
    ]

    def graph() -> None:
        prices = csp.const({key: key / 7.0 for key in range(KEYS)})
        rows = joined(windows(filtered(csp.curve(list, trains))), prices)
        csp.add_graph_output("stamps", stamps(rows))

    end = BEGIN + timedelta(milliseconds=count + 1)
    ticks = csp.run(csp.graph(graph), starttime=BEGIN, endtime=end)["stamps"]
    print(json.dumps((np.diff([tick[1] for tick in ticks]) / 1e3).tolist()))


if __name__ == "__main__":
    main()
