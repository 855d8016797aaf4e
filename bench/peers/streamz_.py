"""streamz over pandas batches of 65,536 rows; state and watermark are ours, as it has none by event time."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
from streamz import Stream

from bench.data import DELAY_US
from bench.workloads import SECOND

AGGREGATES = {"n": ("n", "sum"), "s": ("s", "sum"), "lo": ("lo", "min"), "hi": ("hi", "max")}


class Engine:
    version = "0.6"
    supports = frozenset({"W1", "W3", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.batches = [batch.to_pandas() for batch in table.to_batches(max_chunksize=65_536)]

    def run(self, workload: str) -> pd.DataFrame:
        source, out = Stream(), []
        if workload == "W3":
            source.map(_filtered).accumulate(lambda total, batch: total + batch).sink(out.append)
        else:
            source.map(_panes).accumulate(_merge, start=(None, 0), returns_state=True).sink(out.append)
        for batch in self.batches:
            source.emit(batch)
        if workload == "W3":
            return pd.DataFrame([out[-1]])
        source.emit(pd.DataFrame({"ts": [1 << 60], "key": [0], "value": [0.0]}))
        closed = pd.concat([part for part in out if len(part)]).reset_index()
        return closed.assign(mean=closed["s"] / closed["n"])

    def answer(self, workload: str, result: pd.DataFrame) -> pa.Table:
        table = pa.Table.from_pandas(result, preserve_index=False)
        return table.set_column(0, "n", table["n"].cast(pa.int64())) if workload == "W3" else table


def _filtered(batch: pd.DataFrame) -> pd.Series:
    kept = batch[batch["value"] > 0.5]
    x, y = kept["value"] * 2.0 + 1.0, kept["value"] * kept["key"]
    return pd.Series({"n": len(kept), "x": x.sum(), "y": y.sum()})


def _panes(batch: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    keys = [(batch["ts"] // SECOND * SECOND).rename("start"), batch["key"]]
    value = batch["value"].groupby(keys)
    return value.agg(n="count", s="sum", lo="min", hi="max"), int(batch["ts"].max()) - DELAY_US


def _merge(state: Any, panes: tuple[pd.DataFrame, int]) -> Any:
    held, limit = state
    new, boundary = panes
    limit = max(limit, boundary)
    both = new if held is None else pd.concat([held, new]).groupby(level=[0, 1]).agg(**AGGREGATES)
    closed = both.index.get_level_values("start") + SECOND <= limit
    return (both[~closed], limit), both[closed]
