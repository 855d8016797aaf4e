"""Columns of a stream as properties of an ODCS schema, and back.

    ours                          logicalType  logicalTypeOptions      physicalType
    bool                          boolean                              the text of our type, always
    int8 .. uint64                integer      format: i8 .. u64
    float32, float64              number       format: f32, f64
    decimal128(p, s)              number
    utf8, binary                  string       format: binary (of binary)
    date32                        date
    timestamp[us, UTC]            timestamp    timezone: true
    duration[us]                  integer

Of a file of others the physical type counts where it is one of ours by another name and of the kind that the
logical type says, or the next one that holds the format too; else the logical type alone. An integer without
a format becomes int64 and a number float64: they hold the standard's default, 32 bits, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from medusa.errors import QueryError
from medusa.query.structs import Field
from medusa.query.types import (
    DURATION,
    TIMESTAMP,
    check_column_name,
    common_type,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
    normalise,
)

__all__ = ["LOGICAL", "checked_name", "column_type", "property_of"]

LOGICAL = ("string", "date", "timestamp", "number", "integer", "boolean")
"""Logical types of which a column can be."""

_FORMATS = {
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
}
_FORMAT_OF = {type: format for format, type in _FORMATS.items()}
_ALONE = {"string": "utf8", "date": "date32", "timestamp": TIMESTAMP, "number": "float64", "integer": "int64"}
_ALONE["boolean"] = "bool"

_SIZED_TEXT = re.compile(r"(?i)\A(n?varchar2?|n?char|character( varying)?|text|string)\s*(\([0-9]+\))?\Z")


def property_of(field: Field) -> dict[str, Any]:
    """A column as a property of a schema."""
    made: dict[str, Any] = {
        "name": field.name,
        "logicalType": _logical(field.type),
        "physicalType": field.type,
    }
    if field.type in _FORMAT_OF:
        made["logicalTypeOptions"] = {"format": _FORMAT_OF[field.type]}
    elif field.type == "binary":
        made["logicalTypeOptions"] = {"format": "binary"}
    elif field.type == TIMESTAMP:
        made["logicalTypeOptions"] = {"timezone": True}
    return made


def _logical(type: str) -> str:
    if is_integer(type) or type == DURATION:
        return "integer"
    if is_float(type) or is_decimal(type):
        return "number"
    kinds = {"bool": "boolean", "date32": "date", TIMESTAMP: "timestamp"}
    return kinds.get(type, "string")


def column_type(given: Mapping[str, Any]) -> str:
    """The type of the column that a property describes.

    Raises:
        QueryError: no column has such a type; says which, without the place.
    """
    logical, physical = given.get("logicalType"), given.get("physicalType")
    if logical is not None and logical not in LOGICAL:
        raise QueryError(
            f"no column of a stream has the logicalType {str(logical)[:80]!r}",
            hint=f"flatten it into columns of: {', '.join(LOGICAL)}",
            code="query.odcs",
        )
    found = _physical(physical)
    options = given.get("logicalTypeOptions")
    format = options.get("format") if isinstance(options, Mapping) else None
    if found is not None and (logical is None or _agrees(found, logical)):
        said = _FORMATS.get(format) if isinstance(format, str) else None
        return found if said is None else common_type(found, said) or found
    if logical is None:
        raise QueryError(
            f"no logicalType, and no column of a stream has the physicalType {str(physical)[:80]!r}",
            hint="write a logicalType",
            code="query.odcs",
        )
    if logical in ("integer", "number"):
        if format is None or (
            logical == "number" and format == "i32"
        ):  # So the standard's own default reads.
            return _ALONE[logical]
        if format not in _FORMATS or not _agrees(_FORMATS[format], logical):
            raise QueryError(
                f"no column of a stream has the format {str(format)[:80]!r} of a logicalType {logical!r}",
                hint="128 bits: write it as number with physicalType decimal(38, 0)",
                code="query.odcs",
            )
        return _FORMATS[format]
    return "binary" if logical == "string" and format == "binary" else _ALONE[logical]


def _physical(text: object) -> str | None:
    """The type of ours that a physical type is by another name, or None."""
    if not isinstance(text, str):
        return None
    if _SIZED_TEXT.match(text):
        return "utf8"
    try:
        return normalise(text)
    except QueryError:
        return None


def _agrees(type: str, logical: str) -> bool:
    """Whether values of a type of ours can be of a logical type. A date may be one with a time (ODCS 3.0)."""
    if logical == "integer":
        return is_integer(type) or type == DURATION
    kinds = {
        "string": ("utf8", "binary"),
        "date": ("date32", TIMESTAMP),
        "timestamp": (TIMESTAMP,),
        "boolean": ("bool",),
    }
    return is_numeric(type) if logical == "number" else type in kinds[logical]


def checked_name(name: object, what: str) -> str:
    """A name that a column can have.

    Raises:
        QueryError: it can't.
    """
    return check_column_name(name, what=what)
