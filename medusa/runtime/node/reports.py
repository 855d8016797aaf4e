"""What a node reports, as lines of text: what repeats is counted, what peers say is escaped and cut."""

from __future__ import annotations

import time
from collections.abc import Callable

from medusa.wire.outbox import ReportLine
from medusa.wire.statement import client_key

__all__ = ["Reports"]

SAME_LINE_S = 10.0
"""The same report again within so many seconds is counted, not told."""

KIND_S = 60.0
KIND_MAX = 5
"""Warnings and errors of one kind about one peer within so many seconds; others are counted, and the count is
told with the next one. All names of a client with one key are one peer."""

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
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """What, about whom -> since when, and how many since then."""

    def warn(self, text: str) -> None:
        self.report(ReportLine(level="warning", what=text))

    def report(self, report: ReportLine) -> None:
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
        others = self._others(report, now)
        if others is None:
            return
        line = f"{line} cause={_safe(report.cause)}" if report.cause else line
        line = f"{line} ({count} times more)" if count else line
        self._tell(report.level, f"{line} ({others} others of this peer)" if others else line)

    def _others(self, report: ReportLine, now: float) -> int | None:
        """How many of this kind about this peer were counted and not told; None: so is this one."""
        peer = report.fields.get("peer")
        if report.level == "info" or not isinstance(peer, str):
            return 0
        kind = report.what, client_key(peer)
        since, count = self._kinds.get(kind, (-KIND_S, 0))
        if now - since < KIND_S:
            self._kinds[kind] = (since, count + 1)
            return 0 if count < KIND_MAX else None
        if len(self._kinds) > LINES_MAX:
            self._kinds.clear()
        self._kinds[kind] = (now, 1)
        return max(count - KIND_MAX, 0)


def _safe(value: str | int, most: int = 300) -> str:
    if isinstance(value, int):
        return str(value)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:most])
