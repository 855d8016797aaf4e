"""How a command ends by a signal."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["INTERRUPTED", "sigterm_interrupts"]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that what was opened is closed in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
