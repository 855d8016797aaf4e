"""What this process has used: CPU time and memory. Reading it is IO, so minds are told."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time

from medusa.nodes.load.loads import Usage
from medusa.wire.status_and_metrics import EngineHeld

__all__ = ["process_usage", "thread_cpu_us"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def process_usage(engine_us: int | None = None, held: EngineHeld | None = None) -> Usage:
    """Of all threads so far; some 10 us.

    Args:
        engine_us: CPU time of the engine's thread; None: it can't be told here.
        held: who holds that thread for too long; None: nobody.
    """
    return Usage(
        cpu_us=time.process_time_ns() // 1000,
        engine_us=engine_us,
        memory_bytes=_memory_bytes(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        held=held,
    )


def thread_cpu_us(thread: threading.Thread) -> int | None:
    """CPU time of a thread of this process; None: it has ended, or this system doesn't tell."""
    if thread.ident is None or not thread.is_alive() or not hasattr(time, "pthread_getcpuclockid"):
        return None
    try:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident)) // 1000
    except OSError:  # It has ended meanwhile.
        return None


def _memory_bytes() -> int:
    """Resident now; where the system doesn't tell, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
