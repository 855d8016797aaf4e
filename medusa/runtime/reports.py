"""What a node reports, as lines of text: what repeats is counted, what peers say is escaped and cut."""

from __future__ import annotations

import time
from collections.abc import Callable

from medusa.wire.outbox import Report

__all__ = ["Reports"]

SAME_LINE_S = 10.0
"""The same report again within so many seconds is counted, not told."""

LINES_MAX = 1000
LEVELS = ("info", "warning", "error")


class Reports:
    """Makes lines of reports.

    Args:
        tell: takes a level (``info``, ``warning``, ``error``) and a line.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def warn(self, text: str) -> None:
        self.report(Report(level="warning", what=text))

    def report(self, report: Report) -> None:
        if report.level not in LEVELS:
            return
        fields = " ".join(f"{key}={_safe(value)}" for key, value in report.fields.items())
        line = f"{_safe(report.what, 1000)} {fields}".rstrip()
        now = time.monotonic()
        since, count = self._seen.get((report.level, line), (-SAME_LINE_S, 0))
        if now - since < SAME_LINE_S:
            self._seen[report.level, line] = (since, count + 1)
            return
        if len(self._seen) > LINES_MAX:
            self._seen.clear()
        self._seen[report.level, line] = (now, 0)
        self._tell(report.level, f"{line} ({count} times more)" if count else line)


def _safe(value: str | int, most: int = 300) -> str:
    if isinstance(value, int):
        return str(value)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:most])
