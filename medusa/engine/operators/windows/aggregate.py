"""Tumbling and sliding windows: the native ``Window`` and the columns that go in and out of it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from medusa._native import Batch, Window
from medusa.elements import END_US, START_US, Kind, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator, expect_table, show_time
from medusa.engine.core.dead_letters import DeadLetters, DeadRow, plain_value
from medusa.engine.core.memory_bounds import Storage
from medusa.engine.core.native_types import narrow, native_arrow, native_type, widen
from medusa.engine.core.rows import TIME, as_int64, as_times, on_time_rows, only_chunk
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.windows.aggregate_calls import WindowCalls, calls_of, combine_calls
from medusa.engine.operators.windows.aggregate_user import UserAggregates
from medusa.engine.operators.windows.window_panes import WindowPanes, by_key, threaded_window
from medusa.engine.operators.windows.window_parts import WindowParts
from medusa.engine.operators.windows.window_spill import SpillWindow
from medusa.engine.state.background_copy import Later, groups_later
from medusa.errors import DataError
from medusa.ports import Workers
from medusa.query.boxes import Aggregate, AggregateCall, Schema
from medusa.query.expressions.expression import Expression, Named
from medusa.query.shape import types_of
from medusa.query.types import is_decimal, schema_to_arrow, to_arrow

__all__ = ["AggregateBox", "CombineBox"]

COLUMNS_MAX = 256
"""Of a batch, that a native window picks by itself."""


class AggregateBox(Operator):
    """A window of stage ``whole`` or ``partial``.

    Args:
        timed: whether anything reads the times of the results.
        workers: run copies of the window over disjoint keys, where there are keys.
        storage: bounds of memory, and where groups go beyond them, where there are keys.
    """

    kind = "aggregate"

    def __init__(
        self,
        spec: Aggregate,
        *,
        input: Schema,
        output: Schema,
        letters: DeadLetters,
        timed: bool,
        workers: Workers | None = None,
        storage: Storage | None = None,
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self._spec = spec
        calls = calls_of(spec.aggregates, types_of(input), label=f"aggregate {spec.id!r}")
        users = {place: spec.aggregates[place] for place in calls.users}
        arguments = calls.arguments
        theirs = [Named(call.name, arg) for call in users.values() for arg in _arguments(call)]
        self._columns = Columns(self, letters, [*spec.keys, *arguments, *theirs], input)
        self._named = [*spec.keys, *arguments]
        width = len(spec.keys)
        self._types = self._columns.types[: width + len(arguments)]
        native = [native_type(type) for type in self._types]
        self._input_schema = pa.schema(
            [pa.field("time", TIME), *(pa.field(str(i), native_arrow(t)) for i, t in enumerate(self._types))]
        )
        self._users: UserAggregates | None = None
        if users:
            self._users = UserAggregates(
                users,
                keys=native[:width],
                size_us=spec.size_us,
                advance_us=spec.advance_us,
                label=f"aggregate {spec.id!r}",
            )
        self._results = NativeResults(spec, output, letters, timed=timed, calls=calls, users=self._users)
        self._overlap = -(-spec.size_us // spec.advance_us)
        self._ticks = int(START_US) if spec.early_us is None else int(START_US) // spec.early_us
        self._options: dict[str, Any] = {
            "size_us": spec.size_us,
            "advance_us": spec.advance_us,
            "keys": native[:width],
            "inputs": native[width:],
            "aggregates": calls.native,
            "stage": spec.stage,
        }
        self._window: Window | WindowParts | SpillWindow
        room = storage.room if storage is not None and width and spec.early_us is None else None
        if room is not None and not users:
            self._window = SpillWindow(room, input=self._input_schema, **self._options)
        elif workers is not None and workers.count > 1:
            self._window = threaded_window(workers, early=spec.early_us is not None, **self._options)
        else:
            self._window = Window(**self._options)
        # Columns that are as the window wants them go there without a batch made of them.
        self._direct: Window | None = None
        self._may_split = width > 0 and spec.early_us is None
        plain = self._columns.positions()
        same = all(native_arrow(type) == to_arrow(type) for type in self._types)
        few = plain is not None and len(plain) < COLUMNS_MAX
        if isinstance(self._window, Window) and plain is not None and few and same and not users:
            self._direct = self._window
            self._direct.read_from([-1, *plain])

    def on_train(self, input: int, train: Train) -> None:
        if self._direct is not None and train.late is None:
            self._direct.add(*train.native)
            self._spread_keys()
            return
        kept = self.on_time(train)
        whole, arrays = self._columns.compute(kept)
        if not len(whole):
            return
        columns = [whole.times]
        columns += [widen(array, type) for array, type in zip(arrays, self._types, strict=False)]
        self.add(pa.RecordBatch.from_arrays(columns, schema=self._input_schema))
        if self._users is not None:
            self._add_users(self._users, columns, arrays)

    def native_columns(self) -> list[Named] | None:
        """What ``add`` wants behind the times; None where aggregates of users want more."""
        return None if self._users is not None else self._named

    def native_window(self) -> Window | None:
        """What programs add to; None where several windows or threads share the rows."""
        window = self._window
        if not isinstance(window, Window) or (isinstance(window, WindowPanes) and self._spec.keys):
            return None
        return window

    def add(self, rows: pa.RecordBatch | Batch) -> None:
        """Take rows that are in time: their times, then the native columns, widened."""
        self._window.add(rows)
        self._spread_keys()

    def _spread_keys(self) -> None:
        """Go over to copies by key where panes don't give all threads work."""
        window = self._window
        if self._may_split and isinstance(window, WindowPanes) and window.crowded:
            self._window, self._direct = by_key(window, **self._options), None

    def _add_users(self, users: UserAggregates, columns: list[pa.Array], arrays: list[pa.Array]) -> None:
        width, at = len(self._spec.keys), len(self._types)
        arguments = {}
        for place, call in enumerate(self._spec.aggregates):
            if call.function == "user":
                count = len(_arguments(call))
                arguments[place] = arrays[at : at + count]
                at += count
        names = self._input_schema.names[1 : 1 + width]
        users.add(as_int64(columns[0]), _batch(columns[1 : 1 + width], names), arguments)

    def _leave(self, closed: Iterable[pa.RecordBatch], time_us: int) -> Iterator[None]:
        for batch in closed:
            for train in self._results.trains(self, [batch], None):
                self.emit_train(train)
            yield
        self.advance(time_us if time_us >= END_US else self._window.next_end_us() - 1)

    def on_boundary(self, time_us: int) -> None:
        window = self._window
        if isinstance(window, SpillWindow):
            rows = window.close(time_us)
            self._results.trains(self, (), window.failed())
            self.leave(self._leave(rows, time_us))
            return
        # Each group of a pane is in so many results at most.
        if self._overlap > 1 and window.groups_open() * self._overlap > output_pieces.ROWS_MAX:
            self.leave(self._close_apart(window, time_us))
            return
        closed, failed = window.close(time_us), window.failed()
        if closed or failed is not None:
            self._give(closed, failed)
        self._closed(window, time_us)

    def _give(self, closed: Sequence[Batch], failed: Any) -> None:
        for train in self._results.trains(self, closed, failed):
            self.emit_train(train)

    def _close(self, window: Window | WindowParts, time_us: int) -> None:
        self._give(window.close(time_us), window.failed())

    def _close_apart(self, window: Window | WindowParts, time_us: int) -> Iterator[None]:
        """Close few windows at once: one row may be in very many."""
        advance_us = self._spec.advance_us
        while (oldest_us := window.oldest_open_us()) is not None:
            windows = max(output_pieces.ROWS_MAX // max(window.groups_open(), 1), 1)
            end_us = oldest_us + self._spec.size_us + (windows - 1) * advance_us
            if end_us >= time_us:
                break
            self._close(window, end_us)
            yield
        self._close(window, time_us)
        self._closed(window, time_us)

    def _closed(self, window: Window | WindowParts, time_us: int) -> None:
        """The boundary has been passed: early results, and what is known now."""
        early_us = self._spec.early_us
        if early_us is not None and time_us < END_US and time_us // early_us > self._ticks:
            self._ticks = time_us // early_us
            for train in self._results.trains(self, window.early(), None):
                self.emit_train(replace(train, kind=Kind.TENTATIVE))
        if self._users is not None:
            self._users.forget(window.next_end_us() - self._spec.size_us)
        self.advance(time_us if time_us >= END_US else window.next_end_us() - 1)

    def state_bytes(self) -> int:
        return self._window.nbytes() + (self._users.nbytes() if self._users is not None else 0)

    def trim(self) -> None:
        if not isinstance(self._window, SpillWindow):
            self._window.trim()

    def spill(self, nbytes: int) -> int:
        """Move groups to disk until so many bytes of memory are free; how many that were."""
        return self._window.spill(nbytes) if isinstance(self._window, SpillWindow) else 0

    def waits_open(self, names: Sequence[str]) -> str:
        oldest = self._window.oldest_open_us()
        held = self.held(names)
        if oldest is None:
            return f"waits for rows; no window is open; {held}"
        return (
            f"next to close is the window that ends {show_time(self._window.next_end_us())};"
            f" the oldest open one starts {show_time(oldest)} ({self._window.rows_open()} rows open); {held}"
        )

    def save_more(self, state: BoxState) -> None:
        if isinstance(self._window, SpillWindow):
            self._window.save(state, self._readable)
        else:
            window = self._window
            later: Later | None
            if isinstance(window, Window):
                later = groups_later(window, self._groups, patient=state.patient, capture=state.capture)
            else:
                later = window.later(self._groups) if state.patient else None
            state.put("groups", later or self._groups(pa.record_batch(window.state())))
        state.meta["position"] = list(self._window.position())
        if self._users is not None:
            state.tables["users"] = self._users.save()

    def _groups(self, rows: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([rows]).rename_columns([self._readable(n) for n in rows.schema.names])

    def load_more(self, state: BoxState) -> None:
        if isinstance(self._window, SpillWindow):
            self._window.restore(state, self._readable)
            return
        fresh = pa.record_batch(self._window.state())
        schema = pa.schema([field.with_name(self._readable(field.name)) for field in fresh.schema])
        columns = expect_table(state.tables, "groups", schema).combine_chunks().columns
        arrays = [only_chunk(column) for column in columns]
        boundary, taken = state.meta["position"]
        rows = pa.RecordBatch.from_arrays(arrays, schema=fresh.schema)
        self._window.load(rows, boundary, taken)
        if self._users is not None:
            self._users.load(rows, expect_table(state.tables, "users", self._users.schema()))

    def _readable(self, name: str) -> str:
        """Names of native state in the words of the query: ``k0`` is a key, ``a0.n`` of an aggregate."""
        head, dot, suffix = name.partition(".")
        if dot and head[1:].isdigit():
            return f"{self._results.name_of(int(head[1:]))}.{suffix}"
        if head[:1] == "k" and head[1:].isdigit():
            return f"key.{self._spec.keys[int(head[1:])].name}"
        return name


class CombineBox(Operator):
    """Merges the partial results of several windows, split over nodes or keys.

    Rows wait until every input has passed their window; then they are merged in the order of the
    inputs, so that the answer doesn't depend on whose rows came first.
    """

    kind = "aggregate"

    def __init__(
        self, spec: Aggregate, *, input: Schema, output: Schema, letters: DeadLetters, timed: bool
    ) -> None:
        super().__init__(spec.id, inputs=len(spec.inputs))
        self._spec = spec
        self._types = [field.type for field in input]
        self._schema = schema_to_arrow(input)
        width = len(spec.keys)
        states = {field.name: field.type for field in input[2 + width :]}
        calls, arguments, columns = combine_calls(spec.aggregates, states)
        names = list(states)
        head = list(range(2 + width))
        self._places = [*head, *(2 + width + names.index(name) for name in columns)]
        self._counts = -1 in calls.places  # the native window needs a state: of one row each
        self._users: UserAggregates | None = None
        if calls.users:
            self._users = UserAggregates(
                {place: spec.aggregates[place] for place in calls.users},
                keys=[native_type(type) for type in self._types[2 : 2 + width]],
                size_us=spec.size_us,
                advance_us=spec.advance_us,
                combine=True,
                label=f"aggregate {spec.id!r}",
            )
        self._results = NativeResults(spec, output, letters, timed=timed, calls=calls, users=self._users)
        fields = [
            pa.field(input[i].name, TIME if i < 2 else native_arrow(input[i].type)) for i in self._places
        ]
        self._input_schema = pa.schema([*fields, *([pa.field("n", pa.int64())] * self._counts)])
        self._make_window = partial(
            Window,
            size_us=spec.size_us,
            advance_us=spec.advance_us,
            keys=[native_type(type) for type in self._types[2 : 2 + width]],
            inputs=arguments,
            aggregates=calls.native,
            stage="combine",
        )
        self._window = self._make_window()
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in spec.inputs]

    def check_train(self, source: str, train: Train) -> None:
        """Check partial results of another node before they are taken; nothing changes.

        Raises:
            DataError: a row can't have come from a partial window of this box.
        """
        kept = on_time_rows(train)
        try:
            self._check(kept.batch)
            if not np.array_equal(as_int64(kept.times), as_int64(kept.batch.column(1)) - 1):
                raise ValueError("a row's time is not the last microsecond of its window")
        except ValueError as error:
            raise DataError(
                f"source {source!r}: not partial results of window {self.id!r}: {error}", code="data.partial"
            ) from None

    def _check(self, batch: pa.RecordBatch) -> None:
        """ValueError unless the window can take these rows: a window of its own has to take them first."""
        if batch.num_rows == 0:
            return
        self._make_window().add(self._widened(batch))
        if self._users is not None:
            self._users.check_states(_by_name(batch))
        ends = as_int64(batch.column(1))
        if (ends[1:] < ends[:-1]).any():
            raise ValueError("the windows don't come in order of their ends")

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        if len(kept):
            self._waiting[input].append(kept.batch)

    def on_boundary(self, time_us: int) -> None:
        for input, batches in enumerate(self._waiting):
            rest: list[pa.RecordBatch] = []
            for batch in batches:
                # Windows leave by their end, so those that are complete are the first rows.
                ready = int(as_int64(batch.column(1)).searchsorted(time_us, side="right"))
                if ready:
                    self._take(batch.slice(0, ready))
                if ready < batch.num_rows:
                    rest.append(batch.slice(ready))
            self._waiting[input] = rest
        for train in self._results.trains(self, self._window.close(time_us), self._window.failed()):
            self.emit_train(train)
        if self._users is not None:
            self._users.forget(time_us)
        self.advance(time_us if time_us >= END_US else self._window.next_end_us() - 1)

    def _take(self, batch: pa.RecordBatch) -> None:
        rows = self._widened(batch)
        self._window.add(rows)
        if self._users is not None:
            width = len(self._spec.keys)
            keys = rows.select(list(range(2, 2 + width))) if width else rows
            self._users.add_states(as_int64(batch.column(0)), keys, _by_name(batch))

    def _widened(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(i) for i in self._places]
        types = [self._types[i] for i in self._places]
        columns[2:] = [widen(c, t) for c, t in zip(columns[2:], types[2:], strict=True)]
        if self._counts:
            columns.append(pa.array(np.ones(batch.num_rows, np.int64)))
        return pa.RecordBatch.from_arrays(columns, schema=self._input_schema)

    def state_bytes(self) -> int:
        return self._window.nbytes() + (self._users.nbytes() if self._users is not None else 0)

    def queue_bytes(self) -> int:
        return sum(int(batch.nbytes) for batches in self._waiting for batch in batches)

    def queue_rows(self) -> int:
        return sum(batch.num_rows for batches in self._waiting for batch in batches)

    def waits_open(self, names: Sequence[str]) -> str:
        waiting = sum(batch.num_rows for batches in self._waiting for batch in batches)
        return f"{self.held(names, waits=True)}; {waiting} partial results wait for it"

    def save_more(self, state: BoxState) -> None:
        for input, batches in enumerate(self._waiting):
            state.tables[f"input-{input}"] = pa.Table.from_batches(batches, self._schema)

    def load_more(self, state: BoxState) -> None:
        for input in range(len(self._waiting)):
            table = expect_table(state.tables, f"input-{input}", self._schema)
            self._waiting[input] = [batch for batch in table.to_batches() if batch.num_rows]
            for batch in self._waiting[input]:
                self._check(batch)
        if self.input_us_of(state) > START_US:
            self._window.close(self.input_us_of(state))

    @staticmethod
    def input_us_of(state: BoxState) -> int:
        return int(min(state.meta["inputs_us"]))


def _arguments(call: AggregateCall) -> list[Expression]:
    """Of a user's aggregate."""
    return [arg for arg in (call.arg, *(call.more or ())) if arg is not None]


def _batch(columns: list[pa.Array], names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=names)


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


class NativeResults:
    """Native results as trains of the box's columns."""

    def __init__(
        self,
        spec: Aggregate,
        output: Schema,
        letters: DeadLetters,
        *,
        timed: bool,
        calls: WindowCalls,
        users: UserAggregates | None,
    ) -> None:
        self._spec = spec
        self._calls = calls
        self._users = users
        self._types = [field.type for field in output]
        self._schema = schema_to_arrow(output)
        self._letters = letters
        self._timed = timed
        self._native: bool | None = None
        """Every column of native results is of its final type, as the first of them say; None: none came."""

    def trains(self, box: Operator, batches: Sequence[Batch], failed: Batch | None) -> list[Train]:
        """Rows of closed windows; groups that failed go to the dead letters of ``box``."""
        if failed is not None:
            self._bury(box, pa.record_batch(failed))
        return [self._train(pa.record_batch(batch)) for batch in batches]

    def name_of(self, call: int) -> str:
        """The aggregate of a native call."""
        place = self._calls.places[call]
        return self._spec.aggregates[place].name if place >= 0 else "rows"

    def _train(self, native: pa.RecordBatch) -> Train:
        columns = native.columns if self._users is None else self._with_users(native, self._users)
        if not self._native or self._users is not None:
            narrowed = [narrow(c, t) for c, t in zip(columns, self._types, strict=True)]
            self._native = all(map(operator.is_, narrowed, columns))
            columns = narrowed
        times = as_times(as_int64(native.column(1)) - 1) if self._timed else None
        return Train(batch=pa.RecordBatch.from_arrays(columns, schema=self._schema), times=times)

    def _with_users(self, native: pa.RecordBatch, users: UserAggregates) -> list[pa.Array]:
        """The columns in the order of the output: those of users' aggregates in between."""
        width = 2 + len(self._spec.keys)
        partial = self._spec.stage == "partial"
        theirs = users.columns(native, partial=partial)
        ours: dict[int, list[pa.Array]] = {}
        for number, name in enumerate(native.schema.names[width:]):
            call = int(name.partition(".")[0][1:])
            ours.setdefault(self._calls.places[call], []).append(native.column(width + number))
        columns: list[pa.Array] = native.columns[:width]
        for place in range(len(self._spec.aggregates)):
            columns += ours.get(place, [])
            columns += [column for (owner, _), column in theirs.items() if owner == place]
        return columns

    def _bury(self, box: Operator, groups: pa.RecordBatch) -> None:
        """One dead row for each failed group, however many of its aggregates failed."""
        names = ["window_start", "window_end", *(key.name for key in self._spec.keys)]
        columns = [narrow(c, t) for c, t in zip(groups.columns[:-1], self._types, strict=False)]
        which = groups.columns[-1].to_pylist()
        told: set[str] = set()
        for number, index in enumerate(which):
            row = {name: plain_value(column[number]) for name, column in zip(names, columns, strict=True)}
            if repr(row) in told:  # NaN isn't equal to itself
                continue
            told.add(repr(row))
            box.count(dead=1)
            self._letters.add(
                DeadRow(box.id, f"aggregate {self.name_of(index)!r}: {self._unfit(index)}", row)
            )

    def _unfit(self, call: int) -> str:
        place = self._calls.places[call]
        decimal = is_decimal(self._types[2 + len(self._spec.keys) + place])
        return "its sum has more than 38 digits" if decimal else "its sum doesn't fit int64"
