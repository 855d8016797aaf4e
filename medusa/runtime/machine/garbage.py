"""Memory of a fragment that is gone is given back soon.

Its boxes refer to each other, so it goes with the next run of the collector. That one counts objects, and
doesn't know how much native memory hangs on them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

__all__ = ["collect_after"]

LARGE_BYTES = 16 << 20
"""Larger: memory stays for long. Smaller: the interpreter stands still for some 50 ms after each removal."""


def collect_after(nbytes: int, give: Callable[[Callable[[], None]], None]) -> None:
    """A fragment that held so much is gone; ``give`` does a job where nobody waits for it."""
    if nbytes >= LARGE_BYTES:
        give(_collect)


def _collect() -> None:
    gc.collect()
