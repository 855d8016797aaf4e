"""Question: what does a train cost on its way into a frame and out of it?

Data: a train of 8,192 rows of the campus trace's columns (three numbers, two texts) and one of 64.
Peers: Arrow IPC's own serialisation of the same batch; msgspec's msgpack of the same rows as
Python objects, which is what a message without columns would be.
Not shown: ZeroMQ and the network.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from medusa.apps.workloads import netmon
from medusa.elements import Train
from medusa.query.boxes import Field
from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
from medusa.wire.messages.links import Data

SIZES = [64, 8_192]


@pytest.fixture(scope="module")
def flows() -> pa.Table:
    return netmon.load_trace().select(["ts_us", "src", "dst", "pkts", "bytes"])


def batch_of(flows: pa.Table, rows: int) -> pa.RecordBatch:
    return flows.slice(0, rows).combine_chunks().to_batches()[0]


def codec_of(batch: pa.RecordBatch) -> TrainCodec:
    types = {pa.int64(): "int64", pa.string(): "utf8"}
    return TrainCodec(tuple(Field(field.name, types[field.type]) for field in batch.schema), timed=False)


def frame_of(codec: TrainCodec, batch: pa.RecordBatch) -> list[Any]:
    [(payload, rows, late)] = codec.encode(Train(batch=batch))
    message = Data(stream="netmon.flows", epoch=1, frame=1, seq=0, rows=rows, late=late)
    return list(encode_frame(message, payload))


@pytest.mark.parametrize("rows", SIZES)
def test_medusa_encode(peer: Any, flows: pa.Table, rows: int) -> None:
    peer.extra_info["rows"] = rows
    batch = batch_of(flows, rows)
    codec = codec_of(batch)
    assert len(peer(frame_of, codec, batch)) >= 1


@pytest.mark.parametrize("rows", SIZES)
def test_medusa_decode(peer: Any, flows: pa.Table, rows: int) -> None:
    peer.extra_info["rows"] = rows
    batch = batch_of(flows, rows)
    codec = codec_of(batch)
    parts = [bytes(part) for part in frame_of(codec, batch)]

    def decode() -> Train:
        message, payload = decode_frame(parts, peer="bench")
        assert isinstance(message, Data)
        return codec.decode(message, payload, peer="bench", skip=0)

    assert peer(decode).batch.equals(batch)


@pytest.mark.parametrize("rows", SIZES)
def test_arrow_ipc_encode(peer: Any, flows: pa.Table, rows: int) -> None:
    peer.extra_info["rows"] = rows
    assert peer(batch_of(flows, rows).serialize).size > 0


@pytest.mark.parametrize("rows", SIZES)
def test_arrow_ipc_decode(peer: Any, flows: pa.Table, rows: int) -> None:
    peer.extra_info["rows"] = rows
    batch = batch_of(flows, rows)
    buffer = batch.serialize()
    assert peer(pa.ipc.read_record_batch, buffer, batch.schema).equals(batch)


@pytest.mark.parametrize("rows", SIZES)
def test_msgpack_rows_encode(peer: Any, flows: pa.Table, rows: int) -> None:
    peer.extra_info["rows"] = rows
    values = list(zip(*(column.to_pylist() for column in batch_of(flows, rows).columns), strict=True))
    assert len(peer(msgspec.msgpack.encode, values)) > 0
