"""Values of a trace cast to declared types: which would become other values on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal, is_float
from medusa.spark import column_types

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["lost", "tried"]

NUMBER = r"^[+-]?([0-9]*)[.]?([0-9]*)(?:[eE]([+-]?[0-9]+))?$"
WHOLE = r"^[+-]?[0-9]+$"
INFINITE = r"(?i)inf"
DAY = r"^[+-]?[0-9]{4,7}(-[0-9]{1,2}){0,2}([ T]+0?0:00(:00([.]0*)?)?Z?)?$"
"""A day, if with a time then midnight."""
BELOW_US = r"[.][0-9]{6}0*[1-9]"
NO_DAY = r"^T?[0-9]{1,2}:"
"""Spark takes such a time for one of today."""


def tried(column: Column, type: str, came: str) -> Column:
    """A cast from a type of Spark's to one of ours, that gives null where it fails."""
    from pyspark.sql import functions as F

    target = column_types.spark_type(type)
    if came == target.simpleString():
        return column
    if type == "binary" and came == "string":
        return F.try_to_binary(column, F.lit("hex"))
    return column.try_cast(target)


def lost(column: Column, cast: Column, type: str, came: str) -> Column:
    """Of each row: whether ``cast``, made by ``tried``, isn't the value that came."""
    failed = cast.isNull() & column.isNotNull()
    if came != "string":  # 1.5 as an integer is 1, and 2^53 + 1 as a float is 2^53
        return failed | ~cast.try_cast(came).eqNullSafe(column)
    from pyspark.sql import functions as F

    text = F.trim(column)
    other = F.lit(False)
    if is_decimal(type):
        other = _rounded(text, decimal_parts(type)[1])
    elif is_float(type):
        other = _no_such_float(text, cast)
    elif type == "date32":
        other = ~text.rlike(DAY)
    elif type == TIMESTAMP:
        other = text.rlike(BELOW_US) | text.rlike(NO_DAY)
    elif type == DURATION:
        other = text.rlike(BELOW_US)
    return failed | F.coalesce(other, F.lit(False))


def _rounded(text: Column, scale: int) -> Column:
    """Whether a number has digits behind the last that a decimal keeps."""
    from pyspark.sql import functions as F

    whole, fraction, exponent = (F.regexp_extract(text, NUMBER, place) for place in (1, 2, 3))
    digits = F.concat(whole, fraction)
    kept = F.regexp_replace(digits, "0+$", "")
    zeros = F.length(digits) - F.length(kept)
    places = F.length(fraction) - zeros - F.coalesce(exponent.try_cast("int"), F.lit(0))
    return ~text.rlike(NUMBER) | ((F.length(kept) > 0) & (places > scale))


def _no_such_float(text: Column, cast: Column) -> Column:
    """Fractions are the nearest float's; but a whole number that it isn't, or beyond all, is another one."""
    from pyspark.sql import functions as F

    # A float is written with as few digits as tell it: 12345678901234567000 may be one, padded. Spark makes
    # a decimal of those digits too, and only a bigint of the float itself.
    same = F.lit(False)
    for whole in ("bigint", "decimal(38, 0)"):
        same = same | F.coalesce(cast.try_cast(whole) == text.try_cast(whole), F.lit(False))
    infinite = F.abs(cast) == F.lit(float("inf"))
    return (text.rlike(WHOLE) & ~same) | (infinite & ~text.rlike(INFINITE))
