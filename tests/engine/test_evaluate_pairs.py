"""Every two-place operation on every pair of telling values, as columns and as constants."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pyarrow as pa
import pytest

from medusa.engine.expressions.evaluate import compile_expression
from medusa.query.expressions.expression import Call, Column, Expression, Literal
from medusa.query.types import DURATION, TIMESTAMP, to_arrow
from tests.oracle.expression import Failed, evaluate

LOW, HIGH = -(2**63), 2**63 - 1
INTEGERS = [0, 1, -1, 2, -2, 3, 10, -7, 2**31, 2**32, -(2**32), 2**62, -(2**62), HIGH - 1, HIGH, LOW, LOW + 1]
VALUES: dict[str, list[Any]] = {
    "int64": [*INTEGERS, None],
    "uint64": [0, 1, 2, 3, 2**32, 2**63, 2**64 - 1, None],
    "float64": [0.0, -0.0, 1.0, -1.0, 2.5, -7.5, 1e-308, 1e308, math.nan, math.inf, -math.inf, None],
    "float32": [0.0, -0.0, 1.0, -2.5, math.nan, math.inf, -math.inf, None],
    "utf8": ["", "a", "b", "ab", "Z", "é", None],
    "bool": [True, False, None],
    TIMESTAMP: [0, 1, -1, 10**15, HIGH, LOW, None],
    DURATION: [0, 1, -1, 10**15, HIGH, LOW, None],
}
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "is_distinct_from", "nullif", "coalesce")
ORDERED = ("least", "greatest")
COMPUTED = ("add", "sub", "mul", "floordiv", "mod", "div")
OPERATIONS = [
    *((name, type, type) for type in VALUES for name in COMPARED),
    *((name, type, type) for type in VALUES if type != "bool" for name in ORDERED),
    *((name, type, type) for type in ("int64", "uint64", "float64", "float32") for name in COMPUTED),
    *(
        (name, *types)
        for types in (("int64", "float64"), ("float32", "int64"))
        for name in (*COMPARED, *COMPUTED)
    ),
    *((name, *types) for types in ((TIMESTAMP, DURATION), (DURATION, DURATION)) for name in ("add", "sub")),
    ("sub", TIMESTAMP, TIMESTAMP),
    ("mul", DURATION, "int64"),
    ("mul", "int64", DURATION),
    *((name, "bool", "bool") for name in ("and", "or")),
]


def array(values: list[Any], type: str) -> pa.Array:
    if type in (TIMESTAMP, DURATION):
        return pa.array(values, pa.int64()).view(to_arrow(type))
    return pa.array(values, to_arrow(type))


def constant(type: str, value: Any) -> Literal:
    if isinstance(value, float) and not math.isfinite(value):
        return Literal(type, "nan" if math.isnan(value) else "inf" if value > 0 else "-inf")
    if type in (TIMESTAMP, DURATION) and value is not None:
        return Literal(type, max(-(2**62), min(2**62, value)))
    return Literal(type, value)


def check(tree: Expression, pairs: list[tuple[Any, Any]], left: str, right: str) -> None:
    schema = {"a": left, "b": right}
    batch = pa.record_batch(
        {"a": array([a for a, _ in pairs], left), "b": array([b for _, b in pairs], right)}
    )
    made = compile_expression(tree, schema)(batch)
    values = made.values
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        values = values.view(pa.int64())
    for row, (a, b) in enumerate(pairs):
        failed = made.failed is not None and made.failed[row].as_py()
        try:
            _, wanted = evaluate(tree, {"a": a, "b": b}, schema)
        except Failed:
            assert failed, (tree, a, b)
            continue
        assert not failed, (tree, a, b)
        # repr tells NaN from numbers and True from 1; of 0.0 and -0.0 least may give either.
        ours = values[row].as_py()
        assert repr(ours) == repr(wanted) or (ours == wanted == 0.0), (tree, a, b, ours, wanted)


@pytest.mark.parametrize(("name", "left", "right"), OPERATIONS)
def test_every_pair(name: str, left: str, right: str) -> None:
    pairs = list(itertools.product(VALUES[left], VALUES[right]))
    check(Call(name, (Column("a"), Column("b"))), pairs, left, right)
    for value in VALUES[right]:
        check(Call(name, (Column("a"), constant(right, value))), pairs, left, right)
    for value in VALUES[left]:
        check(Call(name, (constant(left, value), Column("b"))), pairs, left, right)


@pytest.mark.parametrize("name", COMPUTED)
def test_one_good_batch_is_as_good_as_a_row(name: str) -> None:
    """The fast path (no row fails) and the slow one give the same numbers."""
    pairs = [
        (a, b) for a, b in itertools.product(INTEGERS, INTEGERS) if abs(a) < 2**31 and 0 < abs(b) < 2**31
    ]
    check(Call(name, (Column("a"), Column("b"))), pairs, "int64", "int64")
