"""Question: what do checkpoints cost while nothing fails, over state and interval, and what do they buy?

The windowed word count, whose state is its dictionary (10^2, 10^4, 10^5 words), at a steady rate, without
checkpoints and with one of the primary each 1 to 30 s, which the node before it holds (R+SM). Then the
primary is killed for good.

- *delay*: from the publication of a window's newest sentence to its arrival; p50, p95, p99.
- *back*: bytes a second from the primary to the node that holds its state, acknowledgements too. *held*:
  what that node holds of it. *kept*: rows that source and hop keep. *memory*: by how much both have grown.
- *total*: from the kill until a row came of one that was published after it.

The source, into which clients publish, is guarded in the same way: its rows wait for its own checkpoints, of
which there is one each 50 ms whatever the primary's interval is. So *no checkpoints* isn't the peer of the
delays with them: the longest interval is, at which the primary takes next to none.
Exact first: a run counts only if each word was counted once.
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
from bench.seep.recovery import SHOWN_MS, intervals_of, one_rate
from bench.seep.shown import Row, curve, drawn, middle, page, pick, rises
from medusa.units import duration_us

__all__ = ["FULL", "NAME", "QUICK", "TEXT", "Sizes", "measure", "plan", "plot", "run", "table"]

NAME = "overhead"
TEXT = "what checkpoints cost over state and interval, and the recovery time that they buy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through; the first interval is run with all states first.

    Attributes:
        rate: sentences a second.
        keys: words of the dictionary.
        seconds: that are measured before each kill: some checkpoints of the shortest interval.
    """

    rate: int
    keys: Sequence[int]
    intervals: Sequence[str]
    seconds: float
    held_ms: int = 30_000
    rounds: int = 3


FULL = Sizes(
    rate=500,
    keys=(100, 10_000, 100_000),
    intervals=("1s", "30s", "5s", "15s", "10s", "20s", "25s"),
    seconds=10.0,
)
QUICK = Sizes(rate=50, keys=(100,), intervals=("200ms",), seconds=1.0, held_ms=1_000, rounds=1)


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    usual, *others = sizes.intervals
    with_none: list[str | None] = [None, usual, *others]
    return [{"keys": keys, "interval": interval} for interval in with_none for keys in sizes.keys]


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One run, and a kill where somebody holds the state.

    Raises:
        AssertionError: a word is missing, was counted twice, or wrongly.
    """
    interval = setting["interval"]
    shape = workload.Shape(
        rate=sizes.rate,
        window_ms=SHOWN_MS,
        groups=1,
        keys=setting["keys"],
        held_ms=sizes.held_ms,
        interval=interval or "1s",
        wait="0s",
    )
    scheme = SCHEMES["alone" if interval is None else "state_backup"]
    return chain.run(scheme, chain.words_work(shape), shape, seconds=sizes.seconds)


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    """All runs, the settings in turns."""
    return sheet.run(settings(sizes), sizes.rounds, lambda each: run(each, sizes), told)


def told(made: Mapping[str, Any]) -> str:
    """A run, for who watches."""
    kill = f", {made['total_s'] * 1e3:,.0f} ms to the first new row" if "total_s" in made else ""
    return f"p95 {made['delay_p95_s'] * 1e3:,.0f} ms{kill}"


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "sentences/s": sizes.rate,
        "window": f"{sizes.held_ms} ms",
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
    "words",
    "checkpoints",
    "delay p50, ms",
    "p95",
    "p99",
    "back, KB/s",
    "held, KiB",
    "kept, KiB",
    "memory, primary + hop, MiB",
    "CPU of three nodes, %",
    "total, ms",
)


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each state and interval."""
    lines = [
        [
            f"{row['keys']:,}",
            row["interval"] or "none",
            *(milliseconds(row, f"delay_{key}_s") for key in ("p50", "p95", "p99")),
            spread(values(row, "back_bytes_per_s"), 1e-3, 1),
            spread(values(row, "held_bytes"), 1 / 1024),
            spread(values(row, "kept_bytes"), 1 / 1024),
            " + ".join(
                spread(values(row, f"{each}_memory_bytes"), 1 / (1 << 20)) for each in ("primary", "hop")
            ),
            spread(values(row, "cpu_share"), 100),
            milliseconds(row, "total_s"),
        ]
        for row in found["rows"]
        if good(row)
    ]
    return page(found, TEXT, HEADS, lines, claims_of(found))


def _seconds(row: Row) -> float:
    return duration_us(row["interval"]) / 1e6


def _guarded(found: Mapping[str, Any], **wanted: Any) -> list[Row]:
    return sorted((row for row in pick(found, **wanted) if row["interval"]), key=_seconds)


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """What the authors say, of the runs that there are."""
    rows = _guarded(found)
    if not rows:
        return []
    shortest, longest = rows[0]["interval"], rows[-1]["interval"]
    sizes = sorted({row["keys"] for row in rows})
    least, most = sizes[0], sizes[-1]

    def p95(keys: int, interval: str | None) -> float | None:
        return middle(pick(found, keys=keys, interval=interval), "delay_p95_s")

    def shown(*of: tuple[str, float | None]) -> str:
        return ", ".join(f"{what} {each * 1e3:,.1f} ms" for what, each in of if each is not None)

    small, large, none, rare = p95(least, shortest), p95(most, shortest), p95(most, None), p95(most, longest)
    quick, slow = (middle(pick(found, keys=most, interval=each), "total_s") for each in (shortest, longest))
    return [
        Claim(
            f"p95 is higher with checkpoints than without ({most:,} words, each {shortest})",
            rises(none, large),
            shown(("without", none), ("with", large)),
        ),
        Claim(
            f"and grows with the state (each {shortest})",
            rises(small, large) if most > least else None,
            shown((f"{least:,} words", small), (f"{most:,} words", large)),
        ),
        Claim(
            f"a shorter interval costs delay and buys recovery time ({most:,} words)",
            None
            if shortest == longest or None in (rare, large, slow, quick)
            else bool(rises(rare, large) and rises(quick, slow)),
            shown(
                (f"p95 at {shortest}", large),
                (f"at {longest}", rare),
                (f"recovered after {shortest}", quick),
                (f"{longest}", slow),
            ),
        ),
    ]


SKETCHES = (
    Sketch(
        "state",
        "p95 of delay",
        (("with checkpoints", ((0.1, 0.3), (0.55, 0.5), (1.0, 1.0))), ("without", ((0.1, 0.2), (1.0, 0.2)))),
        "grows with the state",
    ),
    Sketch(
        "recovery time",
        "p95 of delay",
        (("shorter to longer intervals", ((0.1, 1.0), (0.3, 0.5), (0.6, 0.3), (1.0, 0.2))),),
        "one is bought with the other",
    ),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """p95 over the state and over the interval, and against the recovery time."""

    def by_state(axis: Any) -> None:
        rows = _guarded(found)
        for interval in dict.fromkeys(row["interval"] for row in rows):
            mine = [row for row in rows if row["interval"] == interval]
            curve(axis, mine, lambda row: row["keys"], "delay_p95_s", f"each {interval}", factor=1e3)
        none = pick(found, interval=None)
        curve(axis, none, lambda row: row["keys"], "delay_p95_s", "none", factor=1e3, color="#808080")
        axis.set(xlabel="words of the dictionary", ylabel="p95 of delay, ms", ylim=(0, None), xscale="log")

    def by_interval(axis: Any) -> None:
        for keys in sorted({row["keys"] for row in _guarded(found)}):
            rows = _guarded(found, keys=keys)
            curve(axis, rows, _seconds, "delay_p95_s", f"{keys:,} words", factor=1e3)
        axis.set(xlabel="interval of checkpoints, s", ylabel="p95 of delay, ms", ylim=(0, None))

    def bought(axis: Any) -> None:
        for keys in sorted({row["keys"] for row in _guarded(found)}):
            rows = _guarded(found, keys=keys)
            xs = [(middle([row], "total_s") or 0.0) * 1e3 for row in rows]
            ys = [(middle([row], "delay_p95_s") or 0.0) * 1e3 for row in rows]
            axis.plot(xs, ys, "o-", ms=4, lw=1, label=f"{keys:,} words")
            for row, x, y in zip(rows, xs, ys, strict=True):
                axis.annotate(row["interval"], (x, y), fontsize=7)
        axis.set(
            xlabel="kill to first new row, ms", ylabel="p95 of delay, ms", xlim=(0, None), ylim=(0, None)
        )

    drawn(path, [by_state, by_interval, bought], SKETCHES)
