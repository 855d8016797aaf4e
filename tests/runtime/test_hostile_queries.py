"""Queries that were written to take all of a node: each ends alone, or does what it has to in pieces.

The engine runs by hand, a job at a time, with a budget of 48 MiB. Between its jobs an honest query beside it
is fed, and has to get every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.nodes.reports import FragmentFailed, Ran
from medusa.runtime.engine_host.budgets import EngineBounds
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.machine.usage import process_usage
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Owned, RunFragment
from tests.runtime.engine_by_hand import ByHand, Ticking

MIB = 1 << 20
BUDGET = 48 * MIB
MORE = 160 * MIB
"""What the process may take at most while an attack runs, beyond what it had: the budget, and twice as much
again for what allocators keep and what a piece needs while it is made."""
JOBS_MAX = 20_000

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64", "s": "utf8"}
HOUR_US = 3_600_000_000


def rows(count: int, first: int = 0, *, keys: int = 1, step_us: int = 1_000, text: str = "x") -> Train:
    numbers = range(first, first + count)
    columns = {
        "ts": pa.array([number * step_us for number in numbers], pa.timestamp("us", "UTC")),
        "k": pa.array([number % keys for number in numbers]),
        "v": pa.array(numbers),
        "s": pa.array([text] * count),
    }
    return Train(batch=pa.record_batch(columns))


def many(trains: int, count: int = 20_000, **more: Any) -> Iterator[Element]:
    for number in range(trains):
        yield rows(count, number * count, **more)


def made(build: Callable[[Any], Any], slack: str = "0s") -> md.Query:
    q = md.Query("attack")
    q.sink("out", build(q.source("rows", SCHEMA, time="ts", slack=slack)))
    return q


def joins(count: int) -> Callable[[Any], Any]:
    def build(source: Any) -> Any:
        stream = source
        for _ in range(count):
            stream = stream.join(source.select("k", w="v"), on="k", within="1 h").select("k", "v")
        return stream

    return build


@dataclass(frozen=True)
class Attack:
    """A query and what it is fed.

    Attributes:
        ends: with this code; empty: it gives way in pieces and comes to its end.
    """

    build: Callable[[Any], Any]
    elements: Callable[[], Iterator[Element]]
    ends: str = "E_MEMORY"
    slack: str = "0s"


def unioned(source: Any) -> Any:
    """Pairs go two ways that meet again, where the order of arrival shows: they pile up before it."""
    pairs = source.join(source.select("k", w="v"), on="k", within="1 h").select("k", "v")
    return pairs.filter("v % 2 = 0").union(pairs.filter("v % 2 = 1"))


def once(*elements: Element) -> Callable[[], Iterator[Element]]:
    return lambda: iter(elements)


@md.register("hoard", version=1)
class Hoard:
    """Keeps all texts of a key."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> None:
        state.all = (state.all or "") + "".join(batch.column("s").to_pylist())


def hoarding(keys: str) -> Callable[[Any], Any]:
    return lambda s: s.process(Hoard, {"n": "int64"}, by=keys, state={"all": "utf8"})


def doubled(times: int) -> Callable[[Any], Any]:
    """Texts that double box by box, as far as a spec may."""

    def build(source: Any) -> Any:
        for _ in range(times):
            source = source.with_columns(s="concat(s, s)")
        return source.filter("v < 0")

    return build


ATTACKS = {
    "three joins of 500 rows": Attack(joins(3), once(rows(500), Boundary(END_US)), slack="1s"),
    "six joins of 500 rows": Attack(joins(6), once(rows(500), Boundary(END_US)), slack="1s"),
    "rows that wait for partners for ever": Attack(
        lambda s: s.join(s.select("k", w="v"), on="k", within="1000 h").select("k"),
        lambda: many(200, keys=1 << 40),
    ),
    "distinct over unique keys": Attack(
        lambda s: s.distinct("v", within="1000 h"), lambda: many(200, keys=1 << 40)
    ),
    "groups without end": Attack(
        lambda s: s.window("1000 h").group_by("v").aggregate(n=md.count(), m=md.max("s")),
        lambda: many(200, keys=1 << 40),
    ),
    "windows with tiny slides": Attack(
        lambda s: s.window("100 h", "4 s").group_by("v").aggregate(n=md.count()),
        once(rows(2_000), Boundary(END_US)),
    ),
    "sessions that never close": Attack(
        lambda s: s.session("1000 h").group_by("v").aggregate(n=md.count()), lambda: many(200, keys=1 << 40)
    ),
    "values that are all kept": Attack(
        lambda s: s.window("1000 h").aggregate(p=md.count_distinct("v"), q=md.median("v")),
        lambda: many(400, keys=1 << 40),
    ),
    "two streams of pairs that meet": Attack(unioned, once(rows(6_000), Boundary(END_US)), slack="1s"),
    "a year to fill": Attack(
        lambda s: s.select("ts", "k", "v").resample("400 s", by="k", gap="365 d"),
        lambda: (rows(500, n * 500, keys=500, step_us=17 * HOUR_US) for n in range(20)),
    ),
    "a sort with slack": Attack(
        lambda s: s.wsort("v", "1000 h"), lambda: many(200, text="a text of some length")
    ),
    "the top of all": Attack(
        lambda s: s.window("1000 h").top(1_000_000, by="v"),
        lambda: many(400),
    ),
    "a text that grows in one key": Attack(hoarding("k"), lambda: many(200, 2_000, text="x" * 1_000)),
    "state for each key of its own": Attack(hoarding("v"), lambda: many(200, 2_000, keys=1 << 40)),
    "texts that double": Attack(doubled(13), once(rows(1_000, text="x" * 100)), ends=""),
    "a running sum for each key": Attack(
        lambda s: s.group_by("v").running(n=md.count(), t=md.sum("k")), lambda: many(300, keys=1 << 40)
    ),
}


class Cpu(Ticking):
    """What this thread has taken, however busy the machine is."""

    def monotonic_us(self) -> int:
        return time.thread_time_ns() // 1000


class Desk:
    """A host with an attack and an honest query of somebody else."""

    def __init__(self, attack: Attack) -> None:
        clock = SystemClock()
        self.hands = ByHand(Cpu())
        self.host = EngineHost(
            Disk("d"),
            clock,
            wake=lambda: None,
            worker=self.hands,
            bounds=EngineBounds(query_bytes=BUDGET, owner_bytes=2 * BUDGET, piece_us=60_000_000),
        )
        self.done: list[Any] = []
        self.sent = 0
        honest = md.Query("honest")
        honest.sink("out", honest.source("rows", SCHEMA, time="ts", slack="0s").filter("v >= 0"))
        for q, owner in ((made(attack.build, attack.slack), "mallory"), (honest, "alice")):
            self.host.owned(Owned(query=q.graph.name, owner=owner))
            self.host.open(q.graph.name, q.graph)
        self.work()

    def feed(self, name: str, element: Element) -> None:
        self.host.run(RunFragment(fragment=name, stream="rows", element=element))

    def work(self, most: int = 1 << 20) -> int:
        count = self.hands.engine(most)
        self.done += [each for each in self.host.finished() if isinstance(each, Ran | FragmentFailed)]
        return count

    def honest(self) -> list[int]:
        """Values that came out of the honest query."""
        outputs = [element for each in self.of("honest") for _, element in each.outputs]
        return [v for e in outputs if isinstance(e, Train) for v in e.batch.column("v").to_pylist()]

    def of(self, name: str) -> list[Any]:
        return [each for each in self.done if each.fragment == name]

    def serve(self) -> None:
        """Feed the honest query a row: it has its turn after at most one slice of the attack."""
        self.feed("honest", rows(1, self.sent))
        self.sent += 1
        self.work(4)
        assert len(self.honest()) == self.sent


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_alone(name: str) -> None:
    attack = ATTACKS[name]
    desk = Desk(attack)
    before, most, jobs = process_usage().memory_bytes, 0, 0
    elements = attack.elements()
    while not (failed := [each for each in desk.of("attack") if isinstance(each, FragmentFailed)]):
        desk.done = [each for each in desk.done if each.fragment == "honest"]
        element = next(elements, None)
        if element is not None:
            desk.feed("attack", element)
        did = desk.work(8)
        jobs += did
        desk.serve()
        most = max(most, process_usage().memory_bytes - before)
        assert most < MORE, f"{most / MIB:.0f} MiB more"
        assert jobs < JOBS_MAX
        if not did and element is None:
            break
    assert [each.code for each in failed] == ([attack.ends] if attack.ends else [])
    for _ in range(3):
        desk.serve()
    desk.work()
    assert desk.honest() == list(range(desk.sent))
    assert not [each for each in desk.of("honest") if isinstance(each, FragmentFailed)]
