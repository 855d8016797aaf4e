"""What ``delay=`` costs while nothing fails, beside the same query without it, and with an ``sunion`` before.

    publisher ── e  left0, left1, right ── c both ── joined ── out ── reader      r stands by for c

The join of ``cuts``; its left is the union of two streams, or an ``sunion`` of them (bucket 100 ms). *delay*:
from publication to arrival, a row, at a pace. *throughput*: rows of the left that come a second at a pace
that is too fast. Each run has processes of its own; the three in turns, so that each round has a ratio of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import medusa as md
from bench import report
from bench.delay.account import Check
from bench.delay.cuts import LEFT, RIGHT, left_rows, right_rows
from bench.delay.rig import Arrival, Feed, Setup, made
from bench.recovery.sheet import Sheet, good, markdown, milliseconds, preface, spread, troubles, values

__all__ = [
    "broken",
    "FULL",
    "NAME",
    "QUICK",
    "SHORT",
    "TEXT",
    "Sizes",
    "asked_of",
    "measure",
    "plot",
    "query",
    "table",
]

NAME = "costs"
TEXT = "throughput and delay while nothing fails, with delay=, without it, and with an sunion before"

PLAIN, DELAY, SUNION = "without delay", "delay", "with an sunion"
VARIANTS = (PLAIN, DELAY, SUNION)
MOST = 1.02
"""Of what the query costs without it."""

WARM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done.

    Attributes:
        pace: rows a second of all streams, at which the delay is measured.
        million: a pace that may be too fast: how many rows a second come then; 0: it isn't tried.
        seconds: each run.
        rounds: of the three.
        tick_s: between two trains of a stream.
    """

    pace: int = 100_000
    million: int = 1_000_000
    keys: int = 100_000
    seconds: float = 5.0
    rounds: int = 3
    tick_s: float = 0.01


FULL = Sizes(seconds=10.0, rounds=9)
SHORT = Sizes(seconds=4.0, rounds=3)
QUICK = Sizes(pace=2_000, million=0, keys=100, seconds=1.5, rounds=1, tick_s=0.05)


def query(variant: str) -> md.Query:
    q = md.Query("q")
    lefts = [
        q.source(f"left{number}", LEFT, time="ts", slack="0s").filter("n >= 0", name=f"of_left{number}")
        for number in range(2)
    ]
    right = q.source("right", RIGHT, time="ts", slack="0s").filter("m >= 0", name="of_right")
    if variant == SUNION:
        both = md.sunion(*lefts, bucket="100ms", name="both")
    else:
        both = lefts[0].union(lefts[1], name="both")
    joined = both.asof_join(right, on="key", how="left", name="joined")
    q.sink(
        "out", joined.select("n", "key", "ts", "m", name="taken"), delay="1s" if variant == DELAY else None
    )
    return q


AT = {
    "e": ["left0", "left1", "right", "of_left0", "of_left1", "of_right"],
    "c": ["both", "joined", "taken", "out"],
}


def setup_of(variant: str, sizes: Sizes, pace: int) -> Setup:
    right = pace // 10
    left = (pace - right) // 2

    def lefts(begin: int, end: int, at_us: int) -> Any:
        return left_rows(sizes.keys, begin, end, at_us)

    def rights(begin: int, end: int, at_us: int) -> Any:
        return right_rows(sizes.keys, begin, end, at_us)

    return Setup(
        query=query(variant),
        nodes=["e", "c", "r"],
        at=AT,
        standby={"c": ["r"]},
        feeds=[
            Feed("left0", "e", left, lefts),
            Feed("left1", "e", left, lefts),
            Feed("right", "e", right, rights, first=sizes.keys),
        ],
        tick_s=sizes.tick_s,
    )


class _Kept:
    """When how many rows came, and how old they were."""

    def __init__(self) -> None:
        self.parts: list[tuple[float, np.ndarray]] = []
        self.rows = 0
        self.tentative = 0

    def take(self, arrival: Arrival) -> None:
        rows = arrival.batch.num_rows
        if arrival.tentative:
            self.tentative += rows
        elif rows:
            self.rows += rows
            # One of ten: a percentile of these is one of all.
            sent_us = arrival.batch.column("ts").cast("int64").to_numpy()[::10]
            self.parts.append((arrival.at_s, sent_us / 1e6))

    def ages(self, begin_s: float, end_s: float) -> np.ndarray:
        found = [at_s - sent for at_s, sent in self.parts if begin_s <= at_s <= end_s]
        return np.concatenate(found) if found else np.zeros(0)

    def came(self, begin_s: float, end_s: float) -> float:
        """Rows a second that came between these, in tens."""
        return (
            sum(len(sent) for at_s, sent in self.parts if begin_s <= at_s <= end_s) * 10 / (end_s - begin_s)
        )


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Rows at a pace, for so many seconds.

    Raises:
        AssertionError: a row is missing.
    """
    pace, kept = setting["pace"], _Kept()
    with made(setup_of(setting["variant"], sizes, pace), kept.take) as trial:
        trial.rest_until(max(WARM_S, trial.now_s()))
        begin_s = trial.now_s()
        trial.rest(sizes.seconds)
        end_s = trial.now_s()
        trial.end()
        published = sum(trial.publishers[f"left{number}"].published for number in range(2))
    assert kept.rows == published, f"{kept.rows:,} rows came of {published:,}"
    ages = kept.ages(begin_s, end_s)
    assert len(ages), "no row came in time"
    p50, p99 = (float(each) for each in np.quantile(ages, [0.5, 0.99]))
    return {
        "rows_per_s": kept.came(begin_s, end_s),
        "p50_s": p50,
        "p99_s": p99,
        "tentative_rows": kept.tentative,
    }


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    paces = [sizes.pace, *([sizes.million] if sizes.million else [])]
    return [{"pace": pace, "variant": variant} for pace in paces for variant in VARIANTS]


def asked_of(sizes: Sizes) -> dict[str, Any]:
    return {
        "keys": sizes.keys,
        "seconds": sizes.seconds,
        "rounds": sizes.rounds,
        "pace": sizes.pace,
        "million": sizes.million,
    }


def told(made_run: Mapping[str, Any]) -> str:
    return f"{made_run['rows_per_s']:,.0f} rows/s, p50 {made_run['p50_s'] * 1e3:.1f} ms"


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    return sheet.run(settings(sizes), sizes.rounds, lambda setting: run(setting, sizes), told)


def checks(found: Mapping[str, Any]) -> list[Check]:
    """What has to be so, of the rounds that there are."""
    of = {(row["pace"], row["variant"]): row for row in found["rows"]}
    pace = found["asked"]["pace"]
    made_checks = []
    for asked, key, better, text in (
        (pace, "p50_s", PLAIN, "its median delay is at most {:.0f} % above that of the query without"),
        (found["asked"]["million"], "rows_per_s", DELAY, "its throughput is at most {:.0f} % below"),
    ):
        pair = [of.get((asked, variant)) for variant in (PLAIN, DELAY)]
        if not all(pair) or not all(good(row) for row in pair):
            continue
        under, over = pair if better == PLAIN else reversed(pair)
        made_checks.append(Check(text.format((MOST - 1) * 100), _above(ratios(over, under, key))))
    return made_checks


def broken(found: Mapping[str, Any]) -> bool:
    """Something that had to be so isn't."""
    return bool(troubles(found)) or any(each.fault for each in checks(found))


def _above(found: Sequence[float]) -> str:
    middle = float(np.median(found)) if found else float("nan")
    return "" if middle <= MOST else f"{(middle - 1) * 100:.1f} % by the median of the rounds"


def ratios(over: Mapping[str, Any], under: Mapping[str, Any], key: str) -> list[float]:
    """Of the runs of each round."""
    return [
        one[key] / other[key]
        for one, other in zip(over["runs"], under["runs"], strict=False)
        if "trouble" not in one and "trouble" not in other and other[key]
    ]


HEADS = (
    "rows/s asked",
    "query",
    "rows/s of the left that came",
    "of without",
    "p50, ms",
    "of without",
    "p99, ms",
    "of without",
)


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a line for each pace and query."""
    of = {(row["pace"], row["variant"]): row for row in found["rows"]}
    lines = []
    for (pace, variant), row in of.items():
        if not good(row):
            continue
        plain = of[pace, PLAIN]
        lines.append(
            [
                f"{pace:,}",
                variant,
                spread(values(row, "rows_per_s")),
                spread(ratios(row, plain, "rows_per_s"), digits=3),
                milliseconds(row, "p50_s"),
                spread(ratios(row, plain, "p50_s"), digits=3),
                milliseconds(row, "p99_s"),
                spread(ratios(row, plain, "p99_s"), digits=3),
            ]
        )
    verdicts = [
        f"- {each.what}: " + (f"**not held** ({each.fault})" if each.fault else "held")
        for each in checks(found)
    ]
    return "\n".join([preface(found), "", *markdown(HEADS, lines), "", *verdicts, *troubles(found)]) + "\n"


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Delay and rows a second of the three, at each pace."""
    rows = [row for row in found["rows"] if good(row)]
    if not rows:
        return
    plots = report.pyplot()
    figure, axes = plots.subplots(1, 2, figsize=(11, 3.4))
    for axis, key, factor, label in (
        (axes[0], "p50_s", 1e3, "median delay, ms"),
        (axes[1], "rows_per_s", 1e-3, "thousand rows/s of the left"),
    ):
        names = [f"{row['variant']}, {row['pace']:,}/s" for row in rows]
        axis.barh(names, [float(np.median(values(row, key))) * factor for row in rows], color="#3b6ea5")
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
