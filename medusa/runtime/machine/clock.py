"""Clocks of the machine."""

from __future__ import annotations

import time

__all__ = ["SystemClock", "ThreadCpuClock"]


class SystemClock:
    """Implements ``medusa.ports.Clock``."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class ThreadCpuClock:
    """A ``medusa.ports.Clock`` that goes on only while the thread that reads it has a processor: what work
    takes, whatever else the machine has to do."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        return time.thread_time_ns() // 1_000
