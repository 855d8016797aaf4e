"""Nodes in a row, and one run on them: what it costs while nothing fails, a loss for good, an exact account.

    publisher ── a ── b, the hop ── m, the primary ── reader at w     b2, m2, m3 stand by for b and m, w for a

*R+SM* (``method="state_backup"``): b holds the checkpoints of m, takes over, and hands on to m2; or to m2 and
m3, half of the keys each. *Upstream backup*: b keeps the rows that windows need, and m2 reads them again.
*Source replay*: the same, and b is lost at the same time: so nobody has rows but the source, and all that is
behind it reads them again. All three are asked for as ``recovery="precise"``: a row that is lost or doubled
is no figure. The third is harder on us than on who loses m alone, as two takeovers have to be decided.

Each is struck where it has most to read again: R+SM when its newest checkpoint is nine tenths of an interval
old, the others in the last tenth of a window.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench.recovery import workload
from bench.recovery.losses import lose
from bench.recovery.methods import ALONE, BACKED_UP, Method, known_methods
from bench.recovery.table import LIMITS, PRIMARY, SECONDARY
from bench.recovery.trial import ENTRY, WITNESS, Rows, Setup, Trial, flowing
from bench.seep import keyed, words
from medusa.apps.workloads.network.tcp_bytes import sent_bytes
from medusa.units import duration_us

__all__ = [
    "HOP",
    "SCHEMES",
    "Scheme",
    "Work",
    "keyed_work",
    "parts_at",
    "rows_work",
    "run",
    "setup_of",
    "words_work",
]

HOP, HOP_SPARE, THIRD = "b", "b2", "m3"
Came = Sequence[tuple[int, pa.RecordBatch]]

FRAGMENT = "q/passed"
WARM_S, AFTER_S = 1.0, 0.5
OLD = 0.9
"""So much of an interval, or of a window, is over when a node is killed."""

LATE_S = 0.05
"""So much over twice the usual p99 is late."""

BACKUPS = '\nbackups = "2 GiB"'


@dataclass(frozen=True, slots=True)
class Scheme:
    """One of those that the authors compare.

    Attributes:
        lost: the nodes that are killed, the first of which is the primary; none: nobody is.
    """

    key: str
    title: str
    method: Method
    lost: Sequence[str]


_REPLAYED = known_methods()["precise_upstream_backup"]

SCHEMES = {
    each.key: each
    for each in (
        Scheme("state_backup", "R+SM", BACKED_UP, (PRIMARY,)),
        Scheme("upstream_backup", "upstream backup", _REPLAYED, (PRIMARY,)),
        Scheme("source_replay", "source replay", _REPLAYED, (PRIMARY, HOP)),
        Scheme("alone", "no checkpoints", ALONE, ()),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A query, its rows, and the account of them.

    Attributes:
        primary: boxes that run at the primary; the source is at the entry, all others are at the hop.
        per_row: rows that the primary is fed of each that is published.
        wrong: what isn't right of what came of each output; empty: everything is.
        number: the column of ``out`` with the newest number that it has.
    """

    query: Callable[[Method], md.Query]
    primary: Sequence[str]
    rows: Rows
    wrong: Callable[[dict[str, Came], int], str]
    number: str = "last"
    per_row: int = 1


AT_PRIMARY = ("passed", "counted", "longer", "out", "held")


def rows_work(shape: workload.Shape) -> Work:
    """Numbered rows, of which none changes on its way."""

    def wrong(came: dict[str, Came], published: int) -> str:
        return _windows_wrong(came, published, shape)

    return Work(
        query=partial(workload.query, shape=shape),
        primary=AT_PRIMARY,
        rows=partial(workload.rows_of, rate=shape.rate, groups=shape.groups, keys=shape.keys),
        wrong=wrong,
    )


def words_work(shape: workload.Shape) -> Work:
    """The windowed word count; ``shape.rate`` is of sentences, ``shape.keys`` the dictionary's size."""
    of_words = workload.Shape(
        rate=shape.rate * words.WORDS,
        window_ms=shape.window_ms,
        groups=1,
        keys=shape.keys,
        held_ms=shape.held_ms,
        interval=shape.interval,
        wait=shape.wait,
    )

    def wrong(came: dict[str, Came], published: int) -> str:
        numbered = {**came, "held": words.numbered(came["held"])}
        return _windows_wrong(numbered, published * words.WORDS, of_words)

    return Work(
        query=partial(words.query, shape=of_words),
        primary=AT_PRIMARY,
        rows=partial(words.rows_of, rate=shape.rate, dictionary=shape.keys),
        wrong=wrong,
        per_row=words.WORDS,
    )


def keyed_work(shape: workload.Shape, every: int) -> Work:
    """Running counts by key: of a box that can be split."""

    def wrong(came: dict[str, Came], published: int) -> str:
        return keyed.wrong_of(came["out"], published, shape.keys, every)

    return Work(
        query=partial(keyed.query, shape=shape, every=every),
        primary=("passed", "counted", "shown", "out"),
        rows=partial(workload.rows_of, rate=shape.rate, groups=1, keys=shape.keys),
        wrong=wrong,
        number="n",
    )


def _windows_wrong(came: dict[str, Came], published: int, shape: workload.Shape) -> str:
    windows = workload.windows_of(came["out"], 0)
    broken = BACKED_UP.broken(workload.counts_of(windows, published, shape.groups))
    return broken or workload.held_of(came["held"], published, shape, again=False)


def setup_of(scheme: Scheme, work: Work, shape: workload.Shape, *, parts: int = 0) -> Setup:
    """What runs where.

    Args:
        parts: nodes that are to go on with the state; 0: one, and no third node is there.
    """
    q = work.query(scheme.method)
    guarded = scheme.method.method is not None
    spares = [SECONDARY, THIRD] if parts else [SECONDARY]
    ahead = [box.id for box in q.graph.boxes if box.id not in ("rows", *work.primary)]
    return Setup(
        query=q,
        nodes=(HOP, PRIMARY, HOP_SPARE, *spares) if guarded else (HOP, PRIMARY),
        at={ENTRY: ["rows"], HOP: ahead, PRIMARY: list(work.primary)},
        standby={ENTRY: [WITNESS], HOP: [HOP_SPARE], PRIMARY: spares} if guarded else {},
        rows=work.rows,
        rate=shape.rate,
        fill=shape.keys if shape.filled else 0,
        sinks=("out", "held") if "held" in work.primary else ("out",),
        checkpoint_every={PRIMARY: shape.interval},
        wait=shape.wait,
        limits=LIMITS + BACKUPS,
        one_holds=scheme.method.one_holds,
        restore_parts=max(parts, 1),
    )


def run(
    scheme: Scheme, work: Work, shape: workload.Shape, *, seconds: float, parts: int = 0
) -> dict[str, Any]:
    """One run.

    Args:
        seconds: that are measured before the kill.
        parts: as ``setup_of`` has it.

    Raises:
        AssertionError: a row is missing, came twice, or is wrong; or something doesn't come at all.
    """
    with flowing(setup_of(scheme, work, shape, parts=parts)) as trial:
        out = trial.arrivals["out"].came
        trial.until(lambda: _newest(out, work) >= trial.setup.fill * work.per_row, "the state is there")
        trial.rest(WARM_S)
        if scheme.lost:
            trial.until(trial.follow, "who stands by follows")
        figures = _costs(trial, scheme, seconds)
        if scheme.lost:
            figures |= _struck(trial, scheme, work, shape, parts)
        trial.end()
        published = trial.traffic.published
        wrong = work.wrong({name: each.came for name, each in trial.arrivals.items()}, published)
        assert not wrong, wrong
        if scheme.lost and not scheme.method.one_holds:  # Of R+SM the second owner in turn was fed the rest.
            begins = published * work.per_row - trial.told(SECONDARY, FRAGMENT)["rows_in"]
            figures["again_rows"] = max(figures["killed_rows"] * work.per_row - begins, 0)
        return {"published": published, **figures}


def _newest(came: Came, work: Work) -> int:
    return int(came[-1][1][work.number].to_numpy().max()) if came else -1


# --- while nothing fails --------------------------------------------------------------------------------


def _costs(trial: Trial, scheme: Scheme, seconds: float) -> dict[str, Any]:
    """Delays, CPU, and bytes between the primary and who holds its state."""
    names = tuple(name for name in (HOP, PRIMARY, SECONDARY) if name in trial.setup.nodes)
    first, sent = trial.spent(*names), _between(trial)
    trial.rest(seconds)
    trial.until_shown(first.at_ns)
    last, sent_later = trial.spent(*names), _between(trial)
    spent_s = (last.at_ns - first.at_ns) / 1e9
    delays = [
        late_s
        for at_ns, late_s in delays_of(trial.arrivals["out"].came)
        if first.at_ns <= at_ns <= last.at_ns
    ]
    assert delays, "no row came while it was measured"
    p50, p95, p99 = (float(each) for each in np.quantile(delays, [0.5, 0.95, 0.99]))
    grown = {name: last.memory_bytes[name] - trial.before.memory_bytes[name] for name in names}
    return {
        "delay_p50_s": p50,
        "delay_p95_s": p95,
        "delay_p99_s": p99,
        "cpu_share": sum(last.cpu_s[name] - first.cpu_s[name] for name in names) / spent_s,
        "back_bytes_per_s": None if sent is None or sent_later is None else (sent_later - sent) / spent_s,
        "held_bytes": held_bytes(trial) if scheme.method.one_holds else 0,
        "kept_bytes": sum(trial.told(*each)["kept_bytes"] for each in ((ENTRY, "q/rows"), (HOP, "q/kept"))),
        "primary_memory_bytes": grown[PRIMARY],
        "hop_memory_bytes": grown[HOP],
    }


def _between(trial: Trial) -> int | None:
    """Bytes from the primary to the hop so far: acknowledgements, and its state; None: nobody knows."""
    return sent_bytes(trial.nodes.pid(PRIMARY), trial.nodes.pid(HOP))


def delays_of(came: Came) -> list[tuple[int, float]]:
    """(when a row came, seconds since the newest row that it is made of was published)."""
    found: list[tuple[int, float]] = []
    for at_ns, batch in came:
        late = (at_ns - batch["sent"].to_numpy()) / 1e9
        found += [(at_ns, float(each)) for each in late]
    return found


# --- a loss ---------------------------------------------------------------------------------------------


def _struck(trial: Trial, scheme: Scheme, work: Work, shape: workload.Shape, parts: int) -> dict[str, Any]:
    """Kill it, and wait until it is where it shall stay and rows are in time again."""
    usual = [late_s for at_ns, late_s in delays_of(trial.arrivals["out"].came[-200:])]
    bound_s = 2 * float(np.quantile(usual, 0.99)) + LATE_S
    age_s = _until_old(trial, scheme, shape)
    owner = trial.fragments()[FRAGMENT]["owner"]
    assert owner == PRIMARY, f"{owner} has the fragment before {PRIMARY} is killed: the machine is too busy"
    loss = lose(trial, PRIMARY, FRAGMENT, also=[name for name in scheme.lost if name != PRIMARY])
    wanted = parts_at(parts)

    def there() -> bool:
        found = trial.fragments()
        return all(name in found and found[name]["owner"] in nodes for name, nodes in wanted.items())

    trial.until(there, f"it goes on at {', '.join(sorted({each for of in wanted.values() for each in of}))}")
    settled_s = (time.monotonic_ns() - loss.killed_ns) / 1e9
    came = trial.arrivals["out"].came
    trial.until(
        lambda: min(late_s for _, late_s in delays_of(came[-1:])) <= bound_s, "rows are in time again"
    )
    trial.rest(AFTER_S)
    late = [at_ns for at_ns, late_s in delays_of(came[:]) if at_ns > loss.killed_ns and late_s > bound_s]
    caught_up_s = max(loss.total_s, (max(late, default=0) - loss.killed_ns) / 1e9)
    return {
        "killed_rows": loss.published,
        "noticed_s": loss.noticed_s,
        "taken_s": loss.taken_s,
        "total_s": loss.total_s,
        "settled_s": settled_s,
        "caught_up_s": caught_up_s,
        "whole_s": max(settled_s, caught_up_s),
        "age_s": age_s,
    }


def parts_at(parts: int) -> dict[str, Sequence[str]]:
    """Fragment -> the nodes that it may be at once it is restored."""
    if parts < 2:
        return {FRAGMENT: (SECONDARY, THIRD)}
    return {f"q/counted-{number + 1}": (SECONDARY, THIRD) for number in range(parts)}


def _until_old(trial: Trial, scheme: Scheme, shape: workload.Shape) -> float | None:
    """Until there is as much to read again as there ever is; the age of the newest checkpoint."""
    if scheme.method.one_holds:
        least_us = OLD * duration_us(shape.interval)
        ages: list[int] = [0]

        def old() -> bool:
            ages[0] = _held(fed).get("age_us") or 0
            return ages[0] >= least_us

        with contextlib.closing(md.connect(trial.nodes.addresses[HOP], timeout="60s")) as fed:
            trial.until(old, "the checkpoint that is held is old")
        return ages[0] / 1e6
    window_s = shape.held_ms / 1e3

    def late_in_it() -> bool:
        return (time.monotonic_ns() - trial.traffic.began_ns) / 1e9 % window_s >= OLD * window_s

    trial.until(late_in_it, "a window is nearly over")
    return None


def _held(fed: md.Federation) -> dict[str, Any]:
    """What a node holds of the primary's fragment; empty: nothing."""
    found: dict[str, Any] = fed.status()["backups"]["held"].get(FRAGMENT, {})
    return found


def held_bytes(trial: Trial) -> int:
    """What the hop holds of the primary's state."""
    with contextlib.closing(md.connect(trial.nodes.addresses[HOP], timeout="60s")) as fed:
        return int(_held(fed).get("bytes", 0))
