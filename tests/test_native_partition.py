"""hash_partition against its contract: xxhash of PyPI over the canonical bytes, built here in Python."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa._native import hash_partition

VECTORS = Path(__file__).resolve().parents[1] / "docs" / "hash_partition.md"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def canonical(value: object) -> bytes:
    """The bytes of one value, as docs/hash_partition.md says."""
    match value:
        case None:
            return b"\x00"
        case bool():
            return bytes([4, value])
        case int():
            if value >= 2**63:
                return b"\x02" + value.to_bytes(16, "little")
            return b"\x01" + value.to_bytes(8, "little", signed=True)
        case float():
            if math.isnan(value):
                return b"\x03" + bytes.fromhex("000000000000f87f")
            return b"\x03" + struct.pack("<d", value + 0.0)
        case str():
            text = value.encode()
            return b"\x05" + struct.pack("<Q", len(text)) + text
        case bytes():
            return b"\x06" + struct.pack("<Q", len(value)) + value
        case dt.datetime():
            return canonical((value - EPOCH) // dt.timedelta(microseconds=1))
        case dt.date():
            return canonical((value - EPOCH.date()).days)
        case dt.timedelta():
            return canonical(value // dt.timedelta(microseconds=1))
    raise AssertionError(value)


def expected(rows: list[list[object]]) -> list[int]:
    return [xxhash.xxh64_intdigest(b"".join(map(canonical, row))) for row in rows]


def hashes(batch: pa.RecordBatch) -> list[int]:
    out = pa.array(hash_partition(batch))
    assert out.type == pa.uint64()
    assert out.null_count == 0
    return out.to_pylist()


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.uint8(): st.integers(0, 2**8 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-99_999), dt.timedelta(days=99_999)),
    pa.utf8(): st.text(max_size=40),
    pa.large_utf8(): st.text(max_size=40),
    pa.string_view(): st.text(max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.large_binary(): st.binary(max_size=40),
    pa.binary_view(): st.binary(max_size=40),
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[list[object]]]:
    """A sliced batch of one to three key columns of any type, with nulls; and its rows."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    length = draw(st.integers(0, 8))
    lists = [st.lists(st.none() | VALUES[t], min_size=length, max_size=length) for t in types]
    columns = [draw(values) for values in lists]
    arrays = [pa.array(values, t) for values, t in zip(columns, types, strict=True)]
    batch = pa.record_batch(arrays, names=[f"k{i}" for i in range(len(types))])
    start = draw(st.integers(0, length))
    return batch.slice(start), [list(row) for row in list(zip(*columns, strict=True))[start:]]


@settings(max_examples=200)
@given(batches())
def test_any_rows_hash_as_the_canonical_bytes_say(case: tuple[pa.RecordBatch, list[list[object]]]) -> None:
    batch, rows = case
    assert hashes(batch) == expected(rows)


def literal(text: str) -> list[object]:
    """The key columns of one line of the table of test vectors."""
    words: dict[str, list[object]] = {"none": [], "0.0": [0.0], "1.5": [1.5], "NaN": [math.nan]}
    if text in words:
        return words[text]
    if text.startswith("binary "):
        return [text[8:-1].encode()]
    out: list[object] = []
    for word in text.split(", "):
        plain = {"null": None, "true": True, "false": False}
        if word in plain:
            out.append(plain[word])
        elif word.startswith('"'):
            out.append(word[1:-1])
        else:
            base, _, rest = word.partition("^")
            power, _, less = rest.partition(" - ")
            sign, base = (-1, base[1:]) if base.startswith("-") else (1, base)
            out.append(sign * int(base) ** int(power or 1) - int(less or 0))
    return out


def type_of(value: object) -> pa.DataType:
    if value is None:
        return pa.int64()
    return pa.uint64() if isinstance(value, int) and value >= 2**63 else pa.scalar(value).type


def published() -> list[tuple[str, str, str]]:
    text = VECTORS.read_text(encoding="utf-8")
    return re.findall(r"^\| (.+?) \| ?`?([0-9a-f]*)`? \| `([0-9a-f]{16})` \|$", text, re.MULTILINE)


def test_the_published_vectors() -> None:
    lines = published()
    assert len(lines) == 22
    for name, raw, digest in lines:
        values = literal(name)
        assert b"".join(map(canonical, values)).hex() == raw, name
        assert xxhash.xxh64_hexdigest(bytes.fromhex(raw)) == digest, name
        if values:
            arrays = [pa.array([value], type_of(value)) for value in values]
            batch = pa.record_batch(arrays, names=[str(i) for i in range(len(values))])
            assert hashes(batch) == [int(digest, 16)], name


def test_a_slice_of_a_struct_array() -> None:
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])], names=["n", "t"]
    )
    assert pa.array(hash_partition(rows[1:3])).to_pylist() == expected([[2, "b"], [3, "c"]])


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pa.array([1], pa.timestamp("ms")), "tsm"),
        (pa.array([1], pa.decimal128(5, 2)), "d:5,2"),
        (pa.array(["a"]).dictionary_encode(), "dictionary"),
        (pa.array([[1]]), r"\+l"),
    ],
)
def test_other_types_are_refused_by_name(column: pa.Array, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        hash_partition(pa.record_batch([column], names=["k"]))


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="struct"):
        hash_partition(pa.array([1]))
    with pytest.raises(TypeError, match="PyCapsule"):
        hash_partition({"k": [1]})
