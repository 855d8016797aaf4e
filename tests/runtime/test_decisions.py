"""Runs with a decision log in a real folder: restores, damage, a full disk, changed queries."""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.store.journal import FolderJournal

SCHEMA = {"ts": "int64", "v": "int64"}
pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
answers = count()


@md.register("test.runtime.decisions.asked")
async def asked(batch: pa.RecordBatch) -> Any:
    return {"v": batch["v"], "answer": [next(answers)] * batch.num_rows}


def union(*, changed: bool = False) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(each, SCHEMA, time="ts", unit="s") for each in "ab")
    both = a.union(b, name="both")
    q.sink("out", both)
    q.sink("sums", both.running(s=md.max("v") if changed else md.sum("v")))
    return q


def rows(*values: int) -> dict[str, list[int]]:
    return {"ts": list(values), "v": list(values)}


def killed(run: Any, folder: Path, copy: Path) -> Path:
    """The folder as a process leaves it that is killed now."""
    shutil.copytree(folder, copy)
    assert not run.ended
    return copy


def values(run: Any, sink: str = "out", column: str = "v") -> list[int]:
    return list(run.take(sink)[column].to_pylist())


def crashed(tmp_path: Path, q: md.Query | None = None) -> Path:
    """Rows of both sources have been taken; the checkpoint is of the first of them."""
    run = md.start(q or union(), checkpoint=tmp_path / "s", checkpoint_every=None)
    run.push("a", rows(1))
    run.checkpoint()
    run.push("b", rows(2, 3))
    run.push("a", rows(4))
    run.push("b", rows(5))
    assert values(run) == [1, 2, 3, 4, 5]
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    run.close()
    return copy


def test_a_union_takes_its_rows_in_the_same_order(tmp_path: Path) -> None:
    with md.restore(crashed(tmp_path)) as run:
        assert run.positions() == {"a": 1, "b": 0}
        run.push("a", rows(4, 6))  # it was b's turn
        assert values(run) == [1]
        assert "before the restore: push rows 0 to 1 of source 'b'" in run.explain()
        assert run.positions() == {"a": 3, "b": 0}
        run.push("b", rows(2), first=0)
        assert values(run) == [2]
        run.push("b", rows(3, 5, 7))
        assert values(run) == [3, 4, 5, 6, 7]
        run.push("a", rows(8))
        assert values(run) == [8]
        sums = values(run, "sums", "s")
        assert sums[-1] == 36


def test_the_end_waits_for_rows_that_were_taken(tmp_path: Path) -> None:
    with md.restore(crashed(tmp_path)) as run:
        run.push("a", rows(4))
        with pytest.raises(md.StateError, match="haven't come again") as caught:
            run.finish()
        assert caught.value.code == "run.replay"
        assert "rows 0 to 1 of source 'b'" in str(caught.value)
        # A checkpoint of now has what is left of the log.
        run.checkpoint()
    with md.restore(tmp_path / "copy") as run:
        assert run.positions() == {"a": 1, "b": 0}
        run.push("b", rows(2, 3, 5))
        assert run.positions() == {"a": 1, "b": 3}
        run.push("a", rows(4))
        run.finish()
        assert values(run) == [1, 2, 3, 4, 5]


def test_rows_that_wait_too_long_are_refused(tmp_path: Path) -> None:
    q = union()
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None, memory="40 B")
    run.push("b", rows(1))
    assert values(run) == [1]
    assert values(run, "sums", "s") == [1]
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    # The log stands on the checkpoint of the start.
    log = [f"decisions-000000002.{ending}" for ending in ("log", "synced")]
    assert sorted(os.listdir(copy)) == ["begun-000000002.decisions", "checkpoint-000000001", *log, "lock"]
    run.push("b", rows(2))
    assert values(run) == [2]
    copy = killed(run, tmp_path / "s", tmp_path / "copy2")
    run.close()
    again = md.restore(copy)
    again.push("a", rows(*range(10)))
    with pytest.raises(md.FullError, match="wait for others") as caught:
        again.push("a", rows(11))
    assert "rows 0 to 0 of source 'b'" in str(caught.value)
    assert again.positions() == {"a": 10, "b": 0}
    again.push("b", rows(1, 2))
    assert values(again) == [1, 2, *range(10)]
    again.take("sums")
    again.close()


def test_boundaries_come_back_at_their_place_and_may_be_said_again(tmp_path: Path) -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", unit="s", slack="100s")
    q.sink("counts", a.window("10s").aggregate(n=md.count()))
    q.sink("late", a.late)
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None)
    run.checkpoint()
    run.push("a", rows(1, 2))
    run.boundary("a", 10_000_000)
    run.push("a", rows(3, 12))
    run.boundary("a", 20_000_000)
    assert values(run, "counts", "n") == [2, 1]
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    run.close()
    for say in (False, True):
        with md.restore(shutil.copytree(copy, tmp_path / f"copy-{say}")) as again:
            again.push("a", rows(1, 2, 3) if not say else rows(1, 2))
            if say:
                again.boundary("a", 10_000_000)
                again.push("a", rows(3))
            assert values(again, "late") == [3]
            assert values(again, "counts", "n") == [2]
            again.push("a", rows(12))
            assert values(again, "counts", "n") == [1]
            again.push("a", rows(19))
            assert values(again, "late") == [19]


def test_the_end_comes_back_too(tmp_path: Path) -> None:
    run = md.start(union(), checkpoint=tmp_path / "s", checkpoint_every=None)
    run.checkpoint()
    run.push("a", rows(1))
    run.finish()
    assert values(run) == [1]
    copy = shutil.copytree(tmp_path / "s", tmp_path / "copy")
    run.close()
    with md.restore(copy) as again:
        with pytest.raises(md.DataError, match="ended after its row 1"):
            again.push("a", rows(1, 2))
        assert again.positions() == {"a": 0, "b": 0}
        again.push("a", rows(1))
        assert again.ended
        again.finish()
        assert values(again) == [1]


def test_answers_aren_t_asked_for_again(tmp_path: Path) -> None:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", unit="s")
    q.sink("out", a.apply(asked, {"v": "int64", "answer": "int64"}))
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None)
    run.checkpoint()
    taken: list[Any] = []
    run.push("a", rows(1, 2))
    run.push("a", rows(3))
    while len(taken) < 3:
        taken += run.take("out").to_pylist()
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    run.close()
    before = next(answers)
    with md.restore(copy) as again:
        again.push("a", rows(1))  # the call had two rows
        assert again.take("out").num_rows == 0
        assert again.positions() == {"a": 1}
        again.push("a", rows(2, 3))
        assert again.take("out").to_pylist() == taken
        again.push("a", rows(4))
        again.finish()
        assert again.take("out").to_pylist() == [{"v": 4, "answer": before + 1}]


def test_a_checkpoint_waits_for_calls(tmp_path: Path) -> None:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="ts", unit="s").apply(asked, {"v": "int64", "answer": "int64"}))
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None)
    run.push("a", rows(1, 2))
    run.checkpoint()
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    run.close()
    with md.restore(copy) as again:
        assert again.positions() == {"a": 2}
        assert values(again) == [1, 2]


def test_what_isn_t_whole_at_the_end_of_the_log_is_cut(tmp_path: Path) -> None:
    copy = crashed(tmp_path)
    file = copy / "decisions-000000003.log"
    good = file.read_bytes()
    file.write_bytes(good + b"\x05\x00\x00\x00xx")
    with md.restore(copy) as run:
        run.push("b", rows(2, 3, 5))
        run.push("a", rows(4))
        assert values(run) == [1, 2, 3, 4, 5]


def unchanged(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_what_was_synced_and_is_not_whole_is_refused(tmp_path: Path) -> None:
    """A restored run would give other rows under the same numbers, and nobody would know."""
    copy = crashed(tmp_path)
    file = copy / "decisions-000000003.log"
    good = file.read_bytes()
    file.write_bytes(good[:-1])
    before = unchanged(copy)
    with pytest.raises(md.StateError, match=f"{file}: is damaged at byte 0, and {len(good)} bytes") as told:
        md.restore(copy)
    assert told.value.code == "state.corrupt"
    file.unlink()
    with pytest.raises(md.StateError, match=f"{file}: is missing or empty"):
        md.restore(copy)
    file.write_bytes(good[:-1])
    assert unchanged(copy) == before
    with pytest.raises(md.QueryError, match='decisions is "all" or "readable"'):
        md.restore(copy, decisions="none")
    with pytest.warns(md.CheckpointWarning, match="the run goes on without them"):
        run = md.restore(copy, decisions="readable")
    with run:
        # What is damaged stays beside the checkpoint that it stands on, and a new one doesn't need it.
        assert file.read_bytes() == good[:-1]
        run.push("a", rows(4))
        assert values(run) == [1, 4]
        last = killed(run, copy, tmp_path / "last")
    with md.restore(last) as run:
        run.push("a", rows(4))
        assert values(run) == [1, 4]


def test_a_log_of_an_earlier_version_has_no_mark(tmp_path: Path) -> None:
    copy = crashed(tmp_path)
    for name in ("decisions-000000003.synced", "begun-000000003.decisions"):
        (copy / name).unlink()
    with md.restore(shutil.copytree(copy, tmp_path / "whole")) as run:
        run.push("b", rows(2, 3, 5))
        run.push("a", rows(4))
        assert values(run) == [1, 2, 3, 4, 5]
    # Nothing tells damage of the only record from a write that was interrupted.
    file = copy / "decisions-000000003.log"
    file.write_bytes(file.read_bytes()[:-1])
    with md.restore(copy) as run:
        run.push("a", rows(4))
        assert values(run) == [1, 4]


def test_decisions_without_their_checkpoints_are_not_started_over(tmp_path: Path) -> None:
    copy = crashed(tmp_path)
    for each in copy.glob("checkpoint-*"):
        shutil.rmtree(each)
    before = unchanged(copy)
    with pytest.raises(md.StateError, match="and its checkpoints are gone") as told:
        md.start(union(), checkpoint=copy)
    assert told.value.code == "state.exists"
    assert unchanged(copy) == before


def test_decisions_that_were_never_synced_go_with_the_first_checkpoint(tmp_path: Path) -> None:
    """As an earlier version left them that was killed before it had a checkpoint."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "decisions-000000007.log").write_bytes(b"some")
    with md.start(union(), checkpoint=tmp_path / "s", checkpoint_every=None) as run:
        assert not list((tmp_path / "s").glob("decisions-*"))
        run.push("a", rows(1))
        assert values(run) == [1]
        assert [each.name for each in (tmp_path / "s").glob("*.log")] == ["decisions-000000009.log"]


def test_a_restore_that_is_refused_late_has_changed_nothing(tmp_path: Path) -> None:
    """Not even the torn end of the log, drafts, or a history that is ahead."""
    q = md.Query("q")
    a, b = (q.source(each, SCHEMA, time="ts", unit="s") for each in "ab")
    q.sink("out", q.connection_point("recent", a.union(b), keep="1h"))
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h")
    run.push("a", rows(1))
    run.checkpoint()
    run.push("b", rows(2, 3))
    assert values(run) == [1, 2, 3]
    run._fragment.connections.sync()
    state = killed(run, tmp_path / "s", tmp_path / "state")
    history = shutil.copytree(tmp_path / "h", tmp_path / "history")
    run.close()
    log = state / "decisions-000000003.log"
    good = log.read_bytes()
    (state / "checkpoint-000000009.tmp").mkdir()
    log.write_bytes(good + b"torn")
    spill = tmp_path / "spill"
    spill.mkdir()
    (spill / "4.spill").write_bytes(b"of the life before")
    before = unchanged(state), unchanged(history), unchanged(spill)
    with pytest.raises(md.QueryError):
        md.restore(state, history=history, spill=spill, metrics="nowhere at all")
    spilled = unchanged(spill)
    spilled.pop("spill.lock")
    assert (unchanged(state), unchanged(history), spilled) == before
    assert (state / "checkpoint-000000009.tmp").is_dir()
    with md.restore(state, history=history, spill=spill) as run:
        assert not (state / "checkpoint-000000009.tmp").exists()
        assert (log.read_bytes(), len(list(spill.glob("*.spill")))) == (good, 0)
        assert run.history("recent").rows == 1
        run.push("b", rows(2, 3))
        assert list(run.view("recent")["v"].to_pylist()) == [1, 2, 3]


def test_damage_before_other_logs_is_told(tmp_path: Path) -> None:
    copy = crashed(tmp_path)
    file = copy / "decisions-000000003.log"
    journal = FolderJournal(copy)
    journal.append(9, file.read_bytes())
    journal.sync(9)
    journal.close()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(md.StateError, match="decisions are missing"):
        md.restore(copy)


def test_a_full_disk_holds_rows_back_until_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = md.start(union(), checkpoint=tmp_path / "s", checkpoint_every=None)
    run.checkpoint()
    run.push("a", rows(1))

    def full(*args: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(md.StateError, match="No space left"):
            run.take("out")
        run.push("b", rows(2))
    with pytest.raises(md.StateError, match="can't be logged") as caught:
        run.take("out")
    assert caught.value.code == "state.log"
    run.checkpoint()
    assert values(run) == [1, 2]
    run.close()


def test_a_changed_query_leaves_out_what_was_decided_about_the_old_one(tmp_path: Path) -> None:
    copy = crashed(tmp_path)
    changed = union(changed=True)
    with pytest.raises(md.StateError):
        md.restore(copy, q=changed, strict=True)
    with pytest.warns(md.CheckpointWarning) as caught:
        run = md.restore(copy, q=changed)
    assert any("decisions after the checkpoint" in str(each.message) for each in caught)
    with run:
        run.push("a", rows(4))
        assert values(run) == [1, 4]
    with md.restore(copy, q=changed) as run:
        assert run.positions() == {"a": 2, "b": 0}


def test_logs_go_with_the_checkpoints_that_need_them(tmp_path: Path) -> None:
    with md.start(union(), checkpoint=tmp_path / "s", checkpoint_every=None) as run:
        for number in range(1, 8):
            run.push("a", rows(number))
            assert values(run) == [number]
            run.checkpoint()
            logs = sorted(each.name for each in (tmp_path / "s").glob("decisions-*.log"))
            assert len(logs) <= 2
        names = sorted(each.name for each in (tmp_path / "s").glob("checkpoint-*"))
        run.take("sums")
        run.push("b", rows(9))
        assert values(run) == [9]
        copy = killed(run, tmp_path / "s", tmp_path / "copy")
    # The one before the last goes on through both logs.
    with md.restore(copy, checkpoint=names[-2]) as run:
        run.push("b", rows(9))
        assert values(run) == []
        run.push("a", rows(*range(run.positions()["a"] + 1, 8)))
        assert values(run) == [7, 9]


def test_a_run_without_decisions_writes_no_log(tmp_path: Path) -> None:
    q = md.Query("q")
    a, b = (q.source(each, SCHEMA, time="ts", unit="s") for each in "ab")
    q.sink("out", a.join(b, on="v", within="1s"))
    with md.start(q, checkpoint=tmp_path / "s", checkpoint_every=1) as run:
        for number in range(5):
            run.push("a", rows(number))
            run.push("b", rows(number))
            run.take("out")
        assert not list((tmp_path / "s").glob("decisions-*"))


def test_a_run_with_a_queue_takes_rows_in_the_same_order_too(tmp_path: Path) -> None:
    run = md.start(union(), checkpoint=tmp_path / "s", checkpoint_every=None, queue="1 MiB", memory="40 B")
    run.push("a", rows(1))
    run.checkpoint()
    run.push("b", rows(2, 3))
    run.push("a", rows(4))
    run.boundary("a", 3_000_000)
    run.flush()
    assert values(run) == [1, 2, 3, 4]
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    run.take("sums")
    run.close()
    with md.restore(copy) as again:
        again.push("a", rows(4, *range(100, 120)))
        again.push("a", rows(120), first=22)
        again.flush()
        assert again.positions() == {"a": 23, "b": 0}
        with pytest.raises(md.StateError, match="haven't come again"):
            again.finish()
        again.push("b", rows(2, 3))
        again.boundary("a", 2_000_000)  # below one that has come back
        again.flush()
        assert values(again) == [1, 2, 3, 4, *range(100, 121)]
        again.take("sums")
        again.finish()


@pytest.mark.parametrize("attached", [False, True])
def test_rows_that_leave_by_a_connection_point_come_again_in_the_same_order(
    tmp_path: Path, attached: bool
) -> None:
    q = md.Query("q")
    a, b = (q.source(each, SCHEMA, time="ts", unit="s") for each in "ab")
    recent = q.connection_point("recent", a.union(b), keep="1h")
    q.sink("out", recent)
    run = md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h")
    run.checkpoint()
    run.push("b", rows(2))
    run.push("a", rows(1))
    run.push("b", rows(3))

    def seen(run: Any) -> list[int]:
        if not attached:
            return list(run.view("recent")["v"].to_pylist())
        ad_hoc = md.Query("ad_hoc")
        ad_hoc.sink("rows", ad_hoc.source("recent", SCHEMA, time="ts", unit="s"))
        with run.attach(ad_hoc, at="recent", history="all") as more:
            return list(more.take("rows")["v"].to_pylist())

    assert seen(run) == [2, 1, 3]
    copy = killed(run, tmp_path / "s", tmp_path / "copy")
    shutil.copytree(tmp_path / "h", tmp_path / "h2")
    run.close()
    with md.restore(copy, history=tmp_path / "h2") as again:
        again.push("a", rows(1))
        again.push("b", rows(2, 3))
        assert seen(again) == [2, 1, 3]
