"""Rows into a run that has no queue: whoever pushes does the work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from medusa.engine.input.ingest import normalise
from medusa.engine.input.push_arguments import boundary_time_us, from_first
from medusa.engine.query_change import Change
from medusa.engine.run.intake import Check, Moment, RunIntake
from medusa.errors import MedusaError

__all__ = ["DirectIntake"]

T = TypeVar("T")


class DirectIntake(RunIntake):
    """Rows are worked through before ``push`` returns, in the thread that called."""

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: Moment | None = None,
        wait: bool = True,
    ) -> None:
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

    def boundary(self, source: str, time: Moment) -> None:
        with self._gate.turn(tells=True, room=True):
            self._fragment.source(source)
            time_us = boundary_time_us(time, source, "a boundary")
            self._fragment.at(self._clock.monotonic_us())
            self._fragment.promise(source, time_us)
            self._rest.settle()

    def positions(self) -> dict[str, int]:
        with self._gate.asking():
            return self._fragment.positions()

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

    def close(self, end: Callable[[], None], error: BaseException | None = None) -> None:
        try:
            end()
        except MedusaError as other:
            if error is None:
                raise
            # The error on its way out is the news; a failing checkpoint must not hide it.
            error.add_note(f"besides, closing the run failed: {other}")

    # Nothing ever waits

    def give_up(self) -> None: ...

    def count_waiting(self) -> None: ...

    def changing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def check_change(self, change: Change) -> None: ...

    def changed(self, change: Change) -> None: ...
