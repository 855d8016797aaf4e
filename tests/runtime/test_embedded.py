"""collect, start and restore: names, checkpoints, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.stats import TIMED
from medusa.runtime.machine.clock import SystemClock
from tests.engine.queries import numbers

CARS = {"ts": "timestamp", "vid": "int64", "speed": "float64"}


def query(*, slack: Any = 5) -> md.Query:
    """Every kind of state: windows, windows of windows, both joins, dead rows, late rows."""
    q = md.Query("everything")
    cars = q.source("cars", CARS, time="ts", slack=slack)
    vans = q.source("vans", CARS, time="ts", slack=slack)
    known = cars.filter("speed // (vid - 7) >= 0 or true", name="known")
    w = (
        known.window(10, advance=5)
        .group_by("vid")
        .aggregate(n=md.count(), v=md.avg("speed"), d=md.count_distinct("speed"))
    )
    q.sink("windows", w)
    q.sink("again", w.window(20).aggregate(m=md.sum("n")))
    q.sink("near", known.join(vans, on="vid", within=7))
    v = vans.window(10, advance=5).group_by("vid").aggregate(n=md.count(), top=md.max("speed"))
    q.sink("both", w.join(v, on=["window", "vid"]))
    return q


def rows(start: int, count: int = 40) -> pa.Table:
    """Times wander by up to 6, more than the slack."""
    at = range(start, start + count)
    return pa.table(
        {
            "ts": pa.array([i - (i * 7) % 7 for i in at], pa.timestamp("us")),
            "vid": [i % 3 for i in at],
            "speed": [i / 4 for i in at],
        }
    )


SINKS = ("windows", "again", "near", "both")


def takes(run: Any, into: dict[str, list[Any]]) -> None:
    for sink in SINKS:
        into.setdefault(sink, []).extend(numbers(run.take(sink)))


class TestCollect:
    def test_it_gives_the_sinks_of_the_query(self) -> None:
        out = md.collect(query(), cars=rows(0), vans=rows(0))
        assert list(out) == list(SINKS)
        assert len(out) == 4
        assert "windows: " in repr(out)
        with pytest.raises(md.DataError, match="4 sinks"):
            _ = out.only
        with pytest.raises(KeyError):
            out["window"]

    def test_inputs_are_named_exactly(self) -> None:
        with pytest.raises(md.DataError, match="did you mean 'cars'"):
            md.collect(query(), car=rows(0), vans=rows(0))
        with pytest.raises(md.DataError, match="no rows for source 'vans'"):
            md.collect(query(), cars=rows(0))

    def test_empty_input_gives_empty_tables_with_columns(self) -> None:
        out = md.collect(query(slack=None), cars=rows(0, 0), vans=rows(0, 0))
        assert out["windows"].schema.names == ["window_start", "window_end", "vid", "n", "v", "d"]
        assert all(table.num_rows == 0 for table in out.values())

    def test_without_slack_nothing_is_late(self) -> None:
        out = md.collect(query(slack=None), cars=rows(0), vans=rows(0))
        assert all(row["late"] == 0 for row in out.stats.to_pylist())

    def test_a_declared_slack_that_is_too_small_warns(self) -> None:
        q = md.Query("q")
        q.sink("o", q.source("s", {"ts": "timestamp"}, time="ts", slack=1).window(10).aggregate(n=md.count()))
        with pytest.warns(md.LateWarning, match="slack='5us'") as caught:
            out = md.collect(q, s={"ts": pa.array([10, 5, 12], pa.timestamp("us"))})
        assert caught[0].filename == __file__
        assert [row["n"] for row in out.only.to_pylist()] == [2]

    def test_a_query_without_source_or_sink_cannot_run(self) -> None:
        with pytest.raises(md.QueryError, match="source"):
            md.collect(md.Query("q"))
        q = md.Query("q")
        q.source("s", {"ts": "timestamp"}, time="ts")
        with pytest.raises(md.QueryError, match="sink"):
            md.start(q)

    def test_untimed_sources_and_time_in_units(self) -> None:
        q = md.Query("q")
        q.sink("plain", q.source("p", {"x": "int64"}, time=None).filter("x > 1"))
        s = q.source("s", {"t": "int32", "x": "int64"}, time="t", unit="s")
        q.sink("w", s.window("1 min").aggregate(n=md.count()))
        out = md.collect(q, p={"x": [1, 2]}, s={"t": pa.array([30, 61, 59], pa.int32()), "x": [1, 2, 3]})
        assert out["plain"].to_pylist() == [{"x": 2}]
        assert [row["n"] for row in out["w"].to_pylist()] == [2, 1]

    @pytest.mark.parametrize("names", ["ab", "ba"])
    @pytest.mark.parametrize("swapped", [False, True])
    def test_sources_with_equal_times_come_in_the_order_of_their_definition(
        self, names: str, swapped: bool
    ) -> None:
        """Neither their names nor the order of the arguments or of the union's inputs counts."""
        q = md.Query("q")
        schema = {"ts": "int64", "x": "utf8"}
        first, second = (q.source(name, schema, time="ts", unit="us", slack=0) for name in names)
        q.sink("o", second.union(first) if swapped else first.union(second))
        tables = {name: {"ts": [7, 8], "x": [f"{name}7", f"{name}8"]} for name in names}
        for order in (names, names[::-1]):
            out = md.collect(q, **{name: tables[name] for name in order})
            assert out.only.column("x").to_pylist() == [f"{name}{ts}" for name in names for ts in (7, 8)]

    def test_sources_are_fed_merged_by_time(self) -> None:
        """A join of two long inputs holds a window of rows, not all of them."""
        n = 300_000
        times = pa.array(range(n), pa.timestamp("us"))
        table = pa.table({"ts": times, "vid": pa.array(range(n)), "speed": pa.array([0.0] * n)})
        q = md.Query("q")
        a, b = (q.source(name, CARS, time="ts", slack=0) for name in "ab")
        q.sink("o", a.join(b, on="vid", within=10, name="near"))
        seen: list[int] = []
        out = md.collect(q, a=table, b=table)
        assert out.only.num_rows == n
        assert out.only.column("vid").to_pylist() == list(range(n))
        del seen


class TestCheckpoints:
    def test_a_run_goes_on_where_its_checkpoint_was_made(self, tmp_path: Path) -> None:
        whole: dict[str, list[Any]] = {}
        with md.start(query()) as run:
            for step in range(0, 200, 40):
                run.push("cars", rows(step))
                run.push("vans", rows(step))
            run.finish()
            takes(run, whole)

        got: dict[str, list[Any]] = {}
        run = md.start(query(), checkpoint=tmp_path / "state", checkpoint_every=None)
        run.push("cars", rows(0))
        run.push("vans", rows(0))
        takes(run, got)
        run.push("cars", rows(40))
        assert run.checkpoint() == "checkpoint-000000002"  # the first is of the start
        positions, taken = run.positions(), {sink: run.taken(sink) for sink in SINKS}
        run.close()
        for step in range(40, 200, 40):
            with md.restore(tmp_path / "state") as run:
                if step == 40:
                    assert run.positions() == positions
                    assert {sink: run.taken(sink) for sink in SINKS} == taken
                if run.positions()["cars"] <= step:
                    run.push("cars", rows(step))
                run.push("vans", rows(step))
                if step == 160:
                    run.finish()
                if step != 80:  # rows not taken come along
                    takes(run, got)
        assert got == whole
        assert all(whole[sink] for sink in SINKS)

    def test_counts_and_settings_come_back(self, tmp_path: Path) -> None:
        with md.start(query(slack=1), checkpoint=tmp_path / "s", memory=123) as run:
            with pytest.warns(md.LateWarning):
                run.push("cars", {"ts": pa.array([9, 1], pa.timestamp("us")), "vid": [1, 1], "speed": [1, 2]})
            before = run.stats().drop_columns([*TIMED, "state_bytes"]).to_pylist()
        with md.restore(tmp_path / "s") as run:
            assert run.stats().drop_columns([*TIMED, "state_bytes"]).to_pylist() == before
            run.push(
                "cars", {"ts": pa.array([2], pa.timestamp("us")), "vid": [1], "speed": [1]}
            )  # warned before

    def test_checkpoints_fall_due_and_two_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 0
        monkeypatch.setattr(SystemClock, "monotonic_us", lambda self: now)
        with md.start(query(), checkpoint=tmp_path / "s", checkpoint_every="1s") as run:
            for step in range(5):
                now = step * 600_000
                run.push("cars", rows(40 * step))
        # at the start, due at 1.2 s and 2.4 s, and at the end
        assert sorted(os.listdir(tmp_path / "s")) == ["checkpoint-000000003", "checkpoint-000000004", "lock"]

    def test_arrow_alone_reads_a_checkpoint(self, tmp_path: Path) -> None:
        with md.start(query(), checkpoint=tmp_path / "s") as run:
            run.push("cars", rows(0))
            run.push("vans", rows(0))
        folder = tmp_path / "s" / "checkpoint-000000002"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["positions"] == {"cars": 40, "vans": 40}
        assert manifest["query"]["name"] == "everything"
        tables = {}
        for file in folder.glob("*.arrow"):
            with pa.OSFile(str(file)) as source:
                tables[file.name] = pa.ipc.open_file(source).read_all()
        assert tables["windows.held.arrow"].num_rows == manifest["sinks"]["windows"]["next"]
        (near,) = [name for name in tables if name.startswith("join") and name.endswith(".left.arrow")]
        assert tables[near].schema.names[:3] == ["ts", "vid", "speed"]
        (groups, *_) = [table for name, table in sorted(tables.items()) if name.endswith(".groups.arrow")]
        assert groups.num_rows > 0

    def test_a_folder_with_checkpoints_is_not_started_over(self, tmp_path: Path) -> None:
        md.start(query(), checkpoint=tmp_path / "s").close()
        with pytest.raises(md.StateError, match="restore"):
            md.start(query(), checkpoint=tmp_path / "s")
        md.restore(tmp_path / "s").close()

    def test_two_runs_do_not_share_a_folder(self, tmp_path: Path) -> None:
        with md.start(query(), checkpoint=tmp_path / "s"), pytest.raises(md.StateError, match="in use"):
            md.restore(tmp_path / "s")

    def test_no_checkpoint_no_restore(self, tmp_path: Path) -> None:
        with pytest.raises(md.StateError, match="s"):
            md.restore(tmp_path / "s")
        (tmp_path / "s").mkdir()
        with pytest.raises(md.StateError, match="no checkpoint"):
            md.restore(tmp_path / "s")
        with md.start(query()) as run, pytest.raises(md.StateError, match="checkpoint="):
            run.checkpoint()

    def test_a_failing_disk_is_told_and_the_run_goes_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = md.start(query(), checkpoint=tmp_path / "s", checkpoint_every=1)
        run.push("cars", rows(0))
        run.checkpoint()

        def full(*args: Any, **options: Any) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(md.StateError, match="No space left"):
                run.checkpoint()
            with pytest.warns(md.CheckpointWarning, match="No space left"):
                run.push("cars", rows(40))
            with pytest.raises(md.StateError, match="No space left"):
                run.close()
        with pytest.raises(md.StateError, match="closed"):
            run.push("cars", rows(80))
        with md.restore(tmp_path / "s") as run:
            assert run.positions() == {"cars": 40, "vans": 0}
            run.push("cars", rows(40), first=40)

    def test_closing_after_an_error_keeps_the_error(self, tmp_path: Path) -> None:
        def program() -> None:
            with md.start(query(), checkpoint=tmp_path / "s") as run:
                run.push("cars", rows(0))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            program()
        with md.restore(tmp_path / "s") as run:
            assert run.positions()["cars"] == 40


class TestDamage:
    def small(self, path: Path) -> None:
        q = md.Query("q")
        s = q.source("s", {"ts": "timestamp", "k": "int64"}, time="ts")
        q.sink("o", s.window(10).group_by("k").aggregate(n=md.count()))
        with md.start(q, checkpoint=path, checkpoint_every=None) as run:
            run.push("s", {"ts": pa.array([1, 12], pa.timestamp("us")), "k": [1, 2]})
            run.checkpoint()
            run.push("s", {"ts": pa.array([13], pa.timestamp("us")), "k": [3]})

    def test_a_flipped_bit_anywhere_is_found_and_the_file_named(self, tmp_path: Path) -> None:
        self.small(tmp_path / "s")
        folder = tmp_path / "s" / "checkpoint-000000003"
        tried = 0
        for file in sorted(folder.iterdir()):
            good = file.read_bytes()
            for at in range(len(good)):
                damaged = bytearray(good)
                damaged[at] ^= 1 << (at % 8)
                file.write_bytes(damaged)
                with pytest.raises(md.StateError) as caught:
                    md.restore(tmp_path / "s")
                named = "manifest" if file.name.startswith("manifest") else file.name
                assert named in caught.value.message
                assert "checkpoint-000000002 is whole" in caught.value.hint
                tried += 1
            file.write_bytes(good)
        assert tried > 1000
        md.restore(tmp_path / "s").close()

    def test_missing_short_and_foreign_files_are_found(self, tmp_path: Path) -> None:
        self.small(tmp_path / "s")
        folder = tmp_path / "s" / "checkpoint-000000003"
        for file in sorted(folder.iterdir()):
            good = file.read_bytes()
            file.unlink()
            with pytest.raises(md.StateError, match=file.name):
                md.restore(tmp_path / "s")
            file.write_bytes(good[: len(good) // 2])
            with pytest.raises(md.StateError):
                md.restore(tmp_path / "s")
            file.write_bytes(good)
        (folder / "extra").write_bytes(b"")
        with pytest.raises(md.StateError, match="extra"):
            md.restore(tmp_path / "s")

    def test_the_previous_one_is_restored_by_name_and_goes_on(self, tmp_path: Path) -> None:
        self.small(tmp_path / "s")
        file = tmp_path / "s" / "checkpoint-000000003" / "fragment.json"
        file.write_bytes(file.read_bytes()[:-1])
        with md.restore(tmp_path / "s", checkpoint="checkpoint-000000002") as run:
            assert run.positions() == {"s": 2}
            run.push("s", {"ts": pa.array([13], pa.timestamp("us")), "k": [3]}, first=2)
            run.finish()
            assert [row["n"] for row in run.take("o").to_pylist()] == [1, 1, 1]
        names = sorted(os.listdir(tmp_path / "s"))
        # The log has the end of the source, for whoever goes back to the second once more.
        assert names == [
            "begun-000000004.decisions",
            *(f"checkpoint-00000000{number}" for number in (2, 3, 4)),
            "decisions-000000004.log",
            "decisions-000000004.synced",
            "lock",
        ]
        with md.restore(tmp_path / "s") as run:  # two have now come as far as the damaged one
            run.take("o")
        assert sorted(os.listdir(tmp_path / "s")) == ["checkpoint-000000004", "checkpoint-000000005", "lock"]
        with pytest.raises(md.StateError, match="there is: checkpoint-000000004"):
            md.restore(tmp_path / "s", checkpoint="checkpoint-000000003")
