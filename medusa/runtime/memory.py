"""What the C library does with memory that is freed: a node keeps it for its next checkpoint.

The state of a fragment is copied for each checkpoint, into blocks of many megabytes. By default glibc gives
such blocks back to the system, and the next checkpoint has them mapped and cleared page by page: of 70 ms for
a million groups that was 55. While that goes on the fragment rests.
"""

from __future__ import annotations

import ctypes

__all__ = ["KEPT_BYTES", "keep_freed_memory"]

KEPT_BYTES = 256 << 20
"""So much of it may stay with the process. Too small: checkpoints of a large state take several times as
long; too large: memory that others could use."""

MAPPED_BYTES_MIN = 32 << 20
"""Larger blocks are mapped one by one, and given back; glibc takes no larger number."""

_TRIM, _MAP, _ARENAS = -1, -3, -8
"""``M_TRIM_THRESHOLD``, ``M_MMAP_THRESHOLD``, ``M_ARENA_MAX`` of ``malloc.h``."""


def keep_freed_memory() -> bool:
    """Tell the C library so, before other threads begin; whether it is one that can be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # One arena: others than the first are given back in any case.
    options = ((_ARENAS, 1), (_MAP, MAPPED_BYTES_MIN), (_TRIM, KEPT_BYTES))
    return all(mallopt(ctypes.c_int(which), ctypes.c_int(value)) for which, value in options)
