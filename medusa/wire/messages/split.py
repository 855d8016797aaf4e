"""What is said when a box of a deployed query is split, or merged again (docs/splitting.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from medusa.wire.messages.base import Count, MessageBase, Name

__all__ = ["Merge", "Ranges", "Split"]

Cut = Annotated[int, Meta(ge=0)]
"""A hash of 64 bits; msgpack has no larger number."""

Ranges = Literal["even", "weight"] | Annotated[tuple[Cut, ...], Meta(max_length=255)]


class Split(MessageBase, frozen=True, tag="split"):
    """Run a box of a fragment as parts, each over a range of its keys. From a client, or from the node that
    the client is connected to.

    Attributes:
        box: its id in the query.
        parts: how many.
        ranges: of the same length, or such that they share what the box holds now; or where they end, but
            the last: parts - 1 hashes, ascending.
    """

    request: Count
    fragment: Name
    box: Name
    parts: Annotated[int, Meta(ge=2, le=256)]
    ranges: Ranges = "even"


class Merge(MessageBase, frozen=True, tag="merge"):
    """Run a box that was split as one again; all of its parts are at the node that has ``fragment``.

    Attributes:
        fragment: that with its router.
    """

    request: Count
    fragment: Name
    box: Name
