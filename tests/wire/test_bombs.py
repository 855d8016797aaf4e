"""Arrow messages that are valid and lie (reliability D 12 and 13): refused before they are used."""

from __future__ import annotations

import decimal
import tracemalloc

import pyarrow as pa
import pytest

from medusa.elements import Train
from medusa.errors import RemoteProtocolError
from medusa.query.boxes import Field
from medusa.wire import limits
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.links import Data
from tests.wire.pair import Pair
from tests.wire.test_stream_rules import attached
from tests.wire.trains import TIME

TYPES = ["int64", "utf8", "binary", "bool", "float64", "date32", "decimal128(12, 3)", "timestamp[us, UTC]"]


def refused(codec, payload, rows):
    message = Data(stream="s", epoch=1, frame=1, seq=0, rows=rows)
    with pytest.raises(RemoteProtocolError) as caught:
        codec.decode(message, payload)
    assert caught.value.code in ("E_ARROW", "E_LIMIT", "E_SCHEMA")


@pytest.mark.parametrize("type", TYPES)
def test_a_column_of_nulls_that_claims_2_to_the_40_rows(type):
    """224 bytes that pass Arrow's own validation."""
    batch = pa.record_batch([pa.Array.from_buffers(pa.null(), 1 << 40, [None])], names=["a"])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(out.getvalue())
    reader.read_next_message()
    payload = reader.read_next_message().serialize()
    assert payload.size < 1_000
    codec = TrainCodec((Field("a", type),), timed=False)
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        refused(codec, payload, 5)
        refused(codec, payload, limits.ROWS_MAX)
        assert pa.total_allocated_bytes() - before < 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


OTHERS = {
    "large text": pa.array(["a", "b"], pa.large_string()),
    "views": pa.array(["a", "b"], pa.string_view()),
    "a dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "a list": pa.array([[1], [2]]),
    "a struct": pa.array([{"x": 1}, {"x": 2}]),
    "a union": pa.UnionArray.from_dense(
        pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])]
    ),
    "runs": pa.RunEndEncodedArray.from_arrays([2], [1]),
    "a month interval": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
    "fixed bytes": pa.array([b"ab"] * 2, pa.binary(2)),
    "larger decimals": pa.array([decimal.Decimal(1)] * 2, pa.decimal256(12, 3)),
    "half floats": pa.array([1.0, 2.0], pa.float16()),
    "shorter numbers": pa.array([1, 2], pa.int16()),
}


@pytest.mark.parametrize("array", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("type", TYPES)
def test_another_type_behind_the_stated_schema_is_refused_or_read_as_stated(type, array):
    """The schema is stated once; a message of other buffers can't pass for it and break something."""
    payload = pa.record_batch([array], names=["a"]).serialize()
    codec = TrainCodec((Field("a", type),), timed=False)
    message = Data(stream="s", epoch=1, frame=1, seq=0, rows=2)
    try:
        train = codec.decode(message, payload)
    except RemoteProtocolError as error:
        code = error.code
        assert code in ("E_ARROW", "E_LIMIT")
        return
    # The buffers happen to be those of the stated type: values that are somebody's, all of them usable.
    train.batch.validate(full=True)
    assert train.batch.schema == codec.schema
    assert len(train.batch.column(0).to_pylist()) == 2


def test_more_and_fewer_columns_than_stated():
    codec = TrainCodec((Field("a", "int64"), Field("b", "int64")), timed=True)
    column = pa.array([1, 2])
    times = pa.array([1, 2], TIME)
    for columns in ([column], [column, times], [column] * 4 + [times], []):
        batch = pa.record_batch(columns, names=["c"] * len(columns)) if columns else pa.record_batch({})
        refused(codec, batch.serialize(), 2)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ((Field("b", "utf8"), Field("a", "int64")), "column 0 is 'b' of utf8, expected 'a' of int64"),
        ((Field("a", "int64"),), "has 1 columns, expected 2"),
        ((Field("a", "int64"), Field("b", "utf8"), Field("c", "utf8")), "has 3 columns, expected 2"),
        ((Field("a", "int64"), Field("B", "utf8")), "column 1 is 'B' of utf8, expected 'b' of utf8"),
        ((Field("a", "int32"), Field("b", "utf8")), "column 0 is 'a' of int32, expected 'a' of int64"),
        ((Field("a", "int64"), Field("b", "binary")), "column 1 is 'b' of binary, expected 'b' of utf8"),
    ],
)
def test_a_stream_of_other_columns_names_the_first_that_differs(schema, says):
    """D 13: missing, extra, renamed, other type, other order. (Any column may hold nulls.)"""
    pair = Pair()
    pair.receiver.schema = (Field("a", "int64"), Field("b", "utf8"))
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)
    with pytest.raises(RemoteProtocolError) as caught:
        pair.receiver.receive(0, attached(pair, schema=schema))
    assert caught.value.code == "E_SCHEMA"
    assert says in str(caught.value)


def test_the_largest_train_there_may_be_passes():
    codec = TrainCodec((Field("a", "bool"),), timed=False)
    rows = limits.ROWS_MAX
    batch = pa.record_batch([pa.array([True] * rows)], names=["a"])
    [(payload, count, _)] = codec.encode(Train(batch=batch))
    assert count == rows
    assert len(codec.decode(Data(stream="s", epoch=1, frame=1, seq=0, rows=rows), payload)) == rows
