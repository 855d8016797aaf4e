"""Control messages are taken in one form only (reliability D 9 and 10): whatever else could be read
as something is refused, and nothing is allocated for a length that is only claimed."""

from __future__ import annotations

import struct
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import QueryError, RemoteProtocolError
from medusa.query.boxes import Field
from medusa.query.codec import graph_from_json, graph_to_json
from medusa.wire import limits
from medusa.wire.codec import decode_frame, decode_header
from medusa.wire.messages.commands import StatusRequest
from medusa.wire.messages.links import Ack, Attached, Heartbeat, OpenPublisher
from tests.nodes.test_brain import query

OFFER = msgspec.msgpack.encode(OpenPublisher(stream="s", schema=(Field("a", "int64"),)))
FIELD = msgspec.msgpack.encode(Field("a", "int64"))
NUMBER = b"\x92\xa6status"


def refused(header):
    with pytest.raises(RemoteProtocolError) as caught:
        decode_header(header)
    assert caught.value.code in ("E_FRAME", "E_LIMIT", "E_SCHEMA")
    return str(caught.value)


def test_what_peers_send_is_canonical():
    assert decode_header(NUMBER + b"\x05") == StatusRequest(request=5)
    assert decode_header(OFFER) == OpenPublisher(stream="s", schema=(Field("a", "int64"),))


@pytest.mark.parametrize(
    "number",
    [
        b"\xcc\x05",  # Five, in two bytes; in three; in five; in nine; signed.
        b"\xcd\x00\x05",
        b"\xce\x00\x00\x00\x05",
        b"\xcf" + struct.pack(">Q", 5),
        b"\xd3" + struct.pack(">q", 5),
        b"\xcb" + struct.pack(">d", 5.0),
        b"\xcb" + struct.pack(">d", float("nan")),
        b"\xcb" + struct.pack(">d", float("inf")),
        b"\xcf" + struct.pack(">Q", (1 << 64) - 1),
        b"\xcf" + struct.pack(">Q", 1 << 62),
        b"\xd3" + struct.pack(">q", -1),
        b"\xff",
        b"\xc3",
        b"\xc0",
        b"\xa15",
        b"\xc4\x015",
        b"\xd6\xff\x00\x00\x00\x05",  # A timestamp.
        b"\xd4\x01\x05",  # An extension.
    ],
)
def test_a_number_has_one_form(number):
    refused(NUMBER + number)


def test_a_field_that_stands_twice_is_refused():
    """msgspec takes the last one silently; a peer of ours never says it."""
    twice = FIELD.replace(b"\x82", b"\x83") + b"\xa4name\xa1b"
    assert msgspec.msgpack.decode(twice, type=Field) == Field("b", "int64")
    assert "canonical" in refused(OFFER.replace(FIELD, twice))
    turned = b"\x82\xa4type\xa5int64\xa4name\xa1a"
    assert "canonical" in refused(OFFER.replace(FIELD, turned))


@pytest.mark.parametrize(
    "header",
    [
        NUMBER,
        b"\x92\xa6status\x05\x00",
        b"\xdc\x00\x03\xa6status\x05\x06",
        b"\x93\xa6status\x05",
        b"\x93\xa6status\x05\xc1",
        b"\x93\xa6status\xcc\x05\x06",
        b"\xdc\x00\x02\xa6status\x05",
        b"\x92\xd9\x06status\x05",
        b"\x81\xa6status\x05",
        b"\x92\xa6Status\x05",
        b"\x92\xa6status\xa1\xff",
        b"\x92\xa6statu\xff\x05",
        b"\x92\x05\xa6status",
        b"\x90",
        b"\xc1",
        b"{}",
        b'["status", 5]',
    ],
)
def test_a_message_has_one_form(header):
    refused(header)


@pytest.mark.parametrize("depth", [33, 60_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01"])
def test_what_is_nested_deeply_ends_in_a_refusal(opening, depth):
    """D 10: no RecursionError comes out."""
    refused((opening * depth)[: limits.HEADER_BYTES_MAX])
    refused((b"\x93\xa5offer\xa1s" + opening * depth)[: limits.HEADER_BYTES_MAX])


@pytest.mark.parametrize(
    "claim",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x93\xa5offer\xa1s\xdd\xff\xff\xff\xff",
        b"\x93\xa5offer\xdb\xff\xff\xff\xff",
    ],
)
def test_nothing_is_allocated_for_a_length_that_is_only_claimed(claim):
    """D 9."""
    refused(claim)
    tracemalloc.start()
    try:
        refused(claim)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_payload_where_there_is_none_and_too_many_parts():
    for frames in ([NUMBER + b"\x05", b""], [OFFER, b"x"], [OFFER] * 3, []):
        with pytest.raises(RemoteProtocolError) as caught:
            decode_frame(frames)
        assert caught.value.code == "E_FRAME"


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)
TAGS = ["status", "hello", "ack", "offer", "attached", "data", "heartbeat", "reply", "declare", "remove"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TAGS), st.lists(plain, max_size=8))
def test_any_document_is_a_message_or_refused(tag, fields):
    """D 10: what is taken is exactly what we would write, up to fields at the end that one release knows."""
    header = msgspec.msgpack.encode([tag, *fields])
    try:
        message = decode_header(header)
    except RemoteProtocolError:
        return
    known = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    both = min(len(known), 1 + len(fields))
    assert msgspec.msgpack.encode(known[:both]) == msgspec.msgpack.encode([tag, *fields][:both])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_wounded_message_is_another_message_or_refused(data):
    message = data.draw(
        st.sampled_from(
            [
                Ack(stream="s", epoch=1 << 40, frames=300, received=70_000, durable=5, granted=1 << 30),
                Attached(
                    stream="s", epoch=1, next_seq=0, boundary_us=-5, schema=(Field("a", "utf8"),), timed=True
                ),
                Heartbeat(incarnation=7),
            ]
        )
    )
    header = bytearray(msgspec.msgpack.encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_header(bytes(header))
    except RemoteProtocolError:
        return
    assert msgspec.msgpack.encode(found) == header


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"size_us": 1000000', '"size_us": NaN'),
        ('"size_us": 1000000', '"size_us": 1e400'),
        ('"size_us": 1000000', '"size_us": Infinity'),
        ('"size_us": 1000000', '"size_us": ' + "9" * 5_000),
        ('"size_us": 1000000', '"size_us": 1000000.5'),
        ('"size_us": 1000000', '"size_us": "1000000"'),
        ('"size_us": 1000000', '"size_us": true'),
        ('"size_us": 1000000', '"size_us": ' + "[" * 100_000),
    ],
)
def test_a_query_as_json_has_no_numbers_that_are_none(old, new):
    """D 10, for the text form that people hand on."""
    text = graph_to_json(query().graph)
    assert old in text
    with pytest.raises(QueryError):
        graph_from_json(text.replace(old, new))
