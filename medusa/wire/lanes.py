"""Several connections for the streams of one link. Pure: no IO, no clock.

Iwashima et al. found that of several connections between two sites either a stream keeps to one
(*pinned*: loss on one connection holds up only its streams), or the frames of each go round over all
(*striped*: one stream gets the bandwidth of all).
"""

from __future__ import annotations

from zlib import crc32

__all__ = ["lane_of"]


def lane_of(stream: str, lanes: int) -> int:
    """The connection to which a stream keeps, from 1 to ``lanes``: the same in every process and life."""
    return 1 + crc32(stream.encode()) % lanes
