"""The types of columns, as text, and their Arrow counterparts.

A type is one of ``bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 utf8
binary date32 timestamp[us, UTC] duration[us]`` or ``decimal128(p, s)``. Expressions may besides
have the type ``null`` (a bare NULL), which no column has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.structs import Field, Schema
from medusa.query.suggest import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DURATION",
    "NULL",
    "TIMESTAMP",
    "TYPES",
    "common_type",
    "decimal_parts",
    "from_arrow",
    "is_decimal",
    "is_float",
    "is_integer",
    "is_numeric",
    "is_signed",
    "is_type",
    "is_unsigned",
    "normalise",
    "schema_from",
    "schema_to_arrow",
    "to_arrow",
]

TIMESTAMP = "timestamp[us, UTC]"
DURATION = "duration[us]"
NULL = "null"
DECIMAL_DIGITS_MAX = 38
COLUMNS_MAX = 10_000

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
TYPES = ("bool", *SIGNED, *UNSIGNED, *FLOATS, "utf8", "binary", "date32", TIMESTAMP, DURATION)
"""Every type but the decimals."""

# What people write, in lower case without spaces, besides our own texts.
ALIASES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "utinyint": "uint8",
    "usmallint": "uint16",
    "uinteger": "uint32",
    "ubigint": "uint64",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "string": "utf8",
    "str": "utf8",
    "text": "utf8",
    "varchar": "utf8",
    "large_string": "utf8",
    "string_view": "utf8",
    "large_utf8": "utf8",
    "large_binary": "binary",
    "binary_view": "binary",
    "bytes": "binary",
    "blob": "binary",
    "date": "date32",
    "date32[day]": "date32",
    "timestamp": TIMESTAMP,
    "datetime": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "duration": DURATION,
    "interval": DURATION,
}

_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(,(tz=)?[A-Za-z0-9_+:/-]+)?\]", re.IGNORECASE)
_DURATION = re.compile(r"duration\[(s|ms|us|ns)\]", re.IGNORECASE)
_DECIMAL = re.compile(r"(?:decimal|decimal128|numeric)\((\d{1,2})(?:,(\d{1,2}))?\)", re.IGNORECASE)
_OURS = re.compile(r"decimal128\((\d{1,2}), (\d{1,2})\)")


def is_signed(type: str) -> bool:
    return type in SIGNED


def is_unsigned(type: str) -> bool:
    return type in UNSIGNED


def is_integer(type: str) -> bool:
    return type in SIGNED or type in UNSIGNED


def is_float(type: str) -> bool:
    return type in FLOATS


def is_decimal(type: str) -> bool:
    return type.startswith("decimal128(")


def is_numeric(type: str) -> bool:
    """An integer, float or decimal."""
    return is_integer(type) or is_float(type) or is_decimal(type)


def decimal_parts(type: str) -> tuple[int, int]:
    """(precision, scale) of a ``decimal128(p, s)``."""
    found = _OURS.fullmatch(type)
    if found is None:
        raise ValueError(f"{type!r} is no decimal type")
    return int(found[1]), int(found[2])


def is_type(text: str) -> bool:
    """Whether ``text`` is exactly the text of a column type (``null`` is not)."""
    if text in TYPES:
        return True
    found = _OURS.fullmatch(text)
    return found is not None and _decimal(int(found[1]), int(found[2])) == text


def _decimal(precision: int, scale: int) -> str | None:
    if not 1 <= precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        return None
    return f"decimal128({precision}, {scale})"


def normalise(text: str, *, what: str = "type") -> str:
    """The type that ``text`` means: ours, or a usual name of Arrow or SQL (``string``, ``bigint``).

    Every timestamp becomes ``timestamp[us, UTC]`` (one without zone is taken as UTC) and every
    duration ``duration[us]``.

    Args:
        what: what has this type, for the message, e.g. ``source 'cars': column 'speed'``.

    Raises:
        QueryError: no type that we have.
    """
    if is_type(text):
        return text
    squeezed = "".join(text.split()) if len(text) <= 100 else ""
    lower = squeezed.lower()
    if lower in TYPES:
        return lower
    if lower in ALIASES:
        return ALIASES[lower]
    if _TIMESTAMP.fullmatch(squeezed):
        return TIMESTAMP
    if _DURATION.fullmatch(squeezed):
        return DURATION
    if found := _DECIMAL.fullmatch(squeezed):
        decimal = _decimal(int(found[1]), int(found[2] or 0))
        if decimal is None:
            raise QueryError(
                f"{what}: {text!r} needs 1 to {DECIMAL_DIGITS_MAX} digits and a scale of 0 to that many",
                code="query.type",
            )
        return decimal
    raise _unsupported(text[:100], what)


def _unsupported(text: str, what: str) -> QueryError:
    names = (*TYPES, "decimal128(p, s)")
    hint = did_you_mean(text, names)
    if not hint.startswith("did"):
        hint = "types are: " + " ".join(names)
    return QueryError(f"{what}: type {text!r} is not supported", hint=hint, code="query.type")


def from_arrow(type: pa.DataType, *, what: str = "type") -> str:
    """The type of a column that comes as ``type``; dictionaries count as what they hold.

    Raises:
        QueryError: not supported (lists, structs, float16, date64, ...).
    """
    import pyarrow as pa

    if pa.types.is_dictionary(type):
        return from_arrow(type.value_type, what=what)
    if pa.types.is_timestamp(type):
        return TIMESTAMP
    if pa.types.is_duration(type):
        return DURATION
    if pa.types.is_decimal(type):
        text = _decimal(type.precision, type.scale) if pa.types.is_decimal128(type) else None
    else:
        text = _ARROW_NAMES.get(str(type))
    if text is None:
        raise _unsupported(str(type), what)
    return text


_ARROW_NAMES = {
    **{name: name for name in (*SIGNED, *UNSIGNED, "bool", "binary")},
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "utf8",
    "string_view": "utf8",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date32",
}


def to_arrow(type: str) -> pa.DataType:
    """The Arrow type of the columns of this type (``null`` included)."""
    import pyarrow as pa

    if type == TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if type == DURATION:
        return pa.duration("us")
    if is_decimal(type):
        return pa.decimal128(*decimal_parts(type))
    makers = {"utf8": pa.string, "bool": pa.bool_, "null": pa.null}
    maker = makers.get(type) or getattr(pa, type)
    return maker()


def common_type(left: str, right: str) -> str | None:
    """The narrowest type that holds every value of both without loss, or None.

    Equal types; integers among themselves (int32 and uint32: int64; a signed one and uint64:
    None); float32 and float64.
    """
    if left == right:
        return left
    if left in FLOATS and right in FLOATS:
        return "float64"
    if not (is_integer(left) and is_integer(right)):
        return None
    for family in (SIGNED, UNSIGNED):
        if left in family and right in family:
            return max(left, right, key=family.index)
    signed, unsigned = (left, right) if left in SIGNED else (right, left)
    step = max(SIGNED.index(signed), UNSIGNED.index(unsigned) + 1)
    return SIGNED[step] if step < len(SIGNED) else None


def schema_from(value: Any, *, what: str = "schema") -> Schema:
    """The schema that a user gave.

    Args:
        value: a ``pyarrow.Schema``, a table or frame that has one, a mapping of column names to
            type texts or ``pyarrow.DataType``s, or a list of ``Field``s.
        what: for the message, e.g. ``source 'cars'``.

    Raises:
        QueryError: a type that isn't supported, a repeated or empty name, no columns.
    """
    fields = tuple(
        Field(name, _type_of(type, f"{what}: column {name!r}")) for name, type in _pairs(value, what)
    )
    names = [field.name for field in fields]
    if not fields or len(fields) > COLUMNS_MAX:
        raise QueryError(
            f"{what}: a schema has 1 to {COLUMNS_MAX:,} columns, got {len(fields):,}", code="query.schema"
        )
    for index, name in enumerate(names):
        check_column_name(name, what=what)
        if name in names[:index]:
            raise QueryError(f"{what}: column {name!r} stands twice in the schema", code="query.schema")
    return fields


def check_column_name(name: object, *, what: str) -> str:
    """A column name: 1 to 255 characters, none of them a control character or lone surrogate.

    Raises:
        QueryError: it isn't.
    """
    if isinstance(name, str) and 1 <= len(name) <= 255 and name.isprintable():
        return name
    raise QueryError(
        f"{what}: {name!r} can't be a column name: it has 1 to 255 printable characters", code="query.name"
    )


def _pairs(value: Any, what: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if hasattr(value, "__arrow_c_schema__") or hasattr(value, "__arrow_c_stream__"):
        return [(field.name, field.type) for field in _arrow_schema(value, what)]
    if isinstance(value, list | tuple):
        if all(isinstance(field, Field) for field in value):
            return [(field.name, field.type) for field in value]
        if all(hasattr(field, "name") and hasattr(field, "type") for field in value):
            return [(field.name, field.type) for field in value]
    raise QueryError(
        f"{what}: expected a schema, got {type(value).__name__}",
        hint='a pyarrow.Schema, or a mapping such as {"ts": "timestamp", "speed": "float64"}',
        code="query.schema",
    )


def _arrow_schema(value: Any, what: str) -> pa.Schema:
    import pyarrow as pa

    try:
        if hasattr(value, "__arrow_c_schema__"):
            return pa.schema(value)
        return pa.RecordBatchReader.from_stream(value).schema
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise QueryError(f"{what}: not the schema of a table: {error}", code="query.schema") from None


def _type_of(value: Any, what: str) -> str:
    if isinstance(value, str):
        return normalise(value, what=what)
    if hasattr(value, "__arrow_c_schema__"):
        return from_arrow(value, what=what)
    raise QueryError(
        f"{what}: expected a type, got {type(value).__name__}",
        hint='a text such as "int64", or a pyarrow.DataType',
        code="query.type",
    )


def schema_to_arrow(schema: Schema) -> pa.Schema:
    """The Arrow schema of the batches of a stream; every column may hold nulls."""
    import pyarrow as pa

    return pa.schema([(field.name, to_arrow(field.type)) for field in schema])
