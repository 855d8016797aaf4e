"""Medusa by ``md.collect``: bounded input, the declared slack, no flag that a user wouldn't set."""

from __future__ import annotations

import pyarrow as pa

import medusa as md
from bench import data


def query(workload: str, schema: pa.Schema) -> md.Query:
    """The workload as a continuous query; live it gives the same rows as its windows close."""
    q = md.Query(workload.lower())
    if workload == "W4":
        left, right = (
            q.source(name, schema, time="ts", unit="us", slack="100ms") for name in ("left", "right")
        )
        q.sink("out", left.join(right, on="key", within="1s"))
        return q
    events = q.source("events", schema, time="ts", unit="us", slack="100ms")
    if workload == "W3":
        kept = events.filter("value > 0.5").select(x="value * 2.0 + 1.0", y="value * key")
        out = kept.window("1000s").aggregate(n=md.count(), x=md.sum("x"), y=md.sum("y"))
    elif workload == "W2":
        out = events.window("10s", advance="1s").group_by("key").aggregate(n=md.count(), mean=md.avg("value"))
    else:
        out = (
            events.window("1s")
            .group_by("key")
            .aggregate(
                n=md.count(), s=md.sum("value"), lo=md.min("value"), hi=md.max("value"), mean=md.avg("value")
            )
        )
    q.sink("out", out)
    return q


class Engine:
    version = md.__version__
    supports = frozenset({"W1", "W2", "W3", "W4", "W5"})

    def __init__(self, table: pa.Table, threads: int) -> None:
        self.threads = threads
        self.table = table
        self.inputs: dict[str, dict[str, pa.Table]] = {
            "W4": dict(zip(("left", "right"), data.sides(table), strict=True))
        }

    def run(self, workload: str) -> pa.Table:
        inputs = self.inputs.get(workload, {"events": self.table})
        return md.collect(query(workload, self.table.schema), threads=self.threads, **inputs)["out"]

    def answer(self, workload: str, result: pa.Table) -> pa.Table:
        if workload == "W4":
            return result
        return result.append_column("start", result["window_start"].cast(pa.int64()))
