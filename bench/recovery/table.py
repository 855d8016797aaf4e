"""Question: what does each method of recovery cost while nothing fails, and how fast does it go on?

    python -m bench.recovery [--quick] [--rounds 5] [--apart 1] [--methods amnesia,...] [--budget 10min]

A publisher feeds numbered rows to an entry node, which filters them; the next node, the primary, counts by
window and group, and a reader takes its rows (``workload``). The entry's fragment is guarded by the same
method, by the witness. Each run has processes of its own, over TCP, and one kill. *alone*: the same query
without standby, the peer of each line, at the same rate and window.

- *sent*: bytes over TCP from the primary's process to the secondary's, as the kernel counts them, a row; and
  what share that is of the bytes by which the row came to the primary.
- *CPU*: user and system time of primary and secondary together, a row; and how many times that of *alone*.
- *delay*: from the publication of a window's newest row to its arrival; *added*: less that of *alone*.
- *kept*: what the primary's sender keeps for it, just before the kill. *memory*: by how much the processes
  of primary and secondary have grown since before the query was there.
- *noticed*, *taken*, *total*: from the kill (SIGKILL, for good) of the primary until another node said that
  it is gone, until its successor said that it has the fragment, until a window came with a row that was
  published after it. At most one window of the last is the wait until that window is full.
- *lost*, *doubled*: published rows that are in no received window, or in more than one. *read again*: rows
  that were published before the kill and that the successor was fed.

State is what a window holds: rate times window, in as many groups as the table says.
Exact first: a run counts only if what its method promises is held: nothing lost and nothing doubled,
(upstream backup) nothing lost, or (amnesia) nothing doubled and as many lost as the status says.
Not shown: machines of their own. All processes share this one's processors, and a killed process is noticed
at once by its connections, which a machine without power isn't.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.recovery import workload
from bench.recovery.command import Command, Plan, parser_of
from bench.recovery.losses import Loss, lose
from bench.recovery.methods import ALONE, Method, asked_for, known_methods
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
from bench.recovery.trial import ENTRY, WITNESS, Setup, Spent, Trial, flowing
from medusa.apps.workloads.network.tcp_bytes import sent_bytes

NAME = "recovery"
PRIMARY, SECONDARY = "m", "m2"
LIMITS = 'query_memory = "2 GiB"\nowner_memory = "2 GiB"\nmemory = "2 GiB"\nretention = "1 GiB"'
"""So that nothing waits for a bound, whatever the state is."""

WARM_S = 1.0
AFTER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through; the first of each is the usual one.

    Attributes:
        states: (milliseconds of a window, groups).
        intervals: between checkpoints.
        seconds: that are measured in each run, before the kill.
        apart: in so many of rate, state and interval a setting may differ from the usual one.
    """

    rates: Sequence[int]
    states: Sequence[tuple[int, int]]
    intervals: Sequence[str]
    rounds: int
    seconds: float
    wait: str = "2s"
    apart: int = 3


FULL = Sizes(
    rates=(2_000, 20_000),
    states=((100, 10), (1_000, 10), (1_000, 1_000)),
    intervals=("200ms", "1s"),
    rounds=5,
    seconds=5.0,
)
QUICK = Sizes(rates=(2_000,), states=((100, 10),), intervals=("200ms",), rounds=1, seconds=1.0)


def settings(sizes: Sizes, methods: Sequence[Method]) -> list[dict[str, Any]]:
    """What is run once in each round: first what differs least from the usual, since time may be short;
    *alone* before what is held against it."""
    cases = itertools.product(enumerate(sizes.rates), enumerate(sizes.states), enumerate(sizes.intervals))

    def apart(case: Any) -> int:
        return sum(number > 0 for number, _ in case)

    found: list[dict[str, Any]] = []
    for case in sorted(cases, key=apart):
        if apart(case) > sizes.apart:
            break
        (_, rate), (_, (window_ms, groups)), (nth, interval) = case
        found += [
            {
                "method": method.key,
                "rate": rate,
                "window_ms": window_ms,
                "groups": groups,
                "interval": interval if method.has_interval else None,
            }
            for method in (ALONE, *methods)
            # What takes no checkpoints runs once for each rate and window.
            if method.has_interval or nth == 0
        ]
    return found


def run(setting: dict[str, Any], seconds: float, wait: str) -> dict[str, Any]:
    """One run; *alone* nobody is killed.

    Raises:
        AssertionError: what its method promises isn't held.
    """
    method = {ALONE.key: ALONE, **known_methods()}[setting["method"]]
    shape = workload.Shape(
        rate=setting["rate"],
        window_ms=setting["window_ms"],
        groups=setting["groups"],
        interval=setting["interval"] or "1s",
        wait=wait,
    )
    with flowing(setup_of(method, shape)) as trial:
        trial.rest(WARM_S + shape.window_ms / 1e3)
        return tried(trial, method, shape, seconds)


def setup_of(method: Method, shape: workload.Shape, *, everywhere: bool = True) -> Setup:
    """The query at entry and primary, guarded by its method.

    Args:
        everywhere: the interval is that of the entry too, whose rows wait for its checkpoints with passive
            standby.
    """
    q = workload.query(method, shape)
    guarded = method.method is not None
    return Setup(
        query=q,
        nodes=(PRIMARY, SECONDARY) if guarded else (PRIMARY,),
        at=workload.placed(q, ENTRY, PRIMARY),
        standby={ENTRY: [WITNESS], PRIMARY: [SECONDARY]} if guarded else {},
        rows=partial(workload.rows_of, rate=shape.rate, groups=shape.groups, keys=shape.keys),
        rate=shape.rate,
        fill=shape.keys if shape.filled else 0,
        sinks=("out", "held") if shape.keys else ("out",),
        checkpoint_every={"*" if everywhere else PRIMARY: shape.interval},
        wait=shape.wait,
        limits=LIMITS,
        one_holds=method.one_holds,
    )


def tried(trial: Trial, method: Method, shape: workload.Shape, seconds: float) -> dict[str, Any]:
    """What it costs for so long, a kill, and what came of all rows.

    Raises:
        AssertionError: what its method promises isn't held.
    """
    guarded = method.method is not None
    names = trial.setup.nodes
    first, sent = trial.spent(*names), _sent(trial)
    trial.rest(seconds)
    trial.until_shown(first.at_ns)
    last, sent_later = trial.spent(*names), _sent(trial)
    figures = costs(trial.before, first, last)
    for key, before in sent.items():
        after = sent_later[key]
        figures[key] = None if before is None or after is None else (after - before) / _rows(first, last)
    figures["kept_bytes"] = trial.told(ENTRY, "q/rows")["kept_bytes"]
    loss: Loss | None = None
    if guarded:
        loss = lose(trial, PRIMARY, workload.FRAGMENT)
        trial.rest(AFTER_S)
        if method.one_holds:  # Rows come again before who held the state has handed it on.
            trial.until(
                lambda: trial.fragments()[workload.FRAGMENT]["owner"] == SECONDARY, "a spare goes on with it"
            )
    trial.end()
    return {**figures, **came(trial, method, shape, first, last, loss)}


def _sent(trial: Trial) -> dict[str, int | None]:
    """Bytes so far, by what they are called a row."""
    pid = trial.nodes.pid
    found = {"input_bytes": sent_bytes(pid(ENTRY), pid(PRIMARY))}
    if SECONDARY in trial.setup.nodes:
        found["sent_bytes"] = sent_bytes(pid(PRIMARY), pid(SECONDARY))
    return found


def _rows(first: Spent, last: Spent) -> int:
    return max(last.rows - first.rows, 1)


def costs(before: Spent, first: Spent, last: Spent) -> dict[str, Any]:
    """CPU of each process a row between two moments, and by how much it has grown."""
    found: dict[str, Any] = {}
    for name, role in ((PRIMARY, "primary"), (SECONDARY, "secondary")):
        there = name in last.cpu_s
        spent_s = last.cpu_s[name] - first.cpu_s[name] if there else 0.0
        found[f"{role}_cpu_us"] = spent_s / _rows(first, last) * 1e6
        grown = last.memory_bytes[name] - before.memory_bytes[name] if there else None
        found[f"{role}_memory_bytes"] = grown
    found["cpu_us"] = found["primary_cpu_us"] + found["secondary_cpu_us"]
    return found


def came(
    trial: Trial,
    method: Method,
    shape: workload.Shape,
    first: Spent,
    last: Spent,
    loss: Loss | None,
) -> dict[str, Any]:
    """The account of all rows, delays between two moments, and the times of a loss; the run is over.

    Raises:
        AssertionError: what its method promises isn't held.
    """
    start_ns = trial.start_ns
    windows = workload.windows_of(trial.arrivals["out"].came, start_ns)
    published = trial.traffic.published
    found = workload.counts_of(windows, published, shape.groups)
    told: dict[str, Any] = {"lost_rows": 0, "lost_unknown": False, "rows_in": 0}
    if loss is not None:
        owner = trial.fragments()[workload.FRAGMENT]["owner"]
        assert owner == SECONDARY, f"{owner} has the fragment at the end"
        told = trial.told(owner, workload.FRAGMENT)
    broken = method.broken(found, told["lost_rows"], told_unknown=told["lost_unknown"])
    assert not broken, broken
    if shape.keys:
        again = method.recovery == "rollback"
        wrong = workload.held_of(trial.arrivals["held"].came, published, shape, again=again)
        assert not wrong, wrong
    between = ((each - start_ns) / 1e9 for each in (first.at_ns, last.at_ns))
    begin_s, end_s = between
    delays = [each.at_s - each.sent_s for each in windows if begin_s <= each.at_s <= end_s]
    assert delays, "no window came while it was measured"
    p50, p99 = np.quantile(delays, [0.5, 0.99])
    figures: dict[str, Any] = {
        "published": published,
        "missing": found.missing,
        "doubled": found.doubled,
        "delay_p50_s": float(p50),
        "delay_p99_s": float(p99),
    }
    if loss is not None:
        figures |= {"noticed_s": loss.noticed_s, "taken_s": loss.taken_s, "total_s": loss.total_s}
        # It is fed the rows from some number up to the last one.
        begins = published - told["rows_in"]
        counts = not (method.computes or method.one_holds)  # The second owner in turn was fed but the rest.
        figures["again_rows"] = None if not counts else max(loss.published - begins, 0)
    return figures


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {"seconds": sizes.seconds, "wait": sizes.wait}


def measure(sizes: Sizes, methods: Sequence[Method], sheet: Sheet) -> dict[str, Any]:
    """All figures, the settings in turns."""
    return sheet.run(
        settings(sizes, methods),
        sizes.rounds,
        lambda setting: run(dict(setting), sizes.seconds, sizes.wait),
        told,
    )


def told(made: dict[str, Any]) -> str:
    """A run, for who watches."""
    kill = f", {made['total_s'] * 1e3:.0f} ms to the first new row" if "total_s" in made else ""
    return f"{made['cpu_us']:.1f} us a row{kill}"


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "method",
    "rows/s",
    "window, groups",
    "checkpoints",
    "sent, B a row",
    "of the input",
    "CPU, us a row",
    "times alone",
    "delay p50, ms",
    "added p50",
    "added p99",
    "kept, KiB",
    "memory, MiB",
    "noticed, ms",
    "taken, ms",
    "total, ms",
    "lost",
    "doubled",
    "read again",
)


def _alone(found: dict[str, Any], row: dict[str, Any]) -> dict[str, Any] | None:
    """The line that this one is held against."""
    same = ("rate", "window_ms", "groups")
    for each in found["rows"]:
        if each["method"] == ALONE.key and all(each[key] == row[key] for key in same) and good(each):
            return each  # type: ignore[no-any-return]
    return None


def _middle(row: dict[str, Any] | None, key: str) -> float | None:
    found = [] if row is None else values(row, key)
    return float(np.median(found)) if found else None


def _ratio(mine: float | None, other: float | None, digits: int = 2) -> str:
    return "-" if mine is None or not other else f"{mine / other:.{digits}f}"


def _added(row: dict[str, Any], base: dict[str, Any] | None, key: str) -> str:
    mine, before = _middle(row, key), _middle(base, key)
    return "-" if row is base or mine is None or before is None else f"{(mine - before) * 1e3:+,.0f}"


def _memory(row: dict[str, Any]) -> str:
    found = [_middle(row, f"{role}_memory_bytes") for role in ("primary", "secondary")]
    return " + ".join(f"{each / (1 << 20):.0f}" for each in found if each is not None) or "-"


def _most(row: dict[str, Any], key: str) -> str:
    found = values(row, key)
    return f"{max(found):,.0f}" if found else "-"


def table(found: dict[str, Any]) -> str:
    """Markdown: one line for each method, rate, window and interval; lost and doubled: the most."""
    lines = []
    for row in found["rows"]:
        if not good(row):
            continue
        base = _alone(found, row)
        guarded = row["method"] != ALONE.key
        lines.append(
            [
                row["method"].replace("_", " "),
                f"{row['rate']:,}",
                f"{row['window_ms']} ms, {row['groups']:,}",
                row["interval"] or "-",
                spread(values(row, "sent_bytes")),
                _ratio(_middle(row, "sent_bytes"), _middle(row, "input_bytes")),
                spread(values(row, "cpu_us"), digits=1),
                _ratio(_middle(row, "cpu_us"), _middle(base, "cpu_us")) if guarded else "-",
                milliseconds(row, "delay_p50_s"),
                _added(row, base, "delay_p50_s"),
                _added(row, base, "delay_p99_s"),
                spread(values(row, "kept_bytes"), 1 / 1024),
                _memory(row),
                *(milliseconds(row, key) for key in ("noticed_s", "taken_s", "total_s")),
                *(_most(row, key) for key in ("missing", "doubled")),
                spread(values(row, "again_rows")) if guarded else "-",
            ]
        )
    return "\n".join([preface(found), "", *markdown(HEADS, lines), *troubles(found)]) + "\n"


PANELS = (
    ("sent to the secondary, B a row", "sent_bytes", 1.0),
    ("CPU, us a row", "cpu_us", 1.0),
    ("delay p50, ms", "delay_p50_s", 1e3),
    ("read again, rows", "again_rows", 1.0),
    ("kill to first new row, ms", "total_s", 1e3),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """A panel for each question, a bar for each line of the table; scales start at 0, whiskers are the
    smallest and the largest."""
    plots = report.pyplot()
    rows = [row for row in found["rows"] if good(row)]
    labels = [
        f"{row['method'].replace('_', ' ')}, {row['rate']:,}/s, {row['window_ms']} ms, {row['groups']:,}"
        + (f", {row['interval']}" if row["interval"] else "")
        for row in rows
    ]
    figure, axes = plots.subplots(1, len(PANELS), figsize=(17, 1.2 + 0.25 * len(rows)), sharey=True)
    for axis, (title, key, factor) in zip(axes, PANELS, strict=True):
        known = [np.array(values(row, key) or [0.0]) * factor for row in rows]
        middle = [float(np.median(each)) for each in known]
        off = [
            [mid - float(each.min()) for each, mid in zip(known, middle, strict=True)],
            [float(each.max()) - mid for each, mid in zip(known, middle, strict=True)],
        ]
        colours = ["#b0b0b0" if row["method"] == ALONE.key else "#3b6ea5" for row in rows]
        axis.barh(range(len(rows)), middle, xerr=off, color=colours, ecolor="#606060")
        axis.set_xlabel(title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(rows)), labels)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


COMMAND = Command(NAME, table, plot)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="that are measured in each run")
    parser.add_argument("--methods", default=",".join(known_methods()), help="of %(default)s, by commas")
    parser.add_argument("--wait", default=FULL.wait, help="[recovery] wait of the nodes (%(default)s)")
    parser.add_argument(
        "--apart",
        type=int,
        default=FULL.apart,
        help="0: the usual setting alone, 1: and what differs in one thing",
    )
    COMMAND.main(parser, plan)


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    sizes = replace(
        base,
        rounds=options.rounds or base.rounds,
        seconds=options.seconds or base.seconds,
        wait=options.wait,
        apart=options.apart,
    )
    methods = asked_for(options.methods)
    return asked_of(sizes), partial(measure, sizes, methods)


if __name__ == "__main__":
    main()
