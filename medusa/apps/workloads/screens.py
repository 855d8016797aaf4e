"""How a demonstration tells what it does while it goes on: on a terminal, in lines, or not at all."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["LiveScreen", "PlainScreen", "Progress", "Screen", "screen_for", "table_of", "working_folder"]


class Progress(Protocol):
    """How far a demonstration is."""

    def line(self) -> str:
        """In one line."""

    def drawn(self) -> RenderableType:
        """For a terminal."""


class Screen:
    """What a run tells while it goes on; this one says nothing."""

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def say(self, text: str) -> None:
        """One step of the way."""

    def update(self, progress: Progress) -> None:
        """Called some times a second."""


class PlainScreen(Screen):
    """A line per second, for logs and pipes; where it doesn't repeat, when something has changed."""

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic, *, repeats: bool = True
    ) -> None:
        self._console = console
        self._clock = clock
        self._repeats = repeats
        self._due = clock()
        self._told = ""

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, progress: Progress) -> None:
        now = self._clock()
        if now >= self._due and ((line := progress.line()) != self._told or self._repeats):
            self._due, self._told = now + 1.0, line
            self.say(line)


class LiveScreen(Screen):
    """What is drawn, redrawn in place."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, progress: Progress) -> None:
        self._live.update(progress.drawn())


def screen_for(console: Console, *, silent: bool, repeats: bool = True) -> Screen:
    """The one that fits; silent: for ``--json``."""
    if silent:
        return Screen()
    return LiveScreen(console) if console.is_terminal else PlainScreen(console, repeats=repeats)


def table_of(*columns: str, title: str | None = None) -> Table:
    """First column left, the others right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


@contextlib.contextmanager
def working_folder(prefix: str, keep: bool, screen: Screen) -> Iterator[Path]:
    """For the nodes; gone afterwards unless it shall be kept."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        if keep:
            screen.say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
