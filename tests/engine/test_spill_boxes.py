"""Boxes with keys whose state goes to disk, beside the same query without a budget: rows, order and bits.

Boundaries, snapshots and restores come at any moment; so do restores with another budget, or without one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.operators.spill import spill_part, spill_parts
from medusa.engine.operators.spill.spill_box import SpillBox
from medusa.runtime.store.spill import FolderSpill

Build = Callable[[md.Query, Any, Any], Any]
A = {"ts": "timestamp", "k": "string", "v": "int64", "x": "float64"}
B = {"ts": "timestamp", "k": "string", "w": "int64"}
BUDGET = "4 KiB"


def join(how: str, where: str | None = None) -> Build:
    return lambda q, a, b: a.join(b, on="k", within="3 s", how=how, where=where, name="box")


def asof(how: str, where: str | None = None) -> Build:
    within = "9 s" if where else None
    return lambda q, a, b: a.asof_join(b, on="k", how=how, within=within, where=where, name="box")


def updated(q: md.Query, a: Any, b: Any) -> Any:
    start = pa.table({"k": [f"key {i}" for i in range(50)], "bal": [*range(50)], "note": ["n"] * 50})
    schema = {"k": "string", "bal": "int64", "note": "string"}
    table = q.table("box", key="k", schema=schema, from_=start)
    q.sink("deleted", b.filter("w = 0").delete(table))
    q.sink("seen", b.filter("w > 1").lookup(table, name="look"))
    return a.update(table, set={"bal": "table.bal + v % 10"}, insert={"bal": "v", "note": "k"})


def expiring(q: md.Query, a: Any, b: Any) -> Any:
    table = q.table("box", key="k", schema={"k": "string", "bal": "int64"}, expire="6 s")
    q.sink("seen", b.lookup(table, how="inner", name="look"))
    return a.update(table, set={"bal": "table.bal + v % 10"}, insert={"bal": "v"})


QUERIES: dict[str, Build] = {
    "inner": join("inner"),
    "left": join("left"),
    "right, on a condition": join("right", "left.v < right.w"),
    "full": join("full"),
    "semi": join("semi"),
    "anti": join("anti", "left.v <= right.w"),
    "as of": asof("left"),
    "as of, inner, on a condition": asof("inner", "left.v < right.w"),
    "running": lambda q, a, b: a.group_by("k").running(
        n=md.count(), s=md.sum("v"), f=md.avg("x"), p=md.lag("v"), name="box"
    ),
    "running, expires": lambda q, a, b: a.group_by("k").running(
        s=md.sum("x"), d=md.count_distinct("v"), p=md.lag("x", 3), expire="6 s", name="box"
    ),
    "lag": lambda q, a, b: a.group_by("k").running(p=md.lag("v"), name="box"),
    "session": lambda q, a, b: (
        a.session("3 s")
        .group_by("k")
        .aggregate(
            n=md.count(), s=md.sum("v"), f=md.first("x"), l=md.last("v"), d=md.count_distinct("v"), name="box"
        )
    ),
    "distinct": lambda q, a, b: a.distinct("k", "v", within="4 s", name="box"),
    "table": updated,
    "table, expires": expiring,
}


def query(name: str) -> md.Query:
    q = md.Query("spills")
    a = q.source("a", A, time="ts", slack="2 s")
    b = q.source("b", B, time="ts", slack="1 s")
    q.sink("out", QUERIES[name](q, a, b))
    if name not in ("table", "table, expires"):
        q.sink("all", b)  # so that it is read everywhere
    return q


def pushes(
    chance: random.Random, keys: int, sizes: tuple[int, ...] = (1, 4, 40, 120)
) -> list[tuple[str, pa.Table]]:
    found, second = [], 0
    for _ in range(12):
        second += chance.choice([0, 1, 1, 3])
        source, rows = chance.choice("ab"), chance.choice(sizes)
        times = [second * 1_000_000 + chance.randrange(0, 23) * 100_000 for _ in range(rows)]
        columns: dict[str, Any] = {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": [None if chance.random() < 0.05 else f"key {chance.randrange(keys)}" for _ in range(rows)],
        }
        if source == "a":
            columns["v"] = [
                None if chance.random() < 0.1 else 1 << 62 if chance.random() < 0.01 else chance.randrange(6)
                for _ in range(rows)
            ]
            columns["x"] = [chance.choice([chance.random(), float("nan"), -0.0]) for _ in range(rows)]
        else:
            columns["w"] = [chance.randrange(6) for _ in range(rows)]
        found.append((source, pa.table(columns)))
    return found


class Life:
    """One run of a query over some pushes."""

    def __init__(self, name: str, folder: Path, bounds: dict[str, Any]) -> None:
        self.folder = folder
        self.bounds = bounds
        self.spilled = 0
        settings = {"spill": folder / "spill", **bounds} if bounds else {}
        self.run = md.start(
            query(name), checkpoint=folder / "state", checkpoint_every=None, on_error="dead", **settings
        )

    def push(self, source: str, rows: pa.Table) -> None:
        self.run.push(source, rows)
        storage = self.run._fragment.storage
        if storage is not None and storage.spool is not None:
            self.spilled = max(self.spilled, storage.spool.written_bytes)

    def again(self, chance: random.Random) -> None:
        """From a checkpoint, perhaps with another budget or none."""
        self.run.checkpoint()
        self.run.close()
        other: list[dict[str, Any]] = [
            {},
            {"state_budget": "40 KiB"},
            {"state_budget": "1 GiB", "at_limit": "error"},
            {"state_budget": BUDGET, "at_limit": "spill"},
        ]
        self.run = md.restore(
            self.folder / "state",
            **({"spill": self.folder / "spill", **chance.choice(other)} if self.bounds else {}),
        )

    def ended(self) -> dict[str, Any]:
        run = self.run
        run.finish()
        found: dict[str, Any] = {name: repr(run.take(name).to_pylist()) for name in run._fragment.sinks}
        for box in run.stats().to_pylist():
            found[box["box"]] = [box[name] for name in ("rows_in", "rows_out", "late", "dead")]
        run.close()
        return found


SPILLS = {"state_budget": BUDGET, "at_limit": "spill"}


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_parts, "CHUNK_BYTES_MIN", 700)
    monkeypatch.setattr(spill_part, "WAITING_BYTES_MIN", 4_000)


def compare(name: str, seed: int, folder: Path, restores: float) -> int:
    """How many bytes were written to disk by one of the runs."""
    chance = random.Random(seed)
    rows = pushes(chance, 300 if seed % 2 else 4)
    plain, spilling = Life(name, folder / "plain", {}), Life(name, folder / "spilling", SPILLS)
    for source, table in rows:
        plain.push(source, table)
        spilling.push(source, table)
        assert repr(spilling.run.take("out").to_pylist()) == repr(plain.run.take("out").to_pylist())
        for box in spilling.run._fragment.boxes.values():
            if isinstance(box, SpillBox) and chance.random() < 0.7:
                box.spill(1 << 40)  # so that all parts are on disk when the next rows come
        if chance.random() < restores:
            spilling.again(chance)
    assert spilling.ended() == plain.ended()
    return spilling.spilled


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", QUERIES)
def test_rows_order_and_bits_are_those_without_a_budget(name: str, tmp_path: Path) -> None:
    spilled = 0
    for seed, restores in ((7, 0.15), (9, 0)):
        folder = tmp_path / str(seed)
        (folder / "plain").mkdir(parents=True)
        (folder / "spilling").mkdir()
        spilled += compare(name, seed, folder, restores)
    assert spilled > 0


@pytest.mark.full
@pytest.mark.issue(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", QUERIES)
def test_the_same_of_many_more_rows_and_moments(name: str, tmp_path: Path) -> None:
    spilled = 0
    for seed in range(100, 130):
        folder = tmp_path / str(seed)
        (folder / "plain").mkdir(parents=True)
        (folder / "spilling").mkdir()
        spilled += compare(name, seed, folder, 0.2) > 0
    assert spilled > 20


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["inner", "full", "left", "anti"])
def test_rows_on_disk_that_nothing_can_meet_any_more_are_no_part_of_a_checkpoint(
    name: str, tmp_path: Path
) -> None:
    """A part on disk isn't told of boundaries that bring nothing: what it held still was refused later."""
    for seed in range(4):
        folders = [tmp_path / f"{seed} {kind}" for kind in ("plain", "spilling")]
        for folder in folders:
            folder.mkdir()
        plain, spilling = Life(name, folders[0], {}), Life(name, folders[1], SPILLS)
        for number, (source, table) in enumerate(pushes(random.Random(seed), 40)):
            plain.push(source, table)
            spilling.push(source, table)
            box = spilling.run._fragment.boxes["box"]
            assert isinstance(box, SpillBox)
            box.spill(1 << 40)
            if number % 3 == 2:
                spilling.run.checkpoint()
                spilling.run.close()
                spilling.run = md.restore(spilling.folder / "state", spill=spilling.folder / "spill")
        assert spilling.ended() == plain.ended()


class Disk:
    """What a run's spill folder does, told by a test."""

    full = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    append = FolderSpill.append

    def guarded(self: FolderSpill, name: str, parts: Any) -> None:
        if found.full:
            raise md.StateError("no space left", code="state.io")
        append(self, name, parts)

    monkeypatch.setattr(FolderSpill, "append", guarded)
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["full", "running, expires"])
def test_a_full_disk_loses_nothing(name: str, tmp_path: Path, disk: Disk) -> None:
    """Pushes are refused as without a disk; when there is room again all goes on."""
    rows = pushes(random.Random(3), 300, (150,))
    (tmp_path / "plain").mkdir()
    (tmp_path / "spilling").mkdir()
    plain, spilling = Life(name, tmp_path / "plain", {}), Life(name, tmp_path / "spilling", SPILLS)
    refused = 0
    for number, (source, table) in enumerate(rows):
        plain.push(source, table)
        disk.full = number % 5 in (1, 2, 3)
        before = spilling.run.positions()
        with suppress(md.StateError):
            spilling.push(source, table)
        if spilling.run.positions() == before:
            refused += 1
            disk.full = False
            spilling.push(source, table)
    disk.full = False
    assert refused > 0
    assert spilling.ended() == plain.ended()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["inner", "running"])
def test_a_damaged_file_is_told(name: str, tmp_path: Path) -> None:
    life = Life(name, tmp_path, SPILLS)

    def damage() -> None:
        done: set[Path] = set()
        for source, table in pushes(random.Random(5), 300, (150,)):
            life.push(source, table)
            for file in {*(tmp_path / "spill").glob("*.spill")} - done:
                done.add(file)
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 1
                file.write_bytes(data)

    with pytest.raises(md.StateError) as error:
        damage()
    assert error.value.code == "state.corrupt"
    life.run.close()
