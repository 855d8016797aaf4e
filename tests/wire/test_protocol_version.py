"""Nodes decode strictly, so a message with other fields is another version of the protocol."""

from __future__ import annotations

import hashlib
import re
from typing import get_args

import msgspec
import pytest

from medusa.errors import RemoteProtocolError
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages import links_and_commands
from medusa.wire.messages.remote import StoppedRemote

LAYOUTS = {2: "f4b3eafa71d98921"}
"""By version, a digest of the fields of all messages. Where they changed raise ``PROTOCOL_VERSION`` and add
the digest under it; the one of a version that was released never changes."""


def layout():
    """Each message with its tag and its fields in order, with types and defaults."""
    lines = []
    for kind in get_args(links_and_commands.Message):
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


def test_shorter_messages_of_an_earlier_version_are_not_filled_up():
    header = msgspec.msgpack.encode(["stopped-remote", 1, "q", "q/a"])
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame([memoryview(header)])
    assert caught.value.code == "E_FRAME"
