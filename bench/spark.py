"""Question: what do streams into Spark and out of it cost, and what do Medusa's operators there?

    .venv-spark/bin/python -m bench.spark [--quick] [--parts tables,latency,windows,overflow]

tables    Rows/s of ``format("medusa")`` as source (to Spark's ``noop`` sink) and as sink (of a cached
          DataFrame), beside Spark's own Parquet and beside ``floor``: a Python data source with nothing
          behind it, which is what Spark's API costs. Columns: an integer, a float, a time, a text.
          The rows lie at a gateway; a write has ended when they are synced there (Parquet's files are synced
          too, which Spark leaves to the system). The first round isn't counted; ways take turns.
latency   From creation over a node, the gateway, Spark, the gateway and a node to a subscriber.
windows   One windowed query embedded, by ``md.spark.stream`` and by Spark itself: see ``spark_windows``.
overflow  A fragment to a node on Spark and back: see ``overflow``.

Node, gateway, Spark (``local[2]``) and whoever asks share this machine. Exact first: rows are counted and all
columns summed, windows compared one by one. Each part keeps its own machine and load; parts not asked for
stay as they were measured. Not shown: a cluster of several machines, networks. Needs Java 17 and the extra
``spark``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import medusa as md
from bench import machine, overflow, report, spark_latency, spark_tables, spark_windows

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, Callable[[Any, bool], dict[str, Any]]] = {
    "tables": lambda spark, quick: spark_tables.measure(
        spark, 200_000 if quick else 2_000_000, 2 if quick else 5
    ),
    "latency": lambda spark, quick: spark_latency.measure(spark, 20_000, 10 if quick else 60),
    "windows": lambda spark, quick: spark_windows.measure(
        spark, 200_000 if quick else 2_000_000, 1 if quick else 3
    ),
    "overflow": lambda spark, quick: overflow.measure(spark, 10_000 if quick else 100_000, 1 if quick else 4),
}


def measure(names: list[str], quick: bool, folder: Path) -> str:
    """Measure parts, each written into the folder's results as soon as it is done.

    Returns:
        the table, with the parts that were measured earlier.
    """
    found = earlier(folder)
    spark = md.spark.session("local[2]", memory="2g")
    try:
        for name in names:
            on = machine.describe()
            found[name] = {**PARTS[name](spark, quick), "machine": on, "load_after": os.getloadavg()[0]}
            write(found, folder)
    finally:
        spark.stop()
    return table(found)


def table(found: Mapping[str, Any]) -> str:
    """Markdown."""
    shown = {"tables": _tables, "latency": _latency, "windows": _windows, "overflow": _overflow}
    parts = []
    for name, lines in shown.items():
        if name in found:
            of = found[name]
            parts += [
                *lines(of),
                "",
                f"{report.machine_line(of['machine'])} Load after: {of['load_after']:.1f}.",
                "",
            ]
    return "\n".join(parts)


def _tables(of: Mapping[str, Any]) -> list[str]:
    rounds = len(of["sink"]["parquet"]["wall_s"])
    lines = [
        f"{of['rows']:,} rows, medians of {rounds} rounds; CPU seconds of Spark with workers, gateway, node:",
        "",
        "| way | beside Parquet | beside the floor | rows/s | s | spread | Spark, CPU s | gateway | node |",
        f"|{'---|' * 9}",
    ]
    for what, ways in (("source", of["source"]), ("sink", of["sink"])):
        for name, each in ways.items():
            beside = []
            kind, comma, rest = name.partition(",")
            for base in ("parquet", "floor"):
                peer = ways.get(f"{base}{comma}{rest}")
                ratio = (
                    ""
                    if peer is None or kind == base
                    else f"**{each['rows_per_s'] / peer['rows_per_s']:.2f}**"
                )
                beside.append(ratio)
            cpu = [f"{each['cpu_s'][who]:.2f}" for who in ("spark", "gateway", "node")]
            took = f"{median(each['wall_s']):.2f}"
            cells = [
                f"{what}: {name}",
                *beside,
                f"{each['rows_per_s']:,.0f}",
                took,
                f"{each['spread']:.0%}",
                *cpu,
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _latency(of: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{of['rate']:,} rows/s for {of['seconds']:.0f} s, {of['triggers']} triggers:",
        "",
        "| ms | p50 | p99 |",
        "|---|---|---|",
    ]
    named = {
        "a row, from creation to the subscriber": of["row_ms"],
        "a trigger": of["trigger_ms"]["triggerExecution"],
    }
    named |= {f"- {name}": each for name, each in of["trigger_ms"].items() if name != "triggerExecution"}
    return lines + [f"| {name} | {each['p50']:,.0f} | {each['p99']:,.0f} |" for name, each in named.items()]


def _windows(of: Mapping[str, Any]) -> list[str]:
    least = of["ways"]["Spark, its own store"]["rows_per_cpu_s"]
    lines = [
        f"{of['timed_rows']:,} of {of['rows']:,} rows timed, {of['keys']:,} keys, "
        f"medians of {of['rounds']} runs:",
        "",
        "| way | rows a CPU second, beside Spark | rows/CPU s | spread | rows/s |",
        "|---|---|---|---|---|",
    ]
    for name, each in of["ways"].items():
        lines.append(
            f"| {name} | **{each['rows_per_cpu_s'] / least:.2f}** | {each['rows_per_cpu_s']:,.0f} "
            f"| {each['spread']:.0%} | {each['rows_per_s']:,.0f} |"
        )
    return lines


def _overflow(of: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{of['groups']:,} open groups, {len(of['there'])} times there and back, least to most:",
        "",
        "| | took, s | the fragment rested, ms | sent, MB |",
        "|---|---|---|---|",
    ]
    for way in ("there", "back"):
        cells = [
            f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
            for key, digits in (("took_s", 1), ("pause_ms", 0), ("mb", 1))
            for values in [[each[key] for each in of[way]]]
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    p50_us, p99_us = of["trigger_us"]
    return [*lines, "", f"A trigger there: p50 {p50_us / 1e6:.2f} s, p99 {p99_us / 1e6:.2f} s."]


def earlier(folder: Path) -> dict[str, Any]:
    """What is in the results already."""
    path = folder / "spark.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("spark", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer rounds")
    parser.add_argument("--parts", default=",".join(PARTS), help="by commas")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    names = [name for name in options.parts.split(",") if name]
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: {', '.join(PARTS)}")
    sys.stdout.write(measure(names, options.quick, options.out))


if __name__ == "__main__":
    main()
