"""What accounting and metrics cost on W1: a run that counts nothing of time, beside one as it is.

    python -m bench.metrics

``bare``: no box is timed and no rate is noted. ``counted``: a run as ``md.start`` makes it. They take
turns, and what counts is the median of the ratios of neighbours, in CPU time of the process: a shared
machine changes its speed, but seldom between the two. To it comes what one scrape of all metrics takes,
by a caller in the same process and the caller's part included, as if there were one in every second
(Prometheus asks every 15).
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import medusa as md
from bench import data, machine, report
from bench.conftest import RESULTS
from bench.peers import medusa_

WAYS = ("bare", "counted")
BATCHES = (65_536, 1_000)
SCRAPES = 10
ROWS = 1_000_000
LIMIT = 0.05
"""More than this share of W1 is too much."""


def run_once(way: str, batches: list[pa.RecordBatch]) -> tuple[float, float, int]:
    """(CPU seconds of the work, CPU seconds of a scrape, rows of the result)."""
    made = 0
    with md.start(medusa_.query("W1", batches[0].schema), metrics="127.0.0.1:0") as run:
        if way == "bare":
            _bare(run)
        begin = time.process_time()
        for batch in batches:
            run.push("events", batch)
            made += len(run.take("out"))
        took = time.process_time() - begin
        begin = time.process_time()
        for _ in range(SCRAPES):
            with urllib.request.urlopen(f"http://{run.metrics_address}/metrics") as answer:
                assert b"medusa_box_rows_in_total" in answer.read()
        scrape = (time.process_time() - begin) / SCRAPES
        run.finish()
        made += len(run.take("out"))
    return took, scrape, made


def _bare(run: Any) -> None:
    run._fragment._scheduler._moment = None
    run._fragment._meter.due_us = 1 << 62


def measure(rows: int, rounds: int) -> dict[str, Any]:
    """CPU seconds of each way and of a scrape, by rows of a batch."""
    table = data.events(rows, 1_000).combine_chunks()
    found: dict[str, Any] = {"rows": rows, "rounds": rounds, **machine.describe(), "batches": {}}
    for size in BATCHES:
        batches = table.to_batches(max_chunksize=size)
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        scrapes, results = [], set()
        for turn in range(rounds):
            for way in WAYS if turn % 2 else WAYS[::-1]:
                took, scrape, made = run_once(way, batches)
                times[way].append(took)
                scrapes.append(scrape)
                results.add(made)
        assert len(results) == 1, "both ways give the same rows"
        ratios = [counted / bare for bare, counted in zip(times["bare"], times["counted"], strict=True)]
        counted = median(ratios) - 1
        found["batches"][str(size)] = {
            "cpu_s": times,
            "scrape_s": min(scrapes),
            "counted": counted,
            "scraped": (1 + counted) * (1 + min(scrapes)) - 1,
        }
    return found


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{report.machine_line(found)} {found['rows']:,} events, {found['rounds']} rounds.",
        "",
        "| W1 pushed by | timed and counted | a scrape | and scraped every second | limit |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {int(size):,} rows | {figures['counted']:+.1%} | {figures['scrape_s'] * 1e3:.1f} ms"
        f" | {figures['scraped']:+.1%} | {LIMIT:.0%} |"
        for size, figures in found["batches"].items()
    ]
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("metrics", found, table(found), folder)


def main() -> None:
    rounds, folder = report.rounds_asked(__doc__, RESULTS)
    sys.stdout.write(write(measure(ROWS, rounds), folder))


if __name__ == "__main__":
    main()
