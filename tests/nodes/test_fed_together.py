"""``Fed`` in one frame, and apart again: the same ones in the same order; what doesn't fit gives nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from medusa.errors import RemoteProtocolError
from medusa.nodes.migration import fed_together
from medusa.nodes.migration.fed_together import apart, together
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.move import TOGETHER_MAX, Fed, FedTogether, Standing

OF = {"fragment": "q/counted", "attempt": 3, "ticket": 7}


def fed(frame, **other):
    return Fed(
        frame=frame, kind=0, number=-1, source="rows", peer="e", next_seq=0, boundary_us=0, **OF, **other
    )


def standing(frame):
    return Standing(frame=frame, **OF)


def unpacked(frames):
    """What the target takes, one by one, after the way over the wire."""
    for message, payload in frames:
        message, payload = decode_frame([memoryview(bytes(each)) for each in encode_frame(message, payload)])
        if isinstance(message, FedTogether):
            yield from apart(message, payload, peer="e")
        else:
            yield message, payload


def plain(frames):
    return [(message, None if payload is None else bytes(payload)) for message, payload in frames]


sizes = st.one_of(st.none(), st.integers(1, 40), st.sampled_from([70_000, 300_000]))


@given(st.lists(st.one_of(st.just("standing"), sizes), max_size=60))
def test_what_goes_together_is_taken_one_by_one_in_its_order(kinds):
    frames = []
    for frame, kind in enumerate(kinds):
        if kind == "standing":
            frames.append((standing(frame), b"clients"))
        else:
            frames.append((fed(frame), None if kind is None else bytes([frame % 256]) * kind))
    sent = list(together(frames))
    assert plain(unpacked(sent)) == plain(frames)
    for message, _ in sent:
        if isinstance(message, FedTogether):
            assert 2 <= len(message.fed) <= TOGETHER_MAX
            assert sum(message.nbytes) <= fed_together.TOGETHER_BYTES
    # No two stand side by side that had room in one frame.
    alone = [isinstance(message, Fed) for message, _ in sent]
    for place in range(len(sent) - 1):
        if alone[place] and alone[place + 1]:
            both = sum(len(payload or b"") for _, payload in sent[place : place + 2])
            assert both > fed_together.TOGETHER_BYTES


def test_rows_begin_where_arrow_reads_them_without_a_copy():
    [(message, payload)] = together([(fed(0), b"a" * 13), (fed(1), b"b" * 16), (fed(2), b"c")])
    whole = memoryview(payload)
    for _, rows in apart(message, payload, peer="e"):
        assert whole.obj is rows.obj
    assert (message.nbytes, len(payload)) == ((13, 16, 1), 16 + 16 + 8)


TWO = next(together([(fed(0), b"a" * 13), (fed(1), b"b" * 16)]))


@pytest.mark.parametrize(
    ("changes", "payload"),
    [
        ({}, TWO[1][:-1]),
        ({}, TWO[1] + b"\0"),
        ({}, None),
        ({"nbytes": (13, 17)}, TWO[1]),
        ({"nbytes": (13, 16, 0)}, TWO[1]),
        ({"nbytes": (1 << 60, 16)}, TWO[1]),
        ({"fed": (fed(0), replace(fed(1), attempt=4))}, TWO[1]),
        ({"fed": (fed(0), replace(fed(1), fragment="q/other"))}, TWO[1]),
        ({"fed": (fed(0), replace(fed(1), ticket=8))}, TWO[1]),
    ],
)
def test_what_does_not_fit_is_refused_before_any_of_it_is_taken(changes, payload):
    taken = []
    with pytest.raises(RemoteProtocolError) as raised:
        taken.extend(apart(replace(TWO[0], **changes), payload, peer="e"))
    assert (raised.value.code, taken) == ("E_STATE", [])
