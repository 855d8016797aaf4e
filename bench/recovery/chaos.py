"""Question: what do the failures of a published comparison of other systems do to each method?

    python -m bench.recovery.chaos [--quick] [--scenarios kill-1,...] [--methods amnesia,...] [--budget 10min]

Vogel, Henning, Perez-Wohlfeil, Ertl, Rabiser: A Comprehensive Benchmarking Analysis of Fault Recovery in
Stream Processing Frameworks, DEBS 2024 (arXiv 2404.06203). Their failures are files for Chaos Mesh, in
``evaluation/`` of github.com/dynatrace-research/ShuffleBench at 7048857:

- *kill-1*, *kill-2*, *kill-4*: so many of eight workers, by chance, are killed at once each 5 minutes, and
  started again by the cluster.
- *fail-2*: two of eight are away for 5 minutes of each 10.

All at 100,000 rows/s, with a checkpoint each 2 s. Here each 5 minutes are ``--every`` seconds, rows are fewer
(``--rate``), and workers are processes of this machine. Ours beside them:

- *pause-1*: one worker stands still (SIGSTOP) for half of ``--every``, and goes on: nobody tells it from a
  dead one meanwhile, nor from one behind a network that is cut.

    publisher ── a rows ──┬── x0 counted0 ── out0 ──┬── reader     each worker stands by for
                          ├── x1 counted1 ── out1 ──┤              the one before it, and w,
                          └── ...                   ┘              which votes, for a

Their work is a shuffle: by its key each row goes to one worker, which keeps a state for each key. So it is
here, as windows of 100 ms by key, of which every row is accounted for.

- *delay*: from the publication of a window's newest row to its arrival, before the first failure, and from
  there on.
- *throughput*: rows that came a second from the first failure on, of those that were published; and in the
  worst second.
- *caught up*: from a failure until the last window came, of those due before the next failure, that was later
  than twice the usual p99 and 50 ms; and how often the next failure came first.
- *lost*, *doubled*: published rows that are in no received window, or in more than one.

Exact first: a run counts only if its method's promise is held over all failures. Where a worker and who
stands by for it are away at once, rows wait until one is back; of amnesia it may be that nobody can count
what is lost.
Not done: their systems beside it, for which there is no cluster here; Kubernetes, whose time to start a
worker is theirs and for which ``--restart`` stands; their rates and hours; faults of the network between
machines, of which their files have none (``medusa demo partition`` cuts one).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import numpy as np

import medusa as md
from bench import report
from bench.recovery import workload
from bench.recovery.command import Command, Plan, parser_of
from bench.recovery.methods import Method, asked_for, known_methods
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
from bench.recovery.trial import ENTRY, WITNESS, Setup, Trial, flowing
from medusa.apps.workloads.demos.ha_outcome import HaWindow

NAME = "recovery-chaos"
WARM_S = 3.0
TICK_S = 0.05
"""Each train is cut in as many as there are workers: all of them share two processors here."""

BUCKET_S = 0.1
LATE_S = 0.05
"""So much over twice the usual p99 is late."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to workers.

    Attributes:
        at_s: since the first rows that are measured.
        what: ``kill``, ``start``, ``stop`` (it stands still) or ``go on``.
    """

    at_s: float
    what: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of failure.

    Attributes:
        count: of the workers that it strikes at once.
        periods: between two, in ``every``; ``away``: so long they are away, in ``every``; None: until they
            are started again.
    """

    key: str
    count: int
    periods: int = 1
    away: float | None = None
    pauses: bool = False

    def faults(self, sizes: Sizes, round: int) -> list[Fault]:
        """Of one run: the same for all methods."""
        dice = random.Random(f"{self.key} {round}")
        away_s = sizes.restart_s if self.away is None else self.away * sizes.every_s
        found = []
        for number in range(sizes.times):
            at_s = WARM_S + number * self.periods * sizes.every_s
            struck = tuple(sorted(dice.sample(workers_of(sizes.workers), min(self.count, sizes.workers))))
            first, later = ("stop", "go on") if self.pauses else ("kill", "start")
            found += [Fault(at_s, first, struck), Fault(at_s + away_s, later, struck)]
        return found


SCENARIOS = {
    each.key: each
    for each in (
        Scenario("kill-1", 1),
        Scenario("fail-2", 2, periods=2, away=1.0),
        Scenario("kill-2", 2),
        Scenario("kill-4", 4),
        Scenario("pause-1", 1, away=0.5, pauses=True),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done.

    Attributes:
        every_s: between two kills.
        times: failures of a run.
        restart_s: a worker that was killed is started again after so long.
    """

    workers: int
    rate: int
    groups: int
    every_s: float
    times: int
    rounds: int
    restart_s: float = 1.0
    window_ms: int = 100
    interval: str = "200ms"
    wait: str = "500ms"


FULL = Sizes(workers=8, rate=4_000, groups=80, every_s=8.0, times=3, rounds=3)
QUICK = Sizes(workers=3, rate=300, groups=6, every_s=2.0, times=1, rounds=1)


def workers_of(count: int) -> list[str]:
    return [f"x{number}" for number in range(count)]


def query(method: Method, sizes: Sizes) -> md.Query:
    """By its key each row goes to one worker, which counts by window and key."""
    q = md.Query("q")
    rows = q.source("rows", workload.COLUMNS, time="ts")
    for number in range(sizes.workers):
        part = rows.filter(f"k % {sizes.workers} = {number}", name=f"part{number}")
        by_key = part.window(f"{sizes.window_ms}ms").group_by("k")
        q.sink(f"out{number}", by_key.aggregate(**workload.counts(), name=f"counted{number}"), **method.wish)
    return q


def setup_of(method: Method, sizes: Sizes) -> Setup:
    q = query(method, sizes)
    workers = workers_of(sizes.workers)
    numbers = range(sizes.workers)
    return Setup(
        query=q,
        nodes=workers,
        at={
            ENTRY: ["rows", *(f"part{number}" for number in numbers)],
            **{name: [f"counted{number}", f"out{number}"] for number, name in enumerate(workers)},
        },
        standby={
            ENTRY: [WITNESS],
            **{name: [workers[(number + 1) % len(workers)]] for number, name in enumerate(workers)},
        },
        rows=partial(workload.rows_of, rate=sizes.rate, groups=sizes.groups),
        rate=sizes.rate,
        tick_s=TICK_S,
        sinks=[f"out{number}" for number in numbers],
        checkpoint_every=dict.fromkeys(workers, sizes.interval),
        wait=sizes.wait,
    )


def run(setting: Mapping[str, Any], sizes: Sizes, round: int) -> dict[str, Any]:
    """One run.

    Raises:
        AssertionError: what its method promises isn't held.
    """
    method, scenario = known_methods()[setting["method"]], SCENARIOS[setting["scenario"]]
    faults = scenario.faults(sizes, round)
    with flowing(setup_of(method, sizes)) as trial:
        trial.until(lambda: all(each.came for each in trial.arrivals.values()), "rows come of all workers")
        begun_ns = time.monotonic_ns()
        _rest_until(trial, begun_ns, WARM_S)
        trial.until_shown(begun_ns)
        struck_s = list(strike(trial, faults, begun_ns))
        _rest_until(trial, begun_ns, faults[-1].at_s + sizes.every_s)
        ended_s = (time.monotonic_ns() - begun_ns) / 1e9
        trial.end()
        windows = [
            window for each in trial.arrivals.values() for window in workload.windows_of(each.came, begun_ns)
        ]
        lost, unknown = told_lost(trial)
    found = workload.counts_of(windows, trial.traffic.published, sizes.groups)
    # What nobody could count isn't held against what is missing.
    broken = method.broken(found, found.missing if unknown else lost)
    assert not broken, broken
    published = trial.traffic
    rates = [published.before(begun_ns + round_ns(second)) for second in (struck_s[0], ended_s)]
    return {
        "missing": found.missing,
        "doubled": found.doubled,
        "lost_unknown": unknown,
        **figures(windows, struck_s, ended_s, rates[1] - rates[0], sizes.rate),
    }


def round_ns(seconds: float) -> int:
    return int(seconds * 1e9)


def strike(trial: Trial, faults: Sequence[Fault], begun_ns: int) -> Iterator[float]:
    """Do it all in its time; when each failure began, since ``begun_ns``."""
    for fault in sorted(faults, key=lambda fault: fault.at_s):
        _rest_until(trial, begun_ns, fault.at_s)
        if fault.what in ("kill", "stop"):
            yield (time.monotonic_ns() - begun_ns) / 1e9
        if fault.what == "start":
            trial.nodes.start(*fault.workers)
            continue
        # All at once; those that were killed are noted afterwards.
        for name in fault.workers:
            process = trial.nodes.processes[name]
            if fault.what == "kill":
                process.kill()
            else:
                process.send_signal(SIGSTOP if fault.what == "stop" else SIGCONT)
        if fault.what == "kill":
            for name in fault.workers:
                trial.nodes.kill(name)


def _rest_until(trial: Trial, begun_ns: int, at_s: float) -> None:
    trial.rest(max(at_s - (time.monotonic_ns() - begun_ns) / 1e9, 0.0))


def told_lost(trial: Trial) -> tuple[int, bool]:
    """(rows that those who have the fragments say are lost, whether they say that there are more)."""
    lost, unknown = 0, False
    for fragment, replicas in trial.fragments().items():
        told = trial.told(replicas["owner"], fragment)
        lost += told["lost_rows"]
        unknown |= told["lost_unknown"]
    return lost, unknown


def figures(
    windows: Sequence[HaWindow], struck_s: Sequence[float], ended_s: float, published: int, rate: int
) -> dict[str, Any]:
    """Delays, throughput and catching up.

    Args:
        struck_s: when failures began; ``ended_s``: until when rows flowed.
        published: rows between the first failure and the end.
    """
    times = np.array([each.at_s for each in windows])
    sent = np.array([each.sent_s for each in windows])
    delays = times - sent
    rows = np.array([each.rows for each in windows])
    before = (times >= 0) & (times < struck_s[0])
    assert before.any(), "no window came before the first failure"
    during = (times >= struck_s[0]) & (times <= ended_s)
    p50, p99 = (float(each) for each in np.quantile(delays[before], [0.5, 0.99]))
    bound_s = 2 * p99 + LATE_S
    caught, unfinished = [], 0
    for begin_s, end_s in zip(struck_s, [*struck_s[1:], ended_s], strict=True):
        # Those that it has delayed, whenever they came.
        due = (times >= begin_s) & (sent >= begin_s - bound_s) & (sent < end_s)
        mine = times[due & (delays > bound_s)]
        caught.append(float(mine.max()) - begin_s if len(mine) else 0.0)
        unfinished += bool(len(mine)) and float(mine.max()) >= end_s
    seconds = np.arange(struck_s[0], max(ended_s - 1.0, struck_s[0]) + BUCKET_S / 2, BUCKET_S)
    worst = min(int(rows[(times >= begin_s) & (times < begin_s + 1.0)].sum()) for begin_s in seconds)
    return {
        "before_p50_s": p50,
        "before_p99_s": p99,
        "during_p50_s": float(np.quantile(delays[during], 0.5)) if during.any() else None,
        "during_p99_s": float(np.quantile(delays[during], 0.99)) if during.any() else None,
        "worst_s": float(delays[during].max()) if during.any() else None,
        "throughput": float(rows[during].sum()) / max(published, 1),
        "worst_throughput": worst / rate,
        "caught_up_s": caught,
        "unfinished": unfinished,
        "struck_s": list(struck_s),
        "curve": curve(times, delays, rows, ended_s),
    }


def curve(
    times: np.ndarray, delays: np.ndarray, rows: np.ndarray, ended_s: float
) -> list[tuple[float, float | None, int]]:
    """Of each tenth of a second: when it begins, the largest delay of what came (None: nothing), and how many
    rows that were."""
    found: list[tuple[float, float | None, int]] = []
    for number in range(int(ended_s / BUCKET_S)):
        inside = (times >= number * BUCKET_S) & (times < (number + 1) * BUCKET_S)
        most = round(float(delays[inside].max()), 4) if inside.any() else None
        found.append((round(number * BUCKET_S, 1), most, int(rows[inside].sum())))
    return found


def settings(scenarios: Sequence[Scenario], methods: Sequence[Method]) -> list[dict[str, Any]]:
    return [{"scenario": scenario.key, "method": method.key} for scenario in scenarios for method in methods]


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "workers": sizes.workers,
        "rows/s": sizes.rate,
        "each 5 minutes": f"{sizes.every_s:g} s",
        "failures of a run": sizes.times,
        "started again after": f"{sizes.restart_s:g} s",
        "wait": sizes.wait,
    }


def measure(
    sizes: Sizes, scenarios: Sequence[Scenario], methods: Sequence[Method], sheet: Sheet
) -> dict[str, Any]:
    """All runs, the settings in turns."""
    asked = settings(scenarios, methods)
    found: dict[str, Any] = sheet.found
    for number in range(sizes.rounds):
        found = sheet.run(asked, number + 1, lambda setting, at=number: run(setting, sizes, at), told)
        if found["stopped"]:
            break
    return found


def told(made: dict[str, Any]) -> str:
    """A run, for who watches."""
    caught = ", ".join(f"{each:.2f}" for each in made["caught_up_s"])
    return f"caught up in {caught} s, {made['missing']:,} lost, {made['doubled']:,} doubled"


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "failure",
    "method",
    "delay before p50, ms",
    "p99",
    "from then on p50",
    "p99",
    "worst",
    "throughput",
    "worst second",
    "caught up p50, s",
    "max",
    "not before the next",
    "lost",
    "doubled",
)


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each failure and method."""
    lines = []
    for row in found["rows"]:
        if not good(row):
            continue
        caught = [each for made in good(row) for each in made["caught_up_s"]]
        unknown = ", not all counted" if any(made["lost_unknown"] for made in good(row)) else ""
        lines.append(
            [
                row["scenario"],
                row["method"].replace("_", " "),
                *(
                    milliseconds(row, key)
                    for key in ("before_p50_s", "before_p99_s", "during_p50_s", "during_p99_s", "worst_s")
                ),
                *(spread(values(row, key), 100) + " %" for key in ("throughput", "worst_throughput")),
                f"{float(np.median(caught)):.2f}",
                f"{max(caught):.2f}",
                f"{sum(made['unfinished'] for made in good(row))} of {len(caught)}",
                spread(values(row, "missing")) + unknown,
                spread(values(row, "doubled")),
            ]
        )
    return "\n".join([preface(found), "", *markdown(HEADS, lines), *troubles(found)]) + "\n"


def plot(found: dict[str, Any], path: Path) -> None:
    """The first run of each failure and method: the largest delay over time, and rows that came."""
    plots = report.pyplot()
    rows = [row for row in found["rows"] if good(row)]
    if not rows:
        return
    names = list(dict.fromkeys(row["scenario"] for row in rows))
    figure, axes = plots.subplots(len(names), 2, figsize=(14, 2.6 * len(names)), squeeze=False)
    for (left, right), name in zip(axes, names, strict=True):
        for row in (row for row in rows if row["scenario"] == name):
            made = good(row)[0]
            at_s, most, came = (list(each) for each in zip(*made["curve"], strict=True))
            delays = [np.nan if each is None else each * 1e3 for each in most]
            left.plot(at_s, delays, label=row["method"].replace("_", " "), linewidth=1)
            right.plot(at_s, np.convolve(came, np.ones(5) / 5 / BUCKET_S, mode="same"), linewidth=1)
            for each in made["struck_s"]:
                for axis in (left, right):
                    axis.axvline(each, color="#c0c0c0", linewidth=0.8, zorder=0)
        left.set_yscale("log")
        left.set_ylabel(f"{name}\nlargest delay, ms")
        right.set_ylabel("rows that came, 1/s")
        right.set_ylim(bottom=0)
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("s; grey: a failure")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


COMMAND = Command(NAME, table, plot)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="of %(default)s, by commas")
    parser.add_argument("--methods", default=",".join(known_methods()), help="of %(default)s, by commas")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--rate", type=int)
    parser.add_argument("--every", type=float, help="seconds that stand for their 5 minutes")
    parser.add_argument("--times", type=int, help="failures of each run")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--restart", type=float, help="seconds until a killed worker is started again")
    parser.add_argument("--wait", help="[recovery] wait of the nodes")
    COMMAND.main(parser, plan)


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    workers = options.workers or base.workers
    sizes = replace(
        base,
        workers=workers,
        groups=10 * workers,
        rate=options.rate or base.rate,
        every_s=options.every or base.every_s,
        times=options.times or base.times,
        rounds=options.rounds or base.rounds,
        restart_s=base.restart_s if options.restart is None else options.restart,
        wait=options.wait or base.wait,
    )
    named = [each for each in options.scenarios.split(",") if each]
    if unknown := [each for each in named if each not in SCENARIOS]:
        raise ValueError(f"--scenarios: {', '.join(unknown)} is none of {', '.join(SCENARIOS)}")
    methods = asked_for(options.methods)
    return asked_of(sizes), partial(measure, sizes, [SCENARIOS[each] for each in named], methods)


if __name__ == "__main__":
    main()
