"""Rows into a run that has no queue: whoever pushes does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from medusa.engine.input.ingest import normalise
from medusa.engine.input.push_arguments import boundary_time_us, from_first
from medusa.engine.query_change import Change
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.gate import RunGate
from medusa.engine.run.run_warnings import RunWarnings
from medusa.errors import MedusaError
from medusa.ports import Clock

__all__ = ["DirectIntake", "RunIntake"]

T = TypeVar("T")
Check = Callable[[], None] | None
"""Calls the handlers of signals that came, where nothing is half done; None: nobody waits for them here."""


class RunIntake(Protocol):
    """What is done to a run, and by whom: by the caller, or by a thread of the run."""

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: int | str | datetime | None = None,
        wait: bool = True,
    ) -> None:
        """As ``md.Run.push``."""

    def boundary(self, source: str, time: int | str | datetime) -> None:
        """As ``md.Run.boundary``."""

    def positions(self) -> dict[str, int]:
        """As ``md.Run.positions``."""

    def count_waiting(self) -> None:
        """Tell the sources what waits before them, within ``state``."""

    def tick(self) -> None:
        """As ``md.Run.tick``."""

    def flush(self) -> None:
        """As ``md.Run.flush``."""

    def in_order(self, call: Callable[[Check], T], *, ends: bool = False, settles: bool = True) -> T:
        """Have something done behind all that was pushed, within a turn, and wait for it.

        Args:
            call: given what it calls while it waits, if anything.
            ends: it ends all sources.
            settles: what follows whenever the query has come to rest follows.
        """

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Nothing is pushed while the query changes."""

    def check_change(self, change: Change) -> None:
        """The last chance to refuse a change."""

    def changed(self, change: Change) -> None:
        """The query has changed."""

    def close(self, end: Callable[[], None], error: BaseException | None = None) -> None:
        """Do what waits, unless an error is on its way out, and then ``end``, which takes a turn."""

    def give_up(self) -> None:
        """Do nothing more: nobody has got the run yet."""


class DirectIntake:
    """Rows are worked through before ``push`` returns, in the thread that called."""

    def __init__(self, gate: RunGate, clock: Clock, warnings: RunWarnings, rest: AtRest) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._clock = clock
        self._warnings = warnings
        self._rest = rest

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: int | str | datetime | None = None,
        wait: bool = True,
    ) -> None:
        """As ``md.Run.push``."""
        gate = self._gate
        gate.begin(wait, True)
        try:
            fragment = self._fragment
            if fragment.storage is not None and fragment.storage.budget_bytes is not None:
                fragment.storage.check_budget()
            box = fragment.source(source)
            arrival_us = None if arrival is None else boundary_time_us(arrival, source, "an arrival")
            # As most come: nothing to convert and nothing to cut.
            rows = box.exported(data) if first is None and extra == "refuse" else None
            if rows is not None:
                batches = [data]
            else:
                batches = normalise(data, box.spec.schema, extra=extra, source=source, arrow=box.schema)
            if first is not None:
                batches = from_first(batches, first, fragment.positions()[source], source)
            times = fragment.check(box, batches, arrival_us, rows)
            fragment.at(self._clock.monotonic_us())
            try:
                fragment.push(box, batches, times, arrival_us)
            finally:
                if box.late or fragment.letters.fresh is not None:
                    self._warnings.warn(source)
            self._rest.settle()
        except BaseException as error:
            gate.broken_off(error)
            raise
        finally:
            gate.leave(True)

    def boundary(self, source: str, time: int | str | datetime) -> None:
        with self._gate.turn(tells=True, room=True):
            self._fragment.source(source)
            time_us = boundary_time_us(time, source, "a boundary")
            self._fragment.at(self._clock.monotonic_us())
            self._fragment.promise(source, time_us)
            self._rest.settle()

    def positions(self) -> dict[str, int]:
        with self._gate.asking():
            return self._fragment.positions()

    def count_waiting(self) -> None:
        pass  # nothing ever does

    def tick(self) -> None:
        with self._gate.turn(tells=True):
            self._rest.settle()

    def flush(self) -> None:
        with self._gate.asking():
            pass

    def in_order(self, call: Callable[[Check], T], *, ends: bool = False, settles: bool = True) -> T:
        with self._gate.turn(tells=settles):
            self._fragment.at(self._clock.monotonic_us())
            made = call(self._gate.interrupts.check)
            if settles:
                self._rest.settle()
        return made

    @contextmanager
    def changing(self) -> Iterator[None]:
        yield

    def check_change(self, change: Change) -> None:
        pass  # all that was pushed has been worked through

    def changed(self, change: Change) -> None:
        pass

    def close(self, end: Callable[[], None], error: BaseException | None = None) -> None:
        try:
            end()
        except MedusaError as other:
            if error is None:
                raise
            # The error on its way out is the news; a failing checkpoint must not hide it.
            error.add_note(f"besides, closing the run failed: {other}")

    def give_up(self) -> None:
        pass
