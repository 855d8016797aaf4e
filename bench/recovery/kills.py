"""Question: how long from a kill to the first new correct row, when the victim never comes back?

    python -m bench.recovery.kills [--quick] [--kills 20] [--exact 50] [--rate 100000] [--budget 10min]

Query and rows as in ``bench.recovery``, with windows of 10 ms to see by, at 100,000 rows/s. State is a second
window of the same fragment:

- *keys*: active and passive standby, 10^5 and 10^6 groups of a window of an hour, all of which are there
  before anything is timed.
- *span*: upstream backup, windows of 0.1, 1 and 10 s (1,000 groups). It reads again what has come of one by
  the kill, which is at any moment of it, and what came since the last checkpoint.
- state backup: as standbys, but with checkpoints each second and 10^5 groups alone. The entry holds the
  state, takes over, and hands it to who stands by: *taken* is its word, *total* the first row of either.
- amnesia: windows of 100 ms. What they held is lost, and counted.

The primary takes a checkpoint each ``--interval``, the entry before it as its method needs them.

*noticed*, *taken*, *total*: from the kill (SIGKILL) of the primary until another node said that it is gone,
until its successor said that it has the fragment, until a row came of one that was published after the kill.
*less the wait*: total without ``[recovery] wait``, for which upstream backup and amnesia give the owner time
to come back.
Exact first: a kill counts only if both outputs are right at the end: every row once; of upstream backup every
row at least once; of amnesia none twice, and as many missing as the status says. For these two ``--exact``
kills are made instead of ``--kills``.
Not shown: machines of their own; a killed process is noticed at once by its connections.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.recovery import workload
from bench.recovery.command import Command, Plan, numbers_of, parser_of
from bench.recovery.methods import BACKED_UP, Method, asked_for, known_methods
from bench.recovery.sheet import (
    Sheet,
    good,
    markdown,
    milliseconds,
    preface,
    spread,
    troubles,
    values,
)
from bench.recovery.table import WARM_S, setup_of, tried
from bench.recovery.trial import flowing
from medusa.query.recovery import AMNESIA, UPSTREAM
from medusa.units import duration_us

NAME = "recovery-kills"
METHODS = {**known_methods(), BACKED_UP.key: BACKED_UP}
WINDOW_MS, GROUPS = 10, 10
SPAN_KEYS = 1_000
MEASURED_S = 1.0
AIMS_S = {
    ("passive_standby", 100_000): 0.3,
    ("passive_standby", 1_000_000): 1.0,
    (BACKED_UP.key, 100_000): 1.0,
}
"""What is to be reached: (method, keys) -> kill to first new row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        keys: of standbys; ``spans_ms``: of upstream backup; ``window_ms``: of amnesia.
        kills: of each; ``exact``: of what may repeat or lose rows.
        backup_interval: between checkpoints where the state is backed up.
    """

    rate: int
    keys: Sequence[int]
    spans_ms: Sequence[int]
    window_ms: int
    kills: int
    exact: int
    interval: str = "200ms"
    backup_interval: str = "1s"
    wait: str = "2s"


FULL = Sizes(
    rate=100_000,
    keys=(100_000, 1_000_000),
    spans_ms=(100, 1_000, 10_000),
    window_ms=100,
    kills=20,
    exact=50,
)
QUICK = Sizes(
    rate=10_000,
    keys=(1_000,),
    spans_ms=(100,),
    window_ms=100,
    kills=1,
    exact=1,
    backup_interval="200ms",
    wait="100ms",
)


def settings(sizes: Sizes, methods: Sequence[Method]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for method in methods:
        if method.method == UPSTREAM:
            found += [_setting(method, span_ms=span_ms) for span_ms in sizes.spans_ms]
        elif method.method == AMNESIA:
            found.append(_setting(method, window_ms=sizes.window_ms))
        elif method.one_holds:
            found.append(_setting(method, keys=min(sizes.keys)))
        else:
            found += [_setting(method, keys=keys) for keys in sizes.keys]
    return found


def _setting(
    method: Method, *, keys: int | None = None, span_ms: int | None = None, window_ms: int | None = None
) -> dict[str, Any]:
    return {"method": method.key, "keys": keys, "span_ms": span_ms, "window_ms": window_ms}


def shape_of(setting: dict[str, Any], sizes: Sizes) -> workload.Shape:
    """What one setting asks of the query."""
    keys, span_ms = setting["keys"], setting["span_ms"]
    state: dict[str, Any] = {}
    if keys is not None:
        state = {"keys": keys, "filled": True}
    elif span_ms is not None:
        state = {"keys": SPAN_KEYS, "held_ms": span_ms}
    return workload.Shape(
        rate=sizes.rate,
        window_ms=setting["window_ms"] or WINDOW_MS,
        groups=GROUPS,
        interval=sizes.backup_interval if setting["method"] == BACKED_UP.key else sizes.interval,
        wait=sizes.wait,
        **state,
    )


def run(setting: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One kill.

    Raises:
        AssertionError: what the method promises isn't held.
    """
    method, shape = METHODS[setting["method"]], shape_of(setting, sizes)
    with flowing(setup_of(method, shape, everywhere=False)) as trial:
        out = trial.arrivals["out"].came
        trial.until(lambda: workload.newest(out) >= trial.setup.fill, "the state is there")
        # Anywhere between two ends of windows: so much of one has to be read again.
        trial.rest(WARM_S + random.random() * (setting["span_ms"] or 0) / 1e3)
        trial.until(trial.follow, "who stands by follows")
        return tried(trial, method, shape, MEASURED_S)


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "rows/s": sizes.rate,
        "checkpoints each": sizes.interval,
        "with state backup each": sizes.backup_interval,
        "wait": sizes.wait,
    }


def measure(sizes: Sizes, methods: Sequence[Method], sheet: Sheet) -> dict[str, Any]:
    """All kills, the settings in turns; what has more goes on alone."""

    def do(setting: dict[str, Any]) -> dict[str, Any]:
        return run(dict(setting), sizes)

    asked = settings(sizes, methods)
    found = sheet.run(asked, min(sizes.kills, sizes.exact), do, told)
    for rounds, keyed in ((sizes.kills, True), (sizes.exact, False)):
        if not found["stopped"]:
            which = [each for each in asked if (each["keys"] is not None) == keyed]
            found = sheet.run(which, rounds, do, told)
    return found


def told(made: dict[str, Any]) -> str:
    return f"{made['total_s'] * 1e3:.0f} ms to the first new row"


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "method",
    "state",
    "kills",
    "noticed, ms",
    "taken, ms",
    "total, ms",
    "less the wait",
    "aim, ms",
    "read again, rows",
    "doubled",
    "lost",
    "delay before p50, ms",
)


def state_of(row: dict[str, Any]) -> str:
    if row["keys"] is not None:
        return f"{row['keys']:,} keys"
    return f"{row['span_ms']:,} ms" if row["span_ms"] is not None else f"window of {row['window_ms']:,} ms"


def wait_s(found: dict[str, Any], row: dict[str, Any]) -> float:
    """For how long its method waits for the owner."""
    method = METHODS[row["method"]].method
    return duration_us(found["asked"]["wait"]) / 1e6 if method in (UPSTREAM, AMNESIA) else 0.0


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each method and state."""
    lines = []
    for row in found["rows"]:
        if not good(row):
            continue
        totals, wait = values(row, "total_s"), wait_s(found, row)
        aim = AIMS_S.get((row["method"], row["keys"] or 0))
        reached = "-"
        if aim is not None:
            held = "reached" if float(np.median(totals)) < aim else "missed"
            reached = f"{aim * 1e3:,.0f}, {held}"
        lines.append(
            [
                row["method"].replace("_", " "),
                state_of(row),
                f"{len(good(row))}",
                *(milliseconds(row, key) for key in ("noticed_s", "taken_s", "total_s")),
                f"{(float(np.median(totals)) - wait) * 1e3:,.0f}" if wait else "-",
                reached,
                *(spread(values(row, key)) for key in ("again_rows", "doubled", "missing")),
                milliseconds(row, "delay_p50_s"),
            ]
        )
    return "\n".join([preface(found), "", *markdown(HEADS, lines), *troubles(found)]) + "\n"


def plot(found: dict[str, Any], path: Path) -> None:
    """Each kill a dot, by method and state; upstream backup against what it read again."""
    plots = report.pyplot()
    rows = [row for row in found["rows"] if good(row)]
    figure, (left, right) = plots.subplots(1, 2, figsize=(12, 1.6 + 0.4 * max(len(rows), 4)))
    for number, row in enumerate(rows):
        totals = np.array(values(row, "total_s")) * 1e3
        left.plot(totals, np.full(len(totals), number), "o", color="#3b6ea5", alpha=0.5)
        left.plot([float(np.median(totals))], [number], "|", color="black", markersize=18)
        aim = AIMS_S.get((row["method"], row["keys"] or 0))
        if aim is not None:
            left.plot([aim * 1e3], [number], "x", color="#c0504d", markersize=9)
    labels = [f"{row['method'].replace('_', ' ')}, {state_of(row)}" for row in rows]
    left.set_yticks(range(len(rows)), labels)
    left.invert_yaxis()
    left.set_xlim(left=0)
    left.set_xlabel("kill to first new row, ms (line: median, cross: aim)")
    for row in rows:
        if row["span_ms"] is not None:
            runs = [each for each in good(row) if each["again_rows"] is not None]
            again = [each["again_rows"] for each in runs]
            total = [(each["total_s"] - wait_s(found, row)) * 1e3 for each in runs]
            right.plot(again, total, "o", alpha=0.5, label=f"{row['span_ms']:,} ms")
    right.set_xlabel("rows read again by upstream backup")
    right.set_ylabel("total less the wait, ms")
    right.set_xlim(left=0)
    right.set_ylim(bottom=0)
    if any(row["span_ms"] is not None for row in rows):
        right.legend(title="windows of", frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


COMMAND = Command(NAME, table, plot)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, help="of each line")
    parser.add_argument("--exact", type=int, help="of each line of upstream backup and amnesia, instead")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--keys", help="of standbys, by commas")
    parser.add_argument("--spans", help="of upstream backup: milliseconds, by commas")
    parser.add_argument("--interval", help="between checkpoints")
    parser.add_argument("--wait", help="[recovery] wait of the nodes")
    parser.add_argument("--methods", default=",".join(METHODS), help="of %(default)s, by commas")
    COMMAND.main(parser, plan)


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    sizes = Sizes(
        rate=options.rate or base.rate,
        keys=numbers_of(options.keys) or base.keys,
        spans_ms=numbers_of(options.spans) or base.spans_ms,
        window_ms=base.window_ms,
        kills=options.kills or base.kills,
        exact=options.exact or base.exact,
        interval=options.interval or base.interval,
        backup_interval=options.interval or base.backup_interval,
        wait=options.wait or base.wait,
    )
    methods = asked_for(options.methods, [*METHODS])
    return asked_of(sizes), partial(measure, sizes, methods)


if __name__ == "__main__":
    main()
