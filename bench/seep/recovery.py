"""Question: how long until a lost operator's rows come again, over rate and interval of checkpoints?

Three schemes (``chain``), each at rates of 100 rows/s and more, and with a checkpoint of the primary each 1
to 30 s. Its state is a window of 30 s, which is what upstream backup and source replay read again.
*recovery*: numbered rows, that nothing changes; *wordcount*: sentences of 140 bytes, of 20 words each.

- *total*: from the kill for good of the primary until a row came of one that was published after the kill.
  All that had to be read again was, by then. *taken*: until its successor said that it has the fragment.
- *settled*: until it is at the node where it stays: R+SM goes by the holder. *caught up*: until the last row
  that came later than twice the usual p99 and 50 ms.
- *read again*: rows that were published before the kill and that the successor was fed.

Nodes wait for no owner (``[recovery] wait`` is 0 s). Exact first: a run counts only if each row came once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.recovery import workload
from bench.recovery.command import Plan, numbers_of
from bench.recovery.sheet import Sheet, good, milliseconds, spread, values
from bench.seep import chain
from bench.seep.chain import SCHEMES, Work
from bench.seep.published import Claim, Sketch
from bench.seep.shown import Row, curve, drawn, middle, page, pick, rises
from medusa.units import duration_us

__all__ = [
    "FULL",
    "NAME",
    "QUICK",
    "TEXT",
    "WORDCOUNT",
    "WORDCOUNT_TEXT",
    "Sizes",
    "measure",
    "plan",
    "plot",
    "run",
]

NAME, WORDCOUNT = "recovery", "wordcount"
TEXT = "recovery time over rate and interval of checkpoints: R+SM, upstream backup, source replay"
WORDCOUNT_TEXT = "the same of the windowed word count: 30 s windows, sentences of 140 bytes"
SHOWN_MS = 10
USUAL = "5s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        rates: published rows a second.
        intervals: the first of them is run at all rates and schemes first.
        keys: groups of the state, or words of the dictionary.
        seconds: that are measured before each kill.
    """

    rates: Sequence[int]
    intervals: Sequence[str]
    schemes: Sequence[str] = ("state_backup", "upstream_backup", "source_replay")
    keys: int = 10_000
    held_ms: int = 30_000
    rounds: int = 3
    seconds: float = 2.0


FULL = Sizes(rates=(100, 500, 1_000, 10_000), intervals=(USUAL, "30s", "1s", "15s", "10s", "20s", "25s"))
FULL_WORDS = replace(FULL, rates=(100, 500, 1_000), intervals=(USUAL,))
QUICK = Sizes(rates=(200,), intervals=("500ms",), keys=50, held_ms=1_000, rounds=1, seconds=0.5)
QUICK_WORDS = replace(QUICK, rates=(50,))


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    """First what tells most: all schemes at the usual interval; then R+SM at the others, whose time depends
    on it; then the others."""
    usual, *others = sizes.intervals
    first = [(scheme, rate, usual) for rate in sizes.rates for scheme in sizes.schemes]
    more = [
        (scheme, rate, interval) for scheme in sizes.schemes for interval in others for rate in sizes.rates
    ]
    return [
        {"scheme": scheme, "rate": rate, "interval": interval} for scheme, rate, interval in [*first, *more]
    ]


def run(setting: Mapping[str, Any], sizes: Sizes, work: Callable[[workload.Shape], Work]) -> dict[str, Any]:
    """One kill.

    Raises:
        AssertionError: a row is missing, came twice, or is wrong.
    """
    shape = workload.Shape(
        rate=setting["rate"],
        window_ms=SHOWN_MS,
        groups=1,
        keys=sizes.keys,
        held_ms=sizes.held_ms,
        interval=setting["interval"],
        wait="0s",
    )
    return chain.run(SCHEMES[setting["scheme"]], work(shape), shape, seconds=sizes.seconds)


def measure(sizes: Sizes, work: Callable[[workload.Shape], Work], sheet: Sheet) -> dict[str, Any]:
    """All kills, the settings in turns."""
    return sheet.run(settings(sizes), sizes.rounds, lambda each: run(each, sizes, work), told)


def told(made: Mapping[str, Any]) -> str:
    """A run, for who watches."""
    return f"{made['total_s'] * 1e3:,.0f} ms to the first new row"


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {"window": f"{sizes.held_ms} ms", "groups": sizes.keys, "seconds": sizes.seconds, "wait": "0s"}


def plan(options: argparse.Namespace, *, of_words: bool) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    full, quick = (FULL_WORDS, QUICK_WORDS) if of_words else (FULL, QUICK)
    base = quick if options.quick else full
    schemes = tuple(each for each in (options.schemes or "").split(",") if each) or base.schemes
    if unknown := [each for each in schemes if each not in base.schemes]:
        raise ValueError(f"--schemes: {unknown[0]!r} is none of {', '.join(base.schemes)}")
    sizes = replace(
        base,
        rates=numbers_of(options.rates) or base.rates,
        intervals=intervals_of(options.intervals) or base.intervals,
        schemes=schemes,
        rounds=options.rounds or base.rounds,
    )
    work = chain.words_work if of_words else chain.rows_work
    return asked_of(sizes), partial(measure, sizes, work)


def one_rate(text: str | None, usual: int, *, of: str) -> int:
    """What ``--rates`` says to an experiment that has one.

    Raises:
        ValueError: it says several, or none.
    """
    rates = numbers_of(text) or (usual,)
    if len(rates) > 1:
        raise ValueError(f"--rates: {of} has one rate")
    return rates[0]


def intervals_of(text: str | None) -> tuple[str, ...]:
    """Of an option that takes durations, by commas; none where it isn't given.

    Raises:
        MedusaError: one is no duration.
    """
    given = tuple(each for each in (text or "").split(",") if each)
    for each in given:
        duration_us(each, what="--intervals")
    return given


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "scheme",
    "rows/s",
    "checkpoints",
    "noticed, ms",
    "taken, ms",
    "total, ms",
    "settled, ms",
    "caught up, ms",
    "age of what was held, s",
    "read again, rows",
    "delay before p50, ms",
)


def table(found: dict[str, Any], text: str = TEXT) -> str:
    """Markdown: a line for each scheme, rate and interval."""
    lines = [
        [
            SCHEMES[row["scheme"]].title,
            f"{row['rate']:,}",
            row["interval"],
            *(milliseconds(row, f"{key}_s") for key in ("noticed", "taken", "total", "settled", "caught_up")),
            spread(values(row, "age_s"), digits=1),
            spread(values(row, "again_rows")),
            milliseconds(row, "delay_p50_s"),
        ]
        for row in found["rows"]
        if good(row)
    ]
    return page(found, text, HEADS, lines, claims_of(found))


def _usual(found: Mapping[str, Any]) -> str:
    """The interval at which all schemes were run."""
    return str(found["rows"][0]["interval"]) if found["rows"] else USUAL


def _seconds(row: Row) -> float:
    return duration_us(row["interval"]) / 1e6


def claims_of(found: Mapping[str, Any]) -> list[Claim]:
    """What the authors say, of the runs that there are."""
    usual = _usual(found)
    rates = sorted({row["rate"] for row in pick(found, scheme="state_backup", interval=usual)})
    if not rates:
        return []

    def total(scheme: str, rate: int, interval: str = usual) -> float | None:
        return middle(pick(found, scheme=scheme, rate=rate, interval=interval), "total_s")

    def others(rate: int) -> list[float]:
        known = (total(scheme, rate) for scheme in ("upstream_backup", "source_replay"))
        return [each for each in known if each is not None]

    lowest: bool | None = None
    gaps: list[float] = []
    for rate in rates:
        mine, theirs = total("state_backup", rate), others(rate)
        if mine is not None and theirs:
            lowest = (lowest is not False) and mine < min(theirs)
            gaps.append(min(theirs) - mine)
    shown = ", ".join(f"{each * 1e3:+,.0f} ms" for each in gaps)
    made = [
        Claim(f"R+SM recovers soonest at each rate (checkpoints each {usual})", lowest, shown),
        Claim("by how much grows with the rate", rises(gaps[0], gaps[-1]) if len(gaps) > 1 else None, shown),
    ]
    top = rates[-1]
    steps = sorted(pick(found, scheme="state_backup", rate=top), key=_seconds)
    low, high = (total("state_backup", top, steps[end]["interval"]) for end in (0, -1))
    several = len(steps) > 1
    made.append(
        Claim(
            f"R+SM takes longer the longer the interval ({top:,} rows/s)",
            rises(low, high) if several else None,
            f"{low or 0:.3f} s at {steps[0]['interval']}, {high or 0:.3f} s at {steps[-1]['interval']}"
            if several
            else "",
        )
    )
    least = total("state_backup", rates[0])
    most = total("state_backup", top)
    made.append(
        Claim(
            "and the higher the rate",
            rises(least, most) if len(rates) > 1 else None,
            f"{least or 0:.3f} s at {rates[0]:,} rows/s, {most or 0:.3f} s at {top:,}",
        )
    )
    return made


SKETCHES = (
    Sketch(
        "rows/s",
        "recovery time",
        (
            ("R+SM", ((0.1, 0.12), (1.0, 0.3))),
            ("source replay", ((0.1, 0.25), (1.0, 0.75))),
            ("upstream backup", ((0.1, 0.3), (1.0, 1.0))),
        ),
        "R+SM lowest, the gap grows with the rate",
    ),
    Sketch(
        "interval of checkpoints",
        "recovery time of R+SM",
        (
            ("high rate", ((0.05, 0.2), (1.0, 1.0))),
            ("low rate", ((0.05, 0.12), (1.0, 0.4))),
        ),
        "grows with interval and rate",
    ),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """Time over rate for each scheme, over the interval for each rate of R+SM and of the others."""
    usual = _usual(found)

    def by_rate(axis: Any) -> None:
        for key, scheme in SCHEMES.items():
            rows = pick(found, scheme=key, interval=usual)
            curve(axis, rows, lambda row: row["rate"], "total_s", scheme.title, factor=1e3)
        axis.set(
            xlabel=f"rows/s (a checkpoint each {usual})", ylabel="kill to first new row, ms", ylim=(0, None)
        )
        if len({row["rate"] for row in pick(found)}) > 1:
            axis.set_xscale("log")

    def by_interval(axis: Any) -> None:
        for rate in sorted({row["rate"] for row in pick(found)}):
            rows = pick(found, scheme="state_backup", rate=rate)
            curve(axis, rows, _seconds, "total_s", f"R+SM, {rate:,} rows/s", factor=1e3)
        axis.set(xlabel="interval of checkpoints, s", ylabel="kill to first new row, ms", ylim=(0, None))

    drawn(path, [by_rate, by_interval], SKETCHES)
