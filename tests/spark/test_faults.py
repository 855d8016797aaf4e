"""Streams into Spark and out of it while things fail that are drawn from a seed: each row is there once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.processes import EXPECTED, ROWS, World
from tests.spark.driver import Driver
from tests.spark.faulty import POINTS, ROWS_PER_BATCH, Fault, run

RUNS = 40
EPOCHS = ROWS // ROWS_PER_BATCH
INSIDE = ("task", "commit", "driver")
OUTSIDE = ("gateway", "line", "wire", "node", "driver")


def drawn(chance: random.Random) -> tuple[list[Fault], list[str]]:
    """What fails in Spark, and what is killed or cut around it: one or two of each, and the driver in one of
    them at most."""
    inside = chance.sample(INSIDE, chance.randint(1, 2))
    outside = chance.sample(OUTSIDE, chance.randint(1, 2))
    faults = []
    for kind in inside:
        point = chance.choice({"task": ("in", "out"), "commit": ("before", "behind")}.get(kind) or POINTS)
        at = chance.randrange(ROWS if point in ("in", "out") else EPOCHS)
        faults.append(Fault(point, at, stops=kind == "driver"))
    return faults, [kind for kind in outside if kind not in inside]


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("seed", range(RUNS))
def test_each_row_is_there_once_both_ways(spark: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    faults, outside = drawn(chance)
    world = World(tmp_path, "in", "out")
    driver: Driver | None = None

    def kill() -> None:
        if driver is not None:
            driver.kill()

    try:
        said = world.draw(chance, outside, driver=kill)
        print(f"seed {seed}: {', '.join(map(str, faults))}; {said}")
        if "driver" in outside or any(each.stops for each in faults):
            given = [world.line.address, str(tmp_path), *map(str, faults)]
            driver = Driver(tmp_path / "driver.log", "tests.spark.faulty", *given)
            try:
                driver.wait(lambda: any(each.stops and each.came(tmp_path) for each in faults))
            finally:
                with world.lock:
                    driver.kill()
        failed = run(spark, world.line.address, tmp_path, [each for each in faults if not each.stops])
        kept = spark.read.parquet(str(tmp_path / "kept")).sort("_seq").collect()
        assert [tuple(row) for row in kept] == [(n, n, n, False) for n in range(ROWS)]
        assert world.copied() == EXPECTED, failed
        print(f"seed {seed}: besides came {world.came}; {world.line.pieces} and {world.wire.pieces} pieces")
        assert all(each.came(tmp_path) for each in faults)
    finally:
        world.close()
