"""Process: a class of the user's, given the rows of each key in order of time, with state and timers.

Rows wait for the boundary. A step takes those it has passed, merged by (time, input, position), and
goes through them key by key; between them the timers of that key that are due. Keys don't know of
each other, so what the step gives is put in order afterwards: by time of the call, timers first
(by first appearance of their key), then by the row that caused it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.group_numbers import KeyIds
from medusa.engine.core.row_buffer import Ints, Timed, TimedRowBuffer
from medusa.engine.core.rows import as_int64, filter_rows, take
from medusa.engine.core.site import Site
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.key_router import LAST_TIME
from medusa.engine.operators.source import TIME_MAX_US
from medusa.engine.udf.calls import bury, error_text, row_of
from medusa.engine.udf.key_state import KeyState, state_class
from medusa.engine.udf.key_states import KeyStates
from medusa.engine.udf.process_output import ROWS, TIMER, Outputs
from medusa.engine.udf.process_state import python_values
from medusa.errors import QueryError
from medusa.query.boxes import Process, Schema
from medusa.query.checker import infer
from medusa.query.shape import types_of
from medusa.query.types import schema_to_arrow
from medusa.units import duration_us

__all__ = ["ProcessBox", "make_process"]

_KEY_BYTES = 400

INPUT_ROWS = 1 << 55
"""Of a part of a split: place of a row = number of its input x this + the number that its router gave it."""

NO_TIME_US = TIME_MAX_US >> 1
"""A promise from here on is no time of a row: so a fork goes on beside sources that have ended, where boxes
above may lower it a little. Timers that set each other would run to there for ever: it ends them."""

KEYS_AT_ONCE = 256
"""Keys whose calls are done before others may have the thread."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Rows that became ready, grouped by key; the rows of a key stand together, in merged order.

    Attributes:
        batches: of each input its rows, in this order.
        places: of each row its place in the batch of its input.
        stops: of each row the end of the run of rows of its key and input.
        seqs: number of each row among all rows of this box, in merged order; in a part (time, place).
        keys: (key, its first row, end of its rows).
    """

    batches: list[pa.RecordBatch]
    inputs: list[int]
    places: list[int]
    stops: list[int]
    times: list[int]
    seqs: list[Any]
    keys: list[tuple[Any, int, int]]


class ProcessBox(Operator):
    """One object of the user's class for all keys; what differs by key is in ``state``.

    Args:
        operator: the class.
        inputs: columns of each input.
        key_types: of the key columns.
    """

    kind = "process"

    def __init__(
        self,
        spec: Process,
        *,
        operator: Any,
        inputs: Sequence[Schema],
        key_types: Sequence[str],
        letters: DeadLetters,
    ) -> None:
        super().__init__(spec.id, inputs=len(inputs))
        self._spec = spec
        self._letters = letters
        self._operator, self._span_us = _make(operator, spec.id)
        self._timed = hasattr(self._operator, "boundary")
        self._key_types = list(key_types)
        self._names = [key.name for key in spec.keys]
        self._columns = [Columns(self, letters, spec.keys, schema) for schema in inputs]
        self._waiting = [TimedRowBuffer(schema_to_arrow(schema)) for schema in inputs]
        self._state = state_class(spec.state)
        self._states = KeyStates(self._names, self._key_types, spec.state, timed=spec.positions is not None)
        self._grows = self._timed or any(field.type in ("utf8", "binary") for field in spec.state)
        self._sized = 0
        """Bytes of texts and timers in all states."""
        self._due: list[tuple[int, Any, Any]] = []
        self._armed_us: dict[Any, int] = {}
        """Of keys with timers: the first time at which ``_due`` has the key."""
        self._seen = 0
        self._largest_us = -TIME_MAX_US
        self._ended = False
        self._outputs = Outputs(spec.schema, spec.positions or ())
        self._failed: list[tuple[int, int, Any, dict[str, Any], str]] = []

    # Elements

    def receive(self, input: int, element: Element) -> None:
        # Of each input, since in which order inputs end mustn't show.
        if isinstance(element, Boundary) and element.time_us < NO_TIME_US:
            self._is_at(element.time_us)
        super().receive(input, element)

    def on_train(self, input: int, train: Train) -> None:
        if self._spec.positions is not None:
            train = self._without_last_time(train)
        kept = self.on_time(train)
        if len(kept):
            self._waiting[input].add(Timed.of(kept))

    def _is_at(self, time_us: int) -> None:
        """A promise may go beyond all times that there are."""
        self._largest_us = max(self._largest_us, min(time_us, TIME_MAX_US))

    def _without_last_time(self, train: Train) -> Train:
        """Take out the row by which a router says when the last one came to it, for whichever part."""
        says = as_int64(train.batch.columns[-1]) == LAST_TIME
        if not says.any():
            return train
        self._is_at(int(as_int64(train.times)[says].max()))
        self.passed(-int(says.sum()), 0)
        return filter_rows(train, pa.array(~says))

    def on_boundary(self, time_us: int) -> None:
        self._ended = time_us >= NO_TIME_US
        self.leave(self._run(time_us))

    def _run(self, time_us: int) -> Iterator[None]:
        """The keys one after the other; what they gave leaves in the order of their times, so at the end."""
        step = self._ready(time_us)
        keys = [] if step is None else step.keys
        for number, (key, start, stop) in enumerate(keys, 1):
            assert step is not None
            self._run_key(key, step, start, stop, time_us)
            if number % KEYS_AT_ONCE == 0:
                yield
        number = 0
        while self._due and self._due[0][0] <= time_us:
            _, first, key = heappop(self._due)
            state = self._states.get(key)
            if state is None or state.first != first:
                continue
            self._armed_us.pop(key, None)
            self._run_key(key, None, 0, 0, time_us)
            number += 1
            if number % KEYS_AT_ONCE == 0:
                yield
        failed, self._failed = sorted(self._failed, key=lambda each: each[:3]), []
        for *_, row, error in failed:
            bury(self, self._letters, row, error)
        train = self._outputs.train()
        if train is not None:
            self.emit_train(train)
        self.advance(time_us)

    def _ready(self, boundary_us: int) -> _Step | None:
        """Take the rows below the boundary, in merged order, grouped by key."""
        parts: list[Timed] = []
        keys: list[list[pa.Array]] = []
        inputs: list[Ints] = []
        batches: list[pa.RecordBatch | None] = [None] * len(self._waiting)
        routed: list[Ints] = []
        for number, waiting in enumerate(self._waiting):
            rows = waiting.ready(boundary_us)
            if rows is None:
                continue
            whole, arrays = self._columns[number].compute(rows.train())
            if len(whole):
                parts.append(Timed.of(whole))
                keys.append(arrays)
                inputs.append(np.full(len(whole), number, np.int64))
                batches[number] = whole.batch
                if self._spec.positions is not None:  # which the user's class doesn't see
                    *columns, numbers = whole.batch.columns
                    batches[number] = pa.RecordBatch.from_arrays(columns, names=whole.batch.schema.names[:-1])
                    routed.append(as_int64(numbers) + number * INPUT_ROWS)
        if not parts:
            return None
        ids = KeyIds(self._names, self._key_types)
        group = np.concatenate([ids.map(arrays) for arrays in keys])
        times = np.concatenate([part.times for part in parts])
        input = np.concatenate(inputs)
        place = np.concatenate([np.arange(len(part)) for part in parts])
        merged = np.argsort(times, kind="stable")  # inputs stand in order: ties by input, then position
        order = merged[np.argsort(group[merged], kind="stable")]
        rank = np.empty(len(order), np.int64)
        rank[merged] = np.arange(len(order))
        seqs: list[Any] = (self._seen + rank[order]).tolist()
        if routed:
            seqs = list(zip(times[order].tolist(), np.concatenate(routed)[order].tolist(), strict=True))
        self._seen += len(order)
        self._largest_us = max(self._largest_us, int(times[merged[-1]]))
        group, input, place = group[order], input[order], place[order]
        made: list[pa.RecordBatch] = []
        places = np.zeros(len(order), np.int64)
        for number, batch in enumerate(batches):
            mine = np.flatnonzero(input == number)
            places[mine] = np.arange(len(mine))
            made.append(batch if batch is None else take(batch, pa.array(place[mine])))
        new_key = np.concatenate([[True], group[1:] != group[:-1]])
        edges = np.flatnonzero(new_key | np.concatenate([[True], input[1:] != input[:-1]]))
        stops = np.repeat(np.append(edges[1:], len(order)), np.diff(np.append(edges, len(order))))
        starts = np.flatnonzero(new_key)
        values = python_values(ids.narrowed(group[starts]), self._key_types)
        return _Step(
            batches=made,
            inputs=input.tolist(),
            places=places.tolist(),
            stops=stops.tolist(),
            times=times[order].tolist(),
            seqs=seqs,
            keys=list(zip(values, starts.tolist(), np.append(starts[1:], len(order)).tolist(), strict=True)),
        )

    # Calls

    def _run_key(self, key: Any, step: _Step | None, at: int, stop: int, boundary_us: int) -> None:
        """The rows of a key and its timers, in order."""
        state = self._states.get(key)
        if state is not None:
            self._states.touch(state)
        times = [] if step is None else step.times
        longest = stop
        while True:
            timer = None if state is None else state.next_timer()
            if timer is not None and timer <= boundary_us and (at == stop or timer <= times[at]):
                assert state is not None
                state = self._call_timer(key, state, state.drop_timer())
                continue
            if at == stop:
                break
            assert step is not None
            end = min(step.stops[at], longest)
            if self._timed:
                limit = times[at] + self._span_us
                if timer is not None:
                    limit = min(limit, timer)
                end = bisect_left(times, limit, at, end)
            if state is None:
                state = self._state(step.seqs[at])
            error = self._call_rows(key, state, step, at, end)
            if error is None:
                at, longest = end, stop
                state = self._kept(key, state)
                continue
            if end - at > 1:  # again with half of the rows: cuts don't matter, and the good ones stay
                longest = at + (end - at) // 2
            else:
                batch = step.batches[step.inputs[at]]
                row = row_of(batch, step.places[at])
                self._failed.append((step.times[at], ROWS, step.seqs[at], row, error))
                at, longest = end, stop
            state = self._states.get(key)
        if state is not None:
            self._arm(key, state)

    def _arm(self, key: Any, state: KeyState) -> None:
        """Note when a key has to be looked at, at the latest."""
        timer = state.next_timer()
        if timer is not None and timer < self._armed_us.get(key, END_US):
            self._armed_us[key] = timer
            heappush(self._due, (timer, state.first, key))

    def _kept(self, key: Any, state: KeyState) -> KeyState | None:
        """Keep a state, or forget one that was cleared.

        An empty one is forgotten too where there are no timers, whose order would show it.
        """
        if state.gone or (not self._timed and state.empty):
            self._states.drop(key)
            self._armed_us.pop(key, None)
            self._sized -= state._counted
            return None
        if self._grows:
            self._sized += state._recount()
        if state._number < 0:
            self._states.keep(key, state)
        return state

    def _call_rows(self, key: Any, state: KeyState, step: _Step, start: int, stop: int) -> str | None:
        """One call of ``rows``; what went wrong, after which everything is as before."""
        number = step.inputs[start]
        first, count = step.places[start], stop - start
        times = step.times[start:stop]
        now_us = times[-1]
        extra = () if self._spec.names is None else (self._spec.names[number],)
        before = state.begin(now_us, times, False)
        try:
            made = self._operator.rows(key, step.batches[number].slice(first, count), state, now_us, *extra)
            if made is not None:
                self._outputs.add(made, times, step.seqs[start:stop], ROWS)
        except Exception as error:
            state.undo(before)
            return error_text(error)
        return None

    def _call_timer(self, key: Any, state: KeyState, time_us: int) -> KeyState | None:
        before = state.begin(time_us, None, self._ended and time_us > self._largest_us)
        try:
            self._outputs.add(self._operator.boundary(key, time_us, state), (time_us,), (state.first,), TIMER)
        except Exception as error:
            state.undo(before)
            row = {"key": key, "timer": time_us}
            self._failed.append((time_us, TIMER, state.first, row, error_text(error)))
            return state
        return self._kept(key, state)

    # What is asked about it

    def state_bytes(self) -> int:
        states = len(self._states) * (_KEY_BYTES + 50 * len(self._spec.state)) + self._sized
        return states + self._states.nbytes() + self._outputs.nbytes()

    def queue_bytes(self) -> int:
        return sum(waiting.nbytes() for waiting in self._waiting)

    def queue_rows(self) -> int:
        return sum(map(len, self._waiting))

    def waits_open(self, names: Sequence[str]) -> str:
        rows = sum(map(len, self._waiting))
        return f"{self.held(names, waits=True)}; {rows} rows wait for it, {len(self._states)} keys have state"

    # State

    def save_more(self, state: BoxState) -> None:
        state.note(seen=self._seen, largest_us=self._largest_us, ended=self._ended)
        for number, waiting in enumerate(self._waiting):
            waiting.save(state, f"waiting-{number}")
        self._states.save(state, "keys")

    def load_more(self, state: BoxState) -> None:
        seen, largest, ended = (state.meta[name] for name in ("seen", "largest_us", "ended"))
        if (
            type(seen) is not int
            or type(largest) is not int
            or type(ended) is not bool
            or seen < 0
            or abs(largest) > TIME_MAX_US
        ):
            raise ValueError("numbers of a process box")
        for number, waiting in enumerate(self._waiting):
            waiting.load(state, f"waiting-{number}")
        self._states.load(state, make=self._state, seen=seen)
        self._seen, self._largest_us, self._ended = seen, largest, ended
        for key, held in self._states.items():
            self._arm(key, held)
            if self._grows:
                self._sized += held._recount()


def make_process(spec: Process, site: Site) -> Operator:
    """The box of a class, registered or beside the graph."""
    label = f"process {spec.id!r}"
    types = types_of(site.input.schema)
    return ProcessBox(
        spec,
        operator=site.function(spec, label=label),
        inputs=site.schemas,
        key_types=[infer(key.expression, types, box=label) for key in spec.keys],
        letters=site.letters,
    )


def _make(operator: Any, id: str) -> tuple[Any, int]:
    """An object of the user's class, and how many microseconds of rows a call may take together."""
    label = f"process {id!r}"
    if not isinstance(operator, type) or not callable(getattr(operator, "rows", None)):
        raise QueryError(f"{label}: {operator!r:.80} is no class with a method rows", code="query.function")
    try:
        made = operator()
    except Exception as error:
        raise QueryError(
            f"{label}: {operator.__qualname__}() failed: {error_text(error)}",
            hint="it is made without arguments",
            code="query.function",
        ) from None
    after = getattr(made, "wake_after", None)
    return made, 1 if after is None else duration_us(after, what=f"{label}: wake_after", minimum_us=1)
