"""A user's aggregate gives, in every kind of window and in early results, what a native one gives that
computes the same: wherever batches are cut, and over a restore."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Kind, Train
from medusa.engine.operators.windows import groups, running, session
from tests.engine.queries import SCHEMA, batch_of
from tests.engine.test_properties import Driver


@md.register("test.kinds.Dot")
class Dot:
    """sum(a * b), null where no row has both."""

    inputs: ClassVar = ["int64", "int64"]
    state: ClassVar = {"total": "int64", "rows": "int64"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups, np.int64), "rows": np.zeros(groups, np.int64)}

    def add(self, state: Any, groups: Any, a: Any, b: Any) -> Any:
        np.add.at(state["total"], groups, a * b)
        np.add.at(state["rows"], groups, 1)
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        state["total"][groups] += other["total"]
        state["rows"][groups] += other["rows"]
        return state

    def finish(self, state: Any) -> Any:
        return pa.array(state["total"], mask=state["rows"] == 0)


TWO: dict[str, Any] = {
    "mine": md.user(Dot, "CAST(n AS BIGINT)", "CAST(k AS BIGINT)"),
    "theirs": "sum(n * k)",
    "mine_too": md.user(Dot, "CAST(k AS BIGINT)", "CAST(k AS BIGINT)"),
    "theirs_too": "sum(k * k)",
    "rows": "count()",
}


def build(kind: str, source: md.Stream) -> md.Stream:
    match kind:
        case "session":
            return source.session(4).group_by("k").aggregate(TWO)
        case "rows":
            return source.group_by("k").window_rows(3, 2).aggregate(TWO)
        case "values":
            return source.group_by("k").window_values("ts", 9, 4).aggregate(TWO)
        case "running":
            return source.group_by("k").running(TWO)
        case "expiring":
            return source.group_by("k").running(TWO, expire=6)
    return source.window(12, advance=4).group_by("k").aggregate(TWO, early=3)


STEPS = st.lists(
    st.tuples(st.integers(-6, 6), st.none() | st.integers(0, 2), st.none() | st.integers(-9, 9)),
    min_size=8,
    max_size=40,
)


@pytest.mark.parametrize("kind", ["session", "rows", "values", "running", "expiring", "early"])
def test_it_gives_what_a_native_one_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "DEAD_LEAST", 2)  # what has closed is forgotten from a few rows on
    monkeypatch.setattr(session, "KEYS_SPARE", 1)
    monkeypatch.setattr(running, "SPARE", 1)
    seen = {Kind.STABLE: 0, Kind.TENTATIVE: 0}

    @settings(max_examples=40)
    @given(STEPS, st.sampled_from([1, 2, 5, 40]), st.integers(0, 6))
    @example([(0, None, None)] * 8, 1, 0)  # saved before any row: there are no keys, of whatever type
    def run(steps: list[tuple[int, int | None, int | None]], size: int, reload_at: int) -> None:
        q = md.Query("q")
        q.sink("out", build(kind, q.source("a", SCHEMA, time="ts", slack=5)))
        driver = Driver(q)
        rows = [
            {"ts": 3 * i + step, "k": k, "v": None, "s": None, "n": n} for i, (step, k, n) in enumerate(steps)
        ]
        for number, start in enumerate(range(0, len(rows), size)):
            if number == reload_at:
                driver.reload()
            driver.fragment.feed("a", Train(batch=batch_of(rows[start : start + size])))
            check(driver)
        driver.fragment.finish()
        check(driver)

    def check(driver: Driver) -> None:
        for element in driver.fragment.drain("out"):
            if isinstance(element, Train):
                seen[element.kind] += len(element)
                for row in element.batch.to_pylist():
                    assert (row["mine"], row["mine_too"]) == (row["theirs"], row["theirs_too"])

    run()
    assert seen[Kind.STABLE] > 10
    assert (seen[Kind.TENTATIVE] > 10) == (kind == "early")
