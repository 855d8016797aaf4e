"""``spill=``, ``memory=``, ``state_budget=`` and ``at_limit=`` of a run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Kind
from medusa.engine.operators import sink_spill
from medusa.engine.operators.windows import window_spill
from medusa.runtime.store import folder_store
from medusa.runtime.store.spill import FolderSpill

KEYS = 4_000


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_spill, "PIECE_BYTES", 5_000)
    monkeypatch.setattr(window_spill, "CHUNK_BYTES_MIN", 4_000)
    monkeypatch.setattr(folder_store, "MAPPED_BYTES_MIN", 20_000)


def query() -> md.Query:
    q = md.Query("storage")
    rows = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "float64"}, time="ts", slack="1 s")
    q.sink("sums", rows.window("10 s").group_by("k").aggregate(n=md.count(), s=md.sum("v")))
    q.sink("all", rows.filter("v >= 0"))
    return q


def batch(turn: int, rows: int = 2_000) -> pa.RecordBatch:
    draw = np.random.default_rng(turn)
    times = turn * 1_000_000 + draw.integers(0, 999_999, rows)
    return pa.record_batch(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(draw.integers(0, KEYS, rows)),
            "v": pa.array(draw.random(rows)),
        }
    )


BATCHES = [batch(turn) for turn in range(24)]
SPILLS: dict[str, Any] = {"memory": "20 KiB", "state_budget": "200 KiB", "at_limit": "spill"}


def plain() -> dict[str, pa.Table]:
    with md.start(query()) as run:
        for each in BATCHES:
            run.push("rows", each)
        run.finish()
        return {sink: run.take(sink) for sink in ("sums", "all")}


def spilled(path: Path) -> list[str]:
    return [name for name in os.listdir(path) if name.endswith(".spill")]


def test_state_and_output_beyond_the_bounds(tmp_path: Path) -> None:
    want = plain()
    got: dict[str, list[pa.Table]] = {"sums": [], "all": []}
    with md.start(query(), spill=tmp_path / "s", **SPILLS) as run:
        for number, each in enumerate(BATCHES):
            run.push("rows", each)
            held = run.memory()
            assert held.queues <= 20 << 10
            assert held.spilled == sum(
                (tmp_path / "s" / name).stat().st_size for name in spilled(tmp_path / "s")
            )
            if number == 9:
                assert held.spilled > 1_000_000
                got["all"].append(run.take("all", at_most="30 KiB"))
                assert 0 < got["all"][0].nbytes < 150_000
        run.finish()
        for sink, tables in got.items():
            assert run.taken(sink) == sum(table.num_rows for table in tables)
            tables.append(run.take(sink))
            assert run.take(sink).num_rows == 0
        assert run.memory().spilled == 0
        assert spilled(tmp_path / "s") == []
    for sink, tables in got.items():
        assert pa.concat_tables(tables).equals(want[sink])


def test_closing_removes_what_is_left(tmp_path: Path) -> None:
    with md.start(query(), spill=tmp_path / "s", **SPILLS) as run:
        for each in BATCHES:
            run.push("rows", each)
        assert spilled(tmp_path / "s")
    assert os.listdir(tmp_path / "s") == ["spill.lock"]


@pytest.mark.parametrize(
    "again", [{}, {"state_budget": "16 MiB"}, {"at_limit": "error", "state_budget": "16 MiB"}]
)
def test_a_checkpoint_holds_all_of_it(tmp_path: Path, again: dict[str, Any]) -> None:
    """The folder of what was spilled may be lost; the state of two places is that of one."""
    want = plain()
    with md.start(
        query(), checkpoint=tmp_path / "c", checkpoint_every=None, spill=tmp_path / "s", **SPILLS
    ) as run:
        for each in BATCHES[:8]:
            run.push("rows", each)
        first = run.take("all", at_most="10 KiB")
        run.checkpoint()
        run.push("rows", BATCHES[8])
        run.checkpoint()  # after one that may have been a delta
    shutil.rmtree(tmp_path / "s")
    with md.restore(tmp_path / "c", spill=tmp_path / "t", **again) as run:
        assert run.memory().queues <= 20 << 10
        for each in BATCHES[run.positions()["rows"] // 2_000 :]:
            run.push("rows", each)
        run.finish()
        assert run.take("sums").equals(want["sums"])
        assert pa.concat_tables([first, run.take("all")]).equals(want["all"])


def test_what_was_spilled_is_the_state_of_a_plain_run(tmp_path: Path) -> None:
    states = []
    for bounds in ({}, {"spill": tmp_path / "s", **SPILLS}):
        with md.start(query(), **bounds) as run:
            for each in BATCHES[:8]:
                run.push("rows", each)
            states.append(run._fragment.snapshot())
    one, other = states
    for name in one:
        if name.endswith("groups.arrow") or name.endswith("held.arrow"):
            tables = [pa.ipc.open_file(pa.py_buffer(state[name])).read_all() for state in states]
            assert tables[0].equals(tables[1])
            assert tables[0].num_rows > 1_000 or name.startswith("sums")
    assert json.loads(bytes(one["fragment.json"])) == json.loads(bytes(other["fragment.json"]))


def test_callbacks_get_what_was_spilled_in_pieces(tmp_path: Path) -> None:
    want = plain()
    pieces: list[pa.Table] = []
    with md.start(query(), spill=tmp_path / "s", memory="20 KiB") as run:
        for each in BATCHES[:4]:
            run.push("rows", each)
        run.on("all", pieces.append)
        for each in BATCHES[4:]:
            run.push("rows", each)
        run.finish()
    assert len(pieces) == 24  # one train each, also the first five
    assert pa.concat_tables(pieces).equals(want["all"])


def test_elements_and_boundaries_come_back(tmp_path: Path) -> None:
    found = []
    for bounds in ({}, {"spill": tmp_path / "s", "memory": "20 KiB"}):
        with md.start(query(), **bounds) as run:
            for each in BATCHES[:5]:
                run.push("rows", each)
            found.append(run.take("all", changes=True))
    one, other = found
    assert len(one) > 9
    for element, same in zip(one, other, strict=True):
        if isinstance(element, Boundary):
            assert same == element
        else:
            assert same.batch.equals(element.batch)
            assert (same.times, same.late, same.first_seq) == (element.times, element.late, element.first_seq)


def test_where_streams_meet_the_order_is_that_of_a_plain_run(tmp_path: Path) -> None:
    """What a window gives in steps doesn't overtake, nor is overtaken by, what came by another way."""
    q = md.Query("meets")
    rows = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "float64"}, time="ts", slack="1 s")
    sums = rows.window("10 s").group_by("k").aggregate(s=md.sum("v")).select("k", v="s")
    q.sink("both", sums.filter("v < 1").union(sums.filter("v >= 1"), rows.select("k", "v")))
    found = []
    for bounds in ({}, {"spill": tmp_path / "s", **SPILLS}):
        with md.start(q, **bounds) as run:
            for each in BATCHES:
                run.push("rows", each)
            run.finish()
            found.append(run.take("both"))
    assert found[0].equals(found[1])


def test_early_rows_are_not_counted_as_taken(tmp_path: Path) -> None:
    q = md.Query("early")
    rows = q.source("rows", {"ts": "timestamp", "k": "int64", "v": "float64"}, time="ts", slack="1 s")
    q.sink("sums", rows.window("10 s").group_by("k").aggregate(n=md.count(), early="1 s"))
    with md.start(q, spill=tmp_path / "s", memory="20 KiB") as run:
        for each in BATCHES[:15]:
            run.push("rows", each)
        assert run.memory().spilled > 100_000
        final = 0
        while elements := run.take("sums", changes=True, at_most="10 KiB"):
            trains = [each for each in elements if not isinstance(each, Boundary)]
            final += sum(len(each) for each in trains if each.kind is Kind.STABLE)
            assert run.taken("sums") == final
        assert final > 1_000


class TestErrors:
    def test_a_push_beyond_the_budget_changes_nothing(self) -> None:
        """Until a boundary closes windows; the box that holds most is named."""
        want = plain()["sums"]
        with md.start(query(), state_budget="300 KiB") as run:
            turn = refused = 0
            while refused < 2:
                before = run.positions(), run.memory()
                if run.memory().state <= 300 << 10:
                    run.push("rows", BATCHES[turn])
                    turn += 1
                    continue
                with pytest.raises(md.StateError, match="allowed are 300 KiB; box 'aggregate-") as error:
                    run.push("rows", BATCHES[turn])
                assert error.value.code == "state.budget"
                assert (run.positions(), run.memory()) == before
                refused += 1
                turn = (turn // 10 + 1) * 10  # rows of the window that we close early would be late
                run.boundary("rows", turn * 1_000_000)
                assert run.memory().state <= 300 << 10, "what a closed window took is free"
            run.finish()
            got = run.take("sums")
        assert 0 < got.num_rows < want.num_rows

    def test_other_runs_are_not_concerned(self) -> None:
        with md.start(query(), state_budget="120 KiB") as small, md.start(query()) as large:
            small.push("rows", BATCHES[0])
            with pytest.raises(md.StateError, match="the state holds"):
                small.push("rows", BATCHES[1])
            large.push("rows", BATCHES[0])
            large.push("rows", BATCHES[1])

    def test_boxes_that_cannot_spill_raise(self, tmp_path: Path) -> None:
        q = md.Query("best")
        rows = q.source("rows", {"ts": "timestamp", "k": "int64"}, time="ts")
        q.sink("n", rows.window("1 h").group_by("k").top(1, by="ts", name="counted"))
        with md.start(q, spill=tmp_path / "s", state_budget="300 KiB", at_limit="spill") as run:

            def push(turn: int) -> None:
                times = pa.array(np.full(20_000, turn)).cast(pa.timestamp("us", "UTC"))
                run.push("rows", {"ts": times, "k": np.arange(20_000 * turn, 20_000 * turn + 20_000)})

            push(0)
            with pytest.raises(md.StateError, match="box 'counted' holds most"):
                push(1)

    @pytest.mark.parametrize(
        "bounds",
        [
            {"at_limit": "shed"},
            {"at_limit": "spill"},
            {"at_limit": "spill", "state_budget": "1 MiB"},
            {"at_limit": "spill", "spill": "s"},
            {"state_budget": "much"},
            {"state_budget": 0},
        ],
    )
    def test_bounds_that_do_not_fit(self, bounds: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(md.QueryError):
            md.start(query(), **bounds)
        assert os.listdir(tmp_path) == []

    def test_a_folder_of_another_run(self, tmp_path: Path) -> None:
        with md.start(query(), spill=tmp_path / "s"), pytest.raises(md.StateError, match="in use"):
            md.start(query(), spill=tmp_path / "s")

    def test_a_restored_run_needs_a_folder(self, tmp_path: Path) -> None:
        md.start(query(), checkpoint=tmp_path / "c", spill=tmp_path / "s", **SPILLS).close()
        with pytest.raises(md.StateError, match="restore wasn't told where") as error:
            md.restore(tmp_path / "c")
        assert error.value.code == "state.spill"
        md.restore(tmp_path / "c", spill=tmp_path / "s").close()

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows stay in memory, the next push is refused and says why; with room again all goes on."""
        want = plain()

        def full(self: FolderSpill, name: str, parts: Any) -> None:
            raise md.StateError("s/1.spill couldn't be written: No space left on device")

        for bounds, kind in (
            ({"memory": "20 KiB"}, md.FullError),
            ({"state_budget": "200 KiB", "at_limit": "spill"}, md.StateError),
        ):
            with md.start(query(), spill=tmp_path / "s", **bounds) as run:
                run.push("rows", BATCHES[0])
                left = BATCHES[1:]
                taken = []
                with monkeypatch.context() as patch:
                    patch.setattr(FolderSpill, "append", full)
                    while not run._gate.is_full() and (
                        kind is md.FullError or run.memory().state <= 200 << 10
                    ):
                        run.push("rows", left.pop(0))
                        if kind is md.StateError:
                            taken.append(run.take("all"))
                    before = run.positions()
                    with pytest.raises(kind, match="No space left"):
                        run.push("rows", left[0])
                    assert left
                    assert run.positions() == before
                for each in left:
                    run.push("rows", each)
                run.finish()
                assert run.take("sums").equals(want["sums"])
                assert pa.concat_tables([*taken, run.take("all")]).equals(want["all"])

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        with md.start(query(), spill=tmp_path / "s", memory="20 KiB") as run:
            for each in BATCHES[:3]:
                run.push("rows", each)
            path = tmp_path / "s" / max(spilled(tmp_path / "s"))
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            with pytest.raises(md.StateError, match="is damaged: the checksum at byte") as error:
                run.take("all")
            assert error.value.code == "state.corrupt"
