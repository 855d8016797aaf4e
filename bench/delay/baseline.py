"""Fork beside checkpoint/redo, in virtual time: the same rows, the same failure.

    left  ── a ──┐
                 ├── c both ── out ── reader        b is cut off from c
    right ── b ──┘

*fork*: the code of ``medusa node`` in the simulator. *checkpoint/redo*: ``RedoNode``, an SUnion before every
input, one of them, and two that ask each other for leave to correct (a reader has what comes first of
either). Latencies of new rows are of ``left``. *Processed again*: rows that an instance took more than once,
over both replicas, or that came by the tentative lane, so that the stable instance and a fork took them; *of
before*: of those, rows that had left as stable before the failure. All of them pass rows on, so nothing is
said of state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from bench import report
from bench.delay.account import Check
from bench.delay.redo_node import CORRECTING, Left, RedoNode
from bench.recovery.sheet import Sheet, good, markdown, preface, troubles
from medusa.elements import Train
from medusa.sim.actors.client import Client
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.world.virtual_time import World
from medusa.wire.link.tentative_receiver import StateChanged, TentativePromise, TentativeRowsCame

__all__ = ["FULL", "NAME", "QUICK", "TEXT", "Sizes", "asked_of", "measure", "plot", "run", "table"]

NAME = "redo"
TEXT = "fork beside checkpoint/redo, in virtual time: tentative rows, corrections, rows processed again"

FORK, REDO, PAIR = "fork", "checkpoint/redo", "checkpoint/redo, two replicas"
DESIGNS = (FORK, REDO, PAIR)

SCHEMA = {"ts": "timestamp[us, UTC]", "side": "int64", "n": "int64"}
STEP_US = 5_000
BEGIN_US, REST_US = 3_000_000, 5_000_000
LIVENESS_US = 120_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done.

    Attributes:
        rate: rows a second, of each of two sources.
        load: of the engine's time while nothing fails: corrections can't be faster than its inverse.
    """

    failures_s: Sequence[float]
    rate: int = 50
    within_us: int = 2_000_000
    bucket_us: int = 100_000
    checkpoint_us: int = 200_000
    load: float = 0.1

    @property
    def row_us(self) -> int:
        return int(1e6 * self.load / (2 * self.rate))


FULL = Sizes(failures_s=(1.0, 3.0, 6.0, 10.0, 30.0))
QUICK = Sizes(failures_s=(3.0,), rate=20)


@dataclass(slots=True)
class _Account:
    """What a reader had: rows are (side, number), all times in microseconds.

    Attributes:
        due: row -> when it was published.
    """

    due: Mapping[tuple[int, int], int]
    shown: dict[tuple[int, int], int] = field(default_factory=dict)
    stable: list[tuple[int, int]] = field(default_factory=list)
    stable_at: list[int] = field(default_factory=list)
    tentative: int = 0
    below: int = 0
    _had: set[tuple[int, int]] = field(default_factory=set)

    def take(self, rows: Sequence[tuple[int, int]], at_us: int, *, tentative: bool) -> None:
        for row in rows:
            self.shown.setdefault(row, at_us)
        if tentative:
            self.tentative += len(rows)
            self.below += sum(row in self._had for row in rows)
            return
        self._had.update(rows)
        self.stable += rows
        self.stable_at += [at_us] * len(rows)

    def figures(self, begin_us: int, end_us: int) -> dict[str, Any]:
        """Of a failure between these."""
        ages = {row: at_us - self.due[row] for row, at_us in self.shown.items() if not row[0]}
        calm = max(age for row, age in ages.items() if self.shown[row] < begin_us)
        latest = max(age for row, age in ages.items() if self.shown[row] >= begin_us)
        fixed = [
            (at_us, row)
            for row, at_us in zip(self.stable, self.stable_at, strict=True)
            if at_us >= end_us and self.due[row] < end_us
        ]
        return {
            "calm_s": calm / 1e6,
            "latest_s": latest / 1e6,
            "tentative_rows": self.tentative,
            "corrections": len(fixed),
            "corrected_s": (max(at_us for at_us, _ in fixed) - end_us) / 1e6 if fixed else 0.0,
            "stable_rows": len(self.stable),
        }


def published(sizes: Sizes, end_us: int) -> dict[tuple[int, int], int]:
    """Each row of both sides, and its time."""
    step_us = 1_000_000 // sizes.rate
    return {(side, n): n * step_us for side in (0, 1) for n in range(end_us // step_us)}


# --- checkpoint/redo ------------------------------------------------------------------------------------


def redo(sizes: Sizes, failure_s: float, replicas: int) -> dict[str, Any]:
    """One node, or two that ask each other for leave."""
    fails_us = BEGIN_US, BEGIN_US + int(failure_s * 1e6)
    end_us = fails_us[1] + REST_US
    due = published(sizes, end_us)
    number = {(side, at_us): (side, n) for (side, n), at_us in due.items()}
    nodes = [
        RedoNode(
            2,
            bucket_us=sizes.bucket_us,
            delay_us=sizes.within_us,
            checkpoint_us=sizes.checkpoint_us,
            row_us=sizes.row_us,
        )
        for _ in range(replicas)
    ]
    account = _Account(due)
    read: list[set[tuple[int, int]]] = [set(), set()]
    waiting: list[list[int]] = [[], []]
    rows = sorted((at_us, side) for (side, _), at_us in due.items())
    place = 0
    for now_us in range(0, end_us + sizes.within_us + int(failure_s * 1e6), STEP_US):
        while place < len(rows) and rows[place][0] <= now_us:
            waiting[rows[place][1]].append(rows[place][0])
            place += 1
        for side in (0, 1):
            if side and fails_us[0] <= now_us < fails_us[1]:
                continue
            for node in nodes:
                if waiting[side]:
                    node.rows(side, waiting[side], now_us)
                node.boundary(side, now_us, now_us)
            waiting[side] = []
        for node in nodes:
            others = [each for each in nodes if each is not node]
            leave = all(each.state != CORRECTING for each in others)
            for left in node.run(now_us, may_correct=leave):
                _read(left, number, account, read)
    return {
        **account.figures(*fails_us),
        "again_rows": sum(node.again_rows for node in nodes),
        "below_rows": sum(node.below_rows for node in nodes),
        "published": len(due),
    }


def _read(
    left: Left,
    number: Mapping[tuple[int, int], tuple[int, int]],
    account: _Account,
    read: list[set[tuple[int, int]]],
) -> None:
    """A reader takes each row once from each lane, of whichever replica has it first."""
    had = read[left.tentative]
    new = [row for each in left.rows if (row := number[each]) not in had]
    had.update(new)
    account.take(new, left.at_us, tentative=left.tentative)


# --- fork -----------------------------------------------------------------------------------------------


class _Lanes:
    """Both lanes of the output, as the simulated reader has them."""

    def __init__(self, world: World, account: _Account, since_us: list[int]) -> None:
        self._world, self._account, self._since_us = world, account, since_us

    def stable(self, train: Train) -> None:
        self._take(train, tentative=False)

    def tentative(self, came: TentativeRowsCame, train: Train) -> None:
        self._take(train, tentative=True)

    def promised(self, time_us: int) -> None:
        """Nothing is counted by it."""

    def turned(self, change: StateChanged) -> None:
        """Nor by this."""

    def promised_tentatively(self, promise: TentativePromise) -> None:
        """Nor by this."""

    def _take(self, train: Train, *, tentative: bool) -> None:
        sides, numbers = (train.batch.column(name).to_pylist() for name in ("side", "n"))
        rows = list(zip(sides, numbers, strict=True))
        self._account.take(rows, self._world.now_us - self._since_us[0], tentative=tentative)


class _ForkTrial(QueryTrial):
    """The query in the simulator; ``b`` is cut off for a while."""

    def __init__(self, world: World, sizes: Sizes, failure_us: int, account: _Account, end_us: int) -> None:
        q = md.Query("d")
        sides = [
            q.source(name, SCHEMA, time="ts", slack="0s").filter("n >= 0", name=f"of_{name}")
            for name in ("left", "right")
        ]
        both = md.sunion(*sides, bucket=sizes.bucket_us, name="both")
        q.sink("out", both, delay=sizes.within_us)
        tables = {
            name: pa.table(
                {
                    "ts": pa.array(
                        [at for (of, _), at in account.due.items() if of == side],
                        pa.timestamp("us", "UTC"),
                    ),
                    "side": pa.array([side] * (len(account.due) // 2), pa.int64()),
                    "n": pa.array(range(len(account.due) // 2), pa.int64()),
                }
            )
            for side, name in enumerate(("left", "right"))
        }
        trains = 2 * sizes.rate  # Of a row each.
        options = QueryOptions(
            at={"a": ["left", "of_left"], "b": ["right", "of_right"], "c": ["both", "out"]},
            publish_us=end_us,
            piece_rows=1,
            job_us=int(1e6 * sizes.load / trains),
        )
        super().__init__(world, q, tables, options)
        self.since_us = [0]
        self._failure_us = failure_us
        self._lanes = _Lanes(world, account, self.since_us)

    def _begin(self) -> None:
        self.since_us[0] = self.world.now_us
        super()._begin()
        self.world.after(BEGIN_US, lambda: self._turn(self.network.cut))
        self.world.after(BEGIN_US + self._failure_us, lambda: self._turn(self.network.heal))

    def _turn(self, turn: Any) -> None:
        """Between ``b`` and the other nodes."""
        for other in ("a", "c"):
            turn("b", other)
            turn(other, "b")

    def _begin_to_read(self, client: Client, stream: str) -> None:
        client.read_lanes(stream, self._lanes)


def fork(sizes: Sizes, failure_s: float, seed: int = 0) -> dict[str, Any]:
    """The same with ``delay=``, in the simulator."""
    failure_us = int(failure_s * 1e6)
    end_us = BEGIN_US + failure_us + REST_US
    due = published(sizes, end_us)
    account = _Account(due)
    world = World(seed, name="redo")
    trial = _ForkTrial(world, sizes, failure_us, account, end_us)
    trial.start()
    ended = world.run(until_us=LIVENESS_US, events_max=20_000_000, done=lambda: trial.ended)
    assert ended, "the simulated run doesn't come to its end"
    return {
        **account.figures(BEGIN_US, BEGIN_US + failure_us),
        # What a fork has taken the stable instance takes too; each such row came by the tentative lane.
        "again_rows": account.tentative,
        "below_rows": account.below,
        "published": len(due),
    }


# --- shown ----------------------------------------------------------------------------------------------


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One failure under one design, with what has to be so of the fork."""
    design, failure_s = setting["design"], setting["failure_s"]
    made = fork(sizes, failure_s) if design == FORK else redo(sizes, failure_s, 1 + (design == PAIR))
    lost = made["published"] - made["stable_rows"]
    checks = [Check("each row is stable once in the end", f"{lost:,} are missing" if lost else "")]
    if design == FORK:
        below, added_s = made["below_rows"], made["latest_s"] - made["calm_s"]
        checks += [
            Check("no row from before a failure is processed again", f"{below:,} were" if below else ""),
            Check(
                "no new row is later by more than X",
                f"by {added_s:.2f} s" if added_s > within_s(sizes) else "",
            ),
        ]
    return {**made, "checks": [each.plain() for each in checks]}


def within_s(sizes: Sizes) -> float:
    return sizes.within_us / 1e6


def told(made: Mapping[str, Any]) -> str:
    tentative, again, below = (made[key] for key in ("tentative_rows", "again_rows", "below_rows"))
    return f"{tentative:,} tentative, {again:,} again, {below:,} of before"


def asked_of(sizes: Sizes) -> dict[str, Any]:
    return {
        "X": f"{within_s(sizes):g} s",
        "rows/s": 2 * sizes.rate,
        "bucket": f"{sizes.bucket_us // 1_000} ms",
        "checkpoint": f"{sizes.checkpoint_us // 1_000} ms",
        "load": sizes.load,
    }


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    settings = [{"failure_s": each, "design": design} for each in sizes.failures_s for design in DESIGNS]
    return sheet.run(settings, 1, lambda setting: run(setting, sizes), told)


HEADS = (
    "failure, s",
    "design",
    "latest new row, s",
    "tentative rows",
    "corrections",
    "all corrected after, s",
    "processed again",
    "of before the failure",
)


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a line for each failure and design."""
    lines, faults = [], []
    for row in found["rows"]:
        for made in good(row):
            lines.append(
                [
                    f"{row['failure_s']:g}",
                    row["design"],
                    f"{made['latest_s']:.2f}",
                    f"{made['tentative_rows']:,}",
                    f"{made['corrections']:,}",
                    f"{made['corrected_s']:.2f}",
                    f"{made['again_rows']:,}",
                    f"{made['below_rows']:,}",
                ]
            )
            faults += [
                f"- {check['what']}: **not held** ({row['failure_s']:g} s, {row['design']}: {check['fault']})"
                for check in made["checks"]
                if check["fault"]
            ]
    held = faults or ["- each row is stable once; of the fork: none of before again, none later by X: held"]
    return "\n".join([preface(found), "", *markdown(HEADS, lines), "", *held, *troubles(found)]) + "\n"


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Over the length of the failure, a line for each design."""
    plots = report.pyplot()
    figure, axes = plots.subplots(1, 3, figsize=(14, 3.8))
    for axis, key, label in zip(
        axes,
        ("latest_s", "tentative_rows", "again_rows"),
        ("latest new row, s", "tentative rows", "rows processed again"),
        strict=True,
    ):
        for design in DESIGNS:
            rows = [row for row in found["rows"] if row["design"] == design and good(row)]
            axis.plot(
                [row["failure_s"] for row in rows],
                [good(row)[0][key] for row in rows],
                ".-",
                label=design,
                lw=1,
            )
        axis.set(xlabel="failure, s", ylabel=label, ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
