"""Histories of runs: on disk and in memory, with checkpoints and without, looked at and damaged."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import medusa as md
from medusa.runtime.store.history_files import FolderSegments
from medusa.testing import ManualClock

SECOND = 1_000_000


def query(keep: str | None = "1h", keep_bytes: str | None = None) -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", {"ts": "int64", "vid": "int64", "name": "utf8"}, time="ts", unit="s", slack="5s")
    recent = q.connection_point("recent", cars.filter("vid >= 0"), keep=keep, keep_bytes=keep_bytes)
    q.sink("counts", recent.window("10s").group_by("vid").aggregate(n=md.count()))
    q.sink("all", recent)
    return q


def rows(first: int, count: int) -> pa.RecordBatch:
    """Times wander about by 4 s, every 31st row is late, every 11th is filtered out."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "ts": pa.array(
                [max(0, n + n * 7 % 5 - (40 if n % 31 == 30 else 0)) for n in numbers], pa.int64()
            ),
            "vid": pa.array([-1 if n % 11 == 10 else n % 3 for n in numbers], pa.int64()),
            "name": pa.array([None if n % 13 == 0 else "n" * (n % 5) for n in numbers], pa.string()),
        }
    )


def through(first: int, end: int) -> pa.Table:
    """What the connection point sees of these rows."""
    whole = pa.Table.from_batches([rows(first, end - first)])
    return whole.filter(pc.greater_equal(whole["vid"], 0))


def push(run: Any, first: int, end: int, step: int = 17) -> None:
    for start in range(first, end, step):
        run.push("cars", rows(start, min(step, end - start)), first=start)


pytestmark = pytest.mark.filterwarnings("ignore::medusa.LateWarning")


# -- views


def test_views_are_filters_of_a_batch(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "history"):
        with md.start(query(), history=folder) as run:
            for first, end in ((0, 100), (100, 101), (101, 400)):
                push(run, first, end)
                seen = through(0, end)
                times = seen["ts"]
                assert run.view("recent").equals(seen)
                low, high = 40, 90
                between = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
                assert run.view("recent", start=low * SECOND, end="1970-01-01 00:01:30").equals(
                    seen.filter(between)
                )
                largest = pc.max(times).as_py()
                after = seen.filter(pc.greater(times, largest - 30))
                assert run.view("recent", last="30s").equals(after)
                assert run.view("recent", rows=25).equals(seen.slice(max(0, len(seen) - 25)))
                assert run.view("recent", rows=(7, 40)).equals(seen.slice(7, 33))
                assert run.view("recent", rows=0).num_rows == 0


def test_what_there_is(tmp_path: Path) -> None:
    with md.start(query(keep="20s"), history=tmp_path / "history", clock=ManualClock()) as run:
        assert (run.history("recent").rows, run.history("recent").from_us) == (0, None)
        push(run, 0, 400)
        info = run.history("recent")
        seen = through(0, 400)
        assert (info.name, info.next, info.on_disk) == ("recent", len(seen), True)
        assert 0 < info.first == info.trimmed < info.next
        assert info.rows == info.next - info.first
        kept = seen.slice(info.first)
        assert run.view("recent").equals(kept)
        assert info.from_us == pc.min(kept["ts"]).as_py() * SECOND
        assert info.to_us == pc.max(seen["ts"]).as_py() * SECOND
        files = (tmp_path / "history" / "recent").iterdir()
        assert info.nbytes == sum(each.stat().st_size for each in files)
    with pytest.raises(md.StateError, match="is closed"):
        run.history("recent")


def test_in_memory_it_counts_as_state_and_stays_within_its_bound() -> None:
    with md.start(query(keep_bytes="64 KiB")) as run:
        sizes = []
        for first in range(0, 20_000, 1_000):
            push(run, first, first + 1_000, 1_000)
            info = run.history("recent")
            stats = {row["box"]: row["state_bytes"] for row in run.stats().to_pylist()}
            assert stats["recent"] == info.nbytes <= 1 << 16
            assert (info.on_disk, info.durable) == (False, 0)
            sizes.append(info.nbytes)
        assert info.trimmed > 10_000
        assert min(sizes[5:]) > 1 << 15
        assert run.view("recent").equals(through(0, 20_000).slice(info.first))


def test_histories_in_memory_leave_room_in_a_budget(tmp_path: Path) -> None:
    budget: dict[str, Any] = {"state_budget": "1 MiB"}
    words = "'recent' may keep 64 MiB in memory, and state_budget= is 1 MiB"
    with pytest.raises(md.QueryError, match=words) as told:
        md.start(query(keep="100000h"), **budget)
    assert told.value.code == "query.history"
    two = query(keep_bytes="512 KiB")
    two.sink("more", two.connection_point("other", two.stream("cars"), keep_bytes="512 KiB"))
    with pytest.raises(
        md.QueryError, match="may keep 512 KiB in memory, all together 1 MiB, and state_budget="
    ):
        md.start(two, **budget)
    with md.start(query(keep="100000h"), history=tmp_path / "h", **budget) as run:
        push(run, 0, 100)
    with md.start(query(keep_bytes="256 KiB"), checkpoint=tmp_path / "s", **budget) as run:
        for first in range(0, 60_000, 1_000):  # nothing is refused, however much comes
            push(run, first, first + 1_000, 1_000)
            run.take("all")
        assert run.history("recent").trimmed > 10_000
        with pytest.raises(md.QueryError, match=words):
            run.change(query(keep="100000h"))
        run.change(query(keep_bytes="512 KiB"))
    with pytest.raises(md.QueryError, match="may keep 512 KiB in memory, and state_budget= is 300 KiB"):
        md.restore(tmp_path / "s", state_budget="300 KiB")
    md.restore(tmp_path / "s").close()


def test_rows_are_synced_when_a_second_has_passed(tmp_path: Path) -> None:
    clock = ManualClock()
    with md.start(query(), history=tmp_path / "history", clock=clock) as run:
        push(run, 0, 50, 50)
        assert run.history("recent").durable == 0
        clock.advance(999_999)
        run.take("all")
        assert run.history("recent").durable == 0
        clock.advance(1)
        run.take("all")
        info = run.history("recent")
        assert info.durable == info.next > 0


def test_a_stream_without_time_keeps_by_bytes(tmp_path: Path) -> None:
    q = md.Query("q")
    a = q.source("a", {"v": "int64"}, time=None)
    q.sink("o", q.connection_point("recent", a, keep_bytes="64 KiB"))
    with md.start(q, history=tmp_path / "history") as run:
        for first in range(0, 30_000, 3_000):
            run.push("a", {"v": list(range(first, first + 3_000))})
        info = run.history("recent")
        assert info.first > 0
        assert info.nbytes <= 1 << 16
        assert (info.from_us, info.to_us) == (None, None)
        assert run.view("recent")["v"].to_pylist() == list(range(info.first, 30_000))
        with pytest.raises(md.DataError, match="its stream has no time"):
            run.view("recent", last="1s")


def test_wrong_views_are_refused() -> None:
    with md.start(query()) as run:
        push(run, 0, 40)
        for given, says in (
            ({"last": "1s", "rows": 3}, "last and rows are different ranges"),
            ({"rows": -1}, "rows=-1 are no rows"),
            ({"rows": (1, 2, 3)}, "are no rows"),
            ({"rows": True}, "are no rows"),
            (
                {"start": "yesterday"},
                "connection_point 'recent': 'yesterday' is no time for the start of a view",
            ),
            ({"last": "0s"}, "longer than 0"),
            ({"start": 20, "end": 20}, "end must be later than start, got 1970-01-01 00:00:00.00002 UTC to"),
            ({"start": 20, "end": 10}, "end must be later than start"),
            ({"rows": (7, 3)}, r"rows=\(7, 3\) end before they begin"),
        ):
            with pytest.raises(md.DataError, match=says):
                run.view("recent", **given)
        for ask in (run.view, run.history):
            with pytest.raises(md.DataError, match="has no connection point 'recnt'.*'recent'") as told:
                ask("recnt")
            assert told.value.code == "data.connection"


# -- restores


def test_a_restored_run_goes_on_with_its_history(tmp_path: Path) -> None:
    """At every checkpoint: with a history that is ahead, as after a kill, or just there."""
    state, history = tmp_path / "state", tmp_path / "history"
    with md.start(query(), checkpoint=state, checkpoint_every=None, history=history) as run:
        done = 0
        for end in (40, 41, 120, 121):
            push(run, done, end)
            run.checkpoint()
            shutil.copytree(state, tmp_path / f"state-{end}")
            push(run, end, end + 20)
            run._fragment.connections.sync()
            shutil.copytree(history, tmp_path / f"history-{end}")
            done = end + 20
    for end in (40, 41, 120, 121):
        with md.restore(tmp_path / f"state-{end}", history=tmp_path / f"history-{end}") as run:
            at = run.positions()["cars"]
            assert run.view("recent").equals(through(0, at))
            info = run.history("recent")
            assert info.durable == info.next == through(0, at).num_rows
            push(run, at - 3, 200)
            assert run.view("recent").equals(through(0, 200))
        with md.restore(tmp_path / f"state-{end}", history=tmp_path / f"history-{end}") as run:
            assert run.view("recent").equals(through(0, 200))


def test_a_history_is_synced_before_its_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    plain = os.fsync

    def note(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        plain(number)

    run = md.start(query(), checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h")
    push(run, 0, 30)
    monkeypatch.setattr(os, "fsync", note)
    run.checkpoint()
    first = next(n for n, path in enumerate(synced) if "checkpoint-" in path)
    assert any(path.endswith(".arrows") for path in synced[:first])
    assert any(path.endswith(".index") for path in synced[:first])
    run.close()


def test_folders_that_dont_fit(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h") as run:
        push(run, 0, 60)
        with pytest.raises(md.StateError, match="is in use") as told:
            md.start(query(), history=tmp_path / "h")
        assert told.value.code == "state.locked"
    with pytest.raises(md.StateError, match="holds history already, of recent") as told:
        md.start(query(), history=tmp_path / "h")
    assert told.value.code == "state.exists"
    with pytest.raises(md.StateError, match="are in a folder, which restore must be given too"):
        md.restore(tmp_path / "s")
    none = md.Query("none")
    none.sink("o", none.source("a", {"v": "int64"}, time=None))
    with pytest.raises(md.QueryError, match="has no connection point"):
        md.start(none, history=tmp_path / "x")
    with pytest.raises(md.QueryError, match="is the folder of the checkpoints"):
        md.start(query(), checkpoint=tmp_path / "n", history=tmp_path / "s" / ".." / "n")
    for folders, says in (
        ({"checkpoint": "n", "spill": "n"}, "spill='.*' is the folder of the checkpoints"),
        ({"history": "n", "spill": "n"}, "spill='.*' is the folder of the histories"),
    ):
        with pytest.raises(md.QueryError, match=says) as refused:
            md.start(query(), **{name: tmp_path / place for name, place in folders.items()})
        assert refused.value.code == "query.folder"
    assert not (tmp_path / "n").exists()
    with pytest.raises(md.QueryError, match="spill='.*' is the folder of the checkpoints"):
        md.restore(tmp_path / "s", spill=tmp_path / "s")
    with pytest.raises(md.QueryError, match="is the folder of the checkpoints"):
        md.restore(tmp_path / "s", history=tmp_path / "s")
    with pytest.raises(md.StateError, match="can't be opened"):
        md.start(query(), history=tmp_path / "no" / "such")
    for read, says in ((md.restore, "holds no checkpoint"), (md.replay, "holds no recording")):
        with pytest.raises(md.StateError, match=says):
            read(tmp_path / "h")
    (tmp_path / "h" / "notes").write_bytes(b"a file of somebody")
    with md.restore(tmp_path / "s", history=tmp_path / "h") as run:
        assert run.view("recent").equals(through(0, 60))
    assert sorted(each.name for each in (tmp_path / "h").iterdir()) == [".lock", "notes", "recent"]


def test_a_new_folder_at_a_restore_begins_at_the_checkpoint(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h") as run:
        push(run, 0, 60)
    with pytest.warns(
        md.CheckpointWarning, match=r"h2/recent: holds nothing .* rows 0 to 54 were kept there"
    ):
        run = md.restore(tmp_path / "s", history=tmp_path / "h2")
    with run:
        info = run.history("recent")
        assert info.first == info.next == through(0, 60).num_rows
        push(run, 60, 90)
        assert run.view("recent").equals(through(60, 90))


def test_a_history_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h") as run:
        push(run, 0, 60)
    file = tmp_path / "h" / "recent" / f"{0:018d}.arrows"
    os.truncate(file, file.stat().st_size // 2)
    sizes = [each.stat().st_size for each in sorted(file.parent.iterdir())]
    with pytest.raises(
        md.StateError, match=f"{file}: ends before row 16, and the checkpoint stands at row 55"
    ) as told:
        md.restore(tmp_path / "s", history=tmp_path / "h")
    assert told.value.code == "state.history"
    with pytest.raises(md.StateError, match="ends before row 16"):  # nothing is cut, nothing left locked
        md.restore(tmp_path / "s", history=tmp_path / "h")
    assert sizes == [each.stat().st_size for each in sorted(file.parent.iterdir())]


def test_below_a_union_the_order_comes_again(tmp_path: Path) -> None:
    """The decision log says it, whoever pushes first after the restore."""
    q = md.Query("both")
    sources = [q.source(name, {"ts": "int64", "v": "int64"}, time="ts", unit="s") for name in ("a", "b")]
    q.sink("o", q.connection_point("recent", sources[0].union(sources[1]), keep="1h"))

    def rows_of(name: str, first: int) -> dict[str, list[int]]:
        return {"ts": [first, first + 1], "v": [first + 100 * (name == "b"), -first]}

    with md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h") as run:
        run.push("a", rows_of("a", 0))
        run.checkpoint()
        for name, first in (("b", 0), ("b", 2), ("a", 2), ("b", 4)):
            run.push(name, rows_of(name, first))
        run.take("o")  # which makes what was decided durable
        seen = run.view("recent")
        run._fragment.connections.sync()
        for each in ("s", "h"):
            shutil.copytree(tmp_path / each, tmp_path / f"{each}-killed")
    with md.restore(tmp_path / "s-killed", history=tmp_path / "h-killed") as run:
        assert run.view("recent")["v"].to_pylist() == [0, 0]
        for name, first in (("a", 2), ("b", 0), ("b", 2), ("b", 4)):
            run.push(name, rows_of(name, first), first=first)
        assert run.view("recent").equals(seen)


def test_a_changed_query_may_keep_more_or_begin_anew(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h") as run:
        push(run, 0, 60)
    with md.restore(tmp_path / "s", q=query(keep="2h"), strict=True, history=tmp_path / "h") as run:
        push(run, 60, 80)
        assert run.view("recent").equals(through(0, 80))
    with pytest.warns(md.CheckpointWarning, match="begin empty: recent"):
        again = md.restore(tmp_path / "s", q=query(), reset=["recent"], history=tmp_path / "h")
    with again as run:
        assert run.history("recent").next == 0
        push(run, 80, 90)
        assert run.view("recent").equals(through(80, 90))


def test_a_history_in_memory_begins_empty_after_a_restore(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s") as run:
        push(run, 0, 60)
    with md.restore(tmp_path / "s") as run:
        push(run, 60, 80)
        assert run.view("recent").equals(through(60, 80))
        assert run.history("recent").first == through(0, 60).num_rows


def test_the_answer_is_that_without_history(tmp_path: Path) -> None:
    plain = md.Query("roads")
    cars = plain.source(
        "cars", {"ts": "int64", "vid": "int64", "name": "utf8"}, time="ts", unit="s", slack="5s"
    )
    seen = cars.filter("vid >= 0")
    plain.sink("counts", seen.window("10s").group_by("vid").aggregate(n=md.count()))
    plain.sink("all", seen)
    answers = []
    for q, history in ((plain, None), (query(), None), (query(keep="1s"), tmp_path / "h")):
        with md.start(q, history=history) as run:
            push(run, 0, 300)
            run.boundary("cars", 500 * SECOND)
            changes = run.take("counts", changes=True)
            boundaries = [each.time_us for each in changes if isinstance(each, md.elements.Boundary)]
            run.finish()
            late = {row["box"]: row["late"] for row in run.stats().to_pylist() if row["kind"] == "aggregate"}
            answers.append((run.take("counts"), run.take("all"), boundaries, list(late.values())))
    assert answers[0] == answers[1] == answers[2]


# -- disks


def test_a_full_disk_stops_the_run_and_a_restore_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = md.start(query(), checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h")
    push(run, 0, 60)
    run.checkpoint()
    plain = os.write

    def full(number: int, data: Any) -> int:
        if os.readlink(f"/proc/self/fd/{number}").endswith(".arrows"):
            if len(data) < 100:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return plain(number, data[: len(data) // 2])
        return plain(number, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(md.StateError, match=r"recent/0+\.arrows couldn't be written: No space left") as told:
        run.push("cars", rows(60, 20_000))
    assert told.value.code == "state.io"
    monkeypatch.setattr(os, "write", plain)
    with pytest.raises(md.DataError, match="the run has stopped.*No space left"):
        run.push("cars", rows(60, 1))
    run.close()
    with md.restore(tmp_path / "s", history=tmp_path / "h") as again:
        assert again.view("recent").equals(through(0, 60))
        push(again, 60, 90)
        assert again.view("recent").equals(through(0, 90))


def test_a_sync_that_fails_stops_the_run_and_no_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = md.start(query(), checkpoint=tmp_path / "s", checkpoint_every=None, history=tmp_path / "h")
    push(run, 0, 60)
    name = run.checkpoint()
    push(run, 60, 70)
    plain = os.fsync

    def fails(number: int) -> None:
        if os.readlink(f"/proc/self/fd/{number}").endswith(".arrows"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        plain(number)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(md.StateError, match="couldn't be synced"):
        run.checkpoint()
    monkeypatch.setattr(os, "fsync", plain)
    with pytest.raises(md.DataError, match="the run has stopped"):
        run.push("cars", rows(70, 1))
    run.close()
    names = sorted(each.name for each in (tmp_path / "s").iterdir())
    assert names == ["checkpoint-000000001", name, "lock"]
    with md.restore(tmp_path / "s", history=tmp_path / "h") as again:
        assert again.view("recent").equals(through(0, 60))


def test_damage_is_named_and_other_rows_are_read(tmp_path: Path) -> None:
    run = md.start(query(keep=None, keep_bytes="256 KiB"), checkpoint=tmp_path / "s", history=tmp_path / "h")
    push(run, 0, 6_000, 500)
    run.close()
    files = sorted((tmp_path / "h" / "recent").glob("*.arrows"))
    assert len(files) > 3
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 1
    files[0].write_bytes(content)
    with md.restore(tmp_path / "s", history=tmp_path / "h") as again:
        second = int(files[1].name.removesuffix(".arrows"))
        with pytest.raises(
            md.StateError, match=f"{files[0]}: rows .* are damaged: the checksum is wrong"
        ) as told:
            again.view("recent")
        end = through(0, 6_000).num_rows
        [first, last] = re.findall(r"rows=\((\d+), (\d+)\)", told.value.hint)[0]
        good = (int(first), int(last))
        assert good[1] == end
        assert again.view("recent", rows=good).equals(through(0, 6_000).slice(good[0]))
        assert md.read_history(tmp_path / "h", "recent", rows=good).equals(through(0, 6_000).slice(good[0]))
        assert again.view("recent", rows=(second, end)).equals(through(0, 6_000).slice(second))
        push(again, 6_000, 6_100)
        assert again.view("recent", rows=50).num_rows == 50


def test_links_in_the_folder_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "h" / "recent").mkdir(parents=True)
    (tmp_path / "h" / "recent" / f"{0:018d}.arrows").symlink_to(victim)
    segments = FolderSegments(str(tmp_path / "h" / "recent"))
    with pytest.raises(md.StateError, match="couldn't be written"):
        segments.begin(0, b"rows", b"index")
    assert victim.read_text() == "mine"


def test_a_segment_that_was_being_begun_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "h" / "recent"
    folder.mkdir(parents=True)
    (folder / f"{7:018d}.arrows").write_bytes(b"torn")
    with md.start(query(), history=tmp_path / "h") as run:
        push(run, 0, 40)
        assert run.view("recent").equals(through(0, 40))
    files = [f"{0:018d}.{ending}" for ending in ("arrows", "index", "index-copy")]
    assert sorted(each.name for each in folder.iterdir()) == files
