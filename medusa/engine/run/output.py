"""What comes out of a run: callers take it, or callbacks are given it.

Where nothing but a sink changes, rows are taken without the price of deferring interrupts: to defer them
takes two system calls, longer than a small train waits for the rest. Then interrupts may come between any two
steps. Nothing has changed before the rows are let go, and afterwards the caller either has them or they are
held again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from medusa.elements import Element, Kind, Train
from medusa.engine.input.push_arguments import callback
from medusa.engine.operators.sink import SinkBox
from medusa.engine.run.gate import RunGate
from medusa.engine.run.idle_clock import PassingTime
from medusa.engine.run.run_warnings import RunWarnings
from medusa.ports import Briefly
from medusa.units import byte_count

__all__ = ["RunOutput", "to_table"]


class RunOutput:
    """Gives rows of the sinks of a run to who takes them, and to callbacks.

    Args:
        sync: makes durable what rows that leave depend on.
        before: called before each take; None: nothing is.
        took: told of the elements of each take, perhaps none, within its turn; None: nobody is.

    Attributes:
        callbacks: sink -> what is called with its new rows.
    """

    def __init__(
        self,
        gate: RunGate,
        time: PassingTime,
        warnings: RunWarnings,
        sync: Callable[[], None],
        *,
        before: Callable[[], None] | None = None,
        took: Callable[[list[Element]], None] | None = None,
    ) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._time = time
        self._warnings = warnings
        self._sync = sync
        self._before = before
        self._took = took
        self.callbacks: dict[str, list[Callable[[pa.Table], object]]] = {}

    def take(self, sink: str, *, changes: bool = False, at_most: str | int | None = None) -> Any:
        """As ``md.Run.take``."""
        return self.read(sink, changes, at_most)[0]

    def read(self, sink: str, changes: bool, at_most: str | int | None) -> tuple[Any, bool]:
        """What ``take`` gives, and whether there are rows in it.

        An interrupt that comes before the caller can have them puts them back.
        """
        gate = self._gate
        if self._before is not None:
            self._before()
        if gate.briefly is not None and at_most is None and not changes:
            found = self._take_briefly(gate.briefly, sink)
            if found is not None:
                return found
        elements: list[Element] = []
        try:
            gate.begin(True, False)
            try:
                fragment = self._fragment
                box = fragment.sink(sink)
                if fragment.has_calls:
                    fragment.poll()
                if self._time.passes:
                    self._time.bring_on()
                if fragment.letters.fresh is not None:
                    self._warnings.warn("")
                some = bool(box.held_rows)
                if fragment.behind and (some or changes):
                    self._sync()
                elements = box.take(None if at_most is None else byte_count(at_most, what="at_most"))
                self._taken(elements)
                if changes:
                    made: Any = list(elements)
                    some = any(isinstance(each, Train) for each in elements)
                else:
                    made = to_table(elements, box.schema) if some else box.nothing
                    some = bool(len(made))
            except BaseException as error:
                gate.broken_off(error)
                raise
            finally:
                gate.leave(False)
            return made, some
        except BaseException:
            if elements:
                with gate.interrupts, gate.state:
                    box.put_back(elements)
            raise

    def _take_briefly(self, briefly: Briefly, sink: str) -> tuple[pa.Table, bool] | None:
        """All rows of a sink, and whether there are any; None: nothing was done, and a turn must be taken.

        Raises:
            DataError: there is no such sink.
            What an interrupt raises: the rows are still held, or again.
        """
        loan: list[tuple[SinkBox, list[Element]]] = []
        try:
            return briefly(self._lend, sink, loan)
        except BaseException:
            for box, elements in loan:
                with self._gate.interrupts, self._gate.state:
                    if not box.lends(elements):
                        box.put_back(elements)
            raise

    def _lend(self, sink: str, loan: list[tuple[SinkBox, list[Element]]]) -> tuple[pa.Table, bool] | None:
        fragment = self._fragment
        if self._gate.closed or self._time.passes or fragment.has_calls or fragment.letters.fresh is not None:
            return None
        box = fragment.sink(sink)
        elements = box.lend()
        if elements is None or (fragment.log is not None and fragment.behind):
            return None
        made, some = box.nothing, bool(box.held_rows)
        if some:
            made = to_table(elements, box.schema)
        if elements:
            loan.append((box, elements))
            box.let_go()
            self._taken(elements)
        return made, some

    def _taken(self, elements: list[Element]) -> None:
        if self._took is not None:
            self._took(elements)
        self._gate.tell_room()

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows of a sink."""
        if self._before is not None:
            self._before()
        with self._gate.turn():
            self._fragment.sink(sink)
            checked = callback(call, f"on({sink!r}, ...)")
            self.callbacks.setdefault(sink, []).append(checked)

    def forget(self, sinks: Collection[str]) -> None:
        """These are gone."""
        for sink in sinks & self.callbacks.keys():
            del self.callbacks[sink]

    def call_back(self) -> None:
        """Give callbacks the rows that wait for them; within a turn."""
        for name, calls in self.callbacks.items():
            box = self._fragment.sink(name)
            if box.held_rows:
                if self._fragment.behind:
                    self._sync()
                while box.held_rows:  # in pieces where some of it is on disk
                    elements = box.peek(box.piece_bytes)
                    table = to_table(elements, box.schema)
                    for call in calls:
                        call(table)
                    box.drop(len(elements))


def to_table(elements: list[Element], schema: pa.Schema) -> pa.Table:
    """The final rows among elements."""
    final = [each for each in elements if isinstance(each, Train) and each.kind is Kind.STABLE]
    if not final:
        return schema.empty_table()
    return pa.Table.from_batches([each.batch for each in final], schema)
