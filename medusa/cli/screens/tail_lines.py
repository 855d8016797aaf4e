"""The lines of ``medusa tail --tentative``: rows with their kind, how the stream is, and what is undone."""

from __future__ import annotations

import json
from typing import Any

from medusa.cli.screens.terminal_text import TENTATIVE
from medusa.elements import Kind, Train
from medusa.engine.core.box import show_time
from medusa.nodes.consistency.corrections import UncorrectedRows
from medusa.runtime.client.subscription import Subscription

__all__ = ["TailLines", "row_text"]

_MEANS = {
    "stable": "all is corrected",
    "up_failure": "an input is missing, and what is new is tentative",
    "stabilization": "corrections come",
    "failure": "its node isn't heard",
}


def row_text(row: dict[str, Any], as_json: bool) -> str:
    """A row of a stream, in one line."""
    if as_json:
        return json.dumps(row, default=str)
    return "  ".join(f"{name}={value}" for name, value in row.items())


class TailLines:
    """Of a subscription with ``tentative``, prints what there is beside rows, and makes lines of these.

    What is undone is told train by train: once the stable boundary is past the last row of one.

    Args:
        as_json: one document a line.
    """

    def __init__(self, trains: Subscription, *, as_json: bool) -> None:
        self._trains = trains
        self._as_json = as_json
        self._guesses = UncorrectedRows()
        self._fork = self._open = 0
        """The fork of the tentative rows that were printed, and how many of them hold."""
        self._missed = 0
        trains.on_state(self._state)

    def row(self, kind: Kind, row: dict[str, Any]) -> str:
        """Of a row of a train."""
        if self._as_json:
            return json.dumps({"kind": kind.value, "row": row}, default=str)
        return self._coloured(f"{kind.value:<9}  {row_text(row, False)}", kind is Kind.TENTATIVE)

    def came(self, train: Train) -> None:
        """A train is about to be printed: say first what is undone."""
        self.undone()
        if train.kind is Kind.TENTATIVE:
            self._fork = self._trains.fork
            self._guesses.shown(self._fork, train, self._trains.boundary_us)
            self._open = self._guesses.count(self._fork, self._trains.boundary_us)

    def undone(self) -> None:
        """Say how many of the tentative rows that were printed are void by now, and by what."""
        fork, boundary_us = self._trains.fork, self._trains.boundary_us
        left = self._guesses.count(fork, boundary_us)
        void, self._open = self._open - left, left
        if void > 0:
            why = "the stable rows count"
            if fork != self._fork:
                why = "another fork begins" if fork else "their fork is gone"
            self._undo(void, show_time(boundary_us), why)
        if (missed := self._trains.missed_rows) > self._missed:
            rows = missed - self._missed
            text = f"tentative rows that had no room, or were lost on the way: {rows:,}"
            self._say({"kind": "missed", "rows": rows}, text)
            self._missed = missed

    def _undo(self, rows: int, below: str, why: str) -> None:
        which = f"{rows:,} tentative row{' is' if rows == 1 else 's are'} void"
        text = f"{which}, stable up to {below}: {why}"
        self._say({"kind": "undo", "rows": rows, "stable_to": below, "why": why}, text)

    def _state(self, state: str) -> None:
        self.undone()
        self._say({"kind": "state", "state": state}, f"{state}: {_MEANS[state]}")

    def _say(self, said: dict[str, Any], text: str) -> None:
        import click

        if self._as_json:
            click.echo(json.dumps(said))
        else:
            click.echo(self._coloured(f"--- {text}", False, bold=True))

    def _coloured(self, text: str, is_tentative: bool, *, bold: bool = False) -> str:
        import click

        if not (is_tentative or bold):
            return text
        return click.style(text, fg=TENTATIVE if is_tentative else None, bold=bold or None)
