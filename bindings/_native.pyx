# cython: boundscheck=False, wraparound=False, embedsignature=False, binding=False
"""The one native module: wrappers over the C library, one piece per idea. See ``medusa/_native.pyi``.

The pieces hold checks, ownership and the GIL; no algorithm and no policy.
"""

include "common.pxi"
include "borrow.pxi"
include "gather.pxi"
include "validate.pxi"
include "calls.pxi"
include "split.pxi"
include "items.pxi"
include "window_header.pxi"
include "window.pxi"
include "window_snapshot.pxi"
include "keys.pxi"
include "window_store.pxi"
include "window_span.pxi"
include "window_running.pxi"
include "slots.pxi"
include "take.pxi"
include "merge.pxi"
include "join.pxi"
include "stream.pxi"
include "lateness.pxi"
include "lateness_parts.pxi"
include "order.pxi"
include "partition.pxi"
include "digest.pxi"
include "program.pxi"
include "queue.pxi"
include "multipart.pxi"
include "signals.pxi"
include "locked.pxi"


cdef extern from "base/kernels.h" nogil:
    const char *md_kernels()


def abi_version():
    """Version of this interface between the engine and native code."""
    return 1


def cpu_kernels():
    """Which kernels were chosen at run time: ``baseline`` or ``avx2``."""
    return md_kernels().decode()
