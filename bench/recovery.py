"""Question: what does each method of recovery cost, and how fast does it go on?

    python -m bench.recovery [--quick] [--rounds 5] [--seconds 5] [--methods active_standby,...]

Data and query as in ``medusa demo ha``: a publisher feeds numbered rows to an entry node, which filters them;
the next node, the primary, counts by window and group, and a reader takes its rows. The entry's fragment is
guarded by the same method, by the witness. Methods one after the other, each run with processes of its own.
*alone*: the same query without standby, the peer of each row, at the same rate and window.

- *sent*: bytes over TCP from the primary's process to the secondary's, as the kernel counts them, a row.
- *CPU*: user and system time of primary and secondary together, a row; and how many times that of *alone*.
- *delay*: from the publication of a window's newest row to its arrival; *added*: less that of *alone*.
- *takeover*: from the kill (SIGKILL, for good) of the primary until a window came with a row that was
  published after it. At most one window of it is the wait until the window is full.
- *lost*, *doubled*: published rows that are in no received window, or in more than one.

State is what a window holds: rate times window, in as many groups as the table says.
Exact first: a run counts only if what its method promises is held: nothing lost and nothing doubled,
(upstream backup) nothing lost, or (amnesia) nothing doubled and as many lost as the status says.
Not shown: machines of their own. All processes share this one's processors.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine, report
from bench.moves import RESULTS
from medusa.apps.workloads.demos.ha_demo import compared
from medusa.apps.workloads.demos.ha_outcome import HaOutcome
from medusa.apps.workloads.demos.ha_query import HaMethod, HaShape, known_methods
from medusa.apps.workloads.demos.screens import DemoScreen

ALONE = HaMethod("N", None, None)
NO_CHECKPOINTS = ("amnesia", None)
"""Methods that have no interval: they run once for each rate and window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        states: (milliseconds of a window, groups).
        intervals: between checkpoints.
    """

    rates: Sequence[int]
    states: Sequence[tuple[int, int]]
    intervals: Sequence[str]
    rounds: int
    seconds: float


FULL = Sizes(
    rates=(2_000, 10_000),
    states=((50, 10), (500, 10), (500, 1_000)),
    intervals=("100ms", "500ms"),
    rounds=5,
    seconds=5.0,
)
QUICK = Sizes(rates=(2_000,), states=((50, 10),), intervals=("100ms",), rounds=1, seconds=2.0)


def settings(sizes: Sizes, methods: Sequence[HaMethod]) -> Iterator[tuple[HaMethod, HaShape]]:
    """What is run once in each round: *alone* first, since all else is held against it."""
    for rate in sizes.rates:
        for window_ms, groups in sizes.states:
            for method in (ALONE, *methods):
                once = method.name in NO_CHECKPOINTS
                for interval in sizes.intervals[:1] if once else sizes.intervals:
                    yield (
                        method,
                        HaShape(rate=rate, groups=groups, window_ms=window_ms, checkpoint_every=interval),
                    )


def run(method: HaMethod, shape: HaShape, seconds: float) -> dict[str, Any]:
    """One run; *alone* nobody is killed.

    Raises:
        AssertionError: what its method promises isn't held.
    """
    kills = method.method is not None
    return figures(compared([method], shape, DemoScreen(), rest_s=seconds, kills=kills))


def figures(outcome: HaOutcome) -> dict[str, Any]:
    """Of a run of one method.

    Raises:
        AssertionError: what it promises isn't held.
    """
    assert outcome.fine, [each for each in outcome.checks() if each.exact and not each.held]
    [result] = outcome.results
    return result.to_json()


def measure(sizes: Sizes, methods: Sequence[HaMethod]) -> dict[str, Any]:
    """All figures, the settings in turns."""
    rows: list[dict[str, Any]] = []
    for number in range(sizes.rounds):
        for index, (method, shape) in enumerate(settings(sizes, methods)):
            made = run(method, shape, sizes.seconds)
            if number == 0:
                rows.append(
                    {
                        "method": method.name,
                        "rate": shape.rate,
                        "window_ms": shape.window_ms,
                        "groups": shape.groups,
                        "interval": None if method.name in NO_CHECKPOINTS else shape.checkpoint_every,
                        "runs": [],
                    }
                )
            rows[index]["runs"].append(made)
            told = f"{method.title}, {shape}, round {number + 1} of {sizes.rounds}"
            print(f"{told}: takeover {made['takeover_s']} s", file=sys.stderr)
    return {
        **machine.describe(),
        "rounds": sizes.rounds,
        "seconds": sizes.seconds,
        "rows": rows,
        "load": os.getloadavg()[2],
    }


def median(row: dict[str, Any], key: str) -> float | None:
    """Of its runs; None: not every run knows it."""
    values = [each[key] for each in row["runs"]]
    return None if None in values else float(np.median(values))


def cpu_us(row: dict[str, Any]) -> float:
    """Of primary and secondary together, a row."""
    return float(np.median([each["primary_cpu_us"] + each["secondary_cpu_us"] for each in row["runs"]]))


def alone(found: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The row that this one is held against."""
    same = ("rate", "window_ms", "groups")
    return next(
        each
        for each in found["rows"]
        if each["method"] is None and all(each[key] == row[key] for key in same)
    )


def name(row: dict[str, Any]) -> str:
    return (row["method"] or "alone").replace("_", " ")


def table(found: dict[str, Any]) -> str:
    """Markdown: one row for each method, rate, window and interval; medians, lost and doubled of all runs."""
    lines = [
        f"{report.machine_line(found)} {found['rounds']} rounds of {found['seconds']:g} s, medians; "
        f"lost and doubled: the most. Load while it ran: {found['load']:.1f}.",
        "",
        "| method | rows/s | window, groups | checkpoints | sent a row | CPU a row | times alone "
        "| delay p50 | added p50 | added p99 | takeover p50 | max | lost | doubled |",
        f"|{'---|' * 14}",
    ]
    for row in found["rows"]:
        base = alone(found, row)
        sent = median(row, "sent_bytes")
        takeovers = [each["takeover_s"] for each in row["runs"] if each["takeover_s"] is not None]
        shown = [
            name(row),
            f"{row['rate']:,}",
            f"{row['window_ms']} ms, {row['groups']:,}",
            row["interval"] or "-",
            "-" if sent is None else f"{sent:,.0f} B",
            f"{cpu_us(row):.1f} us",
            f"{cpu_us(row) / cpu_us(base):.2f}" if row is not base and cpu_us(base) else "-",
            _ms(median(row, "delay_p50_s")),
            _added(row, base, "delay_p50_s"),
            _added(row, base, "delay_p99_s"),
            _ms(float(np.median(takeovers)) if takeovers else None),
            _ms(max(takeovers, default=None)),
            f"{max(each['missing'] for each in row['runs']):,}",
            f"{max(each['doubled'] for each in row['runs']):,}",
        ]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _added(row: dict[str, Any], base: dict[str, Any], key: str) -> str:
    mine, before = median(row, key), median(base, key)
    return "-" if row is base or mine is None or before is None else _ms(mine - before)


def plot(found: dict[str, Any], path: Path) -> None:
    """Four panels, a bar for each row of the table; scales start at 0."""
    plots = report.pyplot()
    rows = found["rows"]
    labels = [
        f"{name(row)}, {row['rate']:,}/s, {row['window_ms']} ms, {row['groups']:,}"
        + (f", {row['interval']}" if row["interval"] else "")
        for row in rows
    ]
    panels = {
        "bytes to the secondary, a row": [median(row, "sent_bytes") or 0.0 for row in rows],
        "CPU, us a row": [cpu_us(row) for row in rows],
        "delay p50, ms": [(median(row, "delay_p50_s") or 0.0) * 1e3 for row in rows],
        "takeover, ms": [(median(row, "takeover_s") or 0.0) * 1e3 for row in rows],
    }
    height = 1.2 + 0.25 * len(rows)
    figure, axes = plots.subplots(1, len(panels), figsize=(14, height), sharey=True)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        axis.barh(labels, values, color=["#b0b0b0" if row["method"] is None else "#3b6ea5" for row in rows])
        axis.set_xlabel(title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def write(found: dict[str, Any], folder: Path) -> str:
    text = report.save("recovery", found, table(found), folder)
    plot(found, folder / "recovery.svg")
    return text


def main() -> None:
    known = {each.name: each for each in known_methods()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one rate, one window, one interval, one round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="that are measured in each run")
    parser.add_argument("--methods", default=",".join(map(str, known)), help="of %(default)s, by commas")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    asked = [each for each in options.methods.split(",") if each]
    if unknown := [each for each in asked if each not in known]:
        parser.error(f"--methods: {', '.join(unknown)} is none of {', '.join(map(str, known))}")
    base = QUICK if options.quick else FULL
    sizes = Sizes(
        rates=base.rates,
        states=base.states,
        intervals=base.intervals,
        rounds=options.rounds or base.rounds,
        seconds=options.seconds or base.seconds,
    )
    sys.stdout.write(write(measure(sizes, [known[each] for each in asked]), options.out))


if __name__ == "__main__":
    main()
