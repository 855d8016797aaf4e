"""What boxes say of their changes: whole checkpoints and deltas give what a whole one of that moment does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows import groups
from medusa.engine.operators.windows.groups import Groups
from medusa.engine.state import background_copy, delta
from medusa.engine.state.capture import Capture, Known
from medusa.engine.state.checkpoint import Checkpoints
from medusa.engine.state.delta import read_table
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.sim.world.disk import Disk

SECRET = (3, 5)
COLUMNS = {"ts": "int64", "k": "int64", "s": "utf8", "v": "float64"}
CALLS: dict[str, Any] = {"n": md.count(), "total": "sum(v)", "high": "max(v)", "at": "last(v)"}


@md.register("test.captures.Tally")
class Tally:
    """Of each key how many rows, the last text; some keys forget themselves, and some wake up."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> dict[str, Any] | None:
        if key is not None and key % 11 == 0 and (state.n or 0) > 3:
            state.clear()
            return None
        state.n = (state.n or 0) + batch.num_rows
        state.text = batch.column("s")[-1].as_py()
        if state.n % 4 == 0:
            state.wake_at(now + 2_000_000)
        return {"key": [key], "n": [state.n], "text": [state.text]}

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        state.n = 0
        return {"key": [key], "n": [-1], "text": [state.text]}


def process(s: Any) -> Any:
    fields = {"n": "int64", "text": "utf8"}
    return s.process(Tally, {"key": "int64", **fields}, by="k", state=fields)


def accounts(s: Any, expire: str | None = None) -> Any:
    """A table whose rows come, change, go, and a look-up that follows it."""
    schema = {"k": "int64", "n": "int32", "total": "float64", "text": "utf8", "odd": "bool"}
    table = s.query.table("accounts", key="k", schema=schema, expire=expire)
    values = {"n": "CAST(table.n + 1 AS int32)", "total": "table.total + v", "text": "s", "odd": "v > 20"}
    s.filter("k % 3 > 0 OR v < 30").update(table, set=values, insert={"n": "CAST(1 AS int32)", "total": "v"})
    s.filter("k % 7 = 1 AND v > 9").delete(table)
    return s.lookup(table)


KNOWING: dict[str, Callable[[Any], Any]] = {
    "window": lambda s: s.window("20 s").group_by("k").aggregate(**CALLS),
    "window by text": lambda s: s.window("20 s").group_by("s", "k").aggregate(**CALLS),
    "sliding window": lambda s: s.window("21 s", "6 s").group_by("s").aggregate(**CALLS),
    "running": lambda s: s.group_by("s").running(**CALLS),
    "lag": lambda s: s.group_by("s").running(before=md.lag("s"), third=md.lag("v", 3), total="sum(v)"),
    "sessions": lambda s: s.session("4 s").group_by("s").aggregate(**CALLS),
    "windows of rows": lambda s: s.group_by("k").window_rows(7).aggregate(**CALLS),
    "join": lambda s: s.join(s.select("k", w="v"), on="k", within="5 s"),
    "running that expires": lambda s: s.group_by("s").running(expire="9 s", **CALLS),
}
"""Boxes that say it of all their tables, which a row changes when it comes."""

SLOTTED: dict[str, Callable[[Any], Any]] = {
    "distinct": lambda s: s.distinct("s", "k", within="6 s"),
    "table": accounts,
    "process": process,
}
"""Boxes that say it of their keys, which rows change when their time has passed."""

ANY = {
    **KNOWING,
    **SLOTTED,
    "lag that expires": lambda s: s.group_by("s").running(expire="9 s", before=md.lag("s")),
    "table that expires": lambda s: accounts(s, "6 s"),
    "sessions without keys": lambda s: s.session("2 s").aggregate(**CALLS),
    "windows of rows that overlap": lambda s: s.group_by("s").window_rows(7, 3).aggregate(**CALLS),
    "windows of values": lambda s: s.group_by("k").window_values("ts", 5, 2).aggregate(**CALLS),
    "sets": lambda s: s.window("20 s").group_by("k").aggregate(n=md.count_distinct("s"), m=md.median("v")),
    "no keys": lambda s: s.window("20 s").aggregate(**CALLS),
    "left join": lambda s: s.join(s.filter("v > 9").select("k", w="s"), on="k", within="5 s", how="left"),
    "semi join": lambda s: s.join(s.filter("v > 9").select("k", w="s"), on="k", within="5 s", how="semi"),
    "asof join": lambda s: s.asof_join(s.select("k", w="v"), on="k", within="9 s"),
}


ALL = {**ANY, "early": lambda s: s.window("20 s").group_by("k").aggregate(early="3 s", **CALLS)}
"""Also those of which early results come otherwise after a restore."""

THREADED = ("window", "sliding window", "early", "join", "left join", "semi join", "asof join")
"""Kinds that several threads share."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 8)
    monkeypatch.setattr(groups, "LEFT_MOST", 5)
    for spare in ("joins.distinct.KEYS_SPARE", "windows.running.SPARE"):
        monkeypatch.setattr(f"medusa.engine.operators.{spare}", 10)
    monkeypatch.setattr("medusa.engine.core.keyed_table.SLOTS_SPARE", 10)
    monkeypatch.setattr("medusa.engine.udf.key_states.SPARE", 10)
    monkeypatch.setattr("medusa.engine.state.checkpoint.FULL_BYTES_MIN", 0)


def started(shape: Callable[[Any], Any], threads: int = 1) -> Any:
    q = md.Query("q")
    q.sink("o", shape(q.source("s", COLUMNS, time="ts", unit="s", slack="3 s")))
    return md.start(q, threads=threads)


def push(run: Any, seed: int, now: int, rows: int, keys: int) -> None:
    draw = np.random.default_rng(seed)
    k = draw.integers(0, keys, rows)
    texts = [None if key % 7 == 0 else f"key {key}" for key in k.tolist()]
    run.push("s", {"ts": now + draw.integers(0, 3, rows), "k": k, "s": texts, "v": k * 0.5 + seed})
    run.take("o")


def same(found: Mapping[str, Buffer], wanted: Mapping[str, Buffer]) -> bool:
    """Every table bit for bit, and what stands beside it."""
    return found.keys() == wanted.keys() and all(
        read_table(found[name]).equals(read_table(data), check_metadata=True)
        if name.endswith(".arrow")
        else json.loads(bytes(found[name])) == json.loads(bytes(data))
        for name, data in wanted.items()
    )


STEPS = st.tuples(
    st.integers(0, 60),  # rows
    st.sampled_from([1, 5, 40, 300]),  # keys
    st.integers(0, 8),  # seconds that pass
    st.sampled_from(["nothing", "write", "write", "fail", "pieces", "pieces"]),
)


@pytest.mark.parametrize(
    ("kind", "threads"),
    [*((kind, 1) for kind in ALL), *((kind, n) for kind in THREADED for n in (2, 4))],
)
@given(steps=st.lists(STEPS, min_size=4, max_size=24), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_a_whole_one_and_its_deltas_make_the_state_of_that_moment(
    kind: str, threads: int, steps: list[tuple[int, int, int, str]], seed: int
) -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    now = 100
    with started(ALL[kind], threads) as run:
        fragment = run._fragment
        push(run, seed, now, 300, 300)
        for step, (rows, keys, passed, what) in enumerate(steps):
            push(run, seed + step, now := now + passed, rows, keys)
            if what == "nothing":
                continue
            wanted = fragment.snapshot()
            copying = fragment.captured(checkpoints.capture(), patient=what == "pieces")
            while what == "pieces" and not copying.step(70):
                push(run, seed + step + 1000, now := now + passed % 2, 20, keys)
            if what == "fail":
                disk.fail_next = 1
                with pytest.raises(StateError):
                    checkpoints.save(copying.files(), {}, copying.known())
                continue
            checkpoints.save(copying.files(), {}, copying.known())
            assert same(Checkpoints(disk).load()[1], wanted)


def rows_after(fragment: Any, seed: int, now: int, keys: int) -> list[dict[str, Any]]:
    """What comes of the same rows and the end."""
    for step in range(4):
        draw = np.random.default_rng(seed + step)
        k = draw.integers(0, keys, 40)
        columns = {"ts": now + 2 * step + draw.integers(0, 3, 40), "k": k}
        columns |= {"s": pa.array([f"key {key}" for key in k.tolist()]), "v": k * 0.5 + step}
        batch = pa.record_batch({name: pa.array(columns[name]) for name in COLUMNS})
        fragment.push_rows("s", [batch], fragment.check_rows("s", [batch]))
    fragment.finish()
    trains = [element for element in fragment.drain("o") if isinstance(element, Train)]
    return [row for train in trains for row in train.batch.to_pylist()]


@pytest.mark.parametrize("kind", ANY)
@given(steps=st.lists(STEPS, min_size=4, max_size=16), seed=st.integers(0, 99))
@settings(max_examples=4, deadline=None)
def test_what_goes_on_from_a_chain_goes_on_as_what_never_stopped(
    kind: str, steps: list[tuple[int, int, int, str]], seed: int
) -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    now = 100
    q = md.Query("q")
    q.sink("o", ANY[kind](q.source("s", COLUMNS, time="ts", unit="s", slack="3 s")))
    with md.start(q) as run, md.start(q) as never_captured:
        for step, (rows, keys, passed, what) in enumerate([*steps, (50, 40, 1, "last")]):
            now += passed
            for each in (run, never_captured):
                push(each, seed + step, now, rows, keys)
            if what == "nothing":
                continue
            copying = run._fragment.captured(checkpoints.capture(), patient=what != "last")
            while not copying.step(70):
                now += passed % 2
                for each in (run, never_captured):
                    push(each, seed + step + 1000, now, 20, keys)
            checkpoints.save(copying.files(), {}, copying.known())
        restored = Fragment.restore(q.graph, Checkpoints(disk).load()[1])
        wanted = rows_after(never_captured._fragment, seed, now, 60)
        assert rows_after(restored, seed, now, 60) == wanted
        assert rows_after(run._fragment, seed, now, 60) == wanted


@pytest.mark.parametrize("kind", KNOWING)
def test_a_delta_has_what_changed_and_compares_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(Disk("here"), secret=SECRET)
    with started(KNOWING[kind]) as run:
        fragment = run._fragment

        def capture() -> tuple[Known, dict[str, Buffer]]:
            copying = fragment.captured(checkpoints.capture())
            files, known = copying.files(), copying.known()
            checkpoints.save(files, {}, known)
            return known, files

        push(run, 1, 100, 2000, 400)
        known, files = capture()
        names = {name for name in known.whole if not name.startswith("o.")}
        assert names
        assert names == {name for name in files if name.endswith(".arrow") and not name.startswith("o.")}
        known, files = capture()
        assert known.same == names
        assert not names & files.keys()
        push(run, 2, 100, 1, 400)
        known, files = capture()
        assert known.changed.keys() | known.same == names
        assert known.changed
        for name in known.changed:
            assert read_table(files[delta.part_names(name)[0]]).num_rows <= 3  # as deep as ``lag`` looks
        push(run, 3, 100, 5000, 400)  # most: whole
        known, files = capture()
        assert known.whole == names - known.changed.keys() - known.same
        assert known.whole


@pytest.mark.parametrize("kind", SLOTTED)
def test_a_delta_has_the_keys_that_changed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.engine.operators.joins.distinct.KEYS_SPARE", 1000)  # none is forgotten
    checkpoints = Checkpoints(Disk("here"), secret=SECRET)
    with started(SLOTTED[kind]) as run:

        def capture() -> tuple[Known, dict[str, Buffer]]:
            copying = run._fragment.captured(checkpoints.capture())
            files, known = copying.files(), copying.known()
            checkpoints.save(files, {}, known)
            return known, files

        def feed(keys: list[int], now: int) -> None:
            run.push("s", {"ts": [now] * len(keys), "k": keys, "s": [f"key {k}" for k in keys], "v": keys})
            run.push("s", {"ts": [now + 4], "k": [1], "s": ["later"], "v": [0.0]})
            run.take("o")

        feed(list(range(400)), 100)
        known, _ = capture()
        names = set(known.whole)
        assert len(names) == (2 if kind == "table" else 1)  # the look-up has a copy
        known, files = capture()
        assert known.same == names
        assert not names & files.keys()
        feed([4, 200], 120)  # beyond the period of ``distinct``
        known, files = capture()
        assert known.changed.keys() == names
        for name in names:  # and the row that made time pass before
            assert read_table(files[delta.part_names(name)[0]]).num_rows == 3
        feed(list(range(400)), 140)
        known, _ = capture()
        assert known.whole == names


@pytest.mark.parametrize("kind", ["sessions", "windows of rows"])
def test_groups_that_leave_cost_nothing(kind: str) -> None:
    """However many have left and wait to be freed, what stays is known."""
    checkpoints = Checkpoints(Disk("here"), secret=SECRET)
    with started(KNOWING[kind]) as run:
        fragment = run._fragment

        def capture() -> Known:
            copying = fragment.captured(checkpoints.capture())
            checkpoints.save(copying.files(), {}, copying.known())
            return copying.known()

        def touch(keys: range, now: int, times: int = 1) -> None:
            k = np.repeat(np.arange(keys.start, keys.stop), times)
            run.push(
                "s", {"ts": np.full(len(k), now), "k": k, "s": [f"key {key}" for key in k], "v": k * 1.0}
            )
            run.take("o")

        touch(range(3000), 100)
        if kind == "sessions":
            touch(range(500, 3000), 105)
            capture()
            touch(range(2900, 3000), 110)  # the first 500 end
            left = 2600
        else:
            capture()
            touch(range(500), 101, 6)
            left = 2500
        known = capture()
        groups = next(name for name in known.changed if ".groups." in name)
        assert known.changed[groups] == left
        assert read_table(fragment.snapshot()[groups]).num_rows == left


def test_a_capture_of_another_run_is_whole() -> None:
    first, other = (Checkpoints(Disk(name), secret=SECRET) for name in ("here", "there"))
    with started(KNOWING["window"]) as run, started(KNOWING["window"]) as beside:
        for each in (run, beside):
            push(each, 1, 100, 500, 300)
        copying = run._fragment.captured(first.capture())
        first.save(copying.files(), {}, copying.known())
        capture = first.capture()
        assert capture is not None
        assert capture.base
        known = beside._fragment.captured(capture).known()
        assert known.whole
        assert not known.partial
        # And of the same one, for another folder: that one has nothing it could stand on.
        capture = other.capture()
        assert capture is not None
        assert not capture.base
        assert not run._fragment.captured(capture).known().partial


@pytest.mark.parametrize("kind", KNOWING)
def test_changes_stay_known_while_the_disk_is_full(kind: str) -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    with started(KNOWING[kind]) as run:
        fragment = run._fragment
        push(run, 1, 100, 900, 400)
        copying = fragment.captured(checkpoints.capture())
        checkpoints.save(copying.files(), {}, copying.known())
        for turn in range(12):
            push(run, turn, 100 + turn // 4, 3, 400)
            wanted = fragment.snapshot()
            copying = fragment.captured(checkpoints.capture())
            assert copying.known().changed  # however many failed
            disk.fail_next = turn < 11
            if turn < 11:
                with pytest.raises(StateError):
                    checkpoints.save(copying.files(), {}, copying.known())
        checkpoints.save(copying.files(), {}, copying.known())
        assert same(Checkpoints(disk).load()[1], wanted)


def test_a_base_that_is_not_the_one_it_was_written_after_is_refused() -> None:
    disks = []
    for turns in (3, 5):
        disk = Disk("here")
        checkpoints = Checkpoints(disk, secret=SECRET)
        with started(KNOWING["window"]) as run:
            push(run, 1, 100, 900, 400)
            for turn in range(3):
                copying = run._fragment.captured(checkpoints.capture())
                checkpoints.save(copying.files(), {}, copying.known())
                push(run, turns * (turn + 1), 100, 5, 400)
        disks.append(disk)
    names = disks[0].names()
    disks[0]._groups[names[1]] = disks[1]._groups[names[1]]
    with pytest.raises(StateError, match=f"{names[1]} is not the one that .*{names[2]} was written after"):
        Checkpoints(disks[0]).load()


def test_numbers_never_come_again() -> None:
    one, two = (Checkpoints(Disk("here"), secret=SECRET).capture() for _ in range(2))
    assert isinstance(one, Capture)
    assert isinstance(two, Capture)
    assert one.number < two.number


def test_windows_of_rows_take_panes_in_any_order_and_those_of_format_1() -> None:
    """Format 1 had them key by key; now they stand as they came to be, in places that are used again."""
    shape = ANY["windows of rows that overlap"]
    q = md.Query("q")
    q.sink("o", shape(q.source("s", COLUMNS, time="ts", unit="s", slack="3 s")))
    with md.start(q) as run:
        for seed in range(6):
            push(run, seed, 100 + seed, 400, 300)
        files = run._fragment.snapshot()
        document = json.loads(bytes(files["fragment.json"]))
        (id,) = (id for id, box in document["boxes"].items() if box["kind"] == "window_rows")
        assert document["boxes"][id]["format"] == 2
        panes = read_table(files[f"{id}.panes.arrow"])
        by_key = panes.sort_by([("key", "ascending"), ("position", "ascending")])
        assert not by_key.equals(panes)
        document["boxes"][id]["format"] = 1
        old = {
            **files,
            "fragment.json": json.dumps(document).encode(),
            f"{id}.panes.arrow": delta.write_table(by_key),
        }
        restored = [Fragment.restore(q.graph, each) for each in (files, old)]
        wanted = rows_after(run._fragment, 9, 110, 300)
        assert len(wanted) > 20
        for each in restored:
            assert rows_after(each, 9, 110, 300) == wanted


def test_sessions_that_close_one_by_one_are_few_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be an array until the next checkpoint, which looks at all of them in its pause."""
    arrays: list[int] = []
    leave = Groups.leave

    def counted(groups: Groups, slots: Any) -> None:
        leave(groups, slots)
        arrays.append(len(groups._left))

    monkeypatch.setattr(Groups, "leave", counted)
    q = md.Query("q")
    q.sink("o", KNOWING["sessions"](q.source("s", COLUMNS, time="ts", unit="s")))
    with md.start(q) as run:
        for turn in range(300):
            push(run, turn, 100 + 10 * turn, 1, 300)
        assert len(arrays) > 250
        assert max(arrays) < 10
        restored = Fragment.restore(q.graph, run._fragment.snapshot())
        wanted = rows_after(run._fragment, 9, 4000, 300)
        assert rows_after(restored, 9, 4000, 300) == wanted


def test_what_has_left_is_not_all_looked_up_when_a_capture_begins() -> None:
    """However many left since the last one: the store is told of them as they leave."""
    with started(KNOWING["sessions"]) as run:
        box = next(each for each in run._fragment.boxes.values() if hasattr(each, "_groups"))
        for step in range(20):
            push(run, step, 100 + 10 * step, 300, 60)
            if step == 3:
                run._fragment.captured(Capture(1, 0))
            if step >= 4:
                assert sum(len(slots) for slots in box._groups._left) < 2 * groups.LEFT_MOST
