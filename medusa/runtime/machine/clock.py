"""The clock of the machine."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """Implements ``medusa.ports.Clock``."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000
