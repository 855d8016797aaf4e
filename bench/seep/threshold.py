"""Question: from which load on should a box get another node, and how many looks should say so?

The policy splits a box of which more than ``high`` of a thread is busy in each part, by ``looks`` looks in a
row, ``every`` so long. Swept: the threshold from 10 to 90 %, then ``every`` (the authors' r) and ``looks``
(their k) at 50 %. The load rises tenfold and falls (``medusa demo scale``); spare nodes are up already, which
is a warm pool.

- *nodes*: that had parts, at most, and on the mean over the run. *late*: results, from the end of their
  window; *at the peak*: of those whose windows ended while the load was highest.
- *behind*: seconds in which p99 was over 250 ms: from overload until results are in time again.

``low`` is 0.4 of the threshold, so that no decision undoes the one before. Exact first: a run counts only if
its result is that of the query in one program, row by row, and no car is lost or counted twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.recovery.command import Plan, numbers_of
from bench.recovery.sheet import Sheet, good, milliseconds, spread, values
from bench.seep import scaled
from bench.seep.published import Claim, Sketch
from bench.seep.scaled import Marks
from bench.seep.shown import Row, curve, drawn, middle, page, pick, rises
from medusa.apps.workloads.scaling.scale_load import ScaleLoad
from medusa.apps.workloads.scaling.scale_query import RowCost

__all__ = ["FULL", "NAME", "QUICK", "TEXT", "Sizes", "measure", "plan", "plot", "table"]

NAME = "threshold"
TEXT = "from which load on a box gets another node: thresholds from 10 to 90 %, looks and their number"
BEST = (50, 70)
"""Percent: where the authors find the best of both."""

LOOKS = (("500ms", 1), ("500ms", 3), ("1s", 2), ("2s", 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        percents: thresholds; the last of ``looked`` are run at 50 %.
        looked: (every, looks).
        seconds, peak: of the load; ``wait_us``: what a car costs.
        nodes: that can have parts.
    """

    percents: Sequence[int]
    looked: Sequence[tuple[str, int]]
    seconds: float
    peak: int
    wait_us: int = 1_000
    nodes: int = 8
    rounds: int = 1


FULL = Sizes(percents=(50, 10, 90, 30, 70, 20, 40, 60, 80), looked=LOOKS, seconds=60.0, peak=1_200, rounds=3)
QUICK = Sizes(percents=(30, 80), looked=(), seconds=10.0, peak=900, nodes=3)


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    swept = [{"percent": each, "every": "500ms", "looks": 2} for each in sizes.percents]
    return [*swept, *({"percent": 50, "every": every, "looks": looks} for every, looks in sizes.looked)]


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One run.

    Raises:
        AssertionError: its result isn't right.
    """
    marks = Marks(high=setting["percent"] / 100, every=setting["every"], looks=setting["looks"])
    load, cost = ScaleLoad(seconds=sizes.seconds, peak=sizes.peak), RowCost(wait_us=sizes.wait_us)
    return scaled.run(load, cost, sizes.nodes, marks=marks)


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    """All runs, the settings in turns."""
    return sheet.run(settings(sizes), sizes.rounds, lambda each: run(each, sizes), scaled.told)


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "seconds": sizes.seconds,
        "cars/s at the peak": sizes.peak,
        "a car waits": f"{sizes.wait_us} us",
        "nodes": sizes.nodes,
    }


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    percents = numbers_of(options.thresholds) or base.percents
    if wrong := [each for each in percents if not 5 <= each <= 100]:
        raise ValueError(f"--thresholds: {wrong[0]} is none of 5 to 100 percent")
    sizes = replace(
        base,
        percents=percents,
        looked=() if options.thresholds else base.looked,
        seconds=options.seconds or base.seconds,
        rounds=options.rounds or base.rounds,
    )
    return asked_of(sizes), partial(measure, sizes)


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "threshold",
    "looks, each",
    "nodes, most",
    "mean",
    "late p50, ms",
    "p95",
    "p99",
    "at the peak p95",
    "behind, s",
    "orders",
)


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each threshold, and for each way of looking."""
    lines = [
        [
            f"{row['percent']} %",
            f"{row['looks']}, {row['every']}",
            spread(values(row, "nodes_most")),
            spread(values(row, "nodes_mean"), digits=1),
            *(milliseconds(row, f"late_{key}_s") for key in ("p50", "p95", "p99")),
            milliseconds(row, "peak_p95_s"),
            spread(values(row, "behind_s")),
            spread(values(row, "acts")),
        ]
        for row in found["rows"]
        if good(row)
    ]
    return page(found, TEXT, HEADS, lines, claims_of(found))


def _swept(found: Mapping[str, Any]) -> list[Row]:
    return sorted(pick(found, every="500ms", looks=2), key=lambda row: int(row["percent"]))


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """What the authors say, of the runs that there are."""
    rows = _swept(found)
    if len(rows) < 2:
        return []
    low, high = rows[0], rows[-1]
    nodes = [middle([row], "nodes_mean") for row in (low, high)]
    late = [middle([row], "late_p95_s") for row in (low, high)]
    ends = f"{low['percent']} % and {high['percent']} %"
    best = min(rows, key=lambda row: (middle([row], "nodes_mean") or 0) * (middle([row], "late_p95_s") or 0))
    return [
        Claim(
            "a low threshold takes more nodes than a high one",
            rises(nodes[1], nodes[0]),
            f"{nodes[0]:.1f} and {nodes[1]:.1f} on the mean at {ends}",
        ),
        Claim(
            "and results are less late",
            rises(late[0], late[1]),
            f"p95 {(late[0] or 0) * 1e3:,.0f} and {(late[1] or 0) * 1e3:,.0f} ms at {ends}",
        ),
        Claim(
            f"the best of both is from {BEST[0]} to {BEST[1]} % (here: the least nodes times p95)",
            BEST[0] <= best["percent"] <= BEST[1] if len(rows) > 2 else None,
            f"at {best['percent']} %",
        ),
    ]


SKETCHES = (
    Sketch(
        "threshold",
        "nodes; latency",
        (
            ("nodes", ((0.1, 1.0), (0.5, 0.5), (0.9, 0.35))),
            ("latency", ((0.1, 0.1), (0.6, 0.25), (0.9, 1.0))),
        ),
        "best from 50 to 70 %",
    ),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """Nodes and lateness over the threshold; and the first run of some over time."""
    rows = _swept(found)

    def percent(row: Row) -> float:
        return float(row["percent"])

    def nodes(axis: Any) -> None:
        curve(axis, rows, percent, "nodes_mean", "on the mean")
        curve(axis, rows, percent, "nodes_most", "at most")
        _best(axis)
        axis.set(xlabel="threshold, %; shaded: the authors' best", ylabel="nodes with parts", ylim=(0, None))

    def late(axis: Any) -> None:
        for key in ("p50", "p95", "p99"):
            curve(axis, rows, percent, f"late_{key}_s", key, factor=1e3)
        _best(axis)
        axis.set(xlabel="threshold, %", ylabel="results late, ms", yscale="log")

    def over_time(axis: Any) -> None:
        for row in rows:
            made = good(row)[0]["curve"]
            axis.step(
                [each[0] for each in made], [each[3] for each in made], lw=1, label=f"{row['percent']} %"
            )
        axis.set(xlabel="s", ylabel="nodes with parts", ylim=(0, None))

    drawn(path, [nodes, late, over_time], SKETCHES)


def _best(axis: Any) -> None:
    axis.axvspan(*BEST, color="#f2e8d5", lw=0, zorder=0)
