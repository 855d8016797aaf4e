"""Views that rank their rows, and the aggregates that users registered."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import medusa as md

CARS = {"ts": "timestamp", "vid": "int64", "seg": "int32", "speed": "float64"}
MINUTE = "TUMBLE(ts, INTERVAL '1' MINUTE)"
RANKED = f"ROW_NUMBER() OVER (PARTITION BY {MINUTE}, seg ORDER BY speed DESC)"


def test_a_ranked_view_in_brackets_goes_to_several_sinks() -> None:
    text = f"""CREATE VIEW ranked AS (SELECT seg, {RANKED} AS rn FROM cars);
        INSERT INTO a SELECT seg FROM ranked WHERE rn <= 3;
        INSERT INTO b SELECT seg FROM ranked WHERE rn <= 2"""
    q = md.sql(text, cars=CARS)
    tops = [box for box in q.graph.boxes if box.__struct_config__.tag == "top"]
    assert [getattr(box, "n", 0) for box in tops] == [3, 2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"WITH r AS (SELECT seg, {RANKED} AS rn FROM r) SELECT seg FROM r WHERE rn <= 2", "no table 'r'"),
        (f"WITH r AS (SELECT seg, {RANKED} AS rn FROM cars) SELECT seg FROM r", "OVER is not supported"),
        (f"WITH r AS (SELECT sg, {RANKED} AS rn FROM cars) SELECT sg FROM r WHERE rn <= 2", "column 'sg'"),
    ],
)
def test_what_a_ranked_view_may_not_be(text: str, error: str) -> None:
    with pytest.raises(md.QueryError, match=error):
        md.sql(text, cars=CARS)


class Dot:
    """sum(a * b)."""

    inputs: ClassVar = ["float64", "int64"]
    state: ClassVar = {"total": "float64"}
    result = "float64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups)}

    def add(self, state: Any, groups: Any, a: Any, b: Any) -> Any:
        np.add.at(state["total"], groups, a * b)
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        state["total"][groups] += other["total"]
        return state

    def finish(self, state: Any) -> Any:
        return state["total"]


class OldDot(Dot):
    """An earlier version."""


@pytest.fixture(autouse=True)
def registered() -> None:
    md.register("sql_dot")(OldDot)
    md.register("sql_dot", version=2)(Dot)


def test_registered_aggregates_are_called_by_name() -> None:
    call = "sql_dot(speed, vid)"
    text = f"SELECT seg, {call} AS d, {call} + 1 AS e, {call} FILTER (WHERE vid > 1) AS f FROM cars"
    q = md.sql(f"{text} GROUP BY seg, {MINUTE} HAVING {call} > 0", cars=CARS)
    (box,) = [box for box in q.graph.boxes if box.__struct_config__.tag == "aggregate"]
    made = [(each.parameter, each.version) for each in getattr(box, "aggregates", ())]
    assert made == [("sql_dot", 2)] * 2  # equal calls are one
    at = pa.array([1, 2, 3], pa.timestamp("us"))
    cars = {"ts": at, "vid": [1, 2, 3], "seg": [7, 7, 7], "speed": [0.5, 1.0, 2.0]}
    assert md.collect(q, cars=cars).only.to_pylist() == [{"seg": 7, "d": 8.5, "e": 9.5, "f": 8.0}]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("sql_dot(speed)", r"takes \(float64, int64\), got \(float64\)"),
        ("sql_dot()", "sql_dot needs an argument"),
        ("sql_dot(DISTINCT speed)", "plain arguments"),
        ("sql_dott(speed, vid)", "there is no function 'sql_dott'"),
    ],
)
def test_how_they_may_not_be_called(call: str, error: str) -> None:
    with pytest.raises(md.QueryError, match=error):
        md.sql(f"SELECT {call} FROM cars GROUP BY {MINUTE}", cars=CARS)
