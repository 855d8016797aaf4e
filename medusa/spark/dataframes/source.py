"""The rows of a source from a DataFrame: checked, their time, which are late, and a boundary for each.

All of it is Spark's own work. Rows are in order of ``_seq``. Which are late depends on all rows before, and
a boundary on rows before or behind, so rows go by ranges of ``_seq``: each range by itself, with what the
ranges before (or behind) it come to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.elements import START_US
from medusa.errors import DataError, QueryError
from medusa.query.boxes import Field, Source
from medusa.query.shape import StreamShape
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal
from medusa.spark import column_types
from medusa.spark.column_types import BOUND, LATE, NEVER_US, TIME, TIME_MAX_US

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["BOUNDARY", "META", "SEQ", "Archive", "archive"]

SEQ, LATE_MARK, SHED_MARK = META = ("_seq", "_late", "_shed")
"""Columns of an archive: the position at the source, and whether a row was late, or shed."""

BOUNDARY = "_boundary"
"""Of a stream: no row behind this one that isn't late has a time below it."""

RANGE_BITS = 18
"""Rows go by ranges of positions that hold so many rows (2^18), were the gaps between them all alike."""

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class Archive:
    """A source's DataFrame, its columns checked and named by place, with those of ``META`` that it has."""

    def __init__(self, spec: Source, df: DataFrame, has: frozenset[str]) -> None:
        self.spec = spec
        self.df = df
        self.has = has

    @property
    def has_order(self) -> bool:
        return SEQ in self.has

    def rows(self, shape: StreamShape, *, ordered: bool, assume_on_time: bool) -> tuple[DataFrame, int]:
        """The rows as a stream's DataFrame, and how many columns their order has.

        Args:
            ordered: some box depends on their order, or on which are late.
        """
        from pyspark.sql import functions as F

        df = self.checked()
        if ordered and not self.has_order:
            assert assume_on_time, "it was refused before"
            df = df.withColumn("o0", F.col(TIME)).withColumn("o1", F.monotonically_increasing_id())
            df = df.withColumn(LATE, self._given()).withColumn(BOUND, F.col(TIME))
            return self._entered(df, 2)
        if not ordered or self.spec.time is None:
            df = df.withColumn(LATE, F.lit(False)).withColumn(BOUND, F.lit(int(START_US)))
        elif LATE_MARK in self.has or self.spec.slack_us is None:
            df = self._bounded_behind(df.withColumn(LATE, self._given()))
        else:
            df = self._judged(df, self.spec.slack_us)
        return self._entered(df, 1 if self.has_order else 0)

    def _given(self) -> Column:
        from pyspark.sql import functions as F

        return F.col("m_late") if LATE_MARK in self.has else F.lit(False)

    def _entered(self, df: DataFrame, orders: int) -> tuple[DataFrame, int]:
        from pyspark.sql import functions as F

        if SHED_MARK in self.has:  # they were judged as others, and then left out
            df = df.where(~F.col("m_shed"))
        names = (*column_types.values(self.spec.schema), TIME, LATE, BOUND, *column_types.orders(orders))
        return df.select(*names), orders

    def alone(self) -> Column:
        """Of each row: whether it is a boundary alone."""
        from pyspark.sql import functions as F

        if BOUNDARY not in self.has:
            return F.lit(False)
        if self.spec.time is None:
            if LATE_MARK not in self.has:
                return F.lit(False)
            return F.col("m_late").isNull() & F.col("m_bound").isNotNull()
        place = [field.name for field in self.spec.schema].index(self.spec.time)
        return F.col(f"c{place}").isNull() & F.col("m_bound").isNotNull()

    # Time

    def checked(self) -> DataFrame:
        """The rows with their times, no boundaries alone; those that break a rule raise where they pass."""
        return self._valid(self.timed().where(~self.alone()))

    def timed(self) -> DataFrame:
        """The rows with their times in microseconds, null where there is none."""
        from pyspark.sql import functions as F

        spec, df = self.spec, self.df
        if spec.time is None:
            return df.withColumn(TIME, F.lit(None).cast("long"))
        names = [field.name for field in spec.schema]
        column = F.col(f"c{names.index(spec.time)}")
        if spec.unit is None:
            time = F.unix_micros(column)
        elif spec.unit == "ns":
            time = F.expr(f"(c{names.index(spec.time)} - pmod(c{names.index(spec.time)}, 1000L)) DIV 1000")
        else:
            scale = UNITS[spec.unit]
            limit = TIME_MAX_US // scale
            # What is out of range is refused below; multiplied it could come back into it.
            time = F.when(column.between(-limit, limit), column.cast("long") * scale).otherwise(
                TIME_MAX_US + 1
            )
            time = F.when(column.isNull(), None).otherwise(time)
        return df.withColumn(TIME, time)

    def _valid(self, df: DataFrame) -> DataFrame:
        """Rows that break a rule raise where they pass; a filter, so that no plan leaves the check out."""
        from pyspark.sql import functions as F

        spec = self.spec
        checks = []
        if spec.time is not None:
            who = f"source '{spec.id}': column '{spec.time}' is the time: "
            checks.append((F.col(TIME).isNull(), who + "a row holds null"))
            checks.append((~F.col(TIME).between(-TIME_MAX_US, TIME_MAX_US), who + "a row is out of range"))
        for name, column in ((SEQ, "o0"), (LATE_MARK, "m_late"), (SHED_MARK, "m_shed")):
            if name in self.has:
                checks.append((F.col(column).isNull(), f"source '{spec.id}': column '{name}' holds null"))
        return _refusing(df, checks)

    # Lateness and boundaries

    def _ranges(self, df: DataFrame) -> DataFrame:
        """With the range of each row. Positions far apart (stamps in ns) would else be a range each."""
        from pyspark.sql import functions as F

        span = F.max("o0").cast("double") - F.min("o0").cast("double")
        gap = F.greatest(F.lit(1.0), (span + 1) / F.count("o0"))
        bits = F.least(F.lit(63), F.lit(RANGE_BITS) + F.ceil(F.log2(gap))).cast("int")
        df = df.crossJoin(F.broadcast(df.agg(bits.alias("w"))))
        return df.withColumn("k", F.expr("shiftright(o0, w)")).drop("w")

    def _judged(self, df: DataFrame, slack_us: int) -> DataFrame:
        """As a source judges: against the largest time of the rows before, late ones included."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        df = self._ranges(df)
        before = (Window.unboundedPreceding, -1)
        whole = Window.orderBy("k").rowsBetween(*before)
        peaks = df.groupBy("k").agg(F.max(TIME).alias("m")).select("k", F.max("m").over(whole).alias("m"))
        df = df.join(F.broadcast(peaks), "k")
        order = Window.partitionBy("k").orderBy("o0")
        df = df.withColumn("m", F.greatest("m", F.max(TIME).over(order.rowsBetween(*before))))
        df = self._once(df.withColumn("p", F.lag("o0").over(order)))
        df = df.withColumn(LATE, F.coalesce(F.col(TIME) < F.col("m") - slack_us, F.lit(False)))
        return df.withColumn(BOUND, F.greatest("m", TIME) - slack_us)

    def _bounded_behind(self, df: DataFrame) -> DataFrame:
        """Which rows are late is known: the boundary is the least time from a row on, late ones aside."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        df = self._ranges(df)
        time = F.when(~F.col(LATE), F.col(TIME))
        whole = Window.orderBy(F.desc("k")).rowsBetween(Window.unboundedPreceding, -1)
        lows = df.groupBy("k").agg(F.min(time).alias("m")).select("k", F.min("m").over(whole).alias("m"))
        df = df.join(F.broadcast(lows), "k")
        order = Window.partitionBy("k").orderBy(F.desc("o0"))
        rows = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        df = df.withColumn("m", F.least("m", F.min(time).over(rows)))
        df = self._once(df.withColumn("p", F.lag("o0").over(order)))
        return df.withColumn(BOUND, F.coalesce("m", F.lit(NEVER_US)))

    def _once(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        twice = F.coalesce(F.col("p") == F.col("o0"), F.lit(False))
        return _refusing(df, [(twice, f"source '{self.spec.id}': column '{SEQ}' numbers two rows alike")])


def archive(spec: Source, df: DataFrame, *, extra: str, live: bool = False) -> Archive:
    """Check the columns of a DataFrame for a source.

    Args:
        live: boundaries may come with the rows (``_boundary``).

    Raises:
        DataError: a column is missing, extra or repeated, or has another type.
    """
    from pyspark.sql import functions as F

    who = f"source {spec.id!r}"
    names = [field.name for field in spec.schema]
    meta = (*META, BOUNDARY) if live else META
    if taken := [name for name in meta if name in names]:
        raise QueryError(
            f"{who}: its column {taken[0]!r} has a name that means something in an archive",
            hint="select it under another name before",
            code="query.spark",
        )
    came = list(df.columns)
    for name in names:
        if name not in came:
            raise DataError(
                f"{who}: column {name!r} is missing", hint=did_you_mean(name, came), code="data.column"
            )
    for name in (*names, *meta):
        if came.count(name) > 1:
            raise DataError(f"{who}: column {name!r} stands twice in the data", code="data.column")
    over = [name for name in came if name not in names and name not in meta]
    if over and extra == "refuse":
        raise DataError(
            f"{who}: column {over[0]!r} isn't in the schema",
            hint='leave it out, or say extra="ignore"',
            code="data.column",
        )
    placed = df.toDF(*(f"i{place}" for place in range(len(came))))
    types = dict(zip(came, (field.dataType for field in df.schema.fields), strict=True))
    made = []
    for place, field in enumerate(spec.schema):
        _check_type(who, field, types[field.name])
        target = column_types.spark_type(field.type)
        made.append(F.col(f"i{came.index(field.name)}").cast(target).alias(f"c{place}"))
    has = frozenset(name for name in meta if name in came)
    for name, type, alias in (
        (SEQ, "long", "o0"),
        (LATE_MARK, "boolean", "m_late"),
        (SHED_MARK, "boolean", "m_shed"),
    ):
        if name in has:
            _check_meta(who, name, types[name])
            made.append(F.col(f"i{came.index(name)}").cast(type).alias(alias))
    if BOUNDARY in has:
        _check_meta(who, BOUNDARY, types[BOUNDARY])
        bound = F.col(f"i{came.index(BOUNDARY)}")
        if types[BOUNDARY].simpleString() == "timestamp":
            bound = F.unix_micros(bound)
        made.append(bound.cast("long").alias("m_bound"))
    return Archive(spec, placed.select(*made), has)


def _check_meta(who: str, name: str, came: DataType) -> None:
    text = came.simpleString()
    allowed: tuple[str, ...] = ("bigint", "timestamp") if name == BOUNDARY else ("boolean",)
    if name == SEQ:
        allowed = ("tinyint", "smallint", "int", "bigint")
    if text not in allowed:
        raise DataError(f"{who}: column {name!r}: expected {allowed[-1]}, came {text}", code="data.type")


WIDENS = {
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("float",),
}


def _check_type(who: str, field: Field, came: DataType) -> None:
    """Refuse a column whose values could change on the way to the declared type."""
    target = column_types.spark_type(field.type).simpleString()
    text = came.simpleString()
    if text == target or (text in WIDENS.get(target, ()) and not field.type.startswith("uint")):
        return
    if field.type == DURATION and text.startswith("interval day"):
        return
    if is_decimal(field.type) and text.startswith("decimal"):
        (precision, scale), (p, s) = decimal_parts(field.type), (came.precision, came.scale)
        if s <= scale and p - s <= precision - scale:
            return
    hint = "cast it before, or declare the column as it comes"
    if field.type == TIMESTAMP and text == "timestamp_ntz":
        hint = "say in which zone it is: to_utc_timestamp(...)"
    raise DataError(
        f"{who}: column {field.name!r}: expected {target} for {field.type}, came {text}",
        hint=hint,
        code="data.type",
    )


def _refusing(df: DataFrame, checks: list[tuple[Column, str]]) -> DataFrame:
    from pyspark.sql import functions as F

    if not checks:
        return df
    passes: Column | None = None
    for broken, message in checks:
        refused = F.raise_error(F.lit(message)).cast("boolean")
        passes = F.when(broken, refused) if passes is None else passes.when(broken, refused)
    assert passes is not None
    return df.where(passes.otherwise(True))
