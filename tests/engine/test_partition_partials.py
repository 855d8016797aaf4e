"""A window without a key whose parts hold results of the same open windows becomes one window again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

import medusa as md
import tests.engine.test_aggregates  # noqa: F401  registers its aggregates
from medusa.errors import StateError

SCHEMA = {
    "ts": "int64",
    "v": "int64",
    "f": "float64",
    "s": "utf8",
    "b": "bool",
    "i": "int8",
    "d": "decimal128(20, 2)",
    "at": "timestamp",
}
AGGREGATES = {
    "n": md.count(),
    "nv": md.count("v"),
    **{f"{name}_{of}": f"{name}({of})" for name in ("sum", "avg", "variance", "stddev") for of in "vfd"},
    **{
        f"{name}_{of}": f"{name}({of})"
        for name in ("min", "max")
        for of in ("v", "f", "s", "b", "i", "d", "at")
    },
    **{f"{name}_{of}": f"{name}({of})" for name in ("first", "last", "count_distinct") for of in "vsd"},
    "hll": "approx_count_distinct(v)",
    "middle": "quantile(f, 0.5)",
    "near": "approx_quantile(f, 0.3)",
}
ROWS, STEP = 1_200, 60


def rows(first: int) -> dict[str, list[object]]:
    times = range(first, first + STEP)
    return {
        "ts": [time - time * 7 % 5 for time in times],
        "v": [None if time % 13 == 0 else time * 37 % 97 for time in times],
        "f": [1 + time % 101 * 1.1 for time in times],
        "s": [f"{time * 7 % 11}" for time in times],
        "b": [time % 3 == 0 for time in times],
        "i": [time % 50 - 25 for time in times],
        "d": [Decimal(time * 31 % 1009) / 100 for time in times],
        "at": [datetime.fromtimestamp(time, UTC) for time in times],
    }


def query(size: str, advance: str, **more: object) -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", unit="us", slack="10us")
    q.sink("o", a.window(size, advance).aggregate(**AGGREGATES, **more, name="box"))
    return q


def same(got: object, want: object) -> bool:
    return got == want or (isinstance(got, float) and math.isclose(got, want, rel_tol=1e-9))


@pytest.mark.parametrize(("size", "advance"), [("200us", "200us"), ("250us", "90us")])
def test_it_is_merged_in_the_midst_of_windows(size: str, advance: str) -> None:
    """It was refused: under a stream a window is open at any time."""
    q = query(size, advance)
    run, got = md.start(q), []
    for number, first in enumerate(range(0, ROWS, STEP)):
        run.push("a", rows(first))
        if number % 3 == 0:
            run.split("box", 2 + number % 2, block=7)
        elif number % 3 == 2:
            run.merge("box")
        got += run.take("o").to_pylist()
    run.finish()
    got += run.take("o").to_pylist()
    whole = {name: [row for first in range(0, ROWS, STEP) for row in rows(first)[name]] for name in SCHEMA}
    want = md.collect(q, a=whole)["o"].to_pylist()
    assert len(got) == len(want) > 5
    for mine, theirs in zip(got, want, strict=True):
        assert {name for name in theirs if not same(mine[name], theirs[name])} == set()


def test_with_an_aggregate_of_a_user_it_waits_for_the_end_of_the_window() -> None:
    run = md.start(query("200us", "200us", u=md.user("test.geometric_mean", "f")))
    run.split("box", 2, block=7)
    run.push("a", rows(0))
    with pytest.raises(StateError, match="aggregates of users, and several parts have partial"):
        run.merge("box")
    run.finish()
    assert sum(row["n"] for row in run.take("o").to_pylist()) == STEP
