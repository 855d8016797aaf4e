"""One bad row in a thousand: exactly those are dead, with box, error and row, wherever batches are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import medusa as md

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.DeadRowWarning")

ROWS = 1_000
BAD = 1  # of each kind
SCHEMA = {
    "ts": "timestamp",
    "id": "int64",
    "k": "int64",
    "f": "int64",
    "s": "int64",
    "a": "int64",
    "w": "int64",
}
ARROW = {
    name: pa.field(name, pa.timestamp("us", "UTC") if type == "timestamp" else pa.int64())
    for name, type in SCHEMA.items()
}
OUT = {"id": "int64", "k": "int64", "w": "int64"}
STEP_US = 1_000
BATTERY = "the battery is flat"


def call(batch: pa.RecordBatch) -> Any:
    """Raises for the whole batch if one row is bad, as a model or a parser would."""
    if 0 in batch["a"].to_pylist():
        raise ValueError(BATTERY)
    return {name: batch[name] for name in ("ts", "id", "k", "w")}


class Guard:
    """Passes rows on; raises for the whole call if one is bad."""

    def rows(self, key: int, batch: pa.RecordBatch, state: Any, now: int) -> Any:
        state.seen = (state.seen or 0) + batch.num_rows
        if -1 in batch["w"].to_pylist():
            raise RuntimeError(f"key {key}")
        return {"_row": list(range(batch.num_rows)), **{name: batch[name] for name in OUT}}


def given(rng: random.Random) -> tuple[pa.Table, dict[str, list[int]]]:
    """A table, and per kind of slip the rows that have it, ascending; no row has two."""
    picked = rng.sample(range(ROWS), 5 * BAD)
    slips = {
        name: sorted(picked[i * BAD : (i + 1) * BAD])
        for i, name in enumerate(("filter", "select", "apply", "process", "sums"))
    }
    columns: dict[str, Any] = {
        "ts": pa.array([row * STEP_US for row in range(ROWS)], pa.timestamp("us", "UTC")),
        "id": list(range(ROWS)),
        "k": [row % 3 for row in range(ROWS)],
        **{
            name: [0 if row in set(slips[slip]) else 1 for row in range(ROWS)]
            for name, slip in (("f", "filter"), ("s", "select"), ("a", "apply"))
        },
        "w": [1] * ROWS,
    }
    for row in slips["process"]:
        columns["w"][row] = -1
    for number, row in enumerate(slips["sums"]):
        # A group of its own: the union gives it this row twice, and two don't fit.
        columns["w"][row], columns["k"][row] = (1 << 63) - 1, 100 + number
    return pa.table(columns, pa.schema(list(ARROW.values()))), slips


def query() -> md.Query:
    q = md.Query("q")
    kept = q.source("a", SCHEMA, slack=0).filter("1 // f > 0", name="filter")
    chosen = kept.select("ts", "id", "k", "a", "w", one="1 // s", name="select")
    called = chosen.apply(call, {"ts": "timestamp", **OUT}, name="apply")
    guarded = called.process(Guard, OUT, by="k", state={"seen": pa.int64()}, name="process")
    sums = guarded.union(guarded).window("1s").group_by("k").aggregate(w=md.sum("w"), name="sums")
    q.sink("out", sums)
    for stream in (kept, chosen, called, guarded, sums):
        q.sink(f"dead_{stream.arc.box}", stream.dead)
    return q


ERRORS: dict[str, Callable[[str], bool]] = {
    "filter": lambda error: error == "division by zero: 1 // 0 in 1 // f",
    "select": lambda error: "1 // 0" in error,
    "apply": lambda error: error == f"ValueError: {BATTERY}",
    "process": lambda error: error.startswith("RuntimeError: key "),
    "sums": lambda error: error == "aggregate 'w': its sum doesn't fit int64",
}


def cut(table: pa.Table, rng: random.Random) -> list[pa.Table]:
    """Pieces of random lengths; often short ones."""
    edges = sorted({0, ROWS, *(rng.randrange(ROWS) for _ in range(rng.choice([0, 1, 3, 10, 40])))})
    return [table.slice(start, stop - start) for start, stop in pairwise(edges)]


def test_exactly_the_bad_rows_come_out_at_a_hundred_random_cuts() -> None:
    table, slips = given(random.Random(0))
    whole: dict[str, pa.Table] | None = None
    for seed in range(100):
        rng = random.Random(seed)
        if seed % 10 == 0:
            table, slips = given(rng)
            whole = None
        with md.start(query(), memory="1 GiB") as run:
            for piece in cut(table, rng):
                run.push("a", piece)
            run.finish()
            out = {name: run.take(name) for name in ("out", *(f"dead_{box}" for box in ERRORS))}
            stats = {row["box"]: row["dead"] for row in run.stats().to_pylist()}
            kept = run.dead()
        for box, holds in ERRORS.items():
            letters = out[f"dead_{box}"].to_pylist()
            rows = [json.loads(letter["row"]) for letter in letters]
            assert all(letter["box"] == box and holds(letter["error"]) for letter in letters), letters
            if box == "sums":
                assert sorted(row["k"] for row in rows) == [100 + number for number in range(BAD)]
            else:
                assert [row["id"] for row in rows] == slips[box], box
            assert stats[box] == len(rows) == BAD
            assert [each.row.get("id") for each in kept if each.box == box] == [r.get("id") for r in rows]
        good = ROWS - 5 * BAD
        assert sum(out["out"]["w"].to_pylist()) == 2 * good
        whole = whole or out
        assert out == whole, f"seed {seed}: the cuts show"


@pytest.mark.parametrize("box", ["filter", "select", "apply"])
def test_stop_raises_at_the_push_that_has_the_first_one(box: str) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        table, slips = given(rng)
        for name in {"f", "s", "a", "w"} - {box[0]}:
            table = table.set_column(table.schema.get_field_index(name), ARROW[name], [[1] * ROWS])
        first = slips[box][0]
        pushed = 0
        with md.start(query(), on_error="stop") as run:
            for piece in cut(table, rng):
                if pushed <= first < pushed + piece.num_rows:
                    with pytest.raises(md.DataError, match=f"box '{box}'") as caught:
                        run.push("a", piece)
                    assert f"'id': {first}," in str(caught.value.hint)
                    assert caught.value.code == "data.dead"
                    break
                run.push("a", piece)
                pushed += piece.num_rows
            else:
                raise AssertionError("it didn't stop")


def test_a_function_is_called_again_for_the_good_rows_beside_a_bad_one() -> None:
    seen: list[int] = []

    def once(batch: pa.RecordBatch) -> Any:
        keys = batch["k"].to_pylist()
        seen.extend(keys)
        if 3 in keys:
            raise ValueError("three")
        return {"k": batch["k"]}

    q = md.Query("q")
    q.sink("o", q.source("a", {"k": "int64"}, time=None).apply(once, {"k": "int64"}))
    with md.start(q) as run:
        run.push("a", {"k": [1, 2, 3, 4]})
        assert run.take("o")["k"].to_pylist() == [1, 2, 4]
        assert [row.row for row in run.dead()] == [{"k": 3}]
    assert sorted(seen) == [1, 1, 2, 2, 3, 3, 3, 4, 4, 4]


def test_an_early_row_that_fails_is_no_dead_row() -> None:
    def few(batch: pa.RecordBatch) -> Any:
        if 1 in batch["n"].to_pylist():
            raise ValueError("too few")
        return {"n": batch["n"]}

    q = md.Query("q")
    counts = q.source("a", {"ts": "timestamp"}, slack=0).window("10s").aggregate(n=md.count(), early="1s")
    q.sink("o", counts.apply(few, {"n": "int64"}))
    times = [0, 1_000_000, 2_000_000]
    with md.start(q, on_error="stop") as run:
        for time in times:
            run.push("a", {"ts": pa.array([time], pa.timestamp("us", "UTC"))})
        trains = [each for each in run.take("o", changes=True) if isinstance(each, md.Train)]
        assert [train.batch["n"].to_pylist() for train in trains] == [[2], [3]]
        run.finish()
        assert run.take("o")["n"].to_pylist() == [3]
        assert run.dead() == []
