"""A line on the terminal that says how far a run is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["RunProgress"]


class RunProgress:
    """Rows and rows a second; a bar where it is known how much there is. Nothing without a terminal.

    Args:
        fraction: how much has been read, 0 to 1; None: unknown.
    """

    def __init__(self, fraction: Callable[[], float | None], *, wanted: bool) -> None:
        self._fraction = fraction
        self._bar: Any = None
        self._task: Any = None
        self._rows = 0
        self._wanted = wanted and sys.stderr.isatty()

    def __enter__(self) -> RunProgress:
        if self._wanted:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                BarColumn(),
                TextColumn("{task.completed:,} rows"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None, rate="")
            self._bar.start()
        return self

    def rows(self, count: int) -> None:
        """So many rows more have been taken."""
        self._rows += count
        if self._bar is None:
            return
        fraction = self._fraction()
        task = self._bar.tasks[0]
        rate = f"{task.speed:,.0f} rows/s" if task.speed else ""
        total = None if not fraction else max(self._rows, round(self._rows / fraction))
        self._bar.update(self._task, completed=self._rows, total=total, rate=rate)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
