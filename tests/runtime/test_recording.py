"""``run.record`` and ``md.replay``: an incident comes again, with equal output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import medusa as md
from medusa.engine.state.checkpoint import seal
from medusa.runtime.store.folder_store import FolderStore
from tests.runtime.test_attach import CARS, SECOND, cars, look, rows

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")

START, END = 200, 440


def at(table: pa.Table, start: int, end: int) -> pa.Table:
    """The windows that lie between these seconds."""
    begin, stop = (table[name].cast(pa.int64()) for name in ("window_start", "window_end"))
    inside = pc.and_(pc.greater_equal(begin, start * SECOND), pc.less_equal(stop, end * SECOND))
    return table.filter(inside)


def query() -> md.Query:
    q = cars()
    recent = q.stream("recent")
    q.sink("fast", recent.filter("speed > 5").select("ts", "vid"))
    q.sink("joined", recent.join(q.stream("cars").filter("speed < 1", name="slow"), on="vid", within="2s"))
    return q


def recorded(tmp_path: Path, **options: Any) -> tuple[Path, pa.Table, pa.Table, Any]:
    """A folder, what the run gave, and the view of what was recorded."""
    with md.start(query(), **options) as run:
        for start in range(0, 600, 37):
            run.push("cars", rows(start, 37, late=True))
        run.record("recent", START * SECOND, "1970-01-01 00:07:20", tmp_path / "incident")
        run.finish()
        return tmp_path / "incident", run.take("counts"), run.take("fast"), run.view("recent")


def test_a_recorded_incident_replays_to_equal_output(tmp_path: Path) -> None:
    folder, counts, _, seen = recorded(tmp_path)
    got = md.replay(folder)
    assert set(got) == {"counts", "fast"}  # the join needs more than the connection point
    expected = at(counts, START, END)
    assert got["counts"].equals(expected)
    assert expected.num_rows > 60
    # What looks at one row gives those of the rows that were recorded, in their order.
    times = seen["ts"].to_pylist()
    first = next(n for n, time in enumerate(times) if time >= START)
    assert got["fast"].num_rows > 80
    all_fast = seen.slice(first).filter(pc.greater(seen.slice(first)["speed"], 5)).select(["ts", "vid"])
    assert got["fast"].equals(all_fast.slice(0, got["fast"].num_rows))
    assert pc.max(got["fast"]["ts"]).as_py() in range(END - 6, END + 6)
    assert md.replay(folder)["counts"].equals(got["counts"])
    assert {row["box"]: row for row in got.stats.to_pylist()}["recent"]["late"] > 3


def test_another_query_and_times_are_kept(tmp_path: Path) -> None:
    folder, *_, seen = recorded(tmp_path, history=tmp_path / "h")
    answer = md.collect(look(), recent=_on_time(seen))["sums"]
    assert at(answer, START, END).equals(md.replay(folder, look())["sums"])
    seen_rows: list[int] = []
    paced = md.replay(folder, speed=1e6, on={"fast": lambda table: seen_rows.append(table.num_rows)})
    assert sum(seen_rows) == paced["fast"].num_rows
    assert paced["counts"].equals(md.replay(folder)["counts"])
    with pytest.raises(md.DataError, match="no sink 'fsat'"):
        md.replay(folder, on={"fsat": print})
    with pytest.raises(md.QueryError, match="expected a number above 0, or None, got speed=0"):
        md.replay(folder, speed=0)
    other = md.Query("other")
    other.sink("all", other.source("recent", {"ts": "int64"}, time="ts", unit="s"))
    with pytest.raises(md.QueryError, match="source 'recent': has columns"):
        md.replay(folder, other)


def _on_time(seen: pa.Table) -> pa.Table:
    highest, kept = -(10**9), []
    for time in seen["ts"].to_pylist():
        kept.append(time >= highest - 10)
        highest = max(highest, time)
    return seen.filter(pa.array(kept))


def test_a_query_of_its_own_is_recorded_with_the_rows(tmp_path: Path) -> None:
    with md.start(cars()) as run:
        run.push("cars", rows(0, 300))
        run.record("recent", 0, 250 * SECOND, tmp_path / "r", query=look())
        with pytest.raises(md.StateError, match="is there already"):
            run.record("recent", 0, 250 * SECOND, tmp_path / "r", query=look())
        whole = md.collect(look(), recent=run.view("recent"))
    got = md.replay(tmp_path / "r")
    assert set(got) == set(whole)
    for sink in ("sums", "busy"):
        assert got[sink].equals(at(whole[sink], -100, 250))


def test_it_replays_after_the_process_has_ended(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.runtime.test_recording import recorded;"
        "import warnings; warnings.simplefilter('ignore');"
        "import pyarrow.parquet as pq; folder, counts, *_ = recorded(Path(sys.argv[1]));"
        "pq.write_table(counts, sys.argv[1] + '/counts')"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=True, timeout=120)
    expected = at(pq.read_table(tmp_path / "counts"), START, END)
    assert md.replay(tmp_path / "incident")["counts"].equals(expected)


def test_what_cant_be_recorded_is_refused(tmp_path: Path) -> None:
    with md.start(cars(keep="10h", keep_bytes="64 KiB"), memory="128 KiB") as run:
        for start in range(0, 12_000, 1000):
            run.push("cars", rows(start, 1000))
            run.take("counts")
        for start, end, error, match in (
            (
                0,
                9 * SECOND,
                md.StateError,
                r"rows from the start on were trimmed, all are kept from 1970-01-01 0\d:",
            ),
            (
                11_900 * SECOND,
                11_900 * SECOND,
                md.DataError,
                "end must be later than start, got 1970-01-01 03:18:20 UTC to 1970-01-01 03:18:20",
            ),
            (
                90_000 * SECOND,
                95_000 * SECOND,
                md.DataError,
                r"no rows came between 1970-01-02 01:.* \(those it has are of .* to 1970-01-01 03:20",
            ),
        ):
            with pytest.raises(error, match=match):
                run.record("recent", start, end, tmp_path / "r")
        with pytest.raises(md.DataError, match="no connection point 'rcent'"):
            run.record("rcent", 0, 1, tmp_path / "r")
        with pytest.raises(
            md.DataError, match="connection_point 'recent': 'now' is no time for the start of a rec"
        ):
            run.record("recent", "now", 1, tmp_path / "r")
        named = look()
        named.sink("x", named.stream("recent").apply(lambda batch: batch, CARS))
        with pytest.raises(md.QueryError, match="a recording needs"):
            run.record("recent", 11_900 * SECOND, 11_950 * SECOND, tmp_path / "r", query=named)
        assert not (tmp_path / "r").exists()
        run.record("recent", 11_900 * SECOND, 11_950 * SECOND, tmp_path / "r")
    joined = md.Query("roads")
    source = joined.source("cars", CARS, time="ts", unit="s", slack="5s")
    recent = joined.connection_point("recent", source, keep="1h")
    joined.sink("pairs", recent.join(source, on="vid", within="2s"))
    with md.start(joined, memory="32 KiB") as run:
        run.push("cars", rows(0, 3000))
        run.take("pairs")
        with pytest.raises(md.QueryError, match="no sink depends on it alone"):
            run.record("recent", 0, 100 * SECOND, tmp_path / "j")
        with pytest.raises(md.StateError, match=r"take more than 32(\.0)? KiB"):
            run.record("recent", 0, 10**10, tmp_path / "j", query=look())


def test_a_folder_that_cant_be_written_or_is_in_use_is_replayed(tmp_path: Path) -> None:
    folder, *_ = recorded(tmp_path)
    expected = md.replay(folder)["counts"]
    other = FolderStore(folder)
    assert md.replay(folder)["counts"].equals(expected)
    other.close()
    (folder / "lock").unlink()
    (folder / "recording.tmp").mkdir()
    folder.chmod(0o500)
    try:
        assert md.replay(folder)["counts"].equals(expected)
    finally:
        folder.chmod(0o700)
    assert {each.name for each in folder.iterdir()} == {"recording", "recording.tmp"}


def test_damage_is_refused_by_name(tmp_path: Path) -> None:
    folder, *_ = recorded(tmp_path)
    inside = folder / "recording"
    for name in ("rows.arrow", "query.json", "manifest.json"):
        whole = (inside / name).read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            broken = bytearray(whole)
            broken[place] ^= 1
            (inside / name).write_bytes(bytes(broken))
            with pytest.raises(md.StateError, match=name):
                md.replay(folder)
        (inside / name).unlink()
        with pytest.raises(md.StateError, match=name):
            md.replay(folder)
        (inside / name).write_bytes(whole)
    assert md.replay(folder)["counts"].num_rows
    with pytest.raises(md.StateError, match="nowhere"):
        md.replay(tmp_path / "nowhere")
    with pytest.raises(md.StateError, match="no checkpoint"):
        md.restore(folder)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rows": 1}, "rows.arrow"),
        ({"rows": True}, "manifest.json"),
        ({"first": -1}, "manifest.json"),
        ({"boundary_us": 1 << 63}, "manifest.json"),
        ({"boundaries": [[0, "x"]]}, "manifest.json"),
        ({"boundaries": [[10**9, 5]]}, "manifest.json"),
        ({"boundaries": [[3, 9], [4, 8]]}, "manifest.json"),
        ({"boundaries": 3}, "manifest.json"),
        ({"timed": False}, "rows.arrow"),
        ({"point": None}, "manifest.json"),
        ({"more": 1}, "manifest.json"),
    ],
)
def test_manifests_that_cant_be_are_refused(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    folder, *_ = recorded(tmp_path)
    manifest = json.loads((folder / "recording" / "manifest.json").read_text())
    files = {name: (folder / "recording" / name).read_bytes() for name in ("rows.arrow", "query.json")}
    facts = {"kind": manifest["kind"], "recording": {**manifest["recording"], **changes}}
    store = FolderStore(tmp_path / "other")
    store.write("recording", seal(files, facts))
    store.close()
    with pytest.raises(md.StateError, match=match):
        md.replay(tmp_path / "other")
