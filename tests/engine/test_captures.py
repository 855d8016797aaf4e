"""What boxes say of their changes: whole checkpoints and deltas give what a whole one of that moment does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
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

KNOWING: dict[str, Callable[[Any], Any]] = {
    "window": lambda s: s.window("20 s").group_by("k").aggregate(**CALLS),
    "window by text": lambda s: s.window("20 s").group_by("s", "k").aggregate(**CALLS),
    "sliding window": lambda s: s.window("21 s", "6 s").group_by("s").aggregate(**CALLS),
    "running": lambda s: s.group_by("s").running(**CALLS),
}
"""Boxes that say it of a table at least."""

ANY = {
    **KNOWING,
    "running that expires": lambda s: s.group_by("s").running(expire="9 s", **CALLS),
    "sessions": lambda s: s.session("4 s").group_by("s").aggregate(**CALLS),
    "windows of rows": lambda s: s.group_by("k").window_rows(7, 3).aggregate(**CALLS),
    "sets": lambda s: s.window("20 s").group_by("k").aggregate(n=md.count_distinct("s"), m=md.median("v")),
    "no keys": lambda s: s.window("20 s").aggregate(**CALLS),
    "join": lambda s: s.join(s.select("k", w="v"), on="k", within="5 s"),
    "asof join": lambda s: s.asof_join(s.select("k", w="v"), on="k", within="9 s"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 8)
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
    ("kind", "threads"), [*((kind, 1) for kind in ANY), ("sliding window", 2), ("join", 2)]
)
@given(steps=st.lists(STEPS, min_size=4, max_size=24), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_a_whole_one_and_its_deltas_make_the_state_of_that_moment(
    kind: str, threads: int, steps: list[tuple[int, int, int, str]], seed: int
) -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    now = 100
    with started(ANY[kind], threads) as run:
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
        (name,) = (each for each in known.whole if ".groups" in each)
        assert name in files
        known, files = capture()
        assert name in known.same
        assert not any(".groups" in each for each in files)
        push(run, 2, 100, 1, 400)
        known, files = capture()
        assert name in known.changed
        fresh = read_table(files[delta.part_names(name)[0]])
        assert fresh.num_rows == 1
        push(run, 3, 100, 2000, 400)  # most: whole
        known, files = capture()
        assert name in known.whole


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


def test_changes_stay_known_while_the_disk_is_full() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    with started(KNOWING["window"]) as run:
        fragment = run._fragment
        push(run, 1, 100, 900, 400)
        copying = fragment.captured(checkpoints.capture())
        checkpoints.save(copying.files(), {}, copying.known())
        for turn in range(12):
            push(run, turn, 100, 3, 400)
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
