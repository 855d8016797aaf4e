"""Question: does a lost state go on sooner on two nodes than on one?

R+SM of running counts by 10^5 and 10^6 keys, all of which are there before anything is timed, at 100,000
rows/s. The node that held the state takes over, and hands it to one node; or it splits the state by its keys
where that lies, and hands half each to two (``[recovery] restore_parts = 2``). Over the intervals of
checkpoints: what came since the newest one is read again by the holder in either case.

- *total*: from the kill for good until a row came of one that was published after the kill: of the holder
  mostly, which has the fragment first.
- *settled*: until all of the state is where it stays. *caught up*: until the last row that came later than
  twice the usual p99 and 50 ms. *whole*: until both.

Aims: with 10^5 keys and a checkpoint each second *total* is under 1 s; from 10^6 keys on two nodes have it
sooner than one (*whole*). Exact first: a run counts only if each row came once, with what its key had.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.recovery import workload
from bench.recovery.command import Plan, numbers_of
from bench.recovery.sheet import Sheet, good, milliseconds, spread, values
from bench.seep import chain
from bench.seep.chain import SCHEMES
from bench.seep.published import Claim, Sketch
from bench.seep.recovery import intervals_of, one_rate
from bench.seep.shown import Row, curve, drawn, middle, page, pick
from medusa.units import duration_us

__all__ = ["FULL", "NAME", "QUICK", "TEXT", "Sizes", "measure", "plan", "plot", "run", "table"]

NAME = "parallel"
TEXT = "a lost state goes on at one node, or at two with half of its keys each"
AIM_S, AIM_KEYS, AIM_INTERVAL = 1.0, 100_000, "1s"
PARALLEL_KEYS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through; the first interval is run with all keys first.

    Attributes:
        every: one row of so many is shown.
    """

    rate: int
    keys: Sequence[int]
    intervals: Sequence[str]
    every: int
    rounds: int
    seconds: float = 2.0


FULL = Sizes(
    rate=100_000,
    keys=(100_000, 1_000_000),
    intervals=(AIM_INTERVAL, "30s", "15s", "5s", "10s", "20s", "25s"),
    every=100,
    rounds=20,
)
QUICK = Sizes(rate=500, keys=(1_000,), intervals=("1s",), every=5, rounds=1, seconds=0.5)
"""So little that two nodes keep up on a machine that has other things to do."""


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    usual, *others = sizes.intervals
    return [
        {"keys": keys, "interval": interval, "nodes": nodes}
        for interval in (usual, *others)
        for keys in sizes.keys
        for nodes in (1, 2)
    ]


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One kill.

    Raises:
        AssertionError: a row is missing, came twice, or is wrong.
    """
    shape = workload.Shape(
        rate=sizes.rate,
        window_ms=0,
        keys=setting["keys"],
        filled=True,
        interval=setting["interval"],
        wait="0s",
    )
    work = chain.keyed_work(shape, sizes.every)
    scheme = SCHEMES["state_backup"]
    return chain.run(scheme, work, shape, seconds=sizes.seconds, parts=setting["nodes"])


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    """All kills, the settings in turns."""
    return sheet.run(settings(sizes), sizes.rounds, lambda each: run(each, sizes), told)


def told(made: Mapping[str, Any]) -> str:
    """A run, for who watches."""
    first, last = made["total_s"] * 1e3, made["whole_s"] * 1e3
    return f"{first:,.0f} ms to the first new row, {last:,.0f} ms until it was whole"


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "rows/s": sizes.rate,
        "shown": f"one row of {sizes.every}",
        "seconds": sizes.seconds,
        "wait": "0s",
    }


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    sizes = replace(
        base,
        rate=one_rate(options.rates, base.rate, of=NAME),
        keys=numbers_of(options.keys) or base.keys,
        intervals=intervals_of(options.intervals) or base.intervals,
        rounds=options.rounds or base.rounds,
    )
    return asked_of(sizes), partial(measure, sizes)


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "keys",
    "checkpoints",
    "nodes",
    "kills",
    "taken, ms",
    "total, ms",
    "settled, ms",
    "caught up, ms",
    "whole, ms",
    "age of what was held, s",
    "held, MiB",
    "delay before p50, ms",
)


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each number of keys, interval and number of nodes."""
    lines = [
        [
            f"{row['keys']:,}",
            row["interval"],
            f"{row['nodes']}",
            f"{len(good(row))}",
            *(milliseconds(row, f"{key}_s") for key in ("taken", "total", "settled", "caught_up", "whole")),
            spread(values(row, "age_s"), digits=1),
            spread(values(row, "held_bytes"), 1 / (1 << 20), 1),
            milliseconds(row, "delay_p50_s"),
        ]
        for row in found["rows"]
        if good(row)
    ]
    return page(found, TEXT, HEADS, lines, claims_of(found))


def _seconds(row: Row) -> float:
    return duration_us(row["interval"]) / 1e6


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """What the authors say, and what was to be reached."""

    def whole(keys: int, interval: str, nodes: int) -> float | None:
        return middle(pick(found, keys=keys, interval=interval, nodes=nodes), "whole_s")

    made = []
    most = max((row["keys"] for row in pick(found)), default=0)
    intervals = sorted(
        {row["interval"] for row in pick(found, keys=most)}, key=lambda each: duration_us(each)
    )
    if intervals:
        gains = []
        for interval in intervals:
            one, two = (whole(most, interval, nodes) for nodes in (1, 2))
            if one is not None and two is not None:
                gains.append((interval, one - two))
        shown = ", ".join(f"{gain * 1e3:+,.0f} ms at {interval}" for interval, gain in gains)
        wins = len(gains) > 1 and gains[-1][1] > 0 and gains[-1][1] > gains[0][1]
        made.append(
            Claim(
                f"two nodes win by long intervals, less or not at all by short ones ({most:,} keys)",
                wins if len(gains) > 1 else None,
                f"one less two: {shown}" if shown else "",
            )
        )
    first = middle(pick(found, keys=AIM_KEYS, interval=AIM_INTERVAL, nodes=1), "total_s")
    made.append(
        Claim(
            f"aim: {AIM_KEYS:,} keys, a checkpoint each {AIM_INTERVAL}: the first new row within {AIM_S:g} s",
            None if first is None else first < AIM_S,
            "" if first is None else f"{first * 1e3:,.0f} ms",
        )
    )
    one, two = (whole(PARALLEL_KEYS, AIM_INTERVAL, nodes) for nodes in (1, 2))
    known = one is not None and two is not None
    made.append(
        Claim(
            f"aim: {PARALLEL_KEYS:,} keys, a checkpoint each {AIM_INTERVAL}: sooner on two nodes than on one",
            (two or 0.0) < (one or 0.0) if known else None,
            f"{(one or 0) * 1e3:,.0f} ms on one, {(two or 0) * 1e3:,.0f} ms on two" if known else "",
        )
    )
    return made


SKETCHES = (
    Sketch(
        "interval of checkpoints",
        "recovery time",
        (("serial", ((0.05, 0.15), (1.0, 1.0))), ("parallel", ((0.05, 0.25), (1.0, 0.7)))),
        "parallel wins only by long intervals",
    ),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """The first new row, and whole, over the interval: one node and two."""

    def panel(key: str, title: str) -> Any:
        def draw(axis: Any) -> None:
            for keys in sorted({row["keys"] for row in pick(found)}):
                for nodes, style in ((1, "-"), (2, "--")):
                    rows = pick(found, keys=keys, nodes=nodes)
                    label = f"{keys:,} keys, {'one node' if nodes == 1 else 'two nodes'}"
                    curve(axis, rows, _seconds, key, label, linestyle=style)
            axis.set(xlabel="interval of checkpoints, s", ylabel=title, ylim=(0, None))

        return draw

    panels = [panel("total_s", "kill to first new row, s"), panel("whole_s", "kill to whole, s")]
    drawn(path, panels, SKETCHES)
