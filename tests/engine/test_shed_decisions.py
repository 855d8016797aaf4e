"""What was left out under overload is left out again after a kill: what was taken never changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import medusa as md
from medusa.engine.recovery.decisions import Entry, Sheds, pack, unpack
from medusa.runtime.embedded.run import Run
from tests.engine.durable import Consumer, Folder
from tests.engine.test_decisions import SCHEMA, SOURCES, TOTAL, do, events_of, left_of, rows, shuffled

LOSS = md.QoS(loss=[(100, 1), (0, 0)])
VALUE = md.QoS(value=("v", [(0, 0), (1_000_000, 1)]))

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")


@pytest.fixture(params=[4, pytest.param(100, marks=[pytest.mark.full, pytest.mark.issue(4)])])
def seeds(request: pytest.FixtureRequest) -> range:
    return range(request.param)


def apart() -> md.Query:
    """By chance, by value and by windows, of sources that each have a log of their own."""
    q = md.Query("apart")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    q.sink("sliding", b.window("7ms", advance="3ms").group_by("k").aggregate(n=md.count()), qos=LOSS)
    q.sink("windows", a.window("10ms").group_by("k").aggregate(n=md.count(), s=md.sum("v")), qos=LOSS)
    q.sink("large", a.filter("k >= 0"), qos=VALUE)
    q.sink("pairs", b.join(c, on="k", within="2ms"), qos=LOSS)
    q.sink("rows", c, qos=LOSS)
    return q


def merged() -> md.Query:
    """Places where rows of several sources come by, one of them twice."""
    q = md.Query("merged")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    both = a.filter("k > 0").union(a.filter("k < 1"), b, name="both")
    q.sink("rows", both, qos=LOSS)
    q.sink("large", both.filter("k >= 0"), qos=VALUE)
    q.sink("pairs", b.join(c, on="k", within="2ms", name="pair"), qos=LOSS)
    q.sink("some", q.stream("pair").filter("k > 0"), qos=LOSS)
    q.sink("kept", c.filter("k > 1"))
    return q


def joined() -> md.Query:
    """Places below a join: no order shows but in what is dropped there."""
    q = md.Query("joined")
    a, b, c = (q.source(name, SCHEMA, slack="2ms") for name in SOURCES)
    pairs = b.join(c, on="k", within="4ms", name="pair")
    q.sink("pairs", pairs, qos=LOSS)
    q.sink("some", pairs.filter("k > 0"), qos=LOSS)
    q.sink("kept", a)
    return q


def decide(run: Run, rng: random.Random) -> None:
    drops = run._fragment.drops
    assert drops is not None
    if not run._fragment.replays:
        drops.decide([rng.choice([0.0, 0.3, 0.5, 0.8, 1.0]) for _ in drops.valves])


def accounted(run: Run) -> dict[str, dict[str, Any]]:
    return {each["box"]: each for each in run.stats().to_pylist()}


@pytest.mark.parametrize("build", [apart, merged, joined])
def test_what_was_taken_comes_again_unchanged(build: Callable[[], md.Query], seeds: range) -> None:
    again = 0
    for seed in seeds:
        rng = random.Random(seed)
        folder, q = Folder(queue_bytes=1 << 20), build()
        consumer = Consumer(q.sinks)
        run = folder.start(q)
        for life in range(4):
            events = events_of(rng) if rng.random() < 0.5 else shuffled(rng)
            for _ in range(6):
                events.insert(rng.randrange(len(events)), ("shed",))
            events.insert(rng.randrange(len(events)), ("checkpoint",))
            stop = len(events) if life == 3 else rng.randrange(len(events) // 2, len(events))
            for event in events[:stop]:
                try:
                    decide(run, rng) if event[0] == "shed" else do(run, consumer, event)
                except (md.DataError, md.StateError) as error:
                    if error.code not in ("data.boundary", "state.replay"):
                        raise
            if life < 3:
                consumer.take(run)
                folder.kill(rng)
                run = folder.start(q)
                again += sum(isinstance(each, Sheds) for each in left_of(run))
        for name, at in run.positions().items():
            if at < TOTAL:
                run.push(name, rows(name, at, TOTAL - at))
        run.finish()
        consumer.take(run)
        # Nothing is lost between two lives, and the counts go on where they were.
        figures = accounted(run)
        if build is apart:
            assert figures["large"]["shed"] + len(consumer.rows["large"]) == TOTAL
            assert figures["rows"]["shed"] + len(consumer.rows["rows"]) == TOTAL
        elif build is merged:
            assert len(consumer.rows["kept"]) == sum(k > 1 for k in rows("c", 0, TOTAL)["k"].to_pylist())
        drops = run._fragment.drops
        assert drops is not None
        for box in set(drops.boxes) - set(q.sinks):
            assert figures[box]["shed"] == sum(v.shed for v in drops.valves if v.place.box == box)
        for sink in q.sinks:
            assert figures[sink]["shed"] == sum(v.shed for v in drops.valves if sink in v.place.sinks)
            assert figures[sink]["rows_in"] == len(consumer.rows[sink])
    assert again > 10, "no decision was done again, so nothing was shown"


def test_rows_that_are_shed_again_are_told_again(seeds: range) -> None:
    """Nobody who taps misses a row: one that was told before a kill may come again."""
    for seed in seeds:
        rng = random.Random(seed)
        folder, q, told = Folder(queue_bytes=1 << 20), apart(), set[int]()
        consumer, run = Consumer(q.sinks), folder.start(apart())
        for last in (False, True):
            drops = run._fragment.drops
            assert drops is not None
            for box in drops.boxes:
                drops.tap(box, lambda table, told=told: told.update(table["v"].to_pylist()))
            events = shuffled(rng)
            for _ in range(6):
                events.insert(rng.randrange(len(events)), ("shed",))
            events.insert(rng.randrange(len(events)), ("checkpoint",))
            for event in events if last else events[: rng.randrange(len(events))]:
                if event[0] == "shed":
                    decide(run, rng)
                else:
                    do(run, consumer, event)
                    drops.tell()  # as runs do before they end their turn
            if not last:
                folder.kill(rng)
                run = folder.start(q)
        consumer.take(run)
        drops.tell()
        left = {row["v"] for sink in ("large", "rows") for row in consumer.rows[sink]}
        assert {v for name in "ac" for v in rows(name, 0, TOTAL)["v"].to_pylist()} <= told | left


def test_a_log_of_other_places_is_no_log_of_this_query() -> None:
    """Other graphs change no state, but they may change how rows are left out."""
    folder = Folder(queue_bytes=1 << 20)
    run = folder.start(apart())
    run.checkpoint()
    run._fragment.drops.decide([1.0] * len(run._fragment.drops.valves))  # type: ignore[union-attr]
    consumer = Consumer(["rows"])
    run.push("c", rows("c", 0, 3))
    run._fragment.drops.decide([0.0] * len(run._fragment.drops.valves))  # type: ignore[union-attr]
    run.push("c", rows("c", 3, 3))
    consumer.take(run)
    q = apart()
    document = json.loads(q.to_json())
    for box in document["boxes"]:
        if box["kind"] == "sink" and box["id"] == "large":
            box["qos"]["value"][1][1][1] = 0.5
    with pytest.raises(md.StateError, match="about the query before it changed"):
        folder.start(md.Query.from_json(json.dumps(document)))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(share=2.5),
        lambda state: state.update(seen=-1),
        lambda state: state.update(shed=5, seen=4),
        lambda state: state.update(seen=True),
        lambda state: state.pop("share"),
        lambda state: state.update(counts=[1]),
        lambda state: state.update(margin=64),
        lambda state: state.update(part=float("nan")),
        lambda state: state.update(decided=[[1.5, True]]),
        lambda state: state.update(decided=[[1, 1]]),
        lambda state: state.update(decided=7),
        lambda state: state.update(owed="x"),
    ],
)
def test_state_that_nobody_saved_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    run = Folder(queue_bytes=1 << 20).start(apart())
    drops = run._fragment.drops
    assert drops is not None
    state = drops.save()
    refused = 0
    for key, each in state["valves"].items():
        bad = json.loads(json.dumps(each))
        try:
            change(bad)
        except KeyError:
            continue
        if set(bad) - set(each):  # another kind of valve has that
            continue
        with pytest.raises(md.StateError, match="not the state of what is left out"):
            drops.load({"valves": {key: bad}, "screens": {}})
        refused += 1
    assert refused
    for gaps in ([[1.5, 2]], [[2, 1]], [7], {"a": 1}):
        with pytest.raises(md.StateError, match="not the state of what is left out"):
            drops.load({"valves": {}, "screens": dict.fromkeys(drops.screens, gaps)})
    drops.load(json.loads(json.dumps(state)))
    assert drops.save() == state


def test_entries_come_back_as_they_were_written() -> None:
    entry: Entry = Sheds((("a", 7, {"a.>>random>None": 0.25}), ("b", 0, {})))
    [batch], _ = unpack(pack([entry]))
    assert batch.entries == (entry,)
    for bad in (Sheds((("a", -1, {}),)), Sheds((("a", 1, {"x": 2.5}),)), Sheds((("a", 1, {"x": -0.1}),))):
        assert unpack(pack([bad])) == ([], 0)
