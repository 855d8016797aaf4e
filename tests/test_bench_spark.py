"""The benches of Spark, without Spark: their rows, the answers they compare with, and the table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import spark, spark_ends, spark_tables, spark_windows

MACHINE = {
    "processor": "p",
    "cores": 2,
    "load_before": 1.0,
    "python": "3.11",
    "commit": "c",
    "changed": False,
    "measured": "today",
}
WAY: dict[str, Any] = {
    "rows_per_s": 10.0,
    "spread": 0.1,
    "wall_s": [1.0],
    "cpu_s": {"spark": 1.0, "gateway": 0.0, "node": 0.0},
}


def test_rows_are_made_of_their_numbers() -> None:
    table = pa.concat_tables([spark_ends.rows(70), spark_ends.rows(30, 70)])
    assert table.equals(spark_ends.rows(100))
    assert pc.sum(table["number"]).as_py() == 4950


def test_rows_are_waited_for_where_nobody_has_read_yet() -> None:
    rows = spark_ends.rows(100)
    with spark_ends.world("a") as world:
        follower = spark_tables.follow(world, "a.out")
        assert follower.state()[1] == 0
        world.fed.publish("a.rows", rows)
        world.fed.flush(spark_ends.WAIT)
        spark_tables.wait(world, "a.out", len(rows))
        assert follower.state()[1] == len(rows)


def test_the_embedded_query_has_the_windows_of_numpy_and_a_wrong_one_is_noticed(tmp_path) -> None:
    table = spark_windows.rows(20_000)
    right = spark_windows.wanted(table)
    answer, marks = spark_windows.embedded(spark_windows.write(table, tmp_path / "rows"))
    spark_windows.check("medusa", answer, right)
    assert len(marks) == spark_windows.FILES
    for wrong in (right.slice(1), right.set_column(2, "n", pc.add(right["n"], 1))):
        with pytest.raises(SystemExit, match="aren't the"):
            spark_windows.check("medusa", wrong, right)


def test_a_part_that_is_not_measured_stays_as_it_was(tmp_path) -> None:
    source = {"medusa": WAY | {"rows_per_s": 6.0}, "floor": WAY | {"rows_per_s": 8.0}, "parquet": WAY}
    found: dict[str, Any] = {
        "tables": {"rows": 20, "source": source, "sink": source, "machine": MACHINE, "load_after": 2.0}
    }
    text = spark.write(found, tmp_path)
    assert "| source: medusa | **0.60** | **0.75** | 6 | 1.00 | 10% | 1.00 | 0.00 | 0.00 |" in text
    moves = [{"took_s": 1.0, "pause_ms": 20.0, "mb": 7.0}, {"took_s": 3.0, "pause_ms": 10.0, "mb": 7.0}]
    found = spark.earlier(tmp_path)
    found["overflow"] = {"groups": 10, "there": moves, "back": moves, "trigger_us": [1, 2]}
    found["overflow"] |= {"machine": MACHINE, "load_after": 2.0}
    text = spark.write(found, tmp_path)
    assert "| there | 1.0 to 3.0 | 10 to 20 | 7.0 to 7.0 |" in text
    assert "source: medusa" in text
