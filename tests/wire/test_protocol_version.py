"""Two releases work side by side: versions that both know, and fields at the end that one of them doesn't."""

from __future__ import annotations

import hashlib
import re
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from medusa.errors import RemoteProtocolError
from medusa.wire import messages
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.session import PeerSession
from medusa.wire.messages.links import Ack, Attach, Attached, Heartbeat, Hello
from medusa.wire.messages.move import Got
from medusa.wire.messages.remote import StoppedRemote
from medusa.wire.outbox import Outbox

LAYOUTS = {2: "0a0184af478953db"}
"""By version, a digest of the fields of all messages. Where fields with defaults were added at the end of a
message the digest changes; where anything else did raise ``PROTOCOL_VERSION`` and add one under it."""


def layout():
    """Each message with its tag and its fields in order, with types and defaults."""
    lines = []
    for kind in get_args(messages.Message):
        info = msgspec.inspect.type_info(kind)
        fields = [f"{each.name} {each.type} {each.default!r}" for each in info.fields]
        lines.append(f"{info.tag}: {'; '.join(fields)}")
    # Where a struct stands isn't sent.
    return re.sub(r"medusa\.[\w.]*\.(?=\w)", "", "\n".join(sorted(lines)))


def test_other_fields_take_another_version_of_the_protocol():
    digest = hashlib.sha256(layout().encode()).hexdigest()[:16]
    assert LAYOUTS.get(PROTOCOL_VERSION) == digest, f"the messages of version {PROTOCOL_VERSION} have changed"


def test_version_1_would_have_ended_the_link_for_a_field_that_it_does_not_know():
    """Why the version was raised: it knew three fields of this message."""

    class Earlier(
        msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag="stopped-remote"
    ):
        request: int
        query: str
        fragment: str

    word = StoppedRemote(request=1, query="q", fragment="q/a", code="E_MEMORY", why="too much", at_us=1)
    header = bytes(encode_frame(word)[0])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(header, type=Earlier, strict=True)
    assert decode_frame([memoryview(header)]) == (word, None)


def test_what_version_1_says_of_itself_is_still_read():
    """Else it would hear that its frame is broken, and not that it is of another version."""
    said = b"\x9a\xa5hello\x01\xa1b\x04\xc3\xc2\xc2\x00\x00\xa0"
    hello, _ = decode_frame([memoryview(said)])
    assert (hello.version, hello.node) == (1, "b")


SPOKEN_BY_2 = b"\x9a\xa5hello\x02\xa1b\x04\xc3\xc2\xc2\x00\x00\xa0"
"""A ``Hello`` as the release before there was a range writes it, and the only form that it reads."""


def test_a_speaker_of_one_version_says_it_as_releases_before_there_was_a_range():
    hello = Hello.ours("b", 4, answer=True)
    assert bytes(encode_frame(hello)[0]) == SPOKEN_BY_2
    assert decode_frame([memoryview(SPOKEN_BY_2)]) == (hello, None)


def test_a_range_is_said_and_read_back():
    hello = Hello(version=2, version_most=5, node="b", incarnation=4)
    header = bytes(encode_frame(hello)[0])
    assert header[-1:] == b"\x05"
    assert decode_frame([memoryview(header)]) == (hello, None)


LINKS = (
    Attach(stream="s", epoch=3, next_seq=7, durable=5, granted=9, note=b"n", fragment_epoch=2, life=8),
    Ack(stream="s", epoch=3, frames=1, received=7, durable=5, granted=9),
    Attached(stream="s", epoch=3, next_seq=7, boundary_us=4, schema=(), timed=True, life=8),
)


@pytest.mark.parametrize("message", LINKS, ids=lambda each: type(each).__name__)
def test_without_a_configuration_links_are_as_before_there_was_its_number(message):
    header = bytes(encode_frame(message)[0])
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    assert header == msgspec.msgpack.encode(fields[: -len(message.TAIL)])
    assert decode_frame([memoryview(header)]) == (message, None)


def test_who_holds_no_checkpoint_says_what_it_got_as_before_there_were_deltas():
    got = Got(fragment="q/f", attempt=1, ticket=2, frames=3, opened=True, durable=2)
    header = bytes(encode_frame(got)[0])
    assert header == msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(got))[:-2])
    held = replace(got, held=7, refused=3)
    for message in (got, held):
        assert decode_frame([memoryview(bytes(encode_frame(message)[0]))]) == (message, None)


def test_numbers_that_are_skipped_are_said_with_the_configuration_before_them():
    message = replace(LINKS[-1], skipped=6)
    header = bytes(encode_frame(message)[0])
    assert header[-2:] == b"\x00\x06"
    assert decode_frame([memoryview(header)]) == (message, None)


@pytest.mark.parametrize("message", LINKS, ids=lambda each: type(each).__name__)
def test_the_number_of_a_configuration_takes_a_byte(message):
    plain, by = (bytes(encode_frame(each)[0]) for each in (message, replace(message, configuration=5)))
    assert len(by) == len(plain) + 1
    assert by[-1:] == b"\x05"
    assert decode_frame([memoryview(by)]) == (replace(message, configuration=5), None)


def speaker(least: int, most: int) -> Hello:
    return Hello(version=least, version_most=0 if most == least else most, node="b", incarnation=4)


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ((2, 2), (2, 2), 2),
        ((2, 2), (2, 5), 2),
        ((2, 4), (3, 6), 4),
        ((2, 4), (4, 4), 4),
        ((2, 6), (3, 4), 4),
        ((2, 2), (3, 4), 0),
        ((2, 2), (1, 1), 0),
        ((3, 5), (1, 2), 0),
    ],
)
def test_two_peers_speak_the_newest_version_that_both_know(ours, theirs, common):
    assert speaker(*ours).common_version(speaker(*theirs)) == common
    assert speaker(*theirs).common_version(speaker(*ours)) == common


def test_a_range_whose_end_is_before_its_begin_is_none():
    assert Hello(version=4, version_most=2, node="b", incarnation=4).common_version(speaker(2, 6)) == 0


def session(me: Hello) -> PeerSession:
    return PeerSession(me, "b", outbox=Outbox(), calls=False)


@pytest.mark.parametrize(("theirs", "spoken"), [((2, 2), 2), ((2, 9), 2), ((1, 2), 2)])
def test_a_session_with_an_older_or_newer_release_comes_up(theirs, spoken):
    one = session(Hello.ours("a", 1))
    assert one.receive(0, speaker(*theirs)) is LinkEvent.PEER_UP
    assert one.version == spoken


def test_a_session_with_a_release_that_shares_no_version_is_refused_with_both():
    one = session(speaker(2, 3))
    with pytest.raises(RemoteProtocolError, match="speaks versions 4 to 6, we speak 2 to 3") as caught:
        one.receive(0, speaker(4, 6))
    assert (caught.value.code, one.version) == ("E_VERSION", 0)


def test_what_a_session_answers_says_the_range_of_its_own_release():
    outbox = Outbox()
    one = PeerSession(speaker(2, 3), "b", outbox=outbox, calls=False)
    one.receive(0, Hello(version=2, node="b", incarnation=4, answer=True))
    [hello] = [each.message for each in outbox.take() if isinstance(getattr(each, "message", None), Hello)]
    assert (hello.version, hello.version_most, one.version) == (2, 3, 2)


@pytest.mark.parametrize("more", [[7], ["text", b"bytes", None], [[1, [2, {"a": 3.5}]], True]])
def test_fields_that_a_newer_release_added_are_skipped(more):
    for known in (
        Heartbeat(incarnation=7),
        Hello(version=2, version_most=3, node="b", incarnation=4),
        StoppedRemote(request=1, query="q", fragment="q/a", code="E_MEMORY", why="too much", at_us=1),
    ):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(known))
        header = msgspec.msgpack.encode([*fields, *more])
        assert decode_frame([memoryview(header)]) == (known, None)


def test_of_every_message_all_fields_but_the_last_new_ones_stay_where_they_are():
    """However many fields are added, what is known before them is read by its place."""
    for kind in get_args(messages.Message):
        assert kind.__struct_config__.array_like
        assert not kind.__struct_config__.forbid_unknown_fields


def test_a_shorter_message_of_an_older_release_has_the_defaults():
    header = msgspec.msgpack.encode(["stopped-remote", 1, "q", "q/a"])
    message, _ = decode_frame([memoryview(header)])
    assert message == StoppedRemote(request=1, query="q", fragment="q/a")


def test_a_field_without_default_may_not_be_missing():
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame([memoryview(msgspec.msgpack.encode(["stopped-remote", 1, "q"]))])
    assert caught.value.code == "E_FRAME"


def test_what_stands_before_a_field_that_is_not_known_has_one_form_still():
    for header in (b"\x93\xa9heartbeat\xcc\x07\x01", b"\xdc\x00\x03\xa9heartbeat\x07\x01"):
        with pytest.raises(RemoteProtocolError, match="canonical"):
            decode_frame([memoryview(header)])
    nested = b"\x93\xa9heartbeat\x07" + b"\x91" * 60_000
    with pytest.raises(RemoteProtocolError):
        decode_frame([memoryview(nested)])
