"""Question: a chain of boxes with upstream backup is cut over K nodes: what does that cost, and a loss then?

    python -m bench.recovery.knob [--quick] [--boxes 8] [--rate 5000] [--rounds 5] [--budget 10min]

The knob of CIDR 2003, section 6: a server's network of boxes is split into K virtual machines with a queue
at each boundary. With K = 1 little is kept while nothing fails, and all boxes have to be done again over all
that their windows span; with as many as there are boxes each row crosses each boundary, and only one box is
done again: close to process pairs.

    publisher ── a rows ── v1 box 1, ... ── v2 ... ── vK ..., box B ── reader     s stands by for v1 to vK

Here a virtual machine is a node, and what it sends is kept by it until nobody needs it any more. A box has
two windows: a short one lets every row through once (it groups by the row's number), so every number is
accounted for at the end; a long one (``--span``) is its state, which has to be read again. The node in the
middle is killed for good, at any moment of a span. Beside it: active standby of the chain on one node, which
is a process pair, and the chain on one node without standby (*alone*), where nobody is killed.

- *CPU*: of all nodes of the chain and of the one that stands by, a row. *between*: bytes over TCP from each
  node to the next, and to who stands by, a row. *kept*: by all senders, just before the kill.
- *noticed*, *taken*: as in ``bench.recovery``.
- *held up*: how much later than usual the latest row came, counted from the end of its last window by the
  clock; usual is the median before the kill.
- *read again*: rows that the lost node had been fed and its successor was fed again; *done again*: that times
  its boxes.

Nodes give the lost one no time to come back (``[recovery] wait``), else all would wait for that alone.
Exact first: a run counts only if every number came; without upstream backup, once.
Not shown: the loss of all K at once. What they keep for each other would be lost with them.
"""

from __future__ import annotations

import argparse
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench import report
from bench.recovery import workload
from bench.recovery.command import Command, Plan, numbers_of, parser_of
from bench.recovery.losses import lose
from bench.recovery.methods import ALONE, Method, known_methods
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
from medusa.apps.workloads.demos.ha_outcome import HaAccount
from medusa.apps.workloads.network.tcp_bytes import sent_bytes

NAME = "recovery-knob"
SPARE = "s"
WARM_S = 1.0
AFTER_S = 1.0
LEAST_MS, MORE_MS = 20, 5
"""Short windows of one size would all close at once."""

GROUPS = 100
"""Of a long window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is gone through.

    Attributes:
        cuts: values of K.
        span_ms: of the long windows.
        seconds: that are measured in each run, before the kill.
    """

    boxes: int
    cuts: Sequence[int]
    rate: int
    rounds: int
    seconds: float
    span_ms: int = 4_000
    interval: str = "200ms"
    wait: str = "0s"


FULL = Sizes(boxes=8, cuts=(1, 2, 4, 8), rate=3_000, rounds=5, seconds=4.0)
QUICK = Sizes(boxes=2, cuts=(1, 2), rate=500, rounds=1, seconds=0.5, span_ms=400)


def query(method: Method, sizes: Sizes) -> md.Query:
    """Boxes behind each other, each with every row once."""
    q = md.Query("q")
    rows = q.source("rows", workload.COLUMNS, time="ts").filter("n >= 0", name="kept")
    for number in range(sizes.boxes):
        # So that both windows are of one fragment, with one input.
        rows = rows.filter("n >= 0", name=f"in{number}")
        state = rows.window(f"{sizes.span_ms}ms").group_by("k")
        q.sink(f"state{number}", state.aggregate(rows=md.count(), name=f"long{number}"), **method.wish)
        short = rows.window(f"{LEAST_MS + MORE_MS * number}ms").group_by("n")
        rows = short.aggregate(sent=md.max("sent"), k=md.max("k"), name=f"short{number}")
    q.sink("out", rows, **method.wish)
    return q


def box_of(name: str, boxes: int) -> int:
    """To which of the chain a box of the query belongs; the sink to the last."""
    number = name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(number) if number else boxes - 1


def nodes_of(cuts: int) -> list[str]:
    return [f"v{number + 1}" for number in range(cuts)]


def placed(q: md.Query, boxes: int, cuts: int) -> dict[str, list[str]]:
    """The chain in equal pieces, one after the other; the sink is at the last node."""
    found: dict[str, list[str]] = {ENTRY: ["rows", "kept"], **{name: [] for name in nodes_of(cuts)}}
    for box in q.graph.boxes:
        if box.id not in found[ENTRY]:
            found[nodes_of(cuts)[box_of(box.id, boxes) * cuts // boxes]].append(box.id)
    return found


def setup_of(method: Method, sizes: Sizes, cuts: int) -> Setup:
    q = query(method, sizes)
    chain = nodes_of(cuts)
    guarded = method.method is not None
    standby = {ENTRY: [WITNESS], **{name: [SPARE] for name in chain}}
    return Setup(
        query=q,
        nodes=(*chain, SPARE) if guarded else chain,
        at=placed(q, sizes.boxes, cuts),
        standby=standby if guarded else {},
        rows=partial(workload.rows_of, rate=sizes.rate, groups=GROUPS),
        rate=sizes.rate,
        tick_s=LEAST_MS / 1e3,
        # What nobody reads is kept for who may come, and what it is made of too: `flush` would wait for that.
        sinks=("out", *(f"state{number}" for number in range(sizes.boxes))),
        checkpoint_every={"*": sizes.interval},
        wait=sizes.wait,
    )


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    """What is run once in each round."""
    upstream = [{"method": "upstream_backup", "cuts": cuts} for cuts in sizes.cuts]
    return [{"method": ALONE.key, "cuts": 1}, *upstream, {"method": "active_standby", "cuts": 1}]


def run(setting: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """One run; *alone* nobody is killed.

    Raises:
        AssertionError: a number is missing.
    """
    method = {ALONE.key: ALONE, **known_methods()}[setting["method"]]
    cuts = setting["cuts"]
    with flowing(setup_of(method, sizes, cuts)) as trial:
        trial.rest(WARM_S + random.random() * sizes.span_ms / 1e3)
        return tried(trial, method, sizes, cuts)


def tried(trial: Trial, method: Method, sizes: Sizes, cuts: int) -> dict[str, Any]:
    """What it costs, a kill, and what came of all numbers.

    Raises:
        AssertionError: a number is missing; without upstream backup, one came twice.
    """
    names = trial.setup.nodes
    first, sent = trial.spent(*names), bytes_between(trial)
    trial.rest(sizes.seconds)
    trial.until_shown(first.at_ns)
    last, sent_later = trial.spent(*names), bytes_between(trial)
    rows = max(last.rows - first.rows, 1)
    figures: dict[str, Any] = {
        "cpu_us": sum(last.cpu_s[name] - first.cpu_s[name] for name in names) / rows * 1e6,
        "between_bytes": None if sent is None or sent_later is None else (sent_later - sent) / rows,
        "kept_bytes": kept_bytes(trial),
    }
    killed_ns = None
    if method.method is not None:
        victim = nodes_of(cuts)[cuts // 2]
        fragment = fragment_of(sizes.boxes, cuts)
        trial.until(trial.follow, "who stands by follows")
        fed = trial.told(victim, fragment)["rows_in"]
        loss = lose(trial, victim, fragment)
        killed_ns = loss.killed_ns
        trial.rest(AFTER_S)
        figures |= {"noticed_s": loss.noticed_s, "taken_s": loss.taken_s}
    trial.end()
    published = trial.traffic.published
    found = account_of(trial.arrivals["out"].came, published)
    broken = method.broken(found)
    assert not broken, broken
    figures |= {"published": published, "doubled": found.doubled}
    if killed_ns is not None:
        successor = trial.told(SPARE, fragment)
        begins = published - successor["rows_in"]
        again = None if method.computes else max(fed - begins, 0)
        figures["again_rows"] = again
        figures["again_boxes"] = None if again is None else again * sizes.boxes // cuts
    begin_ns = killed_ns or last.at_ns
    late = lateness(trial.arrivals["out"].came, trial.traffic.began_ns)
    before = [late_s for at_ns, late_s in late if first.at_ns <= at_ns < begin_ns]
    assert before, "no row came while it was measured"
    figures["late_p50_s"] = float(np.median(before))
    if killed_ns is not None:
        latest_s = max(late_s for at_ns, late_s in late if at_ns >= killed_ns)
        figures["held_up_s"] = latest_s - figures["late_p50_s"]
    return figures


def fragment_of(boxes: int, cuts: int) -> str:
    """What runs at the node that is lost."""
    victim = cuts // 2
    first = next(number for number in range(boxes) if number * cuts // boxes == victim)
    return f"q/in{first}"


def bytes_between(trial: Trial) -> int | None:
    """Over TCP so far: along the chain, and from its nodes to who stands by; None: nobody knows."""
    chain = [name for name in trial.setup.nodes if name != SPARE]
    ways = [*zip([ENTRY, *chain], chain, strict=False)]
    if SPARE in trial.setup.nodes:
        ways += [(name, SPARE) for name in chain]
    sent = [sent_bytes(trial.nodes.pid(source), trial.nodes.pid(target)) for source, target in ways]
    known = [each for each in sent if each is not None]
    return sum(known) if len(known) == len(sent) else None


def kept_bytes(trial: Trial) -> int:
    """By all nodes, for who reads them."""
    found = 0
    for name in (ENTRY, *(name for name in trial.setup.nodes if name != SPARE)):
        with contextlib.closing(md.connect(trial.nodes.addresses[name], timeout="60s")) as fed:
            found += fed.status()["kept_bytes"]
    return found


def account_of(came: Sequence[tuple[int, pa.RecordBatch]], published: int) -> HaAccount:
    """What became of each number."""
    numbers = np.concatenate([np.zeros(0, np.int64), *(batch["n"].to_numpy() for _, batch in came)])
    right = numbers[(numbers >= 0) & (numbers < published)]
    times = np.bincount(right, minlength=published)
    missing = np.flatnonzero(times == 0)
    twice = np.flatnonzero(times > 1)
    example = f"row {missing[0]:,} is missing" if len(missing) else ""
    if not example and len(twice):
        example = f"row {twice[0]:,} came {times[twice[0]]} times"
    wrong = len(numbers) - len(right)
    if wrong:
        example = f"{wrong:,} numbers that nobody published"
    return HaAccount(published, len(missing), int(np.maximum(times - 1, 0).sum()), wrong, example)


def lateness(came: Sequence[tuple[int, pa.RecordBatch]], began_ns: int) -> list[tuple[int, float]]:
    """(when a train came, by how many seconds the latest of its rows came after the end of its window)."""
    found = []
    for at_ns, batch in came:
        ends_us = batch["window_end"].cast(pa.int64()).to_numpy()
        found.append((at_ns, (at_ns - began_ns) / 1e9 - float(ends_us.min()) / 1e6))
    return found


def asked_of(sizes: Sizes) -> dict[str, Any]:
    """What holds for all runs."""
    return {
        "boxes": sizes.boxes,
        "rows/s": sizes.rate,
        "span": f"{sizes.span_ms} ms",
        "checkpoints each": sizes.interval,
        "wait": sizes.wait,
    }


def measure(sizes: Sizes, sheet: Sheet) -> dict[str, Any]:
    """All figures, the settings in turns."""
    return sheet.run(settings(sizes), sizes.rounds, lambda setting: run(setting, sizes), told)


def told(made: dict[str, Any]) -> str:
    """A run, for who watches."""
    kill = f", held up {made['held_up_s'] * 1e3:.0f} ms" if "held_up_s" in made else ""
    return f"{made['cpu_us']:.0f} us a row{kill}"


# --- what is shown --------------------------------------------------------------------------------------

HEADS = (
    "method",
    "K",
    "CPU, us a row",
    "between, B a row",
    "kept, KiB",
    "noticed, ms",
    "taken, ms",
    "held up, ms",
    "read again, rows",
    "done again, rows x boxes",
    "doubled",
)


def table(found: dict[str, Any]) -> str:
    """Markdown: a line for each K."""
    lines = [
        [
            row["method"].replace("_", " "),
            f"{row['cuts']}",
            spread(values(row, "cpu_us")),
            spread(values(row, "between_bytes")),
            spread(values(row, "kept_bytes"), 1 / 1024),
            *(milliseconds(row, key) for key in ("noticed_s", "taken_s", "held_up_s")),
            *(spread(values(row, key)) for key in ("again_rows", "again_boxes", "doubled")),
        ]
        for row in found["rows"]
        if good(row)
    ]
    return "\n".join([preface(found), "", *markdown(HEADS, lines), *troubles(found)]) + "\n"


PANELS = (
    ("CPU while nothing fails, us a row", "cpu_us", 1.0),
    ("bytes between nodes, a row", "between_bytes", 1.0),
    ("held up by the loss of one, ms", "held_up_s", 1e3),
    ("done again, rows x boxes", "again_boxes", 1.0),
)


def plot(found: dict[str, Any], path: Path) -> None:
    """Curves over K: cost on the left, recovery on the right; dashed: one node with active standby."""
    plots = report.pyplot()
    rows = [row for row in found["rows"] if good(row)]
    chain = sorted((row for row in rows if row["method"] == "upstream_backup"), key=lambda row: row["cuts"])
    figure, axes = plots.subplots(1, len(PANELS), figsize=(15, 3.4))
    for axis, (title, key, factor) in zip(axes, PANELS, strict=True):
        curve = [(row["cuts"], np.array(values(row, key)) * factor) for row in chain if values(row, key)]
        if curve:
            cuts = [each for each, _ in curve]
            middle = [float(np.median(each)) for _, each in curve]
            low = [mid - float(each.min()) for mid, (_, each) in zip(middle, curve, strict=True)]
            high = [float(each.max()) - mid for mid, (_, each) in zip(middle, curve, strict=True)]
            axis.errorbar(cuts, middle, yerr=[low, high], marker="o", color="#3b6ea5", capsize=3)
            axis.set_xticks(cuts)
        for row in rows:
            if row["method"] != "upstream_backup" and values(row, key):
                level = float(np.median(values(row, key))) * factor
                colour = "#c0504d" if row["method"] == "active_standby" else "#808080"
                axis.axhline(level, linestyle="--", color=colour, label=row["method"].replace("_", " "))
                axis.legend(frameon=False)
        axis.set_xlabel("K")
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


COMMAND = Command(NAME, table, plot)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--boxes", type=int)
    parser.add_argument("--rate", type=int)
    parser.add_argument("--span", type=int, help="of the long windows, milliseconds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="that are measured in each run")
    parser.add_argument("--cuts", help="values of K, by commas")
    COMMAND.main(parser, plan)


def plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        ValueError: that can't be.
    """
    base = QUICK if options.quick else FULL
    boxes = options.boxes or base.boxes
    cuts = numbers_of(options.cuts) or base.cuts
    if wrong := [each for each in cuts if not 1 <= each <= boxes]:
        raise ValueError(f"--cuts: {wrong[0]} is none of 1 to {boxes}, the number of boxes")
    sizes = replace(
        base,
        boxes=boxes,
        cuts=cuts,
        rate=options.rate or base.rate,
        span_ms=options.span or base.span_ms,
        rounds=options.rounds or base.rounds,
        seconds=options.seconds or base.seconds,
    )
    return asked_of(sizes), partial(measure, sizes)


if __name__ == "__main__":
    main()
