"""Functions of users may return malformed Arrow: the row or the call fails, and the process never crashes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from tests.engine.test_malformed_arrow import BAD, decimals

SCHEMA = {"ts": "timestamp", "g": "int64"}
OUT = {"k": "utf8", "d": "decimal(5,2)"}
GOOD = {"k": pa.array(["a", "b", "c"]), "d": decimals(1, 2, 3)}
VARIANTS = {
    **{name: {**GOOD, "k": array} for name, (array, _) in BAD.items()},
    "decimal": {**GOOD, "d": decimals(1, 100000, 3)},
}


def rows(start: int) -> dict[str, Any]:
    return {"ts": pa.array(range(start, start + 3), pa.timestamp("us", "UTC")), "g": [1, 1, 1]}


def made(columns: dict[str, Any], how: str) -> Any:
    if how == "dict":
        return columns
    batch = pa.RecordBatch.from_pydict(columns)
    return batch if how == "batch" else pa.Table.from_batches([batch])


@pytest.mark.filterwarnings("ignore::medusa.DeadRowWarning")
@pytest.mark.parametrize("how", ["dict", "batch", "table"])
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("kind", ["apply", "process"])
def test_a_result_that_is_malformed_is_dead(kind: str, name: str, how: str) -> None:
    bad = True

    def result(batch: pa.RecordBatch) -> Any:
        if batch.num_rows < 3:
            raise ValueError("apply repeats a call that failed on parts of its rows")
        return made(VARIANTS[name] if bad else GOOD, how)

    class Keyed:
        def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> Any:
            return result(batch)

    q = md.Query("q")
    s = q.source("s", SCHEMA, time="ts", slack=0)
    out = s.apply(result, OUT) if kind == "apply" else s.process(Keyed, OUT, by="g")
    q.sink("o", out.select("d", up="upper(k)", two="concat(k, '-', k)"))
    with md.start(q) as run:
        run.push("s", rows(1))
        bad = False
        run.push("s", rows(10))
        run.finish()
        table = run.take("o")
        table.validate(full=True)
        assert table["up"].to_pylist()[-3:] == ["A", "B", "C"]
        assert sum(run.stats()["dead"].to_pylist()) == 3


@md.register("test.malformed.Last")
class Last:
    """Gives whatever array stands in ``given``."""

    given: ClassVar[pa.Array] = GOOD["k"]
    inputs: ClassVar = ["int64"]
    state: ClassVar = {"n": "int64"}
    result = "utf8"

    def init(self, groups: int) -> dict[str, Any]:
        return {"n": np.zeros(groups, np.int64)}

    def add(self, state: Any, groups: Any, values: Any) -> Any:
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        return state

    def finish(self, state: Any) -> pa.Array:
        return Last.given.slice(0, len(state["n"]))


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", ["window", "session"])
def test_an_aggregate_that_gives_a_malformed_array(kind: str, name: str) -> None:
    q = md.Query("q")
    s = q.source("s", SCHEMA, time="ts", slack=0)
    groups = s.window(9) if kind == "window" else s.session(9)
    q.sink("o", groups.group_by("g").aggregate(k=md.user(Last, "g")).select(up="upper(k)"))
    Last.given = BAD[name][0]
    with md.start(q) as run:
        run.push("s", {**rows(1), "g": [1, 2, 3]})
        with pytest.raises(md.DataError, match="a broken Arrow array: column .*finish"):
            run.finish()
