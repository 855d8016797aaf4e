"""What members of the catalog between participants say to each other (docs/catalog-dht.md)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name

__all__ = ["DhtFind", "DhtFound", "DhtLeave", "DhtMessage", "DhtStore", "DhtStored"]

EntryBytes = Annotated[bytes, Meta(max_length=limits.DHT_ENTRY_BYTES_MAX + limits.DHT_SIGNATURE_BYTES_MAX)]
Members = Annotated[tuple[Name, ...], Meta(max_length=limits.DHT_MEMBERS_MAX)]
PlaceBytes = Annotated[bytes, Meta(min_length=20, max_length=20)]


class DhtFind(MessageBase, frozen=True, tag="dht-find"):
    """Whom do you know nearest to this place, and what do you hold of this name?

    Attributes:
        place: of 160 bits, the highest first.
        name: empty: only members are wanted.
    """

    request: Count
    place: PlaceBytes
    name: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""


class DhtFound(MessageBase, frozen=True, tag="dht-found"):
    """The answer to ``DhtFind``.

    Attributes:
        members: the nearest I know, the nearest first, without myself.
        entry: signed by its owner; empty: I hold none.
    """

    request: Count
    members: Members = ()
    entry: EntryBytes = b""


class DhtStore(MessageBase, frozen=True, tag="dht-store"):
    """Hold this entry, which its owner signed."""

    request: Count
    entry: EntryBytes


class DhtStored(MessageBase, frozen=True, tag="dht-stored"):
    """The answer to ``DhtStore``.

    Attributes:
        code: empty: I hold it. Else the rule that stood against it, and nothing changed.
        entry: with ``E_REPLAY``, the younger one that I hold.
    """

    request: Count
    code: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    entry: EntryBytes = b""


class DhtLeave(MessageBase, frozen=True, tag="dht-leave"):
    """I leave: count on me no more."""


DhtMessage = DhtFind | DhtFound | DhtStore | DhtStored | DhtLeave
