"""A join of many keys at a high rate, through cut after cut: is X held by every new row?

    publisher ── e  left  ── of_left ──┬── c joined ── out ── reader      r stands by for c
    publisher ── f  right ── of_right ─┘

Each row of ``left`` gets the newest row of its key of ``right`` (``asof_join``), by which it can be told
whether it is right. ``f`` is cut off; what comes then has what was known of ``right`` before.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench import report
from bench.delay.account import STILL_S, WARM_S, Check
from bench.delay.rig import Arrival, Failure, Feed, Outage, Run, Setup, made
from bench.recovery.sheet import Sheet, good, markdown, preface, troubles
from medusa.units import duration_us

__all__ = ["FULL", "NAME", "QUICK", "SHORT", "TEXT", "Seen", "Sizes", "asked_of", "measure", "plot", "query"]

NAME = "cuts"
TEXT = "100,000 rows/s into a join of 100,000 keys, X = 1 s, through 20 cuts of 0.5 to 30 s"

LEFT = {"ts": "timestamp", "n": "int64", "key": "int64"}
RIGHT = {"ts": "timestamp", "m": "int64", "key": "int64"}
SPEED = 5
"""Input rates at which corrections come, at least."""

FAST_FROM_S = 2.0
"""A cut must have lasted so long for its corrections to have a speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done.

    Attributes:
        left, right: rows a second.
        cuts_s: the lengths of the cuts, in their order.
        rest_s: between all being stable and the next cut.
        tick_s: between two trains of a stream.
    """

    left: int = 90_000
    right: int = 10_000
    keys: int = 100_000
    within: str = "1s"
    cuts_s: Sequence[float]
    rest_s: float = 2.0
    tick_s: float = 0.01


def _lengths(count: int, most_s: float) -> tuple[float, ...]:
    """From 0.5 s on, each longer than the one before by the same factor; long and short in turns."""
    found = [round(float(each), 2) for each in np.geomspace(0.5, most_s, count)]
    return tuple(each for pair in zip(found, reversed(found), strict=True) for each in pair)[:count]


FULL = Sizes(cuts_s=_lengths(20, 30.0))
SHORT = Sizes(cuts_s=_lengths(6, 10.0))
QUICK = Sizes(left=900, right=100, keys=100, cuts_s=(2.0,), rest_s=0.5, tick_s=0.05)


def query(sizes: Sizes, *, delay: bool = True) -> md.Query:
    q = md.Query("q")
    left = q.source("left", LEFT, time="ts", slack="0s").filter("n >= 0", name="of_left")
    right = q.source("right", RIGHT, time="ts", slack="0s").filter("m >= 0", name="of_right")
    joined = left.asof_join(right, on="key", how="left", name="joined")
    q.sink("out", joined.select("n", "key", "ts", "m", name="taken"), delay=sizes.within if delay else None)
    return q


AT = {"e": ["left", "of_left"], "f": ["right", "of_right"], "c": ["joined", "taken", "out"]}


def left_rows(keys: int, begin: int, end: int, at_us: int) -> pa.Table:
    numbers = np.arange(begin, end)
    return _timed(at_us, {"n": numbers, "key": numbers * 7_919 % keys})


def right_rows(keys: int, begin: int, end: int, at_us: int) -> pa.Table:
    numbers = np.arange(begin, end)
    return _timed(at_us, {"m": numbers, "key": numbers % keys})


def _timed(at_us: int, columns: Mapping[str, np.ndarray]) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"ts": pa.array(np.full(count, at_us), pa.timestamp("us", "UTC")), **columns})


@dataclass(slots=True)
class Seen:
    """What came, of which only figures are kept: rows of ``left`` come in order on either lane.

    Attributes:
        next: the number of the stable row that comes next.
        fault: how a stable row isn't the right one; empty: all are.
        parts: of each train with rows: when it came, whether it is tentative, how many rows, the age of the
            oldest row in it that hadn't come before (None: there is none), when its rows were published
            (first and last), and how many of them had come as stable rows before.
    """

    keys: int
    published: list[tuple[int, int]] = field(default_factory=list)
    next: int = 0
    fault: str = ""
    parts: list[tuple[float, bool, int, float | None, float, float, int]] = field(default_factory=list)
    _newest: int = -1
    _missed: list[tuple[int, int]] = field(default_factory=list)
    _checks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def take(self, arrival: Arrival) -> None:
        batch = arrival.batch
        if not batch.num_rows:
            return
        number = batch.column("n").to_numpy()
        sent_us = batch.column("ts").cast("int64").to_numpy()
        new = self._new(int(number[0]), int(number[-1]))
        age_s = None
        if new is not None:
            place = int(np.searchsorted(number, new))
            age_s = arrival.at_s - float(sent_us[place]) / 1e6
        below = 0
        if arrival.tentative:
            below = int((number < self.next).sum())
        else:
            self._stable(number, sent_us, batch)
        self.parts.append(
            (
                arrival.at_s,
                arrival.tentative,
                len(number),
                age_s,
                float(sent_us[0]) / 1e6,
                float(sent_us[-1]) / 1e6,
                below,
            )
        )

    def _new(self, first: int, last: int) -> int | None:
        """The lowest of these numbers that hasn't come before; None: all have."""
        found: int | None = None
        left = []
        for begin, end in self._missed:
            if first < end and last >= begin:
                found = max(begin, first) if found is None else found
                left += [each for each in ((begin, first), (last + 1, end)) if each[0] < each[1]]
            else:
                left.append((begin, end))
        self._missed = left
        if first > self._newest + 1:
            self._missed.append((self._newest + 1, first))
        if last > self._newest:
            found = max(first, self._newest + 1) if found is None else found
            self._newest = last
        return found

    def _stable(self, number: np.ndarray, sent_us: np.ndarray, batch: pa.RecordBatch) -> None:
        expected = np.arange(self.next, self.next + len(number))
        if not self.fault and (number != expected).any():
            place = int(np.flatnonzero(number != expected)[0])
            self.fault = f"stable row {expected[place]:,} should have come, and {number[place]:,} did"
        self.next = int(number[-1]) + 1
        # One of a hundred, the newest last: what they were joined with can be told at the end.
        some = slice(None, None, 100)
        matched = batch.column("m").fill_null(-1).to_numpy(zero_copy_only=False)
        self._checks.append((batch.column("key").to_numpy()[some], sent_us[some], matched[some]))

    def mismatched(self, right: Sequence[tuple[int, int]]) -> str:
        """How a stable row was joined with another row than the newest of its key; empty: none was.

        Args:
            right: (rows published by then, time of those that came last in us), in order.
        """
        if not self._checks:
            return "no stable row came"
        key, sent_us, matched = (np.concatenate([each[place] for each in self._checks]) for place in range(3))
        upto = np.array([each[0] for each in right])
        at_us = np.array([each[1] for each in right])
        # Rows with a time of no more than that of the left row: the newest of them with its key.
        place = np.searchsorted(at_us, sent_us, side="right")
        count = np.where(place > 0, upto[np.maximum(place - 1, 0)], 0)
        newest = count - 1 - (count - 1 - key) % self.keys
        newest = np.where((count > 0) & (newest >= 0), newest, -1)
        wrong = np.flatnonzero(newest != matched)
        if not len(wrong):
            return ""
        at = int(wrong[0])
        return (
            f"a row of key {key[at]} of {sent_us[at] / 1e6:.3f} s was joined with row {matched[at]:,} of the "
            f"right, not with {newest[at]:,}; {len(wrong):,} of {len(key):,} that were looked at"
        )


def setup_of(sizes: Sizes, cut: str, logs: Mapping[str, list[tuple[int, int]]]) -> Setup:
    """With ``logs`` of what was published: (rows by then, time of those that came last in us)."""

    def noted(name: str, rows: Any) -> Any:
        def make(begin: int, end: int, at_us: int) -> pa.Table:
            logs[name].append((end, at_us))
            return rows(sizes.keys, begin, end, at_us)

        return make

    # Every key is there before any row of the left.
    return Setup(
        query=query(sizes),
        nodes=["e", "f", "c", "r"],
        at=AT,
        standby={"c": ["r"]},
        feeds=[
            Feed("left", "e", sizes.left, noted("left", left_rows)),
            Feed("right", "f", sizes.right, noted("right", right_rows), first=sizes.keys),
        ],
        tick_s=sizes.tick_s,
        cut=cut,
    )


def run(sizes: Sizes, cut: str) -> dict[str, Any]:
    """All cuts, one after the other, over nodes that live through all of them."""
    logs: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}
    seen = Seen(sizes.keys)
    found: list[dict[str, Any]] = []
    with made(setup_of(sizes, cut, logs), seen.take) as trial:
        trial.rest(WARM_S + sizes.rest_s)
        for length_s in sizes.cuts_s:
            [outage] = trial.fail([Failure("f", 0.0, length_s)])
            _until_caught_up(trial, seen, outage)
            trial.rest(sizes.rest_s)
            found.append({"cut_s": length_s, "outage": [outage.begin_s, outage.end_s]})
        trial.end()
        fragments = trial.fragments()
        states = list(trial.states)
    usual_s = max(
        (part[3] for part in seen.parts if part[3] is not None and WARM_S < part[0] < found[0]["outage"][0]),
        default=0.0,
    )
    ends = [*(each["outage"][0] for each in found[1:]), float("inf")]
    cuts = [_figures(each, end_s, seen, states, usual_s) for each, end_s in zip(found, ends, strict=True)]
    published = {name: log[-1][0] for name, log in logs.items()}
    joined = [each for each in fragments if "joined" in each["boxes"] and each["node"] == "c"]
    fed = sum(each["boxes"]["joined"]["rows_in"] for each in joined)
    checks = [
        Check("every stable row came once, in order", _missing(seen, published["left"])),
        Check("each is joined with the newest row of its key", seen.mismatched(logs["right"])),
        *_checks(sizes, cuts),
        Check(
            "the stable instance has taken no row twice",
            "" if fed == sum(published.values()) else f"{fed:,} of {sum(published.values()):,} published",
        ),
    ]
    return {
        "cut": cut,
        "cuts": cuts,
        "usual_s": usual_s,
        "published": published,
        "fed_rows": fed,
        "latest_s": max(each["latest_s"] for each in cuts),
        "tentative_rows": sum(each["tentative_rows"] for each in cuts),
        "checks": [each.plain() for each in checks],
    }


def _missing(seen: Seen, published: int) -> str:
    return seen.fault or ("" if seen.next == published else f"{seen.next:,} came of {published:,}")


def _until_caught_up(trial: Run, seen: Seen, outage: Outage) -> None:
    def done() -> bool:
        stable = [part for part in seen.parts[-200:] if not part[1]]
        return trial.reader.state == "stable" and bool(stable) and stable[-1][5] > outage.end_s

    trial.until(done, "all is stable again")


def _figures(
    found: Mapping[str, Any], next_s: float, seen: Seen, states: Sequence[tuple[float, str]], usual_s: float
) -> dict[str, Any]:
    """Of one cut."""
    begin_s, end_s = found["outage"]
    times = [part[0] for part in seen.parts]
    mine = seen.parts[bisect.bisect_left(times, begin_s) : bisect.bisect_left(times, next_s)]
    ages = [part[3] for part in mine if part[3] is not None]
    held = [part for part in mine if not part[1] and part[0] >= end_s and begin_s - STILL_S < part[4] < end_s]
    stable_s = [at for at, state in states if end_s <= at < next_s and state == "stable"]
    tentative = [part for part in mine if part[1]]
    speed = None
    if len(held) > 1 and (took_s := held[-1][0] - held[0][0]) > 0.005:
        speed = (held[-1][5] - held[0][4]) / took_s
    latest_s = max(ages, default=0.0)
    begun_s = held[0][0] if held else None
    return {
        "cut_s": found["cut_s"],
        "latest_s": latest_s,
        "added_s": max(0.0, latest_s - usual_s),
        "tentative_rows": sum(part[2] for part in tentative),
        "below_rows": sum(part[6] for part in tentative if part[0] < end_s),
        "begun_s": None if begun_s is None else begun_s - end_s,
        "corrected_s": stable_s[0] - begun_s if stable_s and begun_s is not None else None,
        "speed": speed,
    }


def _checks(sizes: Sizes, cuts: Sequence[Mapping[str, Any]]) -> list[Check]:
    within_s = duration_us(sizes.within) / 1e6
    late = [each for each in cuts if each["added_s"] > within_s]
    slow = [
        each
        for each in cuts
        if each["cut_s"] >= FAST_FROM_S and each["speed"] is not None and each["speed"] < SPEED
    ]
    below = sum(each["below_rows"] for each in cuts)
    return [
        Check(
            f"no new row of any cut is later than {within_s:g} s more than without",
            "; ".join(f"{each['added_s']:.2f} s in that of {each['cut_s']:g} s" for each in late),
        ),
        Check(
            f"corrections come at {SPEED} times the rate of the input or faster",
            "; ".join(f"{each['speed']:.1f} after {each['cut_s']:g} s" for each in slow),
        ),
        Check(
            "no row from before a failure is processed again",
            f"{below:,} tentative rows were stable before" if below else "",
        ),
    ]


# --- shown ----------------------------------------------------------------------------------------------


def asked_of(sizes: Sizes, cut: str) -> dict[str, Any]:
    return {
        "X": sizes.within,
        "rows/s": sizes.left + sizes.right,
        "keys": sizes.keys,
        "cuts": ", ".join(f"{each:g}" for each in sizes.cuts_s),
        "cut": cut,
    }


def told(made: Mapping[str, Any]) -> str:
    faults = [check["fault"] for check in made["checks"] if check["fault"]]
    return f"latest new row {made['latest_s']:.2f} s; {'; '.join(faults) or 'all held'}"


def measure(sizes: Sizes, cut: str, sheet: Sheet) -> dict[str, Any]:
    return sheet.run([{"rows/s": sizes.left + sizes.right}], 1, lambda setting: run(sizes, cut), told)


HEADS = (
    "cut, s",
    "latest new row, s",
    "added",
    "tentative rows",
    "of them stable before",
    "corrections begin after",
    "end after",
    "x rate",
)


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a line for each cut."""
    lines = []
    verdicts = []
    for row in found["rows"]:
        for made_run in good(row):
            lines += [
                [
                    f"{each['cut_s']:g}",
                    *(_number(each[key]) for key in ("latest_s", "added_s")),
                    f"{each['tentative_rows']:,}",
                    f"{each['below_rows']:,}",
                    *(_number(each[key]) for key in ("begun_s", "corrected_s")),
                    _number(each["speed"], 1),
                ]
                for each in made_run["cuts"]
            ]
            verdicts += [
                f"- {check['what']}: " + (f"**not held** ({check['fault']})" if check["fault"] else "held")
                for check in made_run["checks"]
            ]
            published = sum(made_run["published"].values())
            verdicts.append(
                f"- usual age of a row {made_run['usual_s']:.2f} s at most; the join took "
                f"{made_run['fed_rows']:,} rows of {published:,} that were published"
            )
    return "\n".join([preface(found), "", *markdown(HEADS, lines), "", *verdicts, *troubles(found)]) + "\n"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Each cut: the latest new row, and the speed of its corrections."""
    made_runs = [made_run for row in found["rows"] for made_run in good(row)]
    if not made_runs:
        return
    plots = report.pyplot()
    figure, (left, right) = plots.subplots(1, 2, figsize=(12, 4))
    cuts = sorted(made_runs[0]["cuts"], key=lambda each: each["cut_s"])
    left.plot([each["cut_s"] for each in cuts], [each["latest_s"] for each in cuts], ".", color="#2b6cb0")
    left.axhline(1.0, color="#777", lw=0.8, ls="--")
    left.set(xscale="log", xlabel="cut, s", ylabel="latest new row, s; dashed: X", ylim=(0, None))
    timed = [each for each in cuts if each["speed"] is not None]
    right.plot([each["cut_s"] for each in timed], [each["speed"] for each in timed], ".", color="#2b6cb0")
    right.axhline(SPEED, color="#777", lw=0.8, ls="--")
    right.set(xscale="log", xlabel="cut, s", ylabel="corrections, input rates", ylim=(0, None))
    for axis in (left, right):
        # Also where no cut was long enough for a speed: nothing to scale by has no logarithm.
        axis.set_xlim(cuts[0]["cut_s"] * 0.8, cuts[-1]["cut_s"] * 1.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
