"""Checkpoints of a run that are made while rows come are of the moment when they were due."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.engine.state import background_copy, delta
from medusa.engine.state.checkpoint import Checkpoints
from medusa.runtime.embedded.run import Run
from tests.engine.durable import Folder, JobsByHand

KEYS = 300


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 64)


class Made:
    """A run with sums of many keys, of which a checkpoint falls due every second."""

    def __init__(self, patience: int = 10**9, *, order: bool = False) -> None:
        self.q = md.Query("sums")
        self.s = self.q.source("s", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack=0)
        self.q.sink("o", self.s.window("1 h").group_by("k").aggregate(n=md.count(), name="sums"))
        if order:
            t = self.q.source("t", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack=0)
            self.q.sink("both", self.s.union(t))
        self.folder = Folder(checkpoint_every_us=1_000_000)
        self.clock = md.testing.ManualClock()
        self.jobs = JobsByHand(lambda: patience)
        self.run = self.folder.start(self.q, clock=self.clock, jobs=self.jobs)
        self.push()
        self.run.checkpoint()

    def push(self, source: str = "s") -> None:
        self.push_to(self.run, source)

    @staticmethod
    def push_to(run: Run, source: str) -> None:
        first = 0 if source == "s" else KEYS
        run.push(source, {"ts": [0] * KEYS, "k": list(range(first, first + KEYS))})

    def begin(self) -> None:
        """One falls due, and only a part of it is copied."""
        self.clock.advance("1s")
        self.push()
        assert self.under_way is not None
        assert not self.under_way[0].copying.done

    def copied(self) -> None:
        """The one under way is copied, but not written."""
        while self.under_way is not None and not self.under_way[0].copying.done:
            self.push()

    @property
    def under_way(self) -> Any:
        return self.run._checkpoints._under_way

    @property
    def names(self) -> list[str]:
        return self.folder.store.names()

    def restored(self) -> Run:
        return self.folder.start(self.q, clock=self.clock, jobs=self.jobs)


def counts(run: Run) -> set[int]:
    run.finish()
    return set(run.take("o")["n"].to_pylist())


def test_it_holds_what_the_run_held_when_it_was_due() -> None:
    made = Made(patience=3)
    made.begin()
    while made.under_way is not None:
        made.push()
    assert made.run.positions()["s"] > 3 * KEYS
    restored = made.restored()
    assert restored.positions() == {"s": 2 * KEYS}
    assert counts(restored) == {2}


def test_all_is_copied_when_the_next_one_is_due_however_few_pushes_there_are() -> None:
    made = Made()
    made.begin()
    begun = made.under_way[0]
    assert begun.copying.left == begun.rows == KEYS
    made.clock.advance("500ms")
    made.push()
    assert 0 < begun.copying.left <= begun.rows - KEYS // 2
    made.clock.advance("500ms")
    made.push()
    assert begun.copying.done


def test_the_one_that_is_written_is_there_before_one_that_was_asked_for() -> None:
    made = Made()
    made.begin()
    made.copied()
    assert made.names == ["checkpoint-000000001"]
    assert made.run.checkpoint() == "checkpoint-000000003"
    assert made.under_way is None


@pytest.mark.parametrize("end", ["checkpoint", "finish", "close", "change", "split"])
def test_a_copy_that_is_not_done_ends_with_what_was_asked_for(end: str) -> None:
    made = Made()
    made.begin()
    if end == "change":
        made.q.sink("all", made.s)
        made.run.change(made.q)
    elif end == "split":
        made.run.split("sums", 2)
    else:
        getattr(made.run, end)()
    assert made.under_way is None
    assert made.names[-1] == "checkpoint-000000002"  # and no other between
    assert Checkpoints(made.folder.store).load()[0]["positions"] == {"s": 2 * KEYS}


def test_a_run_that_is_closed_waits_for_what_is_written() -> None:
    made = Made()
    made.begin()
    made.copied()
    made.run.close()
    assert Checkpoints(made.folder.store).load()[0]["name"] == "checkpoint-000000003"


def test_one_that_cant_be_written_warns_and_the_next_is_whole() -> None:
    made = Made()
    made.begin()
    made.copied()
    made.folder.store.fails = lambda: True
    made.clock.advance("1s")
    with pytest.warns(md.CheckpointWarning, match="the disk is full"):
        made.run.finish()
    made.folder.store.fails = lambda: False
    assert made.names == ["checkpoint-000000001"]
    made.run.take("o")
    made.run.checkpoint()
    with made.restored() as restored:
        assert restored.positions() == made.run.positions()


def test_a_copy_without_memory_warns_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(patience=2)
    made.begin()
    with monkeypatch.context() as patch:

        def none(self: object, rows: int | None = None) -> bool:
            raise MemoryError("no room for a copy")

        patch.setattr(background_copy.BackgroundCopy, "step", none)
        with pytest.warns(md.CheckpointWarning, match="no room for a copy"):
            made.push()
    assert made.under_way is None
    made.begin()
    while made.under_way is not None:
        made.push()
    assert len(made.names) == 2


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_decided_meanwhile_is_in_the_log_behind_it(durable: bool) -> None:
    made = Made(order=True)
    made.begin()
    made.push("t")
    made.copied()
    if durable:
        made.under_way[1].result()
        made.push()
        assert made.under_way is None
    taken = made.run.take("both")["k"].to_pylist()  # they leave, so their order is decided
    restored, pushed = made.restored(), made.run.positions()
    assert restored.positions() == {"s": 2 * KEYS if durable else KEYS, "t": 0}
    for source in ("s", "t"):  # in another order than before
        while restored.positions()[source] < pushed[source]:
            made.push_to(restored, source)
    assert restored.take("both")["k"].to_pylist() == taken


def test_where_decisions_cant_be_logged_it_is_made_at_once() -> None:
    """Rows that depend on them can't leave before it is there."""
    made = Made(order=True)
    made.push("t")
    made.folder.journal.fails = True
    with pytest.raises(md.StateError, match="the disk is full"):
        made.run.take("both")
    made.clock.advance("1s")
    made.push()
    assert made.under_way is None
    assert len(made.names) == 2
    made.folder.journal.fails = False
    assert made.run.take("both").num_rows == 3 * KEYS
