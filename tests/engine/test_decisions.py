"""Killed at any moment, restored, its rows pushed again: the output is that of an undisturbed run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import medusa as md
from medusa.elements import END_US
from medusa.engine.recovery.decision_log import GATHERED_MAX
from medusa.engine.recovery.decisions import AnswersReleased, CallAnswer, Entry, Lifts, Rest, pack, unpack
from medusa.engine.state import background_copy, delta
from medusa.runtime.embedded.run import Run
from tests.engine.durable import Consumer, Folder, JobsByHand

SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
SOURCES = ("a", "b", "c")
MS = 1_000
TOTAL = 80

pytestmark = [
    pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning"),
    pytest.mark.filterwarnings("ignore::medusa.errors.DeadRowWarning"),
]


def rows(source: str, first: int, count: int) -> pa.Table:
    """Rows of a source by their numbers: each depends on its number alone; some are late."""
    numbers = range(first, first + count)
    mixed = [(number * 7919 + ord(source) * 31) % 1009 for number in numbers]
    return pa.table(
        {
            "ts": pa.array(
                [n * MS - m % 4 * MS for n, m in zip(numbers, mixed, strict=True)], pa.timestamp("us", "UTC")
            ),
            "k": pa.array([m % 3 for m in mixed], pa.int64()),
            "v": pa.array([ord(source) * 10_000 + n for n in numbers], pa.int64()),
        }
    )


def unions() -> md.Query:
    """What shows the order of arrival: rows in a sink, running sums, the first of a window, top rows."""
    q = md.Query("unions")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    both = a.filter("k <> 1").union(b)
    every = both.union(c.select("ts", "k", v="v * 2"))
    q.sink("rows", every)
    q.sink("running", both.group_by("k").running(n=md.sum("v")))
    q.sink("counted", every.group_by("k").window_rows(5).aggregate(s=md.sum("v"), f=md.first("v")))
    q.sink("windows", every.window("10ms").group_by("k").aggregate(n=md.count(), f=md.sum("v")))
    return q


def twice() -> md.Query:
    """A union that takes one source twice: where its rows are cut shows."""
    q = md.Query("twice")
    a, b, _ = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    counts = a.window("5ms").group_by("k").aggregate(n=md.count()).select(v="n + k", w="1")
    every = a.filter("k > 0").select("v", w="2").union(a.filter("k < 2").select("v", w="3"), counts)
    q.sink("rows", every.union(b.select("v", w="4")))
    return q


def joined() -> md.Query:
    """No order shows; boundaries do."""
    q = md.Query("joined")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    q.sink("pairs", a.join(b, on="k", within="2ms", how="left"))
    q.sink("counts", c.window("10ms").aggregate(n=md.count()))
    q.sink("late", c.late)
    return q


def dead() -> md.Query:
    """Keys of a join fail as rows arrive."""
    q = md.Query("dead")
    a, b, _ = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    pairs = a.join(b, on={"1 // k": "1 // (k - 1)"}, within="2ms")
    q.sink("pairs", pairs)
    q.sink("dead", pairs.dead)
    return q


def ahead() -> md.Query:
    """What is too far ahead depends on arrival times that pushes give."""
    q = md.Query("ahead")
    a, b, _ = (q.source(name, SCHEMA, slack="2ms", ahead="3ms") for name in SOURCES)
    q.sink("ahead", a.ahead)
    q.sink("counts", a.window("10ms").aggregate(n=md.count(), s=md.sum("v")))
    q.sink("both", a.union(b))
    return q


Event = tuple[Any, ...]


@pytest.fixture(params=[4, pytest.param(60, marks=[pytest.mark.full, pytest.mark.issue(4)])])
def seeds(request: pytest.FixtureRequest) -> range:
    return range(request.param)


def events_of(rng: random.Random, *, arrivals: bool = False) -> list[Event]:
    """Pushes of all rows, with boundaries and takes between."""
    made: list[Event] = []
    at = dict.fromkeys(SOURCES, 0)
    promised = dict.fromkeys(SOURCES, -(10**9))
    while any(count < TOTAL for count in at.values()):
        name = rng.choice([each for each in SOURCES if at[each] < TOTAL])
        draw = rng.random()
        if draw < 0.7:
            count = min(rng.randint(1, 12), TOTAL - at[name])
            late_us = rng.choice([0, 1, 5, 20]) * MS
            made.append(("push", name, at[name], count, at[name] * MS + late_us if arrivals else None))
            at[name] += count
        elif draw < 0.85:
            promised[name] = max(promised[name], (at[name] + rng.randint(-3, 3)) * MS)
            made.append(("boundary", name, promised[name]))
        else:
            made.append(("take",))
    return made


def do(run: Run, consumer: Consumer, event: Event) -> None:
    if event[0] == "push":
        _, name, first, count, arrival = event
        if first + count > run.positions()[name]:
            run.push(name, rows(name, first, count), first=first, arrival=arrival)
    elif event[0] == "boundary":
        run.boundary(*event[1:])
    elif event[0] == "take":
        consumer.take(run)
    else:
        run.checkpoint()


def again(run: Run, consumer: Consumer, event: Event) -> None:
    """Do what may be in the state of the run already."""
    try:
        do(run, consumer, event)
    except (md.DataError, md.StateError) as error:
        if error.code not in ("data.boundary", "state.replay"):
            raise


def undisturbed(build: Callable[[], md.Query], events: list[Event]) -> dict[str, list[Any]]:
    q = build()
    consumer = Consumer(q.sinks)
    with Folder().start(q) as run:
        for event in events:
            do(run, consumer, event)
        run.finish()
        consumer.take(run)
    return consumer.rows


def begin_of(events: list[Event], run: Run) -> int:
    """The event after the last push that is in the state of a restored run."""
    have = run.positions()
    begin = 0
    for number, event in enumerate(events):
        if event[0] == "push" and event[2] + event[3] <= have[event[1]]:
            begin = number + 1
    return begin


def left_of(run: Run) -> list[Entry]:
    """Decisions of earlier lives that a run has still to do again."""
    replay = run._fragment._replay
    return [] if replay is None else list(replay.entries())


def live(folder: Folder, q: md.Query, consumer: Consumer, events: list[Event], stop: int) -> Run:
    """One life: what isn't in the state is done again, up to an event."""
    run = folder.start(q)
    for event in events[min(stop, begin_of(events, run)) : stop]:
        again(run, consumer, event)
    return run


@pytest.mark.parametrize("build", [unions, twice, joined, dead, ahead])
def test_killed_anywhere_and_pushed_again_as_before(build: Callable[[], md.Query], seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        events = events_of(rng, arrivals=build is ahead)
        for _ in range(rng.randint(0, 3)):
            events.insert(rng.randrange(len(events)), ("checkpoint",))
        expected = undisturbed(build, events)
        folder, q = Folder(), build()
        consumer = Consumer(q.sinks)
        for _ in range(3):
            live(folder, q, consumer, events, rng.randrange(len(events)))
            folder.kill(rng)
        run = live(folder, q, consumer, events, len(events))
        run.finish()
        consumer.take(run)
        assert consumer.rows == expected, f"seed {seed}"


@pytest.mark.parametrize("build", [unions, twice, joined, dead])
def test_killed_anywhere_and_pushed_again_in_another_order(
    build: Callable[[], md.Query], seeds: range
) -> None:
    """What had been taken comes again unchanged; rows that nobody had seen come as they are pushed now."""
    for seed in seeds:
        rng = random.Random(seed)
        events = events_of(rng)
        folder, q = Folder(), build()
        consumer = Consumer(q.sinks)
        live(folder, q, consumer, events, rng.randrange(len(events)))
        for last in (False, True):
            folder.kill(rng)
            run, events = folder.start(q), shuffled(rng)
            for event in events if last else events[: rng.randrange(len(events))]:
                do(run, consumer, event)
        run.finish()
        consumer.take(run)
        if build is unions:
            every = [repr(row) for row in consumer.rows["rows"]]
            assert sorted(every) == sorted(map(repr, undisturbed(build, events)["rows"])), seed


class Ticking:
    """A microsecond passes whenever somebody looks."""

    def __init__(self) -> None:
        self._us = 0

    def now_us(self) -> int:
        return self.monotonic_us()

    def monotonic_us(self) -> int:
        self._us += 1
        return self._us


@pytest.mark.filterwarnings("ignore::medusa.errors.CheckpointWarning")
@pytest.mark.parametrize("build", [unions, twice, joined, dead])
def test_killed_while_a_checkpoint_of_an_earlier_moment_is_made(
    build: Callable[[], md.Query], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are copied when the run is killed, some not yet written; some couldn't be written."""
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 0)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 0)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 1)
    under_way = begun = 0
    for seed in seeds:
        rng = random.Random(seed)
        events = events_of(rng)
        for _ in range(rng.randint(0, 2)):
            events.insert(rng.randrange(len(events)), ("checkpoint",))
        expected = undisturbed(build, [event for event in events if event[0] != "checkpoint"])
        folder, q = Folder(checkpoint_every_us=15), build()
        jobs = JobsByHand(lambda rng=rng: rng.choice([0, 1, 2, 4, 9]))
        consumer = Consumer(q.sinks)
        for life in range(5):
            run = folder.start(q, clock=Ticking(), jobs=jobs)
            if life == 0:
                run.checkpoint()
            folder.store.fails = lambda rng=rng: rng.random() < 0.2
            stop = rng.randrange(len(events)) if life < 4 else len(events)
            for event in events[min(stop, begin_of(events, run)) : stop]:
                try:
                    again(run, consumer, event)
                except md.StateError as error:
                    if error.code != "state.io":  # of a checkpoint that was asked for
                        raise
            folder.store.fails = lambda: False
            under_way += run._checkpoints._under_way is not None
            if life < 4:
                folder.kill(rng)
        run.finish()
        consumer.take(run)
        assert consumer.rows == expected, f"seed {seed}"
        begun += jobs.begun
    assert begun > 10, "none was made meanwhile, so nothing was shown"
    assert under_way > 2, "none was under way when the run was killed"


def shuffled(rng: random.Random) -> list[Event]:
    """The same rows without boundaries, source by source, cut otherwise."""
    made: list[Event] = []
    for name in rng.sample(SOURCES, 3):
        first = 0
        while first < TOTAL:
            count = min(rng.randint(1, 40), TOTAL - first)
            made.append(("push", name, first, count, None))
            first += count
            if rng.random() < 0.3:
                made.append(("take",))
    return made


def idle() -> md.Query:
    """Silent sources, one with partitions; no order shows."""
    q = md.Query("idle")
    a, b, c = idle_sources(q)
    q.sink("pairs", a.join(b, on="k", within="3ms"))
    q.sink("others", a.join(c, on="k", within="3ms", how="left"))
    q.sink("late", c.late)
    return q


def idle_unions() -> md.Query:
    """The same where the order of arrival shows."""
    q = md.Query("idle_unions")
    a, b, c = idle_sources(q)
    counts = [each.window("5ms").group_by("k").aggregate(n=md.count()).select("n") for each in (a, b, c)]
    q.sink("counts", counts[0].union(*counts[1:]))
    q.sink("pairs", a.union(b).join(c, on="k", within="3ms"))
    return q


def idle_sources(q: md.Query) -> list[md.Stream]:
    a = q.source("a", SCHEMA, slack="2ms")
    b = q.source("b", SCHEMA, slack="2ms", idle="10s")
    return [a, b, q.source("c", SCHEMA, slack="2ms", idle="10s", partition="k")]


@pytest.mark.parametrize("build", [idle, idle_unions])
def test_what_the_clock_decided_comes_back(build: Callable[[], md.Query], seeds: range) -> None:
    """What was taken comes again, though after the kill nobody is ever idle."""
    lifted = 0
    for seed in seeds:
        rng = random.Random(seed)
        events = events_of(rng)
        for _ in range(12):
            events.insert(rng.randrange(len(events)), ("advance", rng.choice(["4s", "11s"])))
        events.insert(rng.randrange(len(events)), ("checkpoint",))
        kill = rng.randrange(len(events) // 2, len(events))
        folder, q, clock = Folder(), build(), md.testing.ManualClock()
        consumer = Consumer(q.sinks)
        run = folder.start(q, clock=clock)
        for event in [*events[:kill], ("take",)]:
            clock.advance(event[1]) if event[0] == "advance" else do(run, consumer, event)
        taken = {sink: list(found) for sink, found in consumer.rows.items()}
        folder.kill(rng)
        run = folder.start(q, clock=md.testing.ManualClock())
        lifted += sum(isinstance(each, Lifts | Rest) for each in left_of(run))
        for event in shuffled(rng) if rng.random() < 0.5 else events:
            if event[0] != "advance":
                again(run, consumer, event)
        run.finish()
        consumer.take(run)
        for sink, found in taken.items():
            assert consumer.rows[sink][: len(found)] == found
    assert lifted > 10, "nothing was decided, so nothing was shown"


class Calls:
    """The port ``Tasks``: a call ends when it is asked for the n-th time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.hurried = rng, False
        self._works: list[Coroutine[Any, Any, Any]] = []

    def start(self, work: Coroutine[Any, Any, Any]) -> Any:
        self._works.append(work)
        return _Call(work, self._rng.choice([0, 0, 1, 3, 10]))

    def rest(self, task: Any) -> None: ...  # nothing goes on meanwhile

    def close(self) -> None:
        for work in self._works:
            work.close()


class _Call:
    def __init__(self, work: Coroutine[Any, Any, Any], asks: int) -> None:
        self._work, self._asks = work, asks
        self._made: Any = None

    def done(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def result(self) -> Any:
        if self._made is None:
            try:
                self._work.send(None)
            except StopIteration as end:
                self._made = end.value
        return self._made


answers = count()


@md.register("test.decisions.asked")
async def asked(batch: pa.RecordBatch) -> Any:
    """What somebody else says: never the same again; some calls fail."""
    answer = next(answers)
    if answer % 7 == 0:
        raise RuntimeError(f"no answer {answer}")
    twice = [row for row in range(batch.num_rows) for _ in range(1 + (answer + row) % 2)]
    return {"_row": twice, "v": batch["v"].take(pa.array(twice)), "answer": [answer] * len(twice)}


def asking() -> md.Query:
    """Calls, calls on what they gave, beside others: when answers come shows in the order."""
    q = md.Query("asking")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    once = a.apply(asked, {"v": "int64", "answer": "int64"}, in_flight=3, name="once")
    more = once.apply(asked, {"v": "int64", "answer": "int64"}, in_flight=2, name="more")
    windows = c.apply(asked, {"v": "int64", "answer": "int64"}, name="counted").window("5ms")
    counts = windows.aggregate(v=md.count(), answer=md.max("answer")).select("v", "answer")
    q.sink("rows", more.union(b.select("v", answer="0"), counts))
    q.sink("dead", once.dead)
    q.sink("dead_again", more.dead)
    return q


@pytest.mark.parametrize("shuffles", [False, True])
def test_answers_of_async_functions_come_back(shuffles: bool, seeds: range) -> None:
    known = 0
    for seed in seeds:
        rng = random.Random(seed)
        events = events_of(rng)
        events.insert(rng.randrange(len(events)), ("checkpoint",))
        folder, q = Folder(), asking()
        consumer = Consumer(q.sinks)
        for life in range(4):
            calls = Calls(rng)
            run = folder.start(q, tasks=calls)
            known += sum(len(each.released) for each in left_of(run))
            if shuffles and life:
                events = shuffled(rng)
            stop = len(events) if life == 3 else rng.randrange(len(events))
            for event in events[0 if shuffles and life else min(stop, begin_of(events, run)) : stop]:
                again(run, consumer, event)
            if life < 3:
                folder.kill(rng)
                calls.close()
        run.finish()
        consumer.take(run)
        dead = [json.loads(row["row"])["v"] for row in consumer.rows["dead"]]
        plain = {row["v"] for row in consumer.rows["rows"] if row["v"] > 1_000}
        stats = {row["box"]: row for row in run.stats().to_pylist()}
        assert stats["once"]["rows_in"] == stats["counted"]["rows_in"] == TOTAL
        assert stats["once"]["dead"] == len(dead) == len(set(dead))
        lost = {json.loads(row["row"])["v"] for row in consumer.rows["dead_again"]}
        for name in "ab":
            every = set(rows(name, 0, TOTAL)["v"].to_pylist())
            assert every <= plain | set(dead) | lost
            assert not every & plain & set(dead)
    assert known > 10, "no answer came back, so nothing was shown"


def test_a_log_that_can_t_be_is_refused_and_never_crashes(seeds: range) -> None:
    """With the sums made right again: numbers, names and kinds that are changed, entries that are missing."""
    refused = 0
    for seed in [each * 100 + more for each in seeds for more in range(10)]:
        rng = random.Random(seed)
        build = rng.choice([unions, twice, joined, idle, idle_unions, asking])
        events = events_of(rng)
        folder, q, clock = Folder(), build(), md.testing.ManualClock()
        consumer = Consumer(q.sinks)
        calls, more = Calls(rng), Calls(rng)
        run = folder.start(q, clock=clock, tasks=calls)
        run.checkpoint()
        for event in events[: rng.randrange(5, 40)]:
            do(run, consumer, event)
            clock.advance("3s")
        consumer.take(run)
        log = run._fragment.log
        assert log is not None
        run._fragment.sync()
        for number, data in folder.journal.files.items():
            entries = [entry for batch in unpack(data)[0] for entry in batch.entries]
            if entries:
                at = rng.randrange(len(entries))
                entries[at : at + 1] = changed(entries[at], rng)
            folder.journal.files[number] = bytearray(pack(entries))
        q = build()
        try:
            run = folder.start(q, tasks=more)
            for event in events:
                if event[0] != "take":
                    again(run, Consumer([]), event)
            for sink in q.sinks:
                run.take(sink)
            run.finish()
        except md.MedusaError as error:
            if error.code not in ("state.corrupt", "run.replay", "data.finished", "data.stopped"):
                raise
            refused += 1
        finally:
            calls.close()
            more.close()
    assert refused > 5, "nothing was refused, so nothing was shown"


def changed(entry: Entry, rng: random.Random) -> list[Entry]:
    """An entry with something else in it, none, or two of it."""
    if rng.random() < 0.2:
        return rng.choice([[], [entry, entry]])
    name = rng.choice(entry.__struct_fields__)
    value: Any = getattr(entry, name)
    if type(value) is int:
        value = rng.choice([value + 1, max(0, value - 1), 0, 10**15, END_US])
    elif name == "source":
        value = rng.choice(["a", "b", "c", "rows", ""])
    elif name in ("sources", "parts"):
        value = rng.choice([(), value[:1], value * 2])
        value = value or getattr(entry, name)
    elif name == "released" and value:
        answers = [replace(each, calls=tuple(map(wrong(rng), each.calls))) for each in value]
        value = rng.choice([(), (*value, *value), tuple(answers)])
    return [replace(entry, **{name: value})] if value != () or not isinstance(entry, AnswersReleased) else []


def wrong(rng: random.Random) -> Callable[[tuple[CallAnswer, ...]], tuple[CallAnswer, ...]]:
    def spoil(answers: tuple[CallAnswer, ...]) -> tuple[CallAnswer, ...]:
        first = answers[0]
        spoiled = [
            replace(first, rows=first.rows + 1),
            replace(first, first=1),
            replace(first, output=(first.output or b"")[:-9]),
            replace(first, index=b"\xff" * 8 * first.rows),
            replace(first, index=b"123"),
            replace(first, output=None, error="gone"),
        ]
        return (rng.choice(spoiled), *answers[1:])

    return spoil


def test_a_full_disk_stops_rows_from_leaving_not_from_coming() -> None:
    folder, q = Folder(), unions()
    run = folder.start(q)
    run.checkpoint()
    folder.journal.fails = True
    for number in range(GATHERED_MAX + 10):  # each a run of its own
        run.push(SOURCES[number % 3], rows(SOURCES[number % 3], number // 3, 1))
    for _ in range(2):
        with pytest.raises(md.StateError) as caught:
            run.take("rows")
        assert caught.value.code == "state.log"
    folder.journal.fails = False
    with pytest.raises(md.StateError):
        run.take("rows")
    run.checkpoint()
    consumer = Consumer(q.sinks)
    consumer.take(run)
    run.push("a", rows("a", 400, 1))
    consumer.take(run)
    folder.kill(random.Random(0))
    again = folder.start(q)
    again.push("a", rows("a", 400, 1))
    consumer.take(again)
    assert len(consumer.rows["rows"]) > 800
