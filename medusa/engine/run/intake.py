"""Rows into a run, and whatever else is done to it: by whom, and in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

from medusa.engine.query_change import Change
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.gate import RunGate
from medusa.engine.run.run_warnings import RunWarnings
from medusa.ports import Clock

__all__ = ["Check", "Moment", "RunIntake"]

T = TypeVar("T")
Check = Callable[[], None] | None
"""Calls the handlers of signals that came, where nothing is half done; None: nobody waits for them here."""

Moment = int | str | datetime
"""A time as users write it."""


class RunIntake(ABC):
    """Has the caller do the work, or a thread of the run. What has no text here is as of ``md.Run``."""

    def __init__(self, gate: RunGate, clock: Clock, warnings: RunWarnings, rest: AtRest) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._clock = clock
        self._warnings = warnings
        self._rest = rest

    @abstractmethod
    def push(
        self, source: str, data: Any, *, extra: str, first: int | None, arrival: Moment | None, wait: bool
    ) -> None: ...

    @abstractmethod
    def boundary(self, source: str, time: Moment) -> None: ...

    @abstractmethod
    def positions(self) -> dict[str, int]: ...

    @abstractmethod
    def flush(self) -> None: ...

    def tick(self) -> None:
        with self._gate.turn(tells=True):
            self._rest.settle()

    @abstractmethod
    def in_order(self, call: Callable[[Check], T], *, ends: bool = False, settles: bool = True) -> T:
        """Have something done behind all that was pushed, within a turn, and wait for it.

        Args:
            call: given what it calls while it waits, if anything.
            ends: it ends all sources.
            settles: what follows whenever the query has come to rest follows.
        """

    @abstractmethod
    def close(self, end: Callable[[], None], error: BaseException | None = None) -> None:
        """Do what waits, unless an error is on its way out, and then ``end``, which takes a turn."""

    @abstractmethod
    def give_up(self) -> None:
        """Do nothing more: nobody has got the run yet."""

    # For those who look at what waits

    @abstractmethod
    def count_waiting(self) -> None:
        """Tell the sources what waits before them, within ``state``."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[object]:
        """Nothing is pushed while the query changes."""

    @abstractmethod
    def check_change(self, change: Change) -> None:
        """The last chance to refuse a change."""

    @abstractmethod
    def changed(self, change: Change) -> None:
        """The query has changed."""
