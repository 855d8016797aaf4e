"""Sessions: rows of a group less than a gap apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from medusa._native import Sessions
from medusa.elements import END_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator, expect_table, show_time
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.rows import as_int64, only_chunk
from medusa.engine.operators.windows.groups import Groups, expect_integers
from medusa.engine.operators.windows.slot_results import Numbers, SlotResults
from medusa.query.boxes import Schema
from medusa.query.boxes.windows_per_group import Session

__all__ = ["SessionBox"]

KEYS_SPARE = 4096


class SessionBox(Operator):
    """Sessions of each group: rows that come out of order within the slack may join two into one.

    The accumulators of joined sessions stay apart until the session closes and are merged then, in order
    of time, so that the bits of floats depend on the order of the rows only.
    """

    kind = "session"

    def __init__(
        self, spec: Session, *, input: Schema, output: Schema, letters: DeadLetters, timed: bool
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self._gap = spec.gap_us
        self._key_names = [key.name for key in spec.keys]
        self._groups = Groups(
            self,
            letters,
            input,
            keys=spec.keys,
            calls=spec.aggregates,
            latest=False,
            by_time=True,
            timed=True,
        )
        self._results = SlotResults(self, output, letters, spec.aggregates)
        self._sessions = Sessions(spec.gap_us)
        self._timed = timed

    def on_train(self, input: int, train: Train) -> None:
        whole, arrays = self.readable(train)
        if not len(whole):
            return
        ids = self._groups.ids(arrays, len(whole))
        slots = pa.array(self._sessions.assign(ids, whole.times))
        self._groups.add(slots, arrays, whole.times)

    def readable(self, train: Train) -> tuple[Train, list[pa.Array]]:
        """The rows that are in time and don't fail, and the columns that are read of them, keys first."""
        return self._groups.compute(self.on_time(train))

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._closing(time_us))

    def _closing(self, time_us: int) -> Iterator[None]:
        """The sessions that close at a boundary, piece by piece, and then the boundary."""
        closed = False
        while self._sessions.next_end_us() <= time_us:
            if closed:
                yield
            closed = True
            yield from self._close(time_us)
        if closed:
            self._compact()
        if time_us >= END_US:
            self.advance(time_us)
        else:
            self.advance(min(self._sessions.next_end_us(), time_us + self._gap) - 1)

    def _close(self, time_us: int) -> Iterator[None]:
        """Some of those that end first."""
        parts = _columns(pa.record_batch(self._sessions.close(time_us, output_pieces.ROWS_MAX)))
        order = np.lexsort((parts["position"], parts["first"], parts["last"]))
        position = parts["position"][order]
        begins = np.flatnonzero(np.diff(position, prepend=position[0] - 1))
        for first, end in output_pieces.row_cuts(len(begins)):
            if first:
                yield
            last = begins[end] if end < len(begins) else len(order)
            self._send(parts, order[begins[first] : last], begins[first:end] - begins[first])

    def _send(self, parts: dict[str, Numbers], order: Numbers, begins: Numbers) -> None:
        """Sessions whose parts are these, in order, and begin at these of them."""
        heads = order[begins]
        numbers = None
        if len(heads) < len(order):
            numbers = np.repeat(np.arange(len(heads)), np.diff(begins, append=len(order)))
        finished = self._groups.finish(parts["slot"][order], numbers, len(heads))
        self._groups.leave(parts["slot"][order])
        ends = parts["last"][heads] + self._gap
        keys = self._groups.keys_of(parts["key"][heads])
        times = ends - 1 if self._timed else None
        self.emit_train(self._results.train(finished, (parts["first"][heads], ends), keys, times))

    def _compact(self) -> None:
        due = self._groups.settle(self._sessions.position()[0], self._sessions.parts())
        if not due and len(self._groups.index) <= 2 * len(self._sessions) + KEYS_SPARE:
            return
        rows = _columns(pa.record_batch(self._sessions.rows()))
        if due:
            self._groups.keep(rows["slot"])
        if self._key_names and len(self._groups.index) > 2 * len(self._sessions) + KEYS_SPARE:
            live = np.unique(rows["key"])
            self._groups.keep_keys(live)
            self._sessions.renumber(pa.array(live))

    def state_bytes(self) -> int:
        return self._groups.nbytes() + self._sessions.nbytes()

    def waits_open(self, names: Sequence[str]) -> str:
        held = self.held(names)
        if not len(self._sessions):
            return f"waits for rows; no session is open; {held}"
        return (
            f"{len(self._sessions)} sessions are open; next to close is one that ends"
            f" {show_time(self._sessions.next_end_us())} if no row comes; {held}"
        )

    # State

    def save_more(self, state: BoxState) -> None:
        parts = self._sessions.parts()
        self._groups.save_items(state, "sessions", self._sessions.copy, parts, PARTS[1:])
        state.meta["slots"] = list(self._sessions.position())
        self._groups.save(state, parts, lambda: _columns(pa.record_batch(self._sessions.rows()))["slot"])

    def load_more(self, state: BoxState) -> None:
        schema = pa.schema([*self._groups.key_fields(), *((name, pa.int64()) for name in PARTS[1:])])
        table = expect_table(state.tables, "sessions", schema).combine_chunks()
        columns = [only_chunk(c) for c in table.columns]
        next_slot, taken = expect_integers(state.meta["slots"], 2)
        width = len(self._key_names)
        ids = pa.array(self._groups.load_keys(columns[:width], table.num_rows))
        rows = pa.RecordBatch.from_arrays([ids, *columns[width:]], names=list(PARTS))
        self._sessions.load(rows, keys=len(self._groups.index), next_slot=next_slot, taken=taken)
        self._groups.load(state, as_int64(columns[width + 3]), next_slot)


PARTS = ("key", "first", "last", "position", "slot", "session")


def _columns(batch: pa.RecordBatch) -> dict[str, Numbers]:
    return {name: as_int64(batch.column(i)) for i, name in enumerate(PARTS)}
