"""Where rows leave: numbered, and kept until they are taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa
from msgspec.structs import replace

from medusa.elements import END_US, Boundary, Element, Kind, Train
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.rows import TIME
from medusa.engine.core.spool import Spool, Streamed
from medusa.engine.operators import sink_spill
from medusa.engine.operators.sink_spill import LATE, TIMES, Spilled, held_bytes, pieces_to_spill
from medusa.engine.qos.output_utility import SinkMeter
from medusa.errors import StateError
from medusa.ports import Clock
from medusa.query.qos import QoS

__all__ = ["SinkBox"]


class SinkBox(Operator):
    """Numbers rows from 0 and holds them, with the boundaries between, until ``take``.

    Early rows are held too, without numbers; they aren't part of the state, as the next ones replace them.

    Args:
        timed: whether the stream has a time; trains then keep it.
    """

    kind = "sink"
    takes_tentative = True

    def __init__(self, id: str, schema: pa.Schema, *, timed: bool) -> None:
        super().__init__(id, inputs=1)
        self.schema = schema
        self._timed = timed
        self.meter: SinkMeter | None = None  # of a sink with quality of service
        self._held: list[Element | Spilled] = []
        self._held_rows = 0
        self._spool: Spool | None = None  # of what is held on disk
        # Counting bytes takes longer than a small train takes through a box: only of what stays.
        self._held_bytes, self._counted = 0, 0

    def measure(self, qos: QoS | None, clock: Clock | None) -> None:
        """Measure by this quality of service from now on, where there is one and a clock; the meter stays
        where it is the same as before."""
        if qos is None or clock is None:
            self.meter = None
        elif self.meter is None or self.meter.qos != qos:
            column = -1 if qos.value is None else self.schema.get_field_index(qos.value[0])
            self.meter = SinkMeter(qos, column, clock, self.now)

    @property
    def next_seq(self) -> int:
        """The number of the next row that arrives."""
        return self.rows_out

    @property
    def taken(self) -> int:
        """The number of the next row that is taken."""
        return self.rows_out - self._held_rows

    @property
    def held_rows(self) -> int:
        return self._held_rows

    def on_train(self, input: int, train: Train) -> None:
        if train.kind is Kind.TENTATIVE:
            self._held.append(replace(train, first_seq=self.rows_out))
            return
        numbered = Train(
            batch=train.batch, times=train.times, first_seq=self.rows_out, kind=train.kind, late=train.late
        )
        rows = train.batch.num_rows
        self.rows_out += rows
        self._held_rows += rows
        self._held.append(numbered)
        if self.meter is not None:
            self.meter.left(train.batch)

    def on_boundary(self, time_us: int) -> None:
        self.boundary_us = time_us
        self.moved_us = self.now.us
        if self._held and isinstance(self._held[-1], Boundary):
            self._held[-1] = Boundary(time_us)
        else:
            self._held.append(Boundary(time_us))

    def take(self, bytes_max: int | None = None) -> list[Element]:
        """Everything held, in order; it is no longer held.

        Args:
            bytes_max: so much of it, but at least one train.
        """
        if self._spool is None and bytes_max is None:
            held, self._held = self._held, []
            self._held_rows = self._held_bytes = self._counted = 0
            return held  # type: ignore[return-value]  # nothing is on disk
        found = self.peek(bytes_max)
        self.drop(len(found))
        return found

    def lend(self) -> list[Element] | None:
        """Everything held, in order, until ``let_go``; None: some of it is on disk."""
        return self._held if self._spool is None else None  # type: ignore[return-value]

    def lends(self, lent: list[Element]) -> bool:
        """What was lent is still held."""
        return self._held is lent

    def let_go(self) -> None:
        """What is held, all of it lent, is no longer held.

        Nothing is called here: Python handles no signal in the middle.
        """
        self._held = []
        self._held_rows = self._held_bytes = self._counted = 0

    def peek(self, bytes_max: int | None = None) -> list[Element]:
        """The same; it stays held.

        Raises:
            StateError: what is on disk can't be read.
        """
        found: list[Element] = []
        size = place = 0
        held = self._held
        while place < len(held) and (bytes_max is None or not found or size < bytes_max):
            element = held[place]
            if isinstance(element, Spilled):
                held[place : place + 1] = element
                self._held_bytes = self._counted = 0  # counted anew
                continue
            found.append(element)
            size += held_bytes(element)
            place += 1
        return found

    def drop(self, count: int) -> None:
        """So many elements, as ``peek`` gave them, are no longer held."""
        for element in self._held[:count]:
            if isinstance(element, Train) and element.kind is Kind.STABLE:
                self._held_rows -= len(element)
        del self._held[:count]
        self._held_bytes = self._counted = 0
        if not self._held:
            self._spool = None

    def put_back(self, elements: Sequence[Element]) -> None:
        """Hold again, before everything else, what ``take`` gave last."""
        self._held[:0] = elements
        for element in elements:
            if isinstance(element, Train) and element.kind is Kind.STABLE:
                self._held_rows += len(element)
        self._held_bytes = self._counted = 0

    def spill_output(self, spool: Spool, nbytes: int) -> int:
        """Move so many bytes to disk, of what came last; how many that were.

        Raises:
            StateError: the disk took nothing more; that stays in memory.
        """
        before = self.queue_bytes()
        start, pieces = pieces_to_spill(self._held, nbytes)
        self._spool = spool
        tail: list[Element | Spilled] = []
        refused: StateError | None = None
        for piece in reversed(pieces):
            if refused is None and any(isinstance(element, Train) for element in piece):
                try:
                    elements = [element for element in piece if not isinstance(element, Spilled)]
                    piece = [Spilled(spool, elements, self.schema)]
                except StateError as error:
                    refused = error
            tail[:0] = piece
        self._held[start:] = tail
        self._held_bytes = self._counted = 0
        if refused is not None:
            raise refused
        return before - self.queue_bytes()

    def queue_bytes(self) -> int:
        held = self._held
        if self._counted < len(held):
            for element in held[self._counted :]:
                self._held_bytes += held_bytes(element)
            self._counted = len(held)
        return self._held_bytes

    def queue_rows(self) -> int:
        return self._held_rows

    @property
    def piece_bytes(self) -> int | None:
        """How much to take at once so that it fits in memory; None: all, as nothing is on disk."""
        return None if self._spool is None else sink_spill.PIECE_BYTES

    @cached_property
    def nothing(self) -> pa.Table:
        """No rows, in the sink's columns; the same table for all who take nothing."""
        return self.schema.empty_table()

    def waits_for(self, names: Sequence[str]) -> str:
        if self.input_us >= END_US:
            return f"finished; {self._held_rows} rows to take"
        return f"{self._held_rows} rows to take"

    # State: the rows not yet taken, as one table per run of trains with the same header

    def _full_schema(self) -> pa.Schema:
        schema = self.schema
        if self._timed:
            schema = schema.append(pa.field(TIMES, TIME))
        return schema.append(pa.field(LATE, pa.bool_()))

    def save_more(self, state: BoxState) -> None:
        schema = self._full_schema()
        if self._spool is not None:
            state.streams["held"] = Streamed(self._spool, schema, self._rows_held(schema))
        else:
            state.put("held", pa.Table.from_batches(self._rows_held(schema), schema))

    def _rows_held(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for element in self._held:
            for train in element if isinstance(element, Spilled) else (element,):
                if isinstance(train, Train) and train.kind is Kind.STABLE:
                    columns = list(train.batch.columns)
                    if self._timed:
                        columns.append(pa.nulls(len(train), TIME) if train.times is None else train.times)
                    columns.append(pa.nulls(len(train), pa.bool_()) if train.late is None else train.late)
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def load_more(self, state: BoxState) -> None:
        table = expect_table(state.tables, "held", self._full_schema())
        total = state.meta["counts"][1]
        if table.num_rows > total:
            raise ValueError(f"{table.num_rows} rows to take of {total} that came")
        seq = total - table.num_rows
        for batch in table.to_batches():
            columns = batch.columns
            late = columns.pop()
            times = columns.pop() if self._timed else None
            train = Train(
                batch=pa.RecordBatch.from_arrays(columns, schema=self.schema),
                times=None if times is None or times.null_count else times,
                first_seq=seq,
                late=None if late.null_count else late,
            )
            seq += len(train)
            self._held.append(train)
            self._held_rows += len(train)
        if state.meta["boundary_us"] > -(1 << 62):
            self._held.append(Boundary(state.meta["boundary_us"]))
