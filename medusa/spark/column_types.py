"""Columns of Medusa in Spark, and back: Spark has no unsigned integers, and its own rules for names.

Between two steps a DataFrame has columns named by place, since names of Medusa may hold dots and differ in
case alone: ``c0``, ``c1`` ... (of a second input ``d0`` ...), and those of ``META``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.errors import DataError
from medusa.query.boxes import Schema
from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal, to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "BOUND",
    "LATE",
    "NEVER_US",
    "PART",
    "TAG",
    "TIME",
    "TIME_MAX_US",
    "arrow_in",
    "arrow_out",
    "orders",
    "spark_type",
    "struct",
    "values",
    "wire",
]

TIME, LATE, BOUND, PART, TAG = "t", "l", "b", "part", "tag"
"""Of every row: its time in microseconds (null: none), whether it is late, a boundary that holds from this
row on; then the shard it goes to and the input it is for."""

NEVER_US = 1 << 61
"""A boundary behind which no row has a time; not the end, after which none may come."""

TIME_MAX_US = 1 << 60
"""A source refuses times beyond it, either way."""

WIDER = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "uint64": pa.decimal128(20, 0)}


def values(schema: Schema | tuple[str, ...], letter: str = "c") -> tuple[str, ...]:
    """The names by place of the columns of a stream."""
    return tuple(f"{letter}{place}" for place in range(len(schema)))


def orders(count: int) -> tuple[str, ...]:
    """The columns by which rows are in order."""
    return tuple(f"o{place}" for place in range(count))


def wire(type: str) -> pa.DataType:
    """The Arrow type that Spark has for a type of ours."""
    return WIDER.get(type) or to_arrow(type)


def arrow_in(array: pa.Array, type: str, what: str) -> pa.Array:
    """A column as it came from Spark, as ours.

    Raises:
        DataError: a value doesn't fit.
    """
    target = to_arrow(type)
    if array.type.equals(target):
        return array
    if type == TIMESTAMP:
        return array.view(target)  # only the zone in which it would be shown differs
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise DataError(f"{what}: a value doesn't fit {type}: {error}", code="data.type") from None


def arrow_out(array: pa.Array, type: str) -> pa.Array:
    """A column of ours as Spark takes it."""
    target = wire(type)
    return array if array.type.equals(target) else array.cast(target)


def spark_type(type: str) -> DataType:
    """The type of Spark's column for a type of ours."""
    from pyspark.sql import types

    if is_decimal(type):
        return types.DecimalType(*decimal_parts(type))
    made: dict[str, DataType] = {
        "bool": types.BooleanType(),
        "int8": types.ByteType(),
        "int16": types.ShortType(),
        "int32": types.IntegerType(),
        "int64": types.LongType(),
        "uint8": types.ShortType(),
        "uint16": types.IntegerType(),
        "uint32": types.LongType(),
        "uint64": types.DecimalType(20, 0),
        "float32": types.FloatType(),
        "float64": types.DoubleType(),
        "utf8": types.StringType(),
        "binary": types.BinaryType(),
        "date32": types.DateType(),
        TIMESTAMP: types.TimestampType(),
        DURATION: types.DayTimeIntervalType(),
    }
    return made[type]


def struct(fields: Iterable[tuple[str, DataType]]) -> StructType:
    """A Spark schema."""
    from pyspark.sql import types

    return types.StructType([types.StructField(name, type) for name, type in fields])
