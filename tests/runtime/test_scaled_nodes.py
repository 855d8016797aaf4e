"""Two real nodes split a box that has too much to do, by themselves, and merge it when nothing comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import LinkError
from tests.system.slow_sum import query

DEADLINE_S = 120


def config(folder: Path, name: str, peer: str) -> dict[str, Any]:
    return {
        "name": name,
        "listen": f"ipc://{folder}/{name}.s",
        "data": str(folder / name),
        "peers": {peer: f"ipc://{folder}/{peer}.s"},
        "load": {"half_life": "500ms", "high": 1.0},
        "scale": {"every": "500ms", "cooldown": "1s", "high": 0.5, "low": 0.02, "parts_max": 2},
    }


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short enough for a socket."""
    return tmp_path_factory.mktemp("s")


@pytest.mark.full
@pytest.mark.issue(22)
def test_as_much_comes_a_box_runs_at_two_nodes_and_as_nothing_comes_at_one(folder: Path) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    rows: list[dict[str, list[int]]] = []
    got: list[pa.RecordBatch] = []
    with (
        md.node(config(folder, "a", "b")) as a,
        md.node(config(folder, "b", "a")),
        a.connect() as fed,
    ):
        fed.deploy(query())
        out = fed.subscribe("cars.out", from_="oldest")

        def take(timeout: str = "100ms") -> None:
            if (train := out.next(timeout)) is not None:
                got.append(train.batch)

        def scaling() -> dict[str, Any]:
            """Nothing, until the node has seen that it runs the query."""
            found: dict[str, Any] = fed.status()["queries"]["cars"]
            return found.get("scaling") or {"last": "", "outcome": ""}

        def publish() -> None:
            first = 24 * len(rows)
            numbers = range(first, first + 24)
            ts, seg = [n // 24 for n in numbers], [n % 17 for n in numbers]
            rows.append({"ts": ts, "seg": seg, "v": list(numbers)})
            fed.publish("cars.cars", rows[-1])

        def until(done: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
            while not done():
                assert time.monotonic() < ends_s, scaling()
                meanwhile()
                with contextlib.suppress(LinkError):  # Nothing came: it is looked again.
                    take()

        until(lambda: scaling()["last"].startswith("move") and scaling()["outcome"] == "done", publish)
        explained = CliRunner().invoke(main, ["explain", "cars", "--node", a.address])
        assert "cars is scaled by node a" in explained.output
        until(
            lambda: scaling()["last"] == "merge per_seg at a" and scaling()["outcome"] == "done", lambda: None
        )
        told = CliRunner().invoke(main, ["scale", "cars", "--node", a.address])
        assert "by itself: on, by node a" in told.output.splitlines()[-1]
        assert [each["parts"] for each in fed.scale_plan("cars")] == [1]
        fed.finish("cars.cars")
        while not out.ended:
            take("60s")
    want = md.collect(query(), cars=pa.concat_tables([pa.table(each) for each in rows]))["out"]
    assert pa.Table.from_batches(got).to_pylist() == want.to_pylist()
