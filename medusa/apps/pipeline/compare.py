"""Two DataFrames of a sink, row by row: which rows only one of them has.

Rows have no order at first: each is counted, so a row given twice is one too many. ``placed`` then looks
whether equal rows stand in the same order. Floats are compared by their bits, as Spark's own comparison takes
0.0 and -0.0 for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.apps.pipeline.matching import matched
from medusa.apps.pipeline.report import DIFFERS, SAME, SinkReport
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema
from medusa.query.suggest import did_you_mean
from medusa.query.types import is_float
from medusa.spark import column_types
from medusa.spark.dataframes.numbering import counted
from medusa.spark.dataframes.source import META, SEQ

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["compared", "placed"]


def compared(
    sink: str,
    schema: Schema,
    expected: DataFrame,
    came: DataFrame,
    *,
    key: tuple[str, ...],
    floats: float,
    examples: int,
) -> SinkReport:
    """What differs.

    Args:
        key: the columns by which rows are paired; empty: none are.
        floats: within ``floats * max(1, |a|, |b|)`` floats are equal; 0: bit for bit.

    Raises:
        DataError: ``came`` has other columns.
    """
    return _Comparison(sink, schema, key, floats).run(expected, _fitting(sink, schema, came), examples)


def placed(report: SinkReport, schema: Schema, expected: DataFrame, came: DataFrame) -> SinkReport:
    """The report of a sink whose rows are all equal, with what its order is.

    Args:
        expected, came: numbered by ``_seq``; gaps don't matter.
    """
    from pyspark.sql import functions as F

    units = _units(schema)
    kept, sides = [], []
    for letter, df in (("e", expected), ("a", came)):
        rows = bits(_fitting(report.sink, schema, df, SEQ), schema, SEQ).orderBy(SEQ).drop(SEQ)
        rows, held = counted(rows)
        kept.append(held)
        sides.append(rows.select("n", *(F.col(name).alias(f"{letter}_{name}") for name in rows.columns[:-1])))
    try:
        both = sides[0].join(sides[1], "n")
        same = F.lit(True)
        for unit in units:
            same = same & F.col(f"e_{unit}").eqNullSafe(F.col(f"a_{unit}"))
        row = both.agg(F.count_if(~same), F.min(F.when(~same, F.col("n")))).head()
        assert row is not None
        moved, first = int(row[0]), row[1]
        if not moved:
            return replace(report, order=SAME)
        at = both.where(F.col("n") == first).head()
        assert at is not None
        words = (("expected", "e"), ("answered", "a"))
        examples = tuple(
            {"what": f"{what} as row {first}"}
            | {field.name: at[f"{letter}_c{place}"] for place, field in enumerate(schema)}
            for what, letter in words
        )
        return replace(report, order=DIFFERS, moved=moved, examples=examples)
    finally:
        for each in kept:
            each.unpersist()


def _fitting(sink: str, schema: Schema, came: DataFrame, *more: str) -> DataFrame:
    names = [field.name for field in schema]
    others = [name for name in came.columns if name not in META]
    for name in names:
        if others.count(name) != 1:
            raise DataError(
                f"the answers of sink {sink!r} have no column {name!r}, or two",
                hint=did_you_mean(name, others),
                code="data.column",
            )
    for name in others:
        if name not in names:
            raise DataError(f"the answers of sink {sink!r} have a column {name!r} more", code="data.column")
    types = {each.name: each.dataType.simpleString() for each in came.schema.fields}
    for field in schema:
        wanted = column_types.spark_type(field.type).simpleString()
        if types[field.name] != wanted:
            raise DataError(
                f"the answers of sink {sink!r}: column {field.name!r}: expected {wanted} for {field.type}, "
                f"came {types[field.name]}",
                code="data.type",
            )
    placed = came.toDF(*(f"i{place}" for place in range(len(came.columns))))
    found = {name: placed[f"i{came.columns.index(name)}"] for name in (*names, *more)}
    return placed.select(
        *(column.cast("long") if name in more else column for name, column in found.items())
    ).toDF(*found)


def _units(schema: Schema) -> list[str]:
    """Of each column what tells its values apart: itself, or the bits of a float."""
    return [f"b{place}" if is_float(field.type) else f"c{place}" for place, field in enumerate(schema)]


def bits(df: DataFrame, schema: Schema, *more: str) -> DataFrame:
    """Columns by place, those whole numbers that stand behind them, and beside those of floats their bits."""
    df = df.toDF(*column_types.values(schema), *more)
    floating = [place for place, field in enumerate(schema) if is_float(field.type)]
    if not floating:
        return df
    from pyspark.sql import types

    fields = [(f"c{place}", column_types.spark_type(field.type)) for place, field in enumerate(schema)]
    fields += [(name, types.LongType()) for name in (*more, *(f"b{place}" for place in floating))]
    return df.mapInArrow(partial(_with_bits, floating), column_types.struct(fields))


class _Comparison:
    def __init__(self, sink: str, schema: Schema, key: tuple[str, ...], floats: float) -> None:
        self._sink = sink
        self._schema = schema
        self._key = key
        self._floats = floats
        self._floating = [place for place, field in enumerate(schema) if is_float(field.type)]
        self._units = _units(schema)

    def run(self, expected: DataFrame, came: DataFrame, examples: int) -> SinkReport:
        from pyspark.sql import functions as F

        sides = [
            bits(df, self._schema).withColumn("e", F.lit(e)).withColumn("a", F.lit(a))
            for df, e, a in ((expected, 1, 0), (came, 0, 1))
        ]
        values = [F.first(f"c{place}").alias(f"c{place}") for place in self._floating]
        counts = [F.sum("e").alias("e"), F.sum("a").alias("a")]
        rows = sides[0].unionByName(sides[1]).groupBy(*self._units).agg(*counts, *values).persist()
        try:
            e, a, other = self._sums(rows, F.col("e"), F.col("a"), F.abs(F.col("e") - F.col("a")))
            if not other:
                return self._report(e, a)
            return self._differing(rows.where("e <> a"), e, a, examples)
        finally:
            rows.unpersist()

    def _sums(self, df: DataFrame, *what: Column) -> list[int]:
        from pyspark.sql import functions as F

        row = df.agg(*(F.coalesce(F.sum(each), F.lit(0)) for each in what)).head()
        return [int(each) for each in row or ()]

    def _differing(self, rows: DataFrame, e: int, a: int, examples: int) -> SinkReport:
        from pyspark.sql import functions as F

        if not self._floats or not self._floating:
            return self._counted(rows, e, a, examples)
        made = [self._ranked(rows).persist()]
        try:
            (again,) = self._sums(made[0].where("again"), F.lit(1))
            if again:
                made.append(self._matched(made[0]).persist())
            pairs, unsure = self._sums(made[-1], F.col("near").cast("int"), F.col("unsure").cast("int"))
            rows = (
                made[-1]
                .where("NOT near")
                .groupBy(*self._units)
                .agg(
                    F.sum("e").alias("e"),
                    F.sum("a").alias("a"),
                    *(F.first(f"c{place}").alias(f"c{place}") for place in self._floating),
                )
            )
            return replace(self._counted(rows, e, a, examples), near=pairs // 2, unsure=unsure)
        finally:
            for each in made:
                each.unpersist()

    def _counted(self, rows: DataFrame, e: int, a: int, examples: int) -> SinkReport:
        from pyspark.sql import functions as F

        more = F.greatest(F.col("e") - F.col("a"), F.lit(0)).alias("m")
        over = F.greatest(F.col("a") - F.col("e"), F.lit(0)).alias("x")
        missing, extra = self._sums(rows, more, over)
        different = 0
        names = [field.name for field in self._schema]
        key = [self._units[names.index(name)] for name in self._key]
        if key:
            groups = (
                rows.select(*key, more, over).groupBy(*key).agg(F.sum("m").alias("m"), F.sum("x").alias("x"))
            )
            (different,) = self._sums(groups, F.least("m", "x"))
        found: list[Mapping[str, Any]] = []
        if examples and missing + extra:
            order = [*key, *(unit for unit in self._units if unit not in key)]
            taken = rows.select(*self._units, *(f"c{p}" for p in self._floating), more, over)
            taken = taken.orderBy(*key, F.desc("m"), *order[len(key) :]).limit(2 * examples)
            found = self._examples(taken.collect(), key)
        return self._report(e, a, different, missing - different, extra - different, found)

    def _ranked(self, rows: DataFrame) -> DataFrame:
        """Each row once, with ``near``: it has a partner that is equal but for floats that are close.

        The partner is the row of the other side at the same place by its floats. Where that leaves rows of
        both sides, others may fit: ``again``. What isn't finite is only like itself.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        count = F.abs(F.col("e") - F.col("a")).cast("int")
        each = rows.withColumn("side", F.col("e") > F.col("a"))
        each = each.withColumn("copy", F.explode(F.sequence(F.lit(1), count)))
        for place in self._floating:
            value = F.col(f"c{place}")
            finite = ~F.isnan(value) & (F.abs(value) != F.lit(float("inf")))
            each = each.withColumn(f"v{place}", F.when(finite, value).otherwise(0.0).cast("double"))
            each = each.withColumn(
                f"k{place}", F.when(~finite, F.col(f"b{place}")).otherwise(value.isNull().cast("long"))
            )
        exact, floating = self._alike(), [f"v{place}" for place in self._floating]
        place = Window.partitionBy("side", *exact).orderBy(*floating, "copy")
        each = each.withColumn("n", F.row_number().over(place))
        both = Window.partitionBy("n", *exact).orderBy("side")
        close = F.count("*").over(Window.partitionBy("n", *exact)) == 2
        for name in floating:
            mine = F.col(name)
            for_first, for_second = F.lead(name).over(both), F.lag(name).over(both)
            other = F.when(F.col("side"), for_second).otherwise(for_first)
            limit = F.lit(self._floats) * F.greatest(F.lit(1.0), F.abs(mine), F.abs(other))
            close = close & F.coalesce(F.abs(mine - other) <= limit, F.lit(False))
        each = each.withColumn("near", close).withColumn("unsure", F.lit(False))
        alike = Window.partitionBy(*exact)
        left = [F.count_if(~F.col("near") & (F.col("side") == mine)).over(alike) for mine in (True, False)]
        again = (left[0] > 0) & (left[1] > 0) & (F.count("*").over(alike) > 2)
        each = each.withColumn("again", again)
        return each.withColumn("e", F.col("side").cast("int")).withColumn("a", (~F.col("side")).cast("int"))

    def _matched(self, each: DataFrame) -> DataFrame:
        """The same, with as many pairs as there can be."""
        tolerance, floating = self._floats, [f"v{place}" for place in self._floating]

        def made(group: pa.Table) -> pa.Table:  # Spark reads the types of a function, which a partial hasn't
            return matched(tolerance, floating, group)

        groups = each.where("again").groupBy(*self._alike())
        return each.where("NOT again").unionByName(groups.applyInArrow(made, each.schema))

    def _alike(self) -> list[str]:
        """Columns that are equal in rows that may be a pair."""
        return [unit for unit in self._units if unit[0] == "c"] + [f"k{place}" for place in self._floating]

    def _examples(self, rows: list[Any], key: list[str]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        keys = [tuple(row[name] for name in key) for row in rows]
        for at, row in enumerate(rows):
            near = {keys[other] for other in (at - 1, at + 1) if key and 0 <= other < len(rows)}
            words = ("expected", "answered") if keys[at] in near else ("missing", "extra")
            values = {field.name: row[f"c{place}"] for place, field in enumerate(self._schema)}
            found.append({"what": words[0] if row["m"] else words[1]} | values)
        return found

    def _report(
        self,
        expected: int,
        answered: int,
        different: int = 0,
        missing: int = 0,
        extra: int = 0,
        examples: Iterable[Mapping[str, Any]] = (),
    ) -> SinkReport:
        within = [field for field in self._schema if self._floats and is_float(field.type)]
        return SinkReport(
            sink=self._sink,
            expected=expected,
            answered=answered,
            different=different,
            missing=missing,
            extra=extra,
            near=0,
            key=self._key,
            exactly=_types(field for field in self._schema if field not in within),
            within=_types(within),
            examples=tuple(examples),
        )


def _types(fields: Iterable[Field]) -> dict[str, str]:
    return {field.name: field.type for field in fields}


def _with_bits(floating: list[int], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` calls: all NaN have the same bits."""
    for batch in batches:
        made = list(batch.columns)
        for place in floating:
            column = batch.column(place)
            nan = pc.fill_null(pc.is_nan(column), False).to_numpy(zero_copy_only=False)
            values = column.fill_null(0).to_numpy(zero_copy_only=False).copy()
            values[nan] = np.nan
            bits = values.view(np.int32 if values.dtype == np.float32 else np.int64).astype(np.int64)
            made.append(pa.array(bits, mask=column.is_null().to_numpy(zero_copy_only=False)))
        labels = [*batch.schema.names, *(f"b{place}" for place in floating)]
        yield pa.RecordBatch.from_arrays(made, labels)
