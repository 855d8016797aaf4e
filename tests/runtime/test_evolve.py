"""``md.restore`` into a changed query, from an earlier version, and over checkpoints that are deltas."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa as md
from medusa.engine.state.checkpoint import FULL_BYTES_MIN

OLD = Path(__file__).resolve().parents[1] / "fixtures" / "checkpoint_v1"
"""Written by the code of commit 7d5d7a1, before ``fragment.json`` had version 2."""

CARS = {"ts": "int64", "vid": "int64", "speed": "float64"}


def cars(size: str = "10 min", name: str | None = "per_car") -> tuple[md.Query, md.Stream]:
    q = md.Query("cars")
    source = q.source("cars", CARS, time="ts", unit="s", slack="1 min")
    q.sink("counts", source.window(size).group_by("vid").aggregate(n=md.count(), name=name))
    return q, source


def rows(*times: int) -> dict[str, list[Any]]:
    return {"ts": list(times), "vid": [t % 3 for t in times], "speed": [float(t) for t in times]}


def saved(folder: Path, q: md.Query) -> None:
    with md.start(q, checkpoint=folder) as run:
        run.push("cars", rows(*range(0, 900, 30)))


def test_a_grown_query_takes_the_state_over(tmp_path: Path) -> None:
    before, _ = cars()
    saved(tmp_path / "s", before)
    after, source = cars()
    after.sink("fast", source.filter("speed > 900", name="fast_ones"))
    expected = md.collect(before, cars=rows(*range(0, 900, 30), 960, 1500))["counts"]
    with pytest.warns(md.CheckpointWarning, match="begin empty: fast_ones, fast$"):
        run = md.restore(tmp_path / "s", q=after)
    with run:
        assert run.positions() == {"cars": 30}
        run.push("cars", rows(960, 1500))
        run.finish()
        assert run.take("counts").equals(expected)
        assert run.take("fast")["ts"].to_pylist() == [960, 1500]
    with md.restore(tmp_path / "s") as run:  # the checkpoint holds the new query
        assert run.taken("fast") == 2


def test_what_nobody_takes_is_told_and_strict_refuses_it(tmp_path: Path) -> None:
    before, source = cars()
    before.sink("fast", source.filter("speed > 900", name="fast_ones"))
    saved(tmp_path / "s", before)
    after, _ = cars(name="per_car")
    with pytest.raises(md.StateError, match="state dropped of: fast_ones, fast"):
        md.restore(tmp_path / "s", q=after, strict=True)
    with pytest.warns(md.CheckpointWarning, match="state dropped of: fast_ones, fast"):
        md.restore(tmp_path / "s", q=after).close()
    md.restore(tmp_path / "s", q=after, strict=True).close()


def test_a_changed_box_needs_reset(tmp_path: Path) -> None:
    saved(tmp_path / "s", cars()[0])
    wider = cars("20 min")[0]
    with pytest.raises(md.StateError, match=r"aggregate 'per_car' \(size_us: 600000000 -> 1200000000"):
        md.restore(tmp_path / "s", q=wider)
    with pytest.warns(md.CheckpointWarning, match="begin empty: per_car; state dropped of: per_car"):
        run = md.restore(tmp_path / "s", q=wider, reset=["per_car"], strict=True)
    with run:
        run.push("cars", rows(1000))
        run.finish()
        # What waited to be taken, and a window that saw only the row that came after the restore.
        assert run.take("counts")["n"].to_pylist() == [20, 1]
    with pytest.raises(md.QueryError, match="no box 'per_cra'"):
        md.restore(tmp_path / "s", q=wider, reset=["per_cra"])


def test_what_cant_be_checkpointed_cant_take_over(tmp_path: Path) -> None:
    saved(tmp_path / "s", cars()[0])
    after, source = cars()
    after.sink("own", source.apply(lambda batch: batch, CARS, name="mine"))
    with pytest.raises(md.QueryError, match="'mine'"):
        md.restore(tmp_path / "s", q=after)


def old_query() -> md.Query:
    q = md.Query("old")
    cars = q.source("cars", CARS, time="ts", unit="s", slack="1 min")
    columns = {"at": "int64", "car": "int32", "toll": "int64"}
    tolls = q.source("tolls", columns, time="at", unit="s", slack="1 min")
    fast = cars.filter("speed > 10")
    windows = fast.window("10 min", advance="5 min").group_by("vid")
    q.sink("per_vid", windows.aggregate(n=md.count(), mean="avg(speed)", kinds="count_distinct(speed)"))
    q.sink("paid", cars.join(tolls, on={"vid": "car"}, within="2 min", name="pay"))
    q.sink("all", cars.select("vid", "speed"))
    return q


OLD_CARS = [
    {
        "ts": list(range(0, 900, 30)),
        "vid": [n % 4 for n in range(30)],
        "speed": [float(n) for n in range(30)],
    },
    {"ts": [5, 880], "vid": [1, 2], "speed": [50.0, 60.0]},
    {"ts": [900, 1300], "vid": [1, 2], "speed": [40.0, 40.0]},
]
OLD_TOLLS = [
    {"at": list(range(0, 800, 50)), "car": [n % 4 for n in range(16)], "toll": list(range(16))},
    {"at": [1300], "car": [2], "toll": [99]},
]


def ended(run: Any) -> dict[str, Any]:
    run.push("cars", OLD_CARS[2])
    run.push("tolls", OLD_TOLLS[1])
    run.finish()
    return {sink: run.take(sink).to_pylist() for sink in ("per_vid", "paid", "all")}


@pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
@pytest.mark.parametrize("given", [False, True])
def test_checkpoints_of_version_1_go_on(tmp_path: Path, given: bool) -> None:
    shutil.copytree(OLD, tmp_path / "s")
    with md.start(old_query()) as whole:
        whole.push("cars", OLD_CARS[0])
        whole.push("tolls", OLD_TOLLS[0])
        whole.take("all")
        whole.push("cars", OLD_CARS[1])
        expected = ended(whole)
    with md.restore(tmp_path / "s", q=old_query() if given else None) as run:
        assert run.positions() == {"cars": 32, "tolls": 16}
        assert ended(run) == expected
    index = json.loads(next((tmp_path / "s").glob("checkpoint-*2/fragment.json")).read_text())
    assert index["version"] == 2


def test_version_1_of_another_query_is_refused(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "s")
    other = md.Query("old")
    other.sink("all", other.source("cars", CARS, time="ts", unit="s", slack="2 min").select("vid", "speed"))
    with pytest.raises(md.StateError, match=r"source 'cars' \(slack_us: 60000000 -> 120000000\)"):
        md.restore(tmp_path / "s", q=other)


def test_deltas_on_disk_hold_the_whole_state(tmp_path: Path) -> None:
    q = md.Query("q")
    source = q.source("cars", CARS, time="ts", unit="s", slack="1 min")
    q.sink("sums", source.group_by("vid").running(total="sum(speed)"))
    sizes = []
    with md.start(q, checkpoint=tmp_path / "s", checkpoint_every=None) as run:
        for turn in range(5):
            keys = np.arange(20_000) if turn == 0 else np.arange(turn, 20_000, 100)
            run.push("cars", {"ts": np.full(len(keys), turn), "vid": keys, "speed": keys * 0.5})
            run.take("sums")
            name = run.checkpoint()
            sizes.append(sum(file.stat().st_size for file in (tmp_path / "s" / name).glob("*.arrow")))
        expected = run._fragment.snapshot()
    assert sizes[0] > FULL_BYTES_MIN
    assert all(size < sizes[0] / 20 for size in sizes[1:])
    with md.restore(tmp_path / "s") as run:
        found = run._fragment.snapshot()
        assert {name: bytes(data) for name, data in found.items()} == {
            name: bytes(data) for name, data in expected.items()
        }
    # What a delta stands on stays there, and is missed when it doesn't.
    first = tmp_path / "s" / "checkpoint-000000002"  # that of the start was too small to stand on
    assert first.is_dir()
    with md.restore(tmp_path / "s") as run:
        run.checkpoint()
    shutil.rmtree(sorted((tmp_path / "s").glob("checkpoint-*"))[-1])
    with md.restore(tmp_path / "s"):
        pass
