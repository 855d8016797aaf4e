"""Native programs give what the kernels give, bit for bit, or give up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa._native import Program
from medusa.elements import Train
from medusa.engine.expressions.evaluate import Evaluator
from medusa.engine.expressions.program import OPS, program_of
from medusa.engine.fragment import Fragment
from medusa.engine.stats import TIMED
from medusa.query.expressions.column import as_tree
from medusa.query.expressions.expression import Expression, Named
from medusa.query.expressions.tree import columns_of

SCHEMA = {
    "a": "int64",
    "b": "int64",
    "i": "int32",
    "x": "float64",
    "y": "float64",
    "p": "bool",
    "q": "bool",
    "t": "timestamp[us, UTC]",
    "d": "duration[us]",
}
ARROW = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("p", pa.bool_()),
        ("q", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.duration("us")),
    ]
)
FLOATS = ["x", "y", "a / b", "0.5", "-1.5", "cast(a as double)", "cast(i as double)", "1e308"]
WHOLE = ["a", "b", "cast(i as bigint)", "3", "-7", "9223372036854775807"]


def numbers(draw: st.DrawFn, depth: int, whole: bool) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(WHOLE if whole else FLOATS))
    one = lambda: numbers(draw, depth - 1, whole)  # noqa: E731  a fresh draw each time
    kinds = ["add", "sub", "mul", "neg", "abs", "case", "coalesce"] + (["div", "mod"] if whole else ["over"])
    match draw(st.sampled_from(kinds)):
        case "add":
            return f"({one()} + {one()} + {one()})"
        case "sub":
            return f"({one()} - {one()})"
        case "mul":
            return f"({one()} * {one()})"
        case "neg":
            return f"(- {one()})"
        case "abs":
            return f"abs({one()})"
        case "case":
            return f"(case when {condition(draw, depth - 1)} then {one()} else {one()} end)"
        case "coalesce":
            return f"coalesce({one()}, {one()})"
        case "div":
            return f"({one()} // {one()})"
        case "mod":
            return f"({one()} % {one()})"
    return f"({one()} / {one()})"


def condition(draw: st.DrawFn, depth: int) -> str:
    if depth == 0:
        return draw(st.sampled_from(["p", "q", "a > b", "x <= y", "x = y", "t < t + d", "i in (1, 2, 3)"]))
    one = lambda: condition(draw, depth - 1)  # noqa: E731
    match draw(st.integers(0, 5)):
        case 0:
            return f"({one()} and {one()} and {one()})"
        case 1:
            return f"({one()} or {one()})"
        case 2:
            return f"(not {one()})"
        case 3:
            return f"({numbers(draw, depth - 1, draw(st.booleans()))} is null)"
        case 4:
            return f"(p {draw(st.sampled_from(['=', '<>']))} q)"
    whole = draw(st.booleans())
    sign = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]))
    return f"({numbers(draw, depth - 1, whole)} {sign} {numbers(draw, depth - 1, whole)})"


@st.composite
def trees(draw: st.DrawFn) -> Expression:
    depth = draw(st.integers(1, 3))
    kind = draw(st.integers(0, 2))
    text = condition(draw, depth) if kind == 2 else numbers(draw, depth, kind == 1)
    return as_tree(text, box="test")


def column(rng: np.random.Generator, type: pa.DataType, rows: int, nulls: float, wild: bool) -> pa.Array:
    mask = rng.random(rows) < nulls
    if pa.types.is_boolean(type):
        return pa.array(rng.random(rows) < 0.5, mask=mask)
    if pa.types.is_floating(type):
        values = rng.integers(-8, 9, rows) / 4.0
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e308])
        chosen = rng.random(rows) < (0.3 if wild else 0.0)
        return pa.array(np.where(chosen, special[rng.integers(0, 5, rows)], values), mask=mask)
    small = rng.integers(-5, 6, rows)
    if wild and type != pa.int32():
        edges = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min, 1 << 53, (1 << 62) + 1])
        small = np.where(rng.random(rows) < 0.02, edges[rng.integers(0, 4, rows)], small)
    return pa.array(small.astype(np.int32) if type == pa.int32() else small, mask=mask).cast(type, safe=False)


def batch_of(seed: int, rows: int, nulls: float, *, wild: bool) -> pa.RecordBatch:
    """Random rows, of a longer batch so that their bitmaps don't begin at a byte."""
    rng = np.random.default_rng(seed)
    made = [column(rng, field.type, rows + 13, nulls, wild) for field in ARROW]
    return pa.RecordBatch.from_arrays(made, schema=ARROW).slice(seed % 13, rows)


@settings(max_examples=300)
@given(
    trees(), st.integers(0, 1 << 30), st.sampled_from([1, 63, 64, 511, 512, 1500]), st.booleans(), st.data()
)
def test_a_program_gives_what_the_kernels_give(
    tree: Expression, seed: int, rows: int, wild: bool, data: st.DataObject
) -> None:
    native = program_of([Named("v", tree)], SCHEMA, box="test")
    slow = Evaluator(tree, SCHEMA, box="test", timed=True)
    slow._native = None
    if native is None:
        assert slow._program.plain or not columns_of(tree)  # bare columns, constants
        return
    batch = batch_of(seed, rows, data.draw(st.sampled_from([0.0, 0.2, 0.9])), wild=wild)
    expected = slow(batch, batch.column("t"))
    made = native.run(batch, batch.column("t"))
    if made is None:
        return
    assert expected.failed is None or expected.failed.true_count == 0
    got = pa.record_batch(made[0]).column(0)
    got.validate(full=True)
    assert same_bits(got, expected.values)


def same_bits(got: pa.Array, expected: pa.Array) -> bool:
    assert got.type == expected.type
    assert got.is_valid().equals(expected.is_valid())
    if not pa.types.is_floating(got.type):
        return bool(got.equals(expected))
    a, b = (each.drop_null().to_numpy(zero_copy_only=False) for each in (got, expected))
    nans = np.isnan(a) & np.isnan(b)
    return bool((nans | (a.view(np.int64) == b.view(np.int64))).all())


def test_most_runs_do_not_give_up() -> None:
    """Else the test above would compare nothing."""
    text = "case when a > b or x < 0.5 then x * 2.0 + y else cast(a as double) end"
    native = program_of([Named("v", as_tree(text, box="t"))], SCHEMA, box="t")
    assert native is not None
    assert native.run(batch_of(1, 2000, 0.2, wild=False), None) is not None
    overflow = program_of([Named("v", as_tree("a + b", box="t"))], SCHEMA, box="t")
    assert overflow is not None
    edge = batch_of(1, 2000, 0.0, wild=False).set_column(
        0, "a", pa.array(np.full(2000, np.iinfo(np.int64).max))
    )
    assert overflow.run(edge, None) is None


@pytest.mark.parametrize("text", ["lower(s)", "x ** 2", "round(x)", "cast(x as bigint)", "s = 'a'"])
def test_what_native_code_cannot_do_is_left_to_the_kernels(text: str) -> None:
    tree = as_tree(text.replace("**", "^"), box="t")
    assert program_of([Named("v", tree)], SCHEMA | {"s": "utf8"}, box="t") is None


def test_baseline_and_avx2_agree() -> None:
    code = {name: number for number, name in enumerate(OPS)}
    rng = np.random.default_rng(3)
    values = rng.integers(-(1 << 63), (1 << 63) - 1, 5000)
    batch = pa.record_batch({"v": values, "x": rng.standard_normal(5000)})
    steps = [
        (code["column"], 0, 0, 0, 0),
        (code["float"], 1, 0, 0, 0),
        (code["column"], 2, 1, 0, 0),
        (code["gt"], 3, 1, 2, 0),
        (code["filter"], 0, 3, 0, 0),
        (code["mul"], 4, 1, 2, 0),
    ]
    outputs = [(1, "g", "f"), (4, "g", "m")]
    found = []
    for baseline in (False, True):
        program = Program(columns="lg", steps=steps, constants=[], outputs=outputs, baseline=baseline)
        made = program.run(batch)
        assert made is not None
        found.append((pa.record_batch(made[0]), made[1]))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]
    kept = values.astype(float) > batch.column(1).to_numpy()
    assert np.array_equal(found[0][0].column(0).to_numpy(), values.astype(float)[kept])


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": [(99, 0, 0, 0, 0)]},
        {"steps": [(OPS.index("add"), 1, 0, 0, 0)]},
        {"steps": [(OPS.index("column"), 0, 5, 0, 0)]},
        {"steps": [(OPS.index("column"), -1, 0, 0, 0)]},
        {"steps": [(0, 0, 0, 0, 0), (0, 0, 0, 0, 0)]},
        {"steps": [(0, 0, 0, 0, 0), (OPS.index("not"), 1, 0, 0, 0)]},
        {"steps": [(0, 0, 0, 0, 0)], "outputs": [(0, "g", "v")]},
        {"steps": [(0, 0, 0, 0, 0)], "outputs": [(7, "l", "v")]},
        {"columns": "u"},
    ],
)
def test_programs_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"columns": "l", "steps": [], "constants": [], "outputs": []} | wrong
    with pytest.raises(ValueError, match=r"step|output|column|register"):
        Program(**parts)


# Chains


def chains(q: md.Query, choice: int) -> None:
    a = q.source("a", {"ts": "timestamp", "k": "int64", "v": "float64", "n": "int64", "s": "utf8"}, slack=20)
    if choice == 0:
        made = a.filter("v > 0.5").select("k", w="v * 2.0 + n", unread="n * 4611686018427387904")
        q.sink("o", made.window(10).group_by("k").aggregate(c=md.count(), w=md.sum("w")))
    elif choice == 1:
        q.sink("o", a.filter("v > 0.5").with_columns(w="v * n").filter("w < 4.0").select("ts", "w", "k"))
    elif choice == 2:
        q.sink("o", a.with_columns(w="v + 1.0").filter("n % 2 = 0"))  # a text passes: one by one
    elif choice == 3:
        made = a.filter("n >= 0").with_columns(at="tuple_time").filter("v is not null").select("at", "n")
        q.sink("o", made)
        q.sink("dead", made.dead)
    else:
        q.sink("o", a.select(k="k", v="v / n").window(12, 5).aggregate(v=md.avg("v"), m=md.max("k")))


@settings(max_examples=80)
@given(st.integers(0, 4), st.integers(0, 1 << 30), st.integers(0, 3))
def test_a_chain_gives_what_its_boxes_give(choice: int, seed: int, trains: int) -> None:
    """Also the same counts for each box, with late rows, nulls and rows that fail."""
    import medusa.engine.compile as compiling

    rng = np.random.default_rng(seed)
    q = md.Query("q")
    chains(q, choice)
    batches = []
    for number in range(trains):
        rows = int(rng.integers(1, 700))
        n = rng.integers(-3, 4, rows)
        if rng.random() < 0.3:
            n[rng.integers(0, rows)] = np.iinfo(np.int64).max
        batches.append(
            pa.record_batch(
                {
                    "ts": pa.array(rng.integers(-25, 25, rows) + 20 * number).cast(pa.timestamp("us", "UTC")),
                    "k": pa.array(rng.integers(0, 3, rows), mask=rng.random(rows) < 0.1),
                    "v": pa.array(rng.integers(-4, 9, rows) / 4, mask=rng.random(rows) < 0.1),
                    "n": n,
                    "s": ["x"] * rows,
                }
            )
        )
    found = []
    for fused in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not fused:
                patch.setattr(compiling, "link_chains", lambda *args: None)
            fragment = Fragment(q.graph)
        assert any(getattr(box, "chain", None) for box in fragment.boxes.values()) == fused
        for batch in batches:
            fragment.feed("a", Train(batch=batch))
        fragment.finish()
        rows_out = {
            name: [row for e in fragment.drain(name) if isinstance(e, Train) for row in e.batch.to_pylist()]
            for name in fragment.sinks
        }
        counts = fragment.stats().drop_columns([*TIMED, "state_bytes"]).to_pylist()
        found.append((repr(rows_out), counts, [repr(dead) for dead in fragment.dead()]))
    assert found[0] == found[1]


class Ticks:
    """A clock on which a microsecond passes whenever it is read."""

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        self.us += 1
        return self.us


def test_a_chain_is_busy_at_its_first_box_and_closes_windows_at_the_window() -> None:
    q = md.Query("q")
    rows = q.source("a", {"ts": "timestamp", "v": "int64"}, slack=100).filter("v > 1", name="f")
    q.sink("o", rows.select("v", name="s").window(10).aggregate(n=md.count(), name="w"))
    fragment = Fragment(q.graph, clock=Ticks())
    times = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    train = Train(batch=pa.record_batch({"ts": times, "v": [1, 2, 3]}))
    fragment.feed("a", train)

    def busy() -> dict[str, int]:
        return {row["box"]: row["busy_us"] for row in fragment.stats().to_pylist()}

    first = busy()
    fragment.feed("a", train)  # the boundary stands: rows alone
    second = busy()
    assert {box: us - first[box] for box, us in second.items()} == {"a": 0, "f": 1, "s": 0, "w": 0, "o": 0}
    fragment.finish()
    assert busy()["w"] > second["w"]
