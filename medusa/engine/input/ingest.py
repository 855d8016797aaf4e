"""Rows from outside become batches of a stream's schema, without loss and mostly without a copy.

Taken: anything with the Arrow PyCapsule interface, or a dict of columns. Columns are matched by
name; casts are made only where no value can change (the list is in ``docs/expressions.md``). What
doesn't fit is refused whole, with the column, the row and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from medusa._native import invalid, invalid_in, stream_checked, structs_checked
from medusa.engine.expressions.kernels.kernel import AWARE, raw, valid_rows
from medusa.engine.input.conversion import Unfit, fit
from medusa.errors import DataError
from medusa.query.boxes import Field, Schema, Source
from medusa.query.suggest import did_you_mean
from medusa.query.types import schema_to_arrow, to_arrow

__all__ = [
    "column_of",
    "normalise",
    "refuse_broken",
    "refuse_invalid",
    "refuse_malformed",
    "refuse_malformed_column",
    "table_of",
    "times_of",
]

_INDEX = re.compile(r"__index_level_\d+__")
"""Names that pandas gives an unnamed index; nobody asked for these columns."""

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, NotImplementedError)
"""What a foreign object or pyarrow raises for data that isn't a table."""

_INT64 = pa.int64()
_TIMES = {"s": 1_000_000, "ms": 1_000, "us": 1}


def normalise(
    data: Any, schema: Schema, *, extra: str = "refuse", source: str = "", arrow: pa.Schema | None = None
) -> list[pa.RecordBatch]:
    """The rows of ``data`` as batches of the schema's columns, types and order.

    Args:
        data: has ``__arrow_c_array__`` or ``__arrow_c_stream__`` (pyarrow, polars, pandas, DuckDB),
            or is a mapping of column names to lists, numpy arrays or Arrow arrays.
        extra: ``refuse`` or ``ignore`` columns that the schema doesn't have.
        source: name of the source, for messages.
        arrow: ``schema`` as Arrow has it, where the caller knows.

    Returns:
        Batches with at least one row each, as many as the data came in; buffers are shared with
        the data wherever the type is the same.

    Raises:
        DataError: not tabular, a missing, extra or repeated column, or a value that can't be
            converted without loss; names source, column, expected type, and what came.
    """
    if extra not in ("refuse", "ignore"):
        raise DataError(f"extra must be 'refuse' or 'ignore', got {extra!r:.80}", code="data.argument")
    target = _arrow_schema(schema) if arrow is None else arrow
    if isinstance(data, pa.RecordBatch) and data.schema.equals(target):
        refuse_malformed(data, source)
        return [data] if data.num_rows else []
    if isinstance(data, Mapping):
        batches: Sequence[pa.RecordBatch] = _from_mapping(data, schema, extra, source)
    else:
        batches = _from_arrow(data, source)
    made, row = [], 0
    for batch in batches:
        _check_sizes(batch, source)
        columns = _select(batch.schema.names, schema, extra, source)
        if batch.num_rows:
            _check_values(batch, columns, schema, source, row)
            fitted = [
                _fit(batch.column(index), field, source, row)
                for index, field in zip(columns, schema, strict=True)
            ]
            made.append(pa.RecordBatch.from_arrays(fitted, schema=target))
        row += batch.num_rows
    return made


@lru_cache(maxsize=1024)
def _arrow_schema(schema: Schema) -> pa.Schema:
    return schema_to_arrow(schema)


def _who(source: str) -> str:
    return f"source {source!r}" if source else "the data"


def _refuse(source: str, message: str, *, code: str, hint: str = "") -> NoReturn:
    raise DataError(f"{_who(source)}: {message}", hint=hint, code=code)


def refuse_broken(error: ValueError, source: str) -> NoReturn:
    """Refuse what Arrow's cheap validation or ``medusa._native.structs_checked`` refuses."""
    _refuse(source, f"a broken Arrow batch: {error}", code="data.arrow")


def refuse_malformed(batch: pa.RecordBatch, source: str) -> None:
    """Refuse a batch of our own types of which not all is as Arrow promises: kernels trust that.

    Raises:
        DataError: with the column and the row.
    """
    try:
        found = invalid_in(batch)
    except ValueError as error:
        refuse_broken(error, source)
    if found is not None:
        field = batch.schema.field(found[0])
        refuse_invalid(field.name, field.type, found[1], found[2], source)


def _structs(data: Any, source: str, *, rows: bool) -> _Given:
    """What gives its structs by capsules, once they were looked at: importing them follows their pointers."""
    try:
        return _Given(structs_checked(data, rows=rows))
    except ValueError as error:
        refuse_broken(error, source)


def _stream(data: Any, source: str, *, rows: bool) -> _GivenStream:
    """The same of what gives a stream of them; all of it was read."""
    try:
        capsule = data.__arrow_c_stream__()  # what else it raises is for the caller: it is no table
        try:
            return _GivenStream(stream_checked(capsule, rows=rows))
        except ValueError as error:
            refuse_broken(error, source)
    except OSError as error:
        _refuse(source, f"an Arrow stream that failed: {error.strerror or error}", code="data.table")


class _GivenStream:
    """The capsule of a stream, to be read once."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._capsule


class _Given:
    """Capsules that somebody gave."""

    def __init__(self, capsules: tuple[Any, Any]) -> None:
        self._capsules = capsules

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._capsules


def _check_sizes(batch: pa.RecordBatch, source: str) -> None:
    """Look at structs, the sizes of buffers, and the first and last offsets; at no values."""
    try:
        structs_checked(batch, rows=True)
        batch.validate()
    except ValueError as error:
        refuse_broken(error, source)


_FLAWS = {
    "offsets": "offsets that ascend, came others from row {row} on",
    "utf8": "UTF-8, row {row} holds other bytes",
    "decimal": "{type}, row {row} holds more digits",
    "nulls": "as many nulls as its bitmap has, came another count",
}


def refuse_invalid(name: str, type: object, row: int, flaw: str, source: str) -> NoReturn:
    """Refuse a column of which ``medusa._native.invalid`` found a value that can't be."""
    _refuse(
        source,
        f"a broken Arrow array: column {name!r}: expected " + _FLAWS[flaw].format(row=row, type=type),
        hint="declare the column as binary if it isn't text" if flaw == "utf8" else "",
        code="data.arrow",
    )


_LOOKED_AT = (
    *(pa.types.is_primitive, pa.types.is_null, pa.types.is_fixed_size_binary, pa.types.is_decimal128),
    *(pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary),
)
"""What native code knows all of; of other types Arrow looks at all values, which takes longer."""


def _check_values(
    batch: pa.RecordBatch, columns: Sequence[int], schema: Schema, source: str, first_row: int
) -> None:
    """Look at the values of the columns of the schema: kernels trust what Arrow promises of them."""
    for place, field in zip(columns, schema, strict=True):
        _check_column(batch.column(place), field.name, source, first_row)


def _check_column(column: pa.Array, name: str, source: str, first_row: int) -> None:
    type = column.type
    found = invalid(column)
    if found is not None:
        refuse_invalid(name, type, first_row + found[0], found[1], source)
    if not _is_looked_at(type):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            _refuse(
                source,
                f"a broken Arrow array: column {name!r}: expected a valid {type}, came: {error}",
                code="data.arrow",
            )


def refuse_malformed_column(column: pa.Array, name: str) -> None:
    """Refuse an array of any type of which not all is as Arrow promises.

    Raises:
        DataError: with the row.
    """
    try:
        structs_checked(column)
        column.validate()
    except ValueError as error:
        refuse_broken(error, "")
    _check_column(column, name, "", 0)


def _is_looked_at(type: pa.DataType) -> bool:
    for kind in _LOOKED_AT:  # noqa: SIM110 - Ctrl-C in a generator is lost where the generator is dropped
        if kind(type):
            return True
    return False


def _from_arrow(data: Any, source: str) -> Sequence[pa.RecordBatch]:
    came = f"{type(data).__module__.partition('.')[0]}.{type(data).__qualname__}"
    try:
        if isinstance(data, pa.RecordBatch):
            return [data]
        if isinstance(data, pa.Table):
            return data.to_batches() or [_empty(data.schema)]
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(_stream(data, source, rows=True))
            return list(reader) or [_empty(reader.schema)]
        if hasattr(data, "__arrow_c_array__"):
            return [pa.record_batch(_structs(data, source, rows=True))]
    except _REFUSALS as error:
        _refuse(
            source,
            f"a {came} that isn't a table: {str(error)[:300]}",
            hint="single columns are pushed in a dict: {name: column}",
            code="data.table",
        )
    hint = "a RecordBatch, Table or DataFrame, or a dict of columns"
    if hasattr(data, "collect"):
        hint = "call its collect() first"
    elif hasattr(data, "to_arrow_table"):
        hint = "call its to_arrow_table() first"
    _refuse(source, f"expected a table or a dict of columns, got {came}", code="data.table", hint=hint)


def table_of(data: Any) -> pa.Table:
    """Anything tabular but a dict, as a table whose structs were looked at.

    Raises:
        DataError: it isn't tabular (``data.table``), or malformed (``data.arrow``).
    """
    return pa.Table.from_batches(_from_arrow(data, ""))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _select(names: Sequence[str], schema: Schema, extra: str, source: str) -> list[int]:
    """Where each column of the schema stands among ``names``."""
    wanted = [field.name for field in schema]
    positions = {name: index for index, name in enumerate(names)}
    missing = [name for name in wanted if name not in positions]
    over = [name for name in names if name not in wanted and not _INDEX.fullmatch(name)]
    if missing:
        _refuse(
            source,
            f"column {missing[0]!r} is missing" + _others(missing),
            hint=did_you_mean(missing[0], over or names) if names else "",
            code="data.column",
        )
    if len(positions) < len(names):
        for name in wanted:
            if list(names).count(name) > 1:
                _refuse(source, f"column {name!r} stands twice in the data", code="data.column")
    if over and extra == "refuse":
        _refuse(
            source,
            f"column {over[0]!r} isn't in the schema" + _others(over),
            hint="leave it out, or push with extra='ignore'",
            code="data.column",
        )
    return [positions[name] for name in wanted]


def _others(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _fit(array: pa.Array, field: Field, source: str, first_row: int) -> pa.Array:
    try:
        return fit(array, field.type)
    except Unfit as unfit:
        message = f"column {field.name!r}: expected {field.type}, "
        if unfit.row is None:
            message += f"came {array.type}"
        else:
            message += f"row {first_row + unfit.row} holds {unfit.value}"
            message += "" if str(array.type) == field.type else f" ({array.type})"
        _refuse(source, message, hint=unfit.hint or _structs_hint(array.type), code="data.type")


def _structs_hint(type: pa.DataType) -> str:
    """What to do with a table that stands where a column does: Arrow makes structs of it."""
    if not pa.types.is_struct(type):
        return ""
    names = [type.field(place).name for place in range(type.num_fields)]
    one = f" ({names[0]!r})" if names else ""
    return f"a column holds single values: push a table by itself, or one of its columns{one}"


# -- dicts ----------------------------------------------------------------------------------------


def _from_mapping(data: Mapping[Any, Any], schema: Schema, extra: str, source: str) -> list[pa.RecordBatch]:
    for name in data:
        if not isinstance(name, str):
            _refuse(source, f"a column's name is a text, got {name!r:.60}", code="data.column")
    _select(list(data), schema, extra, source)
    columns = [_column(data[field.name], field, source) for field in schema]
    lengths = [len(column) for column in columns]
    for field, length in zip(schema, lengths, strict=True):
        if length != lengths[0]:
            _refuse(
                source,
                f"column {field.name!r} has {length} rows, column {schema[0].name!r} {lengths[0]}",
                code="data.length",
            )
    table = pa.Table.from_arrays(columns, names=[field.name for field in schema])
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches


def column_of(values: Any, field: Field) -> pa.Array:
    """One column in whatever form it came, as it is.

    Raises:
        DataError: it is no column.
    """
    made = _column(values, field, "")
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _column(values: Any, field: Field, source: str) -> pa.Array | pa.ChunkedArray:
    came = type(values).__name__
    try:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(_stream(values, source, rows=False))
        if hasattr(values, "__arrow_c_array__"):
            return pa.array(_structs(values, source, rows=False))
        if hasattr(values, "__array__"):
            return _from_numpy(values)
        if isinstance(values, list | tuple | range):
            return _from_values(values, field.type)
    except Unfit as unfit:
        _refuse(
            source,
            f"column {field.name!r}: expected {field.type}, row {unfit.row} holds {unfit.value}",
            hint=unfit.hint,
            code="data.type",
        )
    except _REFUSALS as error:
        _refuse(
            source,
            f"column {field.name!r}: expected {field.type}, came a {came} that doesn't convert: "
            f"{str(error)[:300]}",
            code="data.type",
        )
    _refuse(
        source,
        f"column {field.name!r}: expected a list or an array, got {came}",
        hint="each column of a dict holds one value per row",
        code="data.table",
    )


def _from_numpy(values: Any) -> pa.Array | pa.ChunkedArray:
    """pyarrow takes the machine's order of bytes alone; the other one holds the same values."""
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return pa.array(values)


def _from_values(values: Sequence[Any], type: str) -> pa.Array:
    """Python values. Its numbers have no width: they take that of the column where they fit."""
    try:
        array = pa.array(values)
    except OverflowError:
        return pa.array(values, to_arrow(type))
    loose = pa.types.is_integer(array.type) and type != "bool"
    if loose or (pa.types.is_floating(array.type) and type == "float32"):
        return _loose(array, values, type)
    return array


def _loose(array: pa.Array, values: Sequence[Any], type: str) -> pa.Array:
    arrow = to_arrow(type)
    if not (pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
        return array
    try:
        return pa.array(values, arrow)
    except (pa.ArrowInvalid, OverflowError):
        for row, value in enumerate(values):
            try:
                pa.array([value], arrow)
            except (pa.ArrowInvalid, OverflowError):
                raise Unfit(row=row, value=str(value)) from None
        raise


# -- the time of rows -----------------------------------------------------------------------------


def times_of(batch: pa.RecordBatch, source: Source, *, first_row: int = 0) -> pa.Array | None:
    """The hidden time column of rows of a source: ``timestamp[us, UTC]`` without nulls.

    An alias of the source's column where that holds microseconds. A column in nanoseconds counts
    whole microseconds, rounded down. None for a source without ``time``.

    Args:
        batch: as ``normalise`` gives it.
        first_row: the number of the batch's first row in what was pushed, for messages.

    Raises:
        DataError: a null time, or one that doesn't fit 64 bits of microseconds.
    """
    if source.time is None:
        return None
    column = batch.column(source.time)
    if column.null_count:
        row = first_row + int(np.flatnonzero(~valid_rows(column))[0])
        _refuse(
            source.id,
            f"column {source.time!r} is the time: row {row} holds null",
            hint="every row needs its time",
            code="data.time",
        )
    if source.unit is None:
        return column
    if column.type != _INT64:
        column = _to_int64(column, source, first_row)
    if source.unit == "us":
        return column.view(AWARE)
    numbers = raw(column)
    if source.unit == "ns":
        made = numbers // 1000
    else:
        scale = _TIMES[source.unit]
        limit = ((1 << 63) - 1) // scale
        bad = (numbers > limit) | (numbers < -limit)
        if bad.any():
            _out_of_range(source, first_row, int(np.flatnonzero(bad)[0]), numbers)
        made = numbers * scale
    return pa.array(made).view(AWARE)


def _to_int64(column: pa.Array, source: Source, first_row: int) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = raw(column)
        _out_of_range(source, first_row, int(np.flatnonzero(numbers > (1 << 63) - 1)[0]), numbers)


def _out_of_range(source: Source, first_row: int, row: int, numbers: Any) -> NoReturn:
    _refuse(
        source.id,
        f"column {source.time!r} is the time in {source.unit}: row {first_row + row} holds {numbers[row]}, "
        "which is beyond 64 bits of microseconds",
        code="data.time",
    )
