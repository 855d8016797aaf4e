"""Nothing of our memory leaves beside the values (reliability D 31): looked for byte by byte."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import Train
from medusa.query.boxes import Field
from medusa.query.types import to_arrow
from medusa.wire.codec import TrainCodec
from medusa.wire.column_cleaning import clean
from medusa.wire.messages.links import Data
from tests.wire.trains import TIME, VALUES

SECRETS = (0xA5, 0x5A)
"""What the memory beside the values is full of: a message must not tell which."""

FIXED = {
    **{f"{sign}int{n}": n // 8 for sign in ("", "u") for n in (8, 16, 32, 64)},
    "float32": 4,
    "float64": 8,
    "date32": 4,
    "timestamp[us, UTC]": 8,
    "duration[us]": 8,
    "decimal128(12, 3)": 16,
}
TYPES = [*FIXED, "bool", "utf8", "binary"]
LENGTHS = [1, 2, 5, 7, 8, 9, 31, 64]


def bitmap(bits, before, secret):
    """Bits somewhere in a bitmap of which all others are those of the secret."""
    whole = np.unpackbits(np.full((before + len(bits)) // 8 + 9, secret, np.uint8), bitorder="little")
    whole[before : before + len(bits)] = bits
    return pa.py_buffer(np.packbits(whole, bitorder="little").tobytes())


def dirty(type, before, valid, secret):
    """A column of ones (texts: "1") in memory that holds the secret everywhere else."""
    arrow, length = to_arrow(type), len(valid)
    head = None if valid.all() else bitmap(valid, before, secret)
    if type == "bool":
        ones = bitmap(np.where(valid, 1, secret >> 7), before, secret)
        return pa.Array.from_buffers(arrow, length, [head, ones], offset=before)
    if type in FIXED:
        width = FIXED[type]
        data = np.full((before + length + 9) * width, secret, np.uint8)
        for row in np.flatnonzero(valid):
            data[(before + row) * width : (before + row + 1) * width] = [1, *[0] * (width - 1)]
        return pa.Array.from_buffers(arrow, length, [head, pa.py_buffer(data.tobytes())], offset=before)
    # Five bytes of the secret first, three under each null, many behind; also behind the offsets.
    parts = [b"1" if each else bytes([secret]) * 3 for each in valid]
    data = bytes([secret]) * 5 + b"".join(parts) + bytes([secret]) * 20
    places = 5 + np.cumsum([0, *[0] * before, *map(len, parts)])
    offsets = places.astype(np.int32).tobytes() + bytes([secret]) * 36
    return pa.Array.from_buffers(
        arrow, length, [head, pa.py_buffer(offsets), pa.py_buffer(data)], offset=before
    )


def columns(length, before, share, secret):
    random = np.random.default_rng(length * 100 + before)
    return {type: dirty(type, before, random.random(length) >= share, secret) for type in TYPES}


def sent(arrays, secret, *, clean=True):
    """(payload, the train as it comes, the batch that went)."""
    schema = tuple(Field(f"c{index}", type) for index, type in enumerate(arrays))
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=[field.name for field in schema])
    codec = TrainCodec(schema, timed=True, clean=clean)
    whole = np.ones(len(batch), bool)
    times, late = dirty("timestamp[us, UTC]", 3, whole, secret), dirty("bool", 5, whole, secret)
    [(payload, count, has_late)] = codec.encode(Train(batch=batch, times=times, late=late))
    message = Data(stream="s", epoch=1, frame=1, seq=0, rows=count, late=has_late)
    return bytes(payload), codec.decode(message, payload), batch


def memory(arrays):
    return [bytes(buffer) for array in arrays.values() for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("before", [0, 3, 8, 13])
@pytest.mark.parametrize("length", [1, 2, 5, 7, 8, 9, 31, 64])
def test_a_message_does_not_tell_what_lies_beside_its_values(length, before, share):
    payloads = []
    for secret in SECRETS:
        arrays = columns(length, before, share, secret)
        kept = memory(arrays)
        payload, back, batch = sent(arrays, secret)
        payloads.append(payload)
        for mine, came in zip(batch.columns, back.batch.columns, strict=True):
            assert mine.equals(came)
        assert memory(arrays) == kept, "the buffers that came are as they were"
    assert payloads[0] == payloads[1]
    fresh = {type: pa.array(array.to_pylist(), array.type) for type, array in arrays.items()}
    assert sent(fresh, 0)[0] == payloads[0], "all of it is zero"


@pytest.mark.parametrize(("length", "share"), [(9, 0.0), (9, 0.4), (64, 0.4)])
def test_without_it_the_memory_shows(length, share):
    one, other = (sent(columns(length, 0, share, secret), secret, clean=False)[0] for secret in SECRETS)
    assert one != other


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_column_is_equal_after_it(data):
    type = data.draw(st.sampled_from(sorted(VALUES)))
    values = data.draw(st.lists(st.none() | VALUES[type], min_size=1, max_size=40))
    array = pa.array(values, to_arrow(type))
    start = data.draw(st.integers(0, len(array) - 1))
    part = array.slice(start, data.draw(st.integers(1, len(array) - start)))
    found = clean(part)
    found.validate(full=True)
    assert found.type == part.type
    assert found.null_count == part.null_count
    assert [repr(each) for each in found.to_pylist()] == [repr(each) for each in part.to_pylist()]


def test_where_nothing_lies_beside_the_values_the_buffers_are_shared():
    numbers, texts = pa.array(range(1000)), pa.array(["abc"] * 1000)
    assert clean(numbers).buffers()[1].address == numbers.buffers()[1].address
    assert clean(texts).buffers()[2].address == texts.buffers()[2].address
    assert clean(pa.array([None], pa.decimal128(12, 3)))[0].as_py() is None
    assert clean(pa.array([decimal.Decimal("1.5")], pa.decimal128(12, 3))).to_pylist() == [
        decimal.Decimal("1.5")
    ]
    assert clean(pa.array([5], TIME)).type == TIME
