"""Boxes whose state is on disk are split and merged: the rows are those of a run in memory, never split."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.engine import splitting
from tests.engine import test_spill_boxes
from tests.engine.test_spill_boxes import BUDGET, QUERIES, A, B, pushes

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

NAMES = [*(name for name in QUERIES if name != "semi"), "window"]


def query(name: str) -> md.Query:
    if name != "window":
        return test_spill_boxes.query(name)
    q = md.Query("spills")
    a = q.source("a", A, time="ts", slack="2 s")
    windows = a.window("4 s", "2 s").group_by("k")
    q.sink("out", windows.aggregate(n=md.count(), s=md.sum("v"), f=md.avg("x"), name="box"))
    q.sink("all", q.source("b", B, time="ts", slack="1 s"))
    return q


def splits(name: str) -> list[str]:
    """The boxes of a query whose state may be on disk."""
    return ["box", "look"] if name.startswith("table") else ["box"]


def written(run: Any) -> int:
    return int(run._fragment.storage.spool.written_bytes)


def to_disk(run: Any, ids: list[str]) -> bool:
    """Write what these boxes hold, and their parts; whether any state is on disk then."""
    held = [
        box
        for id, box in run._fragment.boxes.items()
        if hasattr(box, "spill") and any(id == each or id.startswith(f"{each}-") for each in ids)
    ]
    for box in held:
        box.spill(1 << 40)
    return any(box.save().streams for box in held)


def bounds(name: str, folder: Path) -> dict[str, Any]:
    # A window holds some 80 KiB that never leave memory, and there may be three at a time.
    budget = BUDGET if name != "window" else "400 KiB"
    return {"spill": folder, "state_budget": budget, "at_limit": "spill"}


def outcome(name: str, seed: int, folder: Path | None) -> tuple[dict[str, str], int]:
    """What a run gives, as text; and how many boxes were split and merged while all they held was on disk."""
    chance = random.Random(f"{name} {seed}")
    settings = {} if folder is None else bounds(name, folder)
    parts: set[str] = set()
    turned = 0
    with md.start(query(name), on_error="dead", **settings) as run:
        for source, rows in pushes(random.Random(seed), keys=40):
            run.push(source, rows)
            box = chance.choice(splits(name))
            if folder is None or chance.random() < 0.4:
                continue
            turned += to_disk(run, [box])
            if box in parts:
                run.merge(box)
            else:
                run.split(box, 3, ranges=chance.choice(["even", [1 << 62, 1 << 63]]))
            parts ^= {box}
        run.finish()
        return taken(run), turned


def taken(run: Any) -> dict[str, str]:
    """NaN is NaN."""
    return {sink: repr(run.take(sink).to_pylist()) for sink in run._fragment.sinks}


@pytest.mark.parametrize("shelved_bytes", [0, 1 << 20], ids=["each table to disk", "small tables stay"])
@pytest.mark.parametrize("name", NAMES)
def test_split_and_merged_with_state_on_disk_nothing_changes(
    name: str, shelved_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "SHELVED_BYTES_MIN", shelved_bytes)
    turned = 0
    for seed in range(2):
        expected, _ = outcome(name, seed, None)
        got, more = outcome(name, seed, tmp_path / f"{seed}")
        turned += more
        assert got == expected
    assert turned > 3
    assert not list(tmp_path.rglob("*.spill")), "what was written goes with the run"


def test_the_state_of_a_part_goes_to_disk_while_the_next_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table of a part is written as it is cut: of all parts one is in memory at a time."""
    monkeypatch.setattr(splitting, "SHELVED_BYTES_MIN", 0)
    with md.start(query("running"), **bounds("running", tmp_path)) as run:
        for source, rows in pushes(random.Random(3), keys=40):
            run.push(source, rows)
        before = written(run)
        run.split("box", 3, ranges="weight")
        assert written(run) > before


def test_a_disk_that_is_full_leaves_the_box_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SHELVED_BYTES_MIN", 0)
    expected, _ = outcome("running", 5, None)
    with md.start(query("running"), **bounds("running", tmp_path)) as run:
        for number, (source, rows) in enumerate(pushes(random.Random(5), keys=40)):
            run.push(source, rows)
            if number == 8:
                port = run._fragment.storage.spool.port
                with monkeypatch.context() as full:
                    full.setattr(type(port), "append", refuse)
                    with pytest.raises(md.StateError, match="no room"):
                        run.split("box", 3)
                assert [id for id in run._fragment.boxes if id.startswith("box")] == ["box"]
        run.finish()
        assert taken(run) == expected


def refuse(port: Any, name: str, parts: Any) -> None:
    raise md.StateError(f"{name}: no room", code="state.io")
