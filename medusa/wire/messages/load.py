"""How much a node has to do: said once a second to the other nodes of its participant, and more often while
it feeds nodes of others.

Numbers are whole: shares are parts of a million, so that each has one form on the wire.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from medusa.wire.messages.base import Count, MessageBase, Name

__all__ = ["FRAGMENTS_MAX", "PUT_OUT_MAX", "WHOLE", "FragmentLoad", "Load"]

WHOLE = 1_000_000
"""A share of 1, in parts of a million."""

FRAGMENTS_MAX = 100
"""Told of one by one; of more only those with the largest share."""

PUT_OUT_MAX = 100
"""Streams to other participants of which one message says how far they are."""

Share = Annotated[int, Meta(ge=0, le=1_000 * WHOLE)]


class FragmentLoad(MessageBase, frozen=True):
    """One fragment, as it does there.

    Attributes:
        busy_share: of the time of the engine's thread.
        bytes_out_per_s: of its streams, to all readers together.
        queue_bytes: arrived and not yet through.
    """

    fragment: Name
    busy_share: Share
    rows_in_per_s: Count
    rows_out_per_s: Count
    bytes_out_per_s: Count
    queue_bytes: Count


class Load(MessageBase, frozen=True, tag="load"):
    """So much I have to do. From a node to those of its own participant, once a second, or more
    often (``put_out``); never answered.

    Attributes:
        load: what counts: 1,000,000 is all that can be done.
        overloaded: by the node's own marks.
        cpu_share: CPU time of the process per second and core.
        cores: that it may use.
        put_out: streams that nodes of other participants read, and the numbers of their next rows; None:
            there are too many, or an older release says it.
    """

    load: Share
    overloaded: bool
    cpu_share: Share
    cores: Annotated[int, Meta(ge=1, le=1 << 16)]
    memory_bytes: Count
    fragments: Annotated[tuple[FragmentLoad, ...], Meta(max_length=FRAGMENTS_MAX)] = ()
    put_out: Annotated[tuple[tuple[Name, Count], ...], Meta(max_length=PUT_OUT_MAX)] | None = None
