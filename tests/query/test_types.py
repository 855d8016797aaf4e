"""Type texts, schemas, and their Arrow counterparts."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from medusa.errors import QueryError
from medusa.query.boxes import Field
from medusa.query.suggest import did_you_mean
from medusa.query.types import (
    TYPES,
    check_column_name,
    common_type,
    decimal_parts,
    from_arrow,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
    is_signed,
    is_type,
    is_unsigned,
    normalise,
    schema_from,
    schema_to_arrow,
    to_arrow,
)

ALL = (*TYPES, "decimal128(10, 2)", "decimal128(38, 0)")


@pytest.mark.parametrize("type", ALL)
def test_every_type_goes_to_arrow_and_back(type: str) -> None:
    assert is_type(type)
    assert from_arrow(to_arrow(type)) == type
    assert normalise(type) == type


@pytest.mark.parametrize(
    ("arrow", "type"),
    [
        (pa.large_string(), "utf8"),
        (pa.string_view(), "utf8"),
        (pa.dictionary(pa.int32(), pa.string()), "utf8"),
        (pa.large_binary(), "binary"),
        (pa.timestamp("ns"), "timestamp[us, UTC]"),
        (pa.timestamp("s", tz="Europe/Berlin"), "timestamp[us, UTC]"),
        (pa.duration("ms"), "duration[us]"),
        (pa.decimal128(5, 2), "decimal128(5, 2)"),
        (pa.float32(), "float32"),
    ],
)
def test_arrow_types_are_normalised(arrow: pa.DataType, type: str) -> None:
    assert from_arrow(arrow) == type


@pytest.mark.parametrize(
    "arrow",
    [
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.float16(),
        pa.date64(),
        pa.time32("s"),
        pa.decimal256(50, 1),
        pa.decimal128(5, -1),
        pa.null(),
        pa.map_(pa.string(), pa.int8()),
        pa.month_day_nano_interval(),
        pa.binary(3),
    ],
)
def test_other_arrow_types_are_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(QueryError, match=r"column 'x': type .* is not supported") as caught:
        schema_from(pa.schema([("x", arrow)]), what="source 'cars'")
    assert str(arrow)[:100] in str(caught.value)
    assert str(caught.value).startswith("source 'cars'")


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("STRING", "utf8"),
        ("bigint", "int64"),
        ("double", "float64"),
        ("boolean", "bool"),
        ("timestamp", "timestamp[us, UTC]"),
        ("timestamp[ns]", "timestamp[us, UTC]"),
        ("timestamp[us,tz=UTC]", "timestamp[us, UTC]"),
        ("duration[s]", "duration[us]"),
        ("decimal(7, 3)", "decimal128(7, 3)"),
        ("decimal128(7,3)", "decimal128(7, 3)"),
        ("numeric(7)", "decimal128(7, 0)"),
        ("date32[day]", "date32"),
    ],
)
def test_usual_names_of_types(text: str, type: str) -> None:
    assert normalise(text) == type


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flaot64", "did you mean 'float64'"),
        ("money", "types are: bool int8"),
        ("decimal(39, 0)", "1 to 38 digits"),
        ("decimal(5, 6)", "1 to 38 digits"),
        ("decimal(0)", "1 to 38 digits"),
        ("list<int8>", "is not supported"),
        ("", "is not supported"),
        ("x" * 10_000, "is not supported"),
    ],
)
def test_what_is_no_type(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=r"^column 'a': ") as caught:
        normalise(text, what="column 'a'")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500


def test_predicates_tell_the_families_apart() -> None:
    def told(predicate: object) -> list[str]:
        assert callable(predicate)
        return [type for type in ALL if predicate(type)]

    assert told(is_signed) == ["int8", "int16", "int32", "int64"]
    assert told(is_unsigned) == ["uint8", "uint16", "uint32", "uint64"]
    assert told(is_integer) == told(is_signed) + told(is_unsigned)
    assert told(is_float) == ["float32", "float64"]
    assert told(is_decimal) == ["decimal128(10, 2)", "decimal128(38, 0)"]
    assert told(is_numeric) == told(is_integer) + told(is_float) + told(is_decimal)
    assert decimal_parts("decimal128(10, 2)") == (10, 2)
    with pytest.raises(ValueError, match="no decimal"):
        decimal_parts("int8")
    assert not is_type("null")
    assert not is_type("decimal128(39, 0)")


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("int8", "int64", "int64"),
        ("uint8", "uint32", "uint32"),
        ("int8", "uint8", "int16"),
        ("int64", "uint32", "int64"),
        ("uint64", "int8", None),
        ("uint64", "uint8", "uint64"),
        ("float32", "float64", "float64"),
        ("int64", "float64", None),
        ("utf8", "utf8", "utf8"),
        ("utf8", "binary", None),
    ],
)
def test_common_types_lose_nothing(left: str, right: str, common: str | None) -> None:
    assert common_type(left, right) == common
    assert common_type(right, left) == common


def test_common_types_hold_both_ranges() -> None:
    def limits(type: str) -> tuple[int, int]:
        bits = int(type[type.index("t") + 1 :])
        return (0, 2**bits - 1) if type[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    integers = [type for type in TYPES if is_integer(type)]
    for left in integers:
        for right in integers:
            common = common_type(left, right)
            low = min(limits(left)[0], limits(right)[0])
            high = max(limits(left)[1], limits(right)[1])
            fitting = [type for type in integers if limits(type)[0] <= low and high <= limits(type)[1]]
            assert (common is None) == (not fitting)
            if common is not None:
                assert common in fitting


def test_schemas_come_in_many_forms() -> None:
    expected = (Field("ts", "timestamp[us, UTC]"), Field("v", "int64"))
    arrow = pa.schema([("ts", pa.timestamp("ms")), ("v", pa.int64())])
    assert schema_from(arrow) == expected
    assert schema_from({"ts": "timestamp", "v": pa.int64()}) == expected
    assert schema_from(expected) == expected
    assert schema_from(list(arrow)) == expected
    assert schema_from(pa.table({"v": [1]})) == (Field("v", "int64"),)
    assert schema_from(pl.DataFrame({"a": ["x"], "b": [1.0]})) == (Field("a", "utf8"), Field("b", "float64"))
    assert schema_to_arrow(expected) == pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "1 to 10,000 columns, got 0"),
        ([], "1 to 10,000 columns, got 0"),
        (7, "expected a schema, got int"),
        ([1], "expected a schema, got list"),
        ({"a": 7}, "column 'a': expected a type, got int"),
        ({"": "int8"}, "can't be a column name"),
        ({7: "int8"}, "can't be a column name"),
        ({"a\nb": "int8"}, "can't be a column name"),
        ({"a" * 256: "int8"}, "can't be a column name"),
        ({"\ud800": "int8"}, "can't be a column name"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "column 'a' stands twice"),
        ((Field("a", "int8"), Field("a", "int8")), "column 'a' stands twice"),
        (pa.int64(), "not the schema of a table"),
    ],
)
def test_what_is_no_schema(value: object, says: str) -> None:
    with pytest.raises(QueryError, match=r"^source 'cars'") as caught:
        schema_from(value, what="source 'cars'")
    assert says in str(caught.value)


def test_column_names_may_be_any_printable_text() -> None:
    for name in ("a", "größe", "with space", "a.b", '"quoted"', "列", "x" * 255):
        assert check_column_name(name, what="t") == name


def test_hints_for_names() -> None:
    assert did_you_mean("sped", ["seg", "speed", "ts"]) == "did you mean 'speed'?"
    assert did_you_mean("SPEED", ["seg", "speed"]) == "did you mean 'speed'?"
    assert did_you_mean("zzz", ["seg", "speed"]) == "there is: seg, speed"
    assert did_you_mean("zzz", [f"column{i}" for i in range(20)]).endswith("column7, ...")
    assert did_you_mean("zzz", []) == ""
