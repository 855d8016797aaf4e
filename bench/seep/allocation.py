"""Question: how many more nodes does a policy take than somebody who knows the load beforehand?

The load of ``threshold``, which rises tenfold and falls. *by hand*: the box is split over 1, 2, ... nodes
before the first car, and stays so; who knows the load takes the fewest whose results are in time at the peak
(p95 within 250 ms). *automatic*: it begins on one node, and the policy splits and merges it at 50 % of a
thread (``--thresholds`` takes another one).

- *nodes*: that had parts, at most, and on the mean over the run. *late*: results, from the end of their
  window; *at the peak*: of those whose windows ended while the load was highest.

Exact first: a run counts only if its result is that of the query in one program, row by row.
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
from bench.seep.shown import Row, curve, drawn, middle, page, pick
from medusa.apps.workloads.scaling.scale_load import ScaleLoad
from medusa.apps.workloads.scaling.scale_outcome import AIM_S
from medusa.apps.workloads.scaling.scale_query import RowCost

__all__ = ["FULL", "NAME", "QUICK", "TEXT", "Sizes", "measure", "plan", "plot", "table"]

NAME = "allocation"
TEXT = "nodes given by a policy beside nodes given by hand, to who knows the load"
MORE = 0.25
"""So many more the authors' policy took than an expert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        counts: nodes by hand.
        percent: the policy's threshold.
        nodes: that can have parts.
    """

    counts: Sequence[int]
    seconds: float
    peak: int
    percent: int = 50
    wait_us: int = 1_000
    nodes: int = 8
    rounds: int = 1


FULL = Sizes(counts=(2, 3, 1, 4, 5, 6), seconds=60.0, peak=1_200, rounds=3)
QUICK = Sizes(counts=(2,), seconds=10.0, peak=900, nodes=3)


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    return [
        {"given": "by the policy", "by_hand": None},
        *({"given": "by hand", "by_hand": each} for each in sizes.counts),
    ]


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One run.

    Raises:
        AssertionError: its result isn't right.
    """
    load, cost = ScaleLoad(seconds=sizes.seconds, peak=sizes.peak), RowCost(wait_us=sizes.wait_us)
    if setting["by_hand"] is None:
        return scaled.run(load, cost, sizes.nodes, marks=Marks(high=sizes.percent / 100))
    return scaled.run(load, cost, sizes.nodes, marks=None, by_hand=setting["by_hand"])


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
        "threshold": f"{sizes.percent} %",
    }


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    percents = numbers_of(options.thresholds) or (base.percent,)
    if len(percents) > 1 or not 5 <= percents[0] <= 100:
        raise ValueError("--thresholds: allocation has one, from 5 to 100 percent")
    sizes = replace(
        base,
        percent=percents[0],
        seconds=options.seconds or base.seconds,
        rounds=options.rounds or base.rounds,
    )
    return asked_of(sizes), partial(measure, sizes)


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "nodes are given",
    "nodes, most",
    "mean",
    "late p50, ms",
    "p95",
    "p99",
    "at the peak p95",
    "in time at the peak",
)


def _name(row: Row) -> str:
    return row["given"] if row["by_hand"] is None else f"{row['given']}: {row['by_hand']}"


def _in_time(row: Row) -> bool:
    peak_s = middle([row], "peak_p95_s")
    return peak_s is not None and peak_s <= AIM_S


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for the policy, and for each number of nodes."""
    lines = [
        [
            _name(row),
            spread(values(row, "nodes_most")),
            spread(values(row, "nodes_mean"), digits=1),
            *(milliseconds(row, f"late_{key}_s") for key in ("p50", "p95", "p99")),
            milliseconds(row, "peak_p95_s"),
            "yes" if _in_time(row) else "no",
        ]
        for row in found["rows"]
        if good(row)
    ]
    return page(found, TEXT, HEADS, lines, claims_of(found))


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """What the authors say, of the runs that there are."""
    by_hand = sorted(
        (row for row in pick(found) if row["by_hand"] is not None), key=lambda row: int(row["by_hand"])
    )
    automatic = pick(found, by_hand=None)
    if not by_hand or not automatic:
        return []
    enough = [row for row in by_hand if _in_time(row)]
    most = middle(automatic, "nodes_most") or 0.0
    mean = middle(automatic, "nodes_mean") or 0.0
    what = f"a policy takes about {MORE:.0%} more nodes than an expert"
    if not enough:
        return [Claim(what, None, f"no number by hand was in time at the peak; the policy took {most:.0f}")]
    fewest = int(enough[0]["by_hand"])
    return [
        Claim(
            what,
            most > fewest,
            f"{most:.0f} at most, {mean:.1f} on the mean, {fewest} by hand: {most / fewest - 1:+.0%}",
        )
    ]


SKETCHES = (
    Sketch(
        "by hand; automatic",
        "nodes, of those by hand",
        (("by hand", ((0.0, 0.8), (1.0, 0.8))), ("automatic", ((0.0, 1.0), (1.0, 1.0)))),
        f"about {MORE:.0%} more nodes than an expert",
    ),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """Lateness at the peak over nodes, and nodes over time."""
    by_hand = [row for row in pick(found) if row["by_hand"] is not None]
    automatic = pick(found, by_hand=None)

    def late(axis: Any) -> None:
        curve(axis, by_hand, lambda row: float(row["by_hand"]), "peak_p95_s", "by hand", factor=1e3)
        for key, label in (("nodes_most", "automatic, at most"), ("nodes_mean", "automatic, mean")):
            curve(
                axis,
                automatic,
                lambda row, key=key: middle([row], key) or 0.0,
                "peak_p95_s",
                label,
                factor=1e3,
            )
        axis.axhline(AIM_S * 1e3, color="#bbb", lw=0.8, ls="--")
        axis.set(xlabel="nodes with parts", ylabel="late at the peak, p95, ms", yscale="log", xlim=(0, None))

    def over_time(axis: Any) -> None:
        for row in automatic:
            made = good(row)[0]["curve"]
            axis.step([each[0] for each in made], [each[3] for each in made], label="automatic", lw=1.2)
        for row in by_hand:
            axis.axhline(row["by_hand"], color="#3b6ea5" if _in_time(row) else "#c0c0c0", lw=0.7, ls=":")
        axis.set(xlabel="s; dotted: by hand (grey: not in time at the peak)", ylabel="nodes", ylim=(0, None))

    drawn(path, [late, over_time], SKETCHES)
