"""A trace of one's own as a DataFrame: columns of the declared types, a time, and a stable order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.pipeline.frames import file_url
from medusa.errors import DataError
from medusa.query.boxes import Source
from medusa.query.ids import check_name
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION, TIMESTAMP, decimal_parts, is_decimal, is_float
from medusa.spark import column_types
from medusa.spark.dataframes import source
from medusa.spark.dataframes.source import META, SEQ

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from medusa.query.builder import Query

__all__ = ["Trace", "check_names", "lost", "source_of", "trace", "tried"]

FORMATS = {".csv": "csv", ".gz": "csv", ".parquet": "parquet", ".pq": "parquet"}
PATH, BLOCK, PLACE = "_medusa-path", "_medusa-block", "_medusa-place"
"""Where a row stands: its file, the piece of it that a task reads, and the place among the task's rows."""


@dataclass(frozen=True)
class Trace:
    """Rows to be put in order.

    Attributes:
        df: columns by place (``c0`` ...), ``t``, those of ``order``, ``_seq`` where it is ``numbered``.
        order: within a time.
    """

    spec: Source
    df: DataFrame
    order: tuple[str, ...]
    numbered: bool
    made: dict[str, str | int | float | None] = field(default_factory=dict)


def source_of(query: Query, name: str | None) -> Source:
    """A source of a query.

    Raises:
        DataError: there is none of this name, or there are several and none was named.
    """
    found = {box.id: box for box in query.graph.boxes if isinstance(box, Source)}
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        raise DataError(
            f"query {query.name!r} has the sources {', '.join(found)}"
            + ("" if name is None else f", not {name!r:.80}"),
            hint="say which: source=" if name is None else "",
            code="data.source",
        )
    return found[name]


def trace(
    what: str | Path | DataFrame,
    spark: SparkSession,
    *,
    schema: Any,
    time: str | None,
    unit: str | None,
    query: Query | None,
    source: str | None,
    stream: str | None,
    order: str,
) -> Trace:
    """See ``prepare``.

    Raises:
        DataError, QueryError: arguments that contradict each other, a file that isn't there, a column that is
            missing. Nothing has run but the reading of a file's columns.
    """
    if order not in ("time", "file"):
        raise DataError(f'order is "time" or "file", got {order!r:.40}', code="data.argument")
    format = _format(what)
    df = _read(what, format, spark)
    if query is not None:
        if schema is not None:
            raise DataError("schema and query both say the columns: leave one out", code="data.argument")
        spec = source_of(query, source)
        spec = replace_id(spec, stream)
    else:
        spec = _declared(what, df, format, schema, time, unit, stream)
    if order == "time" and spec.time is None:
        raise DataError(f"{spec.id}: has no time to be ordered by", hint='order="file"', code="data.argument")
    check_names(spec)
    timed = _timed(spec, _cast(spec, _placed(df, what)))
    made: dict[str, str | int | float | None] = {"of": _label(what), "order": order}
    if order == "file":
        return Trace(spec, _numbered(timed), (), numbered=True, made=made)
    return Trace(spec, timed, (PATH, BLOCK, PLACE), numbered=False, made=made)


def replace_id(spec: Source, stream: str | None) -> Source:
    """The same source under another name."""
    import msgspec

    if stream is None:
        return spec
    return msgspec.structs.replace(spec, id=check_name(stream, what="stream"))


def _label(what: Any) -> str:
    return str(what) if isinstance(what, str | Path) else "a DataFrame"


def _format(what: Any) -> str:
    if hasattr(what, "mapInArrow"):
        return "frame"
    if not isinstance(what, str | Path):
        raise DataError(
            f"expected a workload, a file or a DataFrame, got {type(what).__name__}", code="data.argument"
        )
    path = Path(what)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder", code="data.file")
    inside = [path]
    if path.is_dir():
        inside = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name[0] not in "._"]
    found = {FORMATS.get(each.suffix.lower()) for each in inside}
    if len(found) != 1 or None in found:
        raise DataError(
            f"{path}: expected .csv or .parquet" + (", one of them" if path.is_dir() else ""),
            hint="name the files so; of others make a DataFrame, which is taken too",
            code="data.format",
        )
    return str(found.pop())


def _read(what: Any, format: str, spark: SparkSession) -> DataFrame:
    if format == "frame":
        return what
    from pyspark.errors import PySparkException

    reader = spark.read.option("recursiveFileLookup", "true")
    try:
        if format == "csv":
            # All as text: what casts it says which value didn't fit.
            return reader.csv(file_url(what), header=True, inferSchema=False, mode="FAILFAST", escape='"')
        return reader.parquet(file_url(what))
    except PySparkException as error:
        raise DataError(
            f"{what}: can't be read as {format}: {str(error).splitlines()[0][:200]}", code="data.format"
        ) from None


def _declared(
    what: Any, df: DataFrame, format: str, schema: Any, time: str | None, unit: str | None, stream: str | None
) -> Source:
    """The source that the arguments describe: checked as one of a query."""
    from medusa.query.builder import Query

    if stream is None:
        stem = Path(_label(what)).name.partition(".")[0] if isinstance(what, str | Path) else "trace"
        made = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in stem)
        stream = made[:64] if made[:1].isalpha() or made[:1] == "_" else f"t_{made}"[:64]
    if schema is None:
        if format == "csv":
            raise DataError(
                f"{what}: which types have its columns?",
                hint='schema={"ts": "timestamp", ...} (--schema "ts timestamp, ..."), or query=',
                code="data.schema",
            )
        schema = {each.name: _type(each) for each in df.schema.fields if each.name not in META}
    q = Query("trace")
    q.source(stream, schema, time=time, unit=unit)
    return next(box for box in q.graph.boxes if isinstance(box, Source))


def _type(field: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(field.dataType)


def check_names(spec: Source) -> None:
    """Raises: DataError: a column has a name that an archive can't have."""
    names = [each.name for each in spec.schema]
    if taken := {*names} & {*META}:
        raise DataError(
            f"column {min(taken)!r} has a name that means something in an archive",
            hint="rename it before",
            code="data.column",
        )
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise DataError(
            f"columns {', '.join(map(repr, twice[:4]))} differ in case alone, which Spark can't read",
            hint="rename one before",
            code="data.column",
        )


# Columns


def _placed(df: DataFrame, what: Any) -> DataFrame:
    """The rows with where each stands."""
    from pyspark.sql import functions as F

    if isinstance(what, str | Path):
        df = df.withColumn(PATH, F.col("_metadata.file_path")).withColumn(
            BLOCK, F.col("_metadata.file_block_start")
        )
    else:
        df = df.withColumn(PATH, F.lit("")).withColumn(BLOCK, F.spark_partition_id().cast("long"))
    return df.withColumn(PLACE, F.monotonically_increasing_id())


def _cast(spec: Source, df: DataFrame) -> DataFrame:
    """The declared columns, by place; a value that doesn't fit its type stops the job and is named."""
    from pyspark.sql import functions as F

    came = [name for name in df.columns if name not in (PATH, BLOCK, PLACE)]
    if twice := [name for name in came if came.count(name) > 1]:
        raise DataError(f"column {twice[0]!r} stands twice", code="data.column")
    missing = [each.name for each in spec.schema if each.name not in came]
    if missing:
        raise DataError(
            f"column {missing[0]!r} is missing", hint=did_you_mean(missing[0], came), code="data.column"
        )
    placed = df.toDF(*(f"i{place}" for place in range(len(came))), PATH, BLOCK, PLACE)
    types = {name: each.dataType.simpleString() for name, each in zip(came, df.schema.fields, strict=False)}
    checks, made = [], []
    for place, each in enumerate(spec.schema):
        column, type = F.col(f"i{came.index(each.name)}"), types[each.name]
        made.append(tried(column, each.type, type).alias(f"c{place}"))
        if type != column_types.spark_type(each.type).simpleString():
            text = F.substring(column.cast("string"), 1, 60)
            said = F.concat(F.lit(f"column '{each.name}': expected {each.type}, came '"), text, F.lit("'"))
            checks.append((lost(column, F.col(f"c{place}"), each.type, type), said))
    df = placed.select("*", *made)
    passes: Any = None
    for broken, message in checks:
        refused = F.raise_error(message).cast("boolean")
        passes = F.when(broken, refused) if passes is None else passes.when(broken, refused)
    if passes is not None:
        df = df.where(passes.otherwise(True))
    return df.select(*(f"c{place}" for place in range(len(spec.schema))), PATH, BLOCK, PLACE)


def _timed(spec: Source, df: DataFrame) -> DataFrame:
    """With the time in microseconds, checked as everywhere."""
    return source.Archive(spec, df, frozenset()).checked()


def _numbered(df: DataFrame) -> DataFrame:
    """With ``_seq`` by file and place in it: rows of a piece of a file are read by one task, in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pieces = df.groupBy(PATH, BLOCK).agg(F.count("*").alias("n"), F.min(PLACE).alias("low"))
    before = Window.orderBy(PATH, BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    bases = pieces.select(PATH, BLOCK, "low", F.coalesce(F.sum("n").over(before), F.lit(0)).alias("base"))
    df = df.join(F.broadcast(bases), [PATH, BLOCK])
    return df.withColumn(SEQ, F.col("base") + F.col(PLACE) - F.col("low")).drop(
        "base", "low", PATH, BLOCK, PLACE
    )


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
