"""What every message is built of: its base and the types of its fields, each with its bounds."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from medusa.wire import limits

__all__ = [
    "Count",
    "Incarnation",
    "MessageBase",
    "Name",
    "Names",
    "Note",
    "Payload",
    "PublisherName",
    "StreamTime",
    "SubscriptionName",
    "Text",
]

Count = Annotated[int, Meta(ge=0, le=limits.SEQ_MAX)]
Incarnation = Annotated[int, Meta(ge=0, lt=1 << 32)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Note = Annotated[bytes, Meta(max_length=limits.NOTE_BYTES_MAX)]
SubscriptionName = Annotated[str, Meta(max_length=64, pattern=r"\A[a-z0-9_-]*\Z")]
PublisherName = Annotated[str, Meta(max_length=64, pattern=r"\A[a-z0-9_-]*(?:/[a-z0-9_-]+)*\Z")]
Text = Annotated[str, Meta(max_length=limits.TEXT_CHARS_MAX)]
StreamTime = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Names = Annotated[tuple[Name, ...], Meta(max_length=limits.PLACES_MAX)]


class Payload(Enum):
    """Whether something stands beside a message, in the second part of its frame."""

    NONE = "no"
    OPTIONAL = "may"
    REQUIRED = "yes"


class MessageBase(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An array of the fields in order, first the tag: compact, and no key can come twice.

    A newer release may add fields at the end, with defaults: an older one skips them.
    """

    PAYLOAD: ClassVar[Payload] = Payload.NONE
    TAIL: ClassVar[tuple[str, ...]] = ()
    """The last fields, where a message is written without them while they are 0: as before they came."""
