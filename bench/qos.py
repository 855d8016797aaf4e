"""What measuring quality of service costs on W1: sinks without it, with a latency graph, with all three.

    python -m bench.qos

They take turns, and what counts is the median of the ratios of neighbours, in CPU time of the process: a
shared machine changes its speed, but seldom between the two.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow as pa

import medusa as md
from bench import data, machine, report
from bench.conftest import RESULTS
from bench.peers import medusa_

LATENCY = md.QoS(latency=[(0, 1), ("5s", 0)])
ALL = md.QoS(latency=LATENCY.latency, loss=[(0, 0), (100, 1)], value=("n", [(0, 0.1), (5_000, 1)]))
WAYS: dict[str, md.QoS | None] = {"none": None, "latency": LATENCY, "all": ALL}
BATCHES = (65_536, 1_000)
ROWS = 1_000_000
LIMIT = 0.05
"""More than this share of W1 is too much."""


def query(schema: pa.Schema, qos: md.QoS | None) -> md.Query:
    """W1, whose only sink has this."""
    graph = medusa_.query("W1", schema).graph
    sink = msgspec.structs.replace(graph.boxes[-1], qos=qos)
    return md.Query.from_graph(msgspec.structs.replace(graph, boxes=(*graph.boxes[:-1], sink)))


def run_once(way: str, batches: list[pa.RecordBatch]) -> tuple[float, int]:
    """(CPU seconds, rows of the result)."""
    made = 0
    with md.start(query(batches[0].schema, WAYS[way])) as run:
        begin = time.process_time()
        for batch in batches:
            run.push("events", batch)
            made += len(run.take("out"))
        took = time.process_time() - begin
        run.finish()
        made += len(run.take("out"))
        assert len(run.qos()) == (WAYS[way] is not None)
    return took, made


def measure(rows: int, rounds: int) -> dict[str, Any]:
    """CPU seconds of each way, by rows of a batch."""
    table = data.events(rows, 1_000).combine_chunks()
    found: dict[str, Any] = {"rows": rows, "rounds": rounds, **machine.describe(), "batches": {}}
    for size in BATCHES:
        batches = table.to_batches(max_chunksize=size)
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        results = set()
        for turn in range(rounds):
            for way in WAYS if turn % 2 else reversed(WAYS):
                took, made = run_once(way, batches)
                times[way].append(took)
                results.add(made)
        assert len(results) == 1, "all ways give the same rows"
        more = {
            way: median(with_it / bare for bare, with_it in zip(times["none"], times[way], strict=True)) - 1
            for way in WAYS
        }
        found["batches"][str(size)] = {"cpu_s": times, "more": more}
    return found


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{report.machine_line(found)} {found['rows']:,} events, {found['rounds']} rounds.",
        "",
        "| W1 pushed by | with a latency graph | with all three | limit |",
        "|---|---|---|---|",
    ]
    for size, figures in found["batches"].items():
        more = figures["more"]
        lines.append(f"| {int(size):,} rows | {more['latency']:+.1%} | {more['all']:+.1%} | {LIMIT:.0%} |")
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("qos", found, table(found), folder)


def main() -> None:
    rounds, folder = report.rounds_asked(__doc__, RESULTS)
    sys.stdout.write(write(measure(ROWS, rounds), folder))


if __name__ == "__main__":
    main()
