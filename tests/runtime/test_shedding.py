"""Shedding in runs with an input queue: what is counted, tapped and told, and when nothing is shed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md

LONG_S = 20


class Ticking:
    """A clock that moves by a millisecond whenever somebody looks: work takes time without waiting for it."""

    def __init__(self) -> None:
        self._us = 0
        self._lock = threading.Lock()

    def monotonic_us(self) -> int:
        with self._lock:
            self._us += 1000
            return self._us

    now_us = monotonic_us


def query(latency: Any = (("100ms", 1), ("1s", 0))) -> md.Query:
    q = md.Query("roads")
    s = q.source("s", {"ts": "timestamp", "x": "int64"}, time="ts", slack=0)
    qos = None if latency is None else md.QoS(latency=latency, value=("x", [(0, 0), (100_000, 1)]))
    q.sink("o", s.filter("x >= 0", name="f"), qos=qos)
    q.sink("w", s.window(1000).aggregate(n=md.count(), name="n"), qos=qos and md.QoS(loss=[(100, 1), (0, 0)]))
    return q


def rows(start: int, count: int = 100) -> pa.RecordBatch:
    at = range(start, start + count)
    return pa.record_batch({"ts": pa.array(at, pa.timestamp("us", "UTC")), "x": pa.array(at, pa.int64())})


PUSHES = 400


def flood(run: Any) -> None:
    """Let everything wait before the thread of the run has a chance to work on it."""
    inside, go_on = threading.Event(), threading.Event()

    def hold(table: pa.Table) -> None:
        inside.set()
        assert go_on.wait(LONG_S)

    run.on("o", hold)
    run.push("s", rows(0))
    assert inside.wait(LONG_S)
    for n in range(1, PUSHES):
        run.push("s", rows(100 * n))
    go_on.set()
    run.finish()


def figures(run: Any) -> dict[str, dict[str, Any]]:
    return {each["box"]: each for each in run.stats().to_pylist()}


def test_every_row_is_out_or_counted_and_tapped() -> None:
    with md.start(query(), queue="64 MiB", clock=Ticking()) as run:
        out: list[int] = []
        gone: dict[str, list[int]] = {}
        run.on("o", lambda table: out.extend(table.column("x").to_pylist()))
        places = run.shedding().to_pylist()
        assert [(each["box"], each["how"]) for each in places] == [
            ("s", "windows"),
            ("f", "value"),
            ("n", "windows"),
        ]
        for each in places:
            gone[each["box"]] = []
            run.on_shed(each["box"], lambda table, box=each["box"]: gone[box].extend(table["x"].to_pylist()))
        flood(run)
        stats = figures(run)
        pushed = 100 * PUSHES
        assert sum(map(len, gone.values())) > 0
        assert sorted(out + gone["s"] + gone["f"]) == list(range(pushed))
        counted = sum(run.take("w").column("n").to_pylist())
        assert counted + len(gone["s"]) + len(gone["n"]) == pushed
        for box in ("s", "f", "n"):
            assert stats[box]["shed"] == len(gone[box])
        assert stats["o"]["shed"] == len(gone["s"]) + len(gone["f"])
        assert stats["w"]["shed"] == len(gone["s"]) + len(gone["n"])
        assert {each["box"]: each["shed"] for each in run.shedding().to_pylist()} == {
            box: len(rows) for box, rows in gone.items()
        }
        qos = {each["sink"]: each for each in run.qos().to_pylist()}
        assert set(qos) == {"o", "w"}


@pytest.mark.parametrize("without", ["quality of service", "a queue"])
def test_nothing_is_shed_that_nobody_allowed(without: str) -> None:
    options: dict[str, Any] = {"queue": "64 MiB"} if without != "a queue" else {}
    q = query(None) if without == "quality of service" else query()
    with md.start(q, clock=Ticking(), **options) as run:
        for n in range(PUSHES):
            run.push("s", rows(100 * n))
        run.finish()
        assert run.take("o").num_rows == 100 * PUSHES
        assert run.shedding().num_rows == 0
        assert run.shedding().schema.names == ["box", "how", "sinks", "share", "seen", "shed"]
        with pytest.raises(md.DataError, match="nothing is ever shed at 's'"):
            run.on_shed("s", print)


def test_a_tap_is_at_a_place() -> None:
    with (
        md.start(query(), queue="1 MiB") as run,
        pytest.raises(md.DataError, match="nothing is ever shed at 'g'") as caught,
    ):
        run.on_shed("g", print)
    assert "f" in caught.value.hint


def test_what_a_tap_that_raises_was_given_comes_again() -> None:
    seen: list[int] = []

    def call(table: pa.Table) -> None:
        seen.append(table.num_rows)
        if len(seen) == 1:
            raise RuntimeError("full disk")

    with md.start(query(), queue="64 MiB", clock=Ticking()) as run:
        run.on_shed("s", call)
        with pytest.raises(RuntimeError, match="full disk"):
            flood(run)
        run.finish()
        assert sum(seen) - seen[0] == figures(run)["s"]["shed"]


def test_a_changed_query_sheds_at_its_own_places() -> None:
    with md.start(query(), queue="64 MiB", clock=Ticking()) as run:
        flood_before = [each["box"] for each in run.shedding().to_pylist()]
        q = query()
        q.sink("more", q.stream("f").filter("x > 5", name="g"), qos=md.QoS(loss=[(100, 1), (0, 0)]))
        run.push("s", rows(0))
        run.change(q)
        run.push("s", rows(100))
        run.flush()
        places = {each["box"]: each["seen"] for each in run.shedding().to_pylist()}
        boxes = list(places)
        assert (places["n"], places["o"]) == (200, 100), "a place that stays goes on counting"
        assert flood_before == ["s", "f", "n"]
        assert boxes == ["s", "f", "n", "o", "g"]


def test_a_restored_run_leaves_out_the_same_rows(tmp_path: Path) -> None:
    """As a process leaves its folder that is killed after a take, before its next checkpoint."""
    options: dict[str, Any] = {"checkpoint_every": None, "queue": "64 MiB", "clock": Ticking()}
    with md.start(query(), checkpoint=tmp_path / "s", **options) as run:
        run.checkpoint()
        out: list[int] = []
        run.on("o", lambda table: out.extend(table["x"].to_pylist()))
        flood(run)
        windows = run.take("w")
        shed = {box: each["shed"] for box, each in figures(run).items()}
        places = run.shedding()
        assert shed["s"]
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
    with md.restore(tmp_path / "killed", clock=Ticking()) as run:
        told: list[int] = []
        run.on_shed("s", lambda table: told.extend(table["x"].to_pylist()))
        while (at := run.positions()["s"]) < 100 * PUSHES:  # cut otherwise
            run.push("s", rows(at, min(777, 100 * PUSHES - at)), first=at)
        run.flush()
        assert run.take("o")["x"].to_pylist() == out
        assert run.take("w") == windows
        assert {box: each["shed"] for box, each in figures(run).items()} == shed
        assert run.shedding() == places
        assert len(told) == shed["s"]


# -- at the budget of state --------------------------------------------------------------------------

BUDGET = 256 << 10


def keyed(*, qos: bool = True) -> md.Query:
    """Windows of more keys than there is room for, and rows that shall all come."""
    q = md.Query("many")
    s = q.source("s", {"ts": "timestamp", "x": "int64"}, time="ts", slack=0)
    loss = md.QoS(loss=[(100, 1), (0, 0)])
    windows = s.window(1000).group_by("x").aggregate(n=md.count(), s=md.sum("x"), name="n")
    q.sink("w", windows, qos=loss if qos else None)
    q.sink("o", s.filter("x >= 0", name="f"), qos=loss)
    return q


def crowd(second: int, keys: int) -> pa.RecordBatch:
    """A window of so many keys."""
    at = [second * 1000 + n * 1000 // keys for n in range(keys)]
    return pa.record_batch(
        {"ts": pa.array(at, pa.timestamp("us", "UTC")), "x": pa.array(range(keys), pa.int64())}
    )


@pytest.mark.parametrize("durable", [False, True])
def test_at_the_budget_of_state_rows_are_left_out_until_windows_have_closed(
    durable: bool, tmp_path: Path
) -> None:
    """Few keys, then far too many for a while, then few: all is counted, exact or absent, and comes again."""
    pushes = [(n, 12_000 if n % 12 in (6, 8) else 50) for n in range(27)]
    options: dict[str, Any] = {"queue": "64 MiB", "clock": md.testing.ManualClock(), "at_limit": "shed"}
    if durable:
        options |= {"checkpoint": tmp_path / "s", "checkpoint_every": None}
    with md.start(keyed()) as plain, md.start(keyed(), state_budget=BUDGET, **options) as run:
        if durable:
            run.checkpoint()
        gone: list[int] = []
        run.on_shed("n", lambda table: gone.extend(table["x"].to_pylist()))
        most = most_plain = 0
        for second, keys in pushes:
            for start in range(0, keys, 1000):
                rows_now = crowd(second, keys).slice(start, 1000)
                for each in (plain, run):
                    each.push("s", rows_now)
                run.flush()
                most, most_plain = max(most, run.memory().state), max(most_plain, plain.memory().state)
        taken = run.take("w")
        assert taken.num_rows, "windows of few keys leave"
        if durable:
            shutil.copytree(tmp_path / "s", tmp_path / "killed")
        run.finish()
        plain.finish()
        assert most < BUDGET * 3 // 2 < most_plain // 2, "above it no more than a push brings"
        left = pa.concat_tables([taken, run.take("w")])
        exact = plain.take("w").to_pylist()
        starts = set(left["window_start"].to_pylist())
        assert [row for row in exact if row["window_start"] in starts] == left.to_pylist()
        kept = {start.microsecond // 1000 for start in starts}
        # The rows of 7 and 9 come in the push that closes the window before, when it is still there.
        assert kept == set(range(27)) - {6, 7, 8, 9, 18, 19, 20, 21}
        assert run.take("o") == plain.take("o"), "what harms nobody is left out: only the windows' rows"
        stats = figures(run)
        assert stats["n"]["shed"] == stats["w"]["shed"] == len(gone) > 0
        assert stats["n"]["rows_in"] + len(gone) == sum(keys for _, keys in pushes)
        assert stats["s"]["shed"] == stats["o"]["shed"] == 0
    if not durable:
        return
    with md.restore(tmp_path / "killed", clock=md.testing.ManualClock()) as run:
        for second, keys in pushes:
            run.push("s", crowd(second, keys))
        run.flush()
        assert run.take("w") == taken


def test_a_run_that_could_not_shed_at_its_budget_is_refused(tmp_path: Path) -> None:
    good: dict[str, Any] = {"queue": "1 MiB", "state_budget": "1 MiB", "at_limit": "shed"}
    several = keyed()
    several.sink("all", several.stream("n"))  # without quality of service
    sorts = keyed()
    sorts.sink("b", sorts.stream("s").bsort("x", slack=3, name="sorted"), qos=md.QoS(loss=[(100, 1), (0, 0)]))
    plain = md.Query("plain")
    plain.sink("o", plain.source("s", {"x": "int64"}, time=None))
    for q, options, says in [
        (keyed(), {"queue": None}, "without queue="),
        (keyed(), {"state_budget": None}, "without state_budget="),
        (plain, {}, "no sink says what its output is worth"),
        (keyed(qos=False), {}, "aggregate 'n' keeps state"),
        (several, {}, "aggregate 'n' keeps state"),
        (sorts, {}, "bsort 'sorted' keeps state"),
    ]:
        with pytest.raises(md.QueryError, match=says) as caught:
            md.start(q, **{**good, **options})
        assert caught.value.code == "query.at_limit"
    with md.start(keyed(), checkpoint=tmp_path / "c", **good) as run:
        with pytest.raises(md.QueryError, match="bsort 'sorted' keeps state"):
            run.change(sorts)
        run.change(keyed())
    with pytest.raises(md.QueryError, match="bsort 'sorted' keeps state"):
        md.restore(tmp_path / "c", q=sorts)
