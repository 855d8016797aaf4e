"""A run that goes on: windows open and close, keys come and go, history is retained and trimmed.

    python -m tests.system.soaked FOLDER SECONDS ROWS

It goes on for at least so long and with at least so many rows.

Prints a JSON line per round: seconds so far, rows pushed, resident bytes; at the end the rows that came out.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import medusa as md

ROWS = 20_000
STEP_US = 200_000
"""Time between pushes in the data: a window of a second takes five of them."""


def query() -> md.Query:
    q = md.Query("soak")
    schema = {"ts": "int64", "key": "int64", "value": "float64"}
    events = q.source("events", schema, time="ts", unit="us", slack="50ms")
    recent = q.connection_point("recent", events, keep="10s")
    kept = recent.filter("value > 0.1")
    q.sink("windows", kept.window("1s").group_by("key").aggregate(n=md.count(), mean=md.avg("value")))
    q.sink("sessions", kept.session("300ms").group_by("key").aggregate(n=md.count()))
    last = kept.group_by("key").running(n=md.count(), expire="5s")
    q.sink("many", last.filter("n = 40"))
    left, right = kept.filter("key % 2 = 0"), kept.filter("key % 2 = 0 and value > 0.999")
    q.sink("pairs", left.join(right, on="key", within="100ms").filter("value < 0.2"))
    return q


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(folder: str, seconds: float, rows_min: int) -> None:
    rng = np.random.default_rng(7)
    came = dict.fromkeys(("windows", "sessions", "many", "pairs"), 0)
    begin, pushed, told = time.monotonic(), 0, 0.0
    counted = 0
    with md.start(query(), history=folder) as run:
        while (spent := time.monotonic() - begin) < seconds or pushed < rows_min:
            first = pushed // ROWS
            times = first * STEP_US + np.sort(rng.integers(0, STEP_US, ROWS))
            keys = first * 50 + rng.integers(0, 2_000, ROWS)  # old keys never come again
            values = rng.random(ROWS)
            run.push("events", pa.record_batch({"ts": times, "key": keys, "value": values}))
            pushed += ROWS
            counted += int(np.count_nonzero(values > 0.1))
            for name in came:
                table = run.take(name)
                came[name] += sum(table.column("n").to_pylist()) if name == "windows" else len(table)
            if spent - told >= seconds / 60:
                told = spent
                gc.collect()
                print(json.dumps({"s": spent, "rows": pushed, "rss": resident_bytes()}), flush=True)
        run.finish()
        came["windows"] += sum(run.take("windows").column("n").to_pylist())
        history = run.history("recent")
    print(
        json.dumps({"rows": pushed, "kept": counted, "came": came, "history_rows": history.rows}), flush=True
    )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
