"""Trains of every schema type, drawn by hypothesis."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
from hypothesis import strategies as st

from medusa.elements import Kind, Train
from medusa.query.boxes import Field
from medusa.query.types import to_arrow

DAYS = st.dates(min_value=dt.date(1, 1, 1))
MICROS = st.integers(-(1 << 50), 1 << 50)
VALUES = {
    "bool": st.booleans(),
    **{f"int{n}": st.integers(-(1 << (n - 1)), (1 << (n - 1)) - 1) for n in (8, 16, 32, 64)},
    **{f"uint{n}": st.integers(0, (1 << n) - 1) for n in (8, 16, 32, 64)},
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "utf8": st.text(max_size=20),
    "binary": st.binary(max_size=20),
    "date32": DAYS,
    "timestamp[us, UTC]": MICROS,
    "duration[us]": MICROS,
    "decimal128(12, 3)": st.decimals(-(10**8), 10**8, places=3).map(decimal.Decimal),
}
TIME = pa.timestamp("us", tz="UTC")


@st.composite
def trains(draw, rows_max=12):
    """(schema, timed, train): any columns, nulls, slices with any offset."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6))
    schema = tuple(Field(f"c{index}", type) for index, type in enumerate(types))
    rows = draw(st.integers(1, rows_max))
    before = draw(st.integers(0, 9))
    size = before + rows

    def column(type):
        values = draw(st.lists(st.none() | VALUES[type], min_size=size, max_size=size))
        return pa.array(values, to_arrow(type))

    batch = pa.record_batch([column(type) for type in types], names=[field.name for field in schema])
    timed = draw(st.booleans())
    times = pa.array(draw(st.lists(MICROS, min_size=size, max_size=size)), TIME) if timed else None
    late = None
    if draw(st.booleans()):
        late = pa.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    return (
        schema,
        timed,
        Train(
            batch=batch.slice(before, rows),
            times=None if times is None else times.slice(before, rows),
            first_seq=draw(st.integers(0, 1 << 40)),
            kind=draw(st.sampled_from(Kind)),
            late=None if late is None else late.slice(before, rows),
        ),
    )


def same(left, right):
    """Equal in every part; NaN is equal to itself."""
    assert left.kind is right.kind
    pairs = [*zip(left.batch.columns, right.batch.columns, strict=True)]
    pairs += [(left.times, right.times), (left.late, right.late)]
    for one, other in pairs:
        if one is None or other is None:
            assert one is other
            continue
        assert one.type == other.type
        # Text, since NaN differs from itself.
        assert [repr(value) for value in one.to_pylist()] == [repr(value) for value in other.to_pylist()]
