"""Histories on disk, read without the run that wrote them, and by others than Medusa."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import medusa as md
from tests.runtime.test_history import SECOND, push, query, rows, through

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")


def test_anyone_reads_a_segment_as_an_arrow_stream(tmp_path: Path) -> None:
    with md.start(query(), history=tmp_path / "h") as run:
        push(run, 0, 300)
    with pa.ipc.open_stream(tmp_path / "h" / "recent" / f"{0:018d}.arrows") as reader:
        table = reader.read_all()
    seen = through(0, 300)
    assert table.drop_columns(["@time", "@late"]).equals(seen)
    assert table["@time"].cast(pa.int64()).to_pylist() == [ts * SECOND for ts in seen["ts"].to_pylist()]
    largest, late = -(1 << 62), []
    for row in rows(0, 300).to_pylist():
        if row["vid"] >= 0:
            late.append(row["ts"] < largest - 5)
        largest = max(largest, row["ts"])
    assert table["@late"].to_pylist() == late


def test_a_history_is_read_without_its_run(tmp_path: Path) -> None:
    run = md.start(query(), history=tmp_path / "h")
    push(run, 0, 60)
    run._fragment.connections.sync()
    whole = through(0, 60)
    assert md.read_history(tmp_path / "h", "recent").equals(whole)  # while it runs, too
    push(run, 60, 70)
    run.close()
    assert md.read_history(tmp_path / "h", "recent").equals(through(0, 70))
    with md.start(query()) as other:
        push(other, 0, 70)
        for given in (
            {"start": 20 * SECOND, "end": 30 * SECOND},
            {"last": "9s"},
            {"rows": 5},
            {"rows": (3, 9)},
        ):
            part = md.read_history(tmp_path / "h", "recent", **given)
            assert 0 < part.num_rows < 70
            assert part.equals(other.view("recent", **given))
    with pytest.raises(md.DataError, match="end must be later than start"):
        md.read_history(tmp_path / "h", "recent", start=2, end=1)
    files = [tmp_path / "h" / "recent" / f"{0:018d}.{ending}" for ending in ("index", "index-copy")]

    def damaged(change: Callable[[bytearray], object]) -> None:
        """One copy of the index costs nothing; the other too is told, or is as a kill may leave it."""
        for file in files:
            content = bytearray(file.read_bytes())
            change(content)
            file.write_bytes(content)
            if file is files[0]:
                assert md.read_history(tmp_path / "h", "recent").equals(through(0, 70))

    def flip(at: int) -> Callable[[bytearray], object]:
        return lambda content: content.__setitem__(at, content[at] ^ 1)

    good = files[0].read_bytes()
    damaged(lambda content: content.__delitem__(slice(-80, None)))  # the last entry and the last boundary
    assert md.read_history(tmp_path / "h", "recent").equals(whole)
    for file in files:
        file.write_bytes(good)
    damaged(flip(30))
    with pytest.raises(md.StateError, match=r"recent/0+.index: rows 0 to .* are damaged"):
        md.read_history(tmp_path / "h", "recent")
    for file in files:
        file.write_bytes(good)
    damaged(flip(3))
    with pytest.raises(md.StateError, match=r"recent/0+.index: its head is damaged") as told:
        md.read_history(tmp_path / "h", "recent")
    assert told.value.code == "state.corrupt"
    for name in ("none", "..", "a/b", 7):
        with pytest.raises(md.StateError, match="holds no history of") as told:
            md.read_history(tmp_path / "h", name)  # type: ignore[arg-type]
        assert told.value.code == "state.none"


def test_rows_without_time_are_read_without_their_run(tmp_path: Path) -> None:
    q = md.Query("q")
    a = q.source("a", {"v": "int64"}, time=None)
    q.sink("o", q.connection_point("recent", a, keep_bytes="64 KiB"))
    with md.start(q, history=tmp_path / "h") as run:
        run.push("a", {"v": [1, 2, 3]})
    assert md.read_history(tmp_path / "h", "recent").to_pydict() == {"v": [1, 2, 3]}
