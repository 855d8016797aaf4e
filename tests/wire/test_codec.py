"""Frames and trains to bytes and back; what must be refused before it is used."""

from __future__ import annotations

import ctypes

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import END_US, START_US, Kind, Train
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.query.boxes import Field
from medusa.wire import limits
from medusa.wire.codec import TrainCodec, decode_frame, decode_header, encode_frame, split
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Reply, StatusRequest
from medusa.wire.messages.links import Ack, Attached, Data, Detach, Hello
from tests.wire.trains import TIME, same, trains

SCHEMA = (Field("a", "int64"), Field("s", "utf8"))


def header(train, rows, late, seq=0):
    return Data(
        stream="s",
        epoch=1,
        frame=1,
        seq=seq,
        rows=rows,
        late=late,
        tentative=train.kind is Kind.TENTATIVE,
    )


def train_of(rows=100, **changes):
    batch = pa.record_batch({"a": pa.array(range(rows), pa.int64()), "s": [f"x{i}" for i in range(rows)]})
    times = pa.array(range(rows), TIME)
    return Train(**{"batch": batch, "times": times} | changes)


def at_offset(payload, offset):
    """The same bytes at an address that is ``offset`` beyond a multiple of 8."""
    data = bytes(payload)
    room = bytearray(len(data) + 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    start = (offset - address) % 8
    room[start : start + len(data)] = data
    return memoryview(room)[start : start + len(data)]


@settings(max_examples=150)
@given(trains(), st.integers(0, 7))
def test_any_train_comes_back_from_any_address(drawn, offset):
    schema, timed, train = drawn
    codec = TrainCodec(schema, timed=timed)
    [(payload, rows, late)] = codec.encode(train)
    message, _ = decode_frame(encode_frame(header(train, rows, late, train.first_seq), payload))
    moved = at_offset(payload, offset)
    back = codec.decode(message, moved)
    same(back, train)
    assert back.first_seq == train.first_seq
    assert codec.counters.copied == bool(offset)
    back.batch.validate(full=True)


@settings(max_examples=60)
@given(trains(rows_max=12), st.data())
def test_skipped_rows_are_those_at_the_start(drawn, data):
    schema, timed, train = drawn
    codec = TrainCodec(schema, timed=timed)
    [(payload, rows, late)] = codec.encode(train)
    skip = data.draw(st.integers(0, rows - 1))
    back = codec.decode(header(train, rows, late, 40), payload, skip=skip)
    assert (len(back), back.first_seq) == (rows - skip, 40 + skip)
    assert back.batch.num_columns == train.batch.num_columns


def test_decoding_copies_nothing_when_the_payload_is_aligned():
    codec = TrainCodec(SCHEMA, timed=True)
    train = train_of()
    [(payload, rows, late)] = codec.encode(train)
    back = codec.decode(header(train, rows, late), payload)
    for column in back.batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                assert payload.address <= buffer.address < payload.address + payload.size
    assert codec.counters.copied == 0


def test_encoding_copies_once_and_leaves_out_what_a_slice_hides():
    codec = TrainCodec(SCHEMA, timed=True)
    big = train_of(100_000)
    small = Train(batch=big.batch.slice(5, 10), times=big.times.slice(5, 10))
    [(payload, rows, _)] = codec.encode(small)
    assert rows == 10
    assert payload.size < 2000


@settings(max_examples=40)
@given(st.integers(1, 5000), st.integers(100, 200_000))
def test_pieces_of_a_train_are_the_train(rows, bytes_aim):
    train = train_of(rows)
    pieces = list(split(train, bytes_aim=bytes_aim))
    assert all(len(piece) for piece in pieces)
    assert [piece.first_seq for piece in pieces] == [
        sum(len(piece) for piece in pieces[:index]) for index in range(len(pieces))
    ]
    assert pa.Table.from_batches([piece.batch for piece in pieces]).equals(
        pa.Table.from_batches([train.batch])
    )


def test_a_train_too_large_for_a_frame_is_cut_and_a_row_too_large_refused():
    codec = TrainCodec((Field("b", "binary"),), timed=False)
    uneven = pa.record_batch({"b": [b"x" * (3 << 20), b"y" * (3 << 20), *([b""] * 50)]})
    pieces = list(codec.encode(Train(batch=uneven)))
    assert sum(rows for _, rows, _ in pieces) == 52
    assert all(payload.size <= limits.PAYLOAD_BYTES_MAX for payload, _, _ in pieces)
    huge = pa.record_batch({"b": [b"x" * (5 << 20)]})
    with pytest.raises(LocalProtocolError) as error:
        list(codec.encode(Train(batch=huge)))
    assert error.value.code == "E_LIMIT"


def test_a_train_of_another_schema_is_our_own_mistake():
    codec = TrainCodec(SCHEMA, timed=True)
    for train in (
        Train(batch=pa.record_batch({"a": [1]}), times=pa.array([1], TIME)),
        train_of(times=None),
    ):
        with pytest.raises(LocalProtocolError) as error:
            list(codec.encode(train))
        assert error.value.code == "E_SCHEMA"


# --- what a peer may not send (reliability D 9, 11, 12, 13, 18) ---------------------------------


def refused(codec, payload, **changes):
    message = Data(**{"stream": "s", "epoch": 1, "frame": 1, "seq": 0, "rows": 100} | changes)
    with pytest.raises(RemoteProtocolError) as error:
        codec.decode(message, payload)
    return error.value.code


def test_rows_are_as_many_as_the_header_says():
    codec = TrainCodec(SCHEMA, timed=True)
    [(payload, _, _)] = codec.encode(train_of())
    assert refused(codec, payload, rows=99) == "E_LIMIT"


def test_a_payload_of_another_schema_is_refused():
    [(payload, _, _)] = TrainCodec((Field("a", "int64"),), timed=False).encode(
        Train(batch=pa.record_batch({"a": [1] * 100}))
    )
    assert refused(TrainCodec(SCHEMA, timed=True), payload) == "E_ARROW"


def test_a_schema_message_in_place_of_rows_is_refused():
    codec = TrainCodec(SCHEMA, timed=True)
    assert refused(codec, codec.schema.serialize()) == "E_ARROW"


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_rows_are_refused_before_they_are_unpacked(compression):
    codec = TrainCodec((Field("a", "int64"),), timed=False)
    batch = pa.record_batch({"a": pa.array([0] * 1_000_000, pa.int64())})
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(out, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(out.getvalue())
    reader.read_next_message()
    payload = reader.read_next_message().serialize()
    assert len(payload) < 100_000
    assert refused(codec, payload, rows=1_000_000) == "E_LIMIT"


def test_a_row_below_the_promise_is_refused_unless_it_is_known_to_be_late():
    codec = TrainCodec(SCHEMA, timed=True)
    train = train_of()
    [(payload, rows, late)] = codec.encode(train)
    codec.decode(header(train, rows, late), payload, boundary_us=0)
    with pytest.raises(RemoteProtocolError) as error:
        codec.decode(header(train, rows, late), payload, boundary_us=1)
    assert error.value.code == "E_BOUNDARY"
    marked = train_of(late=pa.array([True] + [False] * 99))
    [(payload, rows, late)] = codec.encode(marked)
    codec.decode(header(marked, rows, late), payload, boundary_us=1)


@pytest.mark.parametrize("time_us", [START_US - 1, END_US, (1 << 63) - 1, -(1 << 63)])
def test_a_time_beyond_all_boundaries_is_refused(time_us):
    codec = TrainCodec((Field("a", "int64"),), timed=True)
    times = pa.array([5, time_us], pa.int64()).cast(TIME)
    batch = pa.record_batch([pa.array([1, 2], pa.int64()), times], names=["a", "t"])
    assert refused(codec, batch.serialize(), rows=2) == "E_LIMIT"


def test_a_null_in_a_hidden_column_is_refused():
    codec = TrainCodec((Field("a", "int64"),), timed=True)
    batch = pa.record_batch([pa.array([1, 2], pa.int64()), pa.array([1, None], TIME)], names=["a", "t"])
    assert refused(codec, batch.serialize(), rows=2) == "E_ARROW"


HEAD = msgspec.msgpack.encode(Data(stream="s", epoch=1, frame=1, seq=0, rows=1))


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "E_FRAME"),
        ([HEAD, b"", b""], "E_FRAME"),
        ([b""], "E_FRAME"),
        ([HEAD[:-1]], "E_FRAME"),
        ([HEAD + b"\x00"], "E_FRAME"),
        ([HEAD], "E_FRAME"),
        ([msgspec.msgpack.encode(Reply(request=1))[:-1]], "E_FRAME"),
        ([msgspec.msgpack.encode(StatusRequest(request=1)), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "s", 1, 1, 0, 0, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "s", 1, 1, 0, 2 << 20, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "s", 1, 1, -1, 1, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "s", 1, 1, 0, 1, False, False, 7]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "", 1, 1, 0, 1, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", "s", 1.0, 1, 0, 1, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["data", b"s", 1, 1, 0, 1, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode(["dada", "s", 1, 1, 0, 1, False, False]), b"x"], "E_FRAME"),
        ([msgspec.msgpack.encode({"stream": "s"})], "E_FRAME"),
        ([b"\x91" * 60_000], "E_FRAME"),
        ([b"\xc4" * (limits.HEADER_BYTES_MAX + 1)], "E_LIMIT"),
        ([HEAD, bytes(limits.PAYLOAD_BYTES_MAX + 1)], "E_LIMIT"),
    ],
)
def test_a_malformed_frame_is_the_peers_fault(frames, code):
    with pytest.raises(RemoteProtocolError) as error:
        decode_frame(frames, peer="bob")
    assert error.value.code == code
    assert error.value.peer == "bob"


@pytest.mark.parametrize(
    "columns",
    [
        [["a", "null"]],
        [["a", "list<int64>"]],
        [["a", "timestamp[ns]"]],
        [["a", "decimal128(99, 3)"]],
        [["a", "int64"], ["a", "int64"]],
        [["", "int64"]],
        [["a\x00b", "int64"]],
        [["a" * 256, "int64"]],
    ],
)
def test_a_schema_with_what_we_do_not_have_is_refused(columns):
    fields = [{"name": name, "type": type} for name, type in columns]
    frame = msgspec.msgpack.encode(["attached", "s", 1, 0, 0, fields, True, 0, b"", 1, 0])
    with pytest.raises(RemoteProtocolError) as error:
        decode_header(frame)
    assert error.value.code == "E_SCHEMA"


def test_too_many_columns_are_refused():
    fields = [{"name": f"c{index}", "type": "int64"} for index in range(limits.COLUMNS_MAX + 1)]
    with pytest.raises(RemoteProtocolError):
        decode_header(msgspec.msgpack.encode(["attached", "s", 1, 0, 0, fields, True, 0, b"", 1, 0]))
    with pytest.raises(LocalProtocolError):
        TrainCodec(tuple(Field(f"c{i}", "int64") for i in range(1001)), timed=False)


def test_we_send_nothing_that_a_peer_would_refuse():
    wide = tuple(Field(f"{index:03}" + "n" * 200, "int64") for index in range(1000))
    with pytest.raises(LocalProtocolError, match="fewer columns"):
        encode_frame(Attached(stream="s", epoch=1, next_seq=0, boundary_us=0, schema=wide, timed=True))
    with pytest.raises(LocalProtocolError, match="payload"):
        encode_frame(Reply(request=1), bytes(limits.PAYLOAD_BYTES_MAX + 1))


@given(st.text(min_size=1, max_size=255), st.integers(0, limits.SEQ_MAX), st.booleans())
@settings(max_examples=50)
def test_messages_come_back(text, number, flag):
    for message in (
        Hello(version=PROTOCOL_VERSION, node=text, incarnation=number % (1 << 32), answer=flag),
        Ack(stream=text, epoch=number, frames=number, received=number, durable=number, granted=number),
        Data(stream=text, epoch=number, frame=number, seq=number, rows=1, late=flag),
    ):
        payload = b"x" if isinstance(message, Data) else None
        assert decode_frame(encode_frame(message, payload)) == (message, payload)


def test_text_that_is_no_utf_8_is_refused_in_the_same_words_whatever_decodes_it():
    # msgspec words it itself from 0.23 on: what a node says, and the simulator's traces, must not change.
    header = bytes(encode_frame(Detach(stream="abc", epoch=1), None)[0]).replace(b"abc", b"\xcebc")
    with pytest.raises(RemoteProtocolError, match="no message: Invalid UTF-8 encoded string$"):
        decode_header(header)
