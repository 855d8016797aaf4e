"""Aggregates that users wrote, beside the native window of the same box.

The native window groups, closes and orders; here stand, for each of its panes, the groups in the same order
and the arrays in which the user's class keeps their state. A window is the merge of its panes in time order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa._native import Keys
from medusa.engine.core.rows import as_int64
from medusa.engine.input.ingest import column_of, refuse_malformed_column
from medusa.engine.udf.calls import error_text
from medusa.errors import DataError
from medusa.query.boxes import AggregateCall, Field, Schema
from medusa.query.expressions.user_aggregates import Declared, declared_by
from medusa.query.types import to_arrow

__all__ = ["Kept", "UserAggregates"]

State = dict[str, npt.NDArray[Any]]
Index = npt.NDArray[np.int64]


class Kept:
    """One aggregate: its object, and its state arrays as the class gives them, checked."""

    def __init__(self, call: AggregateCall, *, label: str) -> None:
        self.call = call
        self.label = f"{label}: aggregate {call.name!r}"
        self.declared: Declared = declared_by(call, what=self.label)
        self.object = self.declared.made()
        self.dtypes = {f.name: to_arrow(f.type).to_pandas_dtype() for f in self.declared.state}
        self.arrow = to_arrow(self.declared.result)

    def _call(self, method: str, *args: Any) -> Any:
        """What the user's method gives.

        Raises:
            DataError: it raised something, which is the cause.
        """
        try:
            return getattr(self.object, method)(*args)
        except Exception as error:
            raise DataError(f"{self.label}: {method}: {error_text(error)}", code="data.function") from error

    def init(self, groups: int) -> State:
        return self._checked(self._call("init", groups), groups, "init")

    def grown(self, state: State, groups: int) -> State:
        """With fresh groups behind those that there are."""
        count = _length(state)
        if groups == count:
            return state
        fresh = self.init(groups - count)
        return {name: np.concatenate([state[name], fresh[name]]) for name in self.dtypes}

    def add(self, state: State, ids: Index, columns: Sequence[pa.Array]) -> State:
        """Rows where no argument is null."""
        whole = np.ones(len(ids), bool)
        for column in columns:
            if column.null_count:
                whole &= np.asarray(column.is_valid())
        if not whole.all():
            at = pa.array(np.flatnonzero(whole))
            ids, columns = ids[whole], [column.take(at) for column in columns]
        if not len(ids):
            return state
        values = [column.to_numpy(zero_copy_only=False) for column in columns]
        return self._checked(self._call("add", state, ids, *values), _length(state), "add")

    def merge(self, state: State, other: State, ids: Index) -> State:
        """The groups of ``other`` into ours numbered ``ids``; a number may come again."""
        while len(ids):
            _, first = np.unique(ids, return_index=True)
            if len(first) == len(ids):
                return self._checked(self._call("merge", state, other, ids), _length(state), "merge")
            first.sort()
            part = {name: array[first] for name, array in other.items()}
            state = self._checked(self._call("merge", state, part, ids[first]), _length(state), "merge")
            rest = np.ones(len(ids), bool)
            rest[first] = False
            ids, other = ids[rest], {name: array[rest] for name, array in other.items()}
        return state

    def finish(self, state: State) -> pa.Array:
        name = f"{self.label}: finish"
        given = self._call("finish", {each: array.copy() for each, array in state.items()})
        made = column_of(given, Field(name, self.declared.result))
        refuse_malformed_column(made, name)
        if len(made) != _length(state):
            text = f"{name} gave {len(made)} values for {_length(state)} groups"
            raise DataError(text, hint="one value for each group, in their order", code="data.length")
        try:
            return made if made.type == self.arrow else made.cast(self.arrow)
        except pa.ArrowException as error:
            text = f"{name} gave {made.type}, expected {self.arrow}: {str(error)[:300]}"
            raise DataError(text, hint="what it gives has the type of result=", code="data.type") from None

    def _checked(self, state: Any, groups: int, method: str) -> State:
        if not isinstance(state, Mapping) or set(state) != set(self.dtypes):
            raise ValueError(
                f"{self.label}: {method} has to give the arrays {', '.join(self.dtypes)},"
                f" got {', '.join(state) if isinstance(state, Mapping) else type(state).__name__}"
            )
        arrays = {name: np.asarray(state[name]) for name in self.dtypes}
        for name, array in arrays.items():
            if array.shape != (groups,):
                raise ValueError(f"{self.label}: {method}: {name} has shape {array.shape}, not ({groups},)")
        return {name: array.astype(self.dtypes[name], copy=False) for name, array in arrays.items()}


def _length(state: State) -> int:
    return len(next(iter(state.values())))


@dataclass
class _Pane:
    start: int
    end: int
    keys: Keys | None
    count: int = 0
    states: list[State] = field(default_factory=list)


class UserAggregates:
    """The users' aggregates of one box.

    Args:
        calls: with the number of each among the box's aggregates.
        keys: native types of the key columns.
        combine: rows are states of whole windows.
    """

    def __init__(
        self,
        calls: Mapping[int, AggregateCall],
        *,
        keys: Sequence[str],
        size_us: int,
        advance_us: int,
        combine: bool = False,
        label: str,
    ) -> None:
        self._kept = {place: Kept(call, label=label) for place, call in calls.items()}
        self._key_types = list(keys)
        self._size, self._advance = size_us, advance_us
        self._combine = combine
        self._label = label
        self._panes: dict[int, _Pane] = {}

    # Rows

    def add(self, times: Index, keys: pa.RecordBatch, arguments: Mapping[int, Sequence[pa.Array]]) -> None:
        """Take rows.

        Args:
            keys: the key columns as the native window takes them.
            arguments: number of the aggregate -> its argument columns.
        """
        starts, ends = self._bounds(times)
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start)
            at = pa.array(rows)
            pane, ids = self._enter(int(start), int(ends[rows[0]]), keys, at)
            for number, (place, kept) in enumerate(self._kept.items()):
                columns = [column.take(at) for column in arguments[place]]
                pane.states[number] = kept.add(pane.states[number], ids, columns)

    def add_states(self, starts: Index, keys: pa.RecordBatch, states: Mapping[str, pa.Array]) -> None:
        """Take partial results: state columns by name."""
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start)
            at = pa.array(rows)
            pane, ids = self._enter(int(start), int(start) + self._size, keys, at)
            for number, kept in enumerate(self._kept.values()):
                other = self._read(kept, lambda name, at=at: states[name].take(at))
                pane.states[number] = kept.merge(pane.states[number], other, ids)

    def check_states(self, states: Mapping[str, pa.Array]) -> None:
        """ValueError where a state is null."""
        for kept in self._kept.values():
            self._read(kept, states.__getitem__)

    def _read(self, kept: Kept, column: Any) -> State:
        made = {}
        for name, dtype in kept.dtypes.items():
            array = column(f"{kept.call.name}.{name}")
            if array.null_count:
                raise ValueError(f"state {kept.call.name}.{name} is null")
            # A copy: methods may change what they are given.
            made[name] = np.array(array.to_numpy(zero_copy_only=False), dtype=dtype)
        return made

    def _bounds(self, times: Index) -> tuple[Index, Index]:
        """Panes are cut at every window start, every window end and every multiple of the size."""
        size, advance = self._size, self._advance
        a, b, c = times // advance * advance, (times - size) // advance * advance + size, times // size * size
        low = np.maximum(np.maximum(a, b), c)
        return low, np.minimum(np.minimum(a, b) + advance, c + size) if size != advance else c + size

    def _enter(self, start: int, end: int, keys: pa.RecordBatch, at: pa.Array) -> tuple[_Pane, Index]:
        pane = self._panes.get(start)
        if pane is None:
            made = Keys(self._key_types) if self._key_types else None
            pane = _Pane(start, end, made, states=[kept.init(0) for kept in self._kept.values()])
            self._panes[start] = pane
        if pane.keys is None:
            ids, pane.count = np.zeros(len(at), np.int64), 1
        else:
            ids = _ids(pane.keys, keys.take(at), insert=True)
            pane.count = len(pane.keys)
        pane.states = [
            kept.grown(state, pane.count)
            for kept, state in zip(self._kept.values(), pane.states, strict=True)
        ]
        return pane, ids

    # Windows

    def columns(self, rows: pa.RecordBatch, *, partial: bool) -> dict[tuple[int, str], pa.Array]:
        """What the rows of the native window have here.

        Args:
            rows: window_start, window_end, the keys ...
            partial: give the states, not the results.

        Returns:
            (number of the aggregate, name of the state column or "") -> its column.
        """
        starts = as_int64(rows.column(0))
        edges = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        parts: dict[tuple[int, str], list[pa.Array]] = {}
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            keys, states = self._window(int(starts[begin]))
            at = self._find(keys, rows.slice(begin, end - begin))
            for (place, kept), state in zip(self._kept.items(), states, strict=True):
                if partial:
                    for name, array in state.items():
                        parts.setdefault((place, name), []).append(pa.array(array[at]))
                else:
                    parts.setdefault((place, ""), []).append(kept.finish(state).take(pa.array(at)))
        return {name: pa.concat_arrays(arrays) for name, arrays in parts.items()}

    def _find(self, keys: Keys | None, rows: pa.RecordBatch) -> Index:
        if keys is None:
            return np.zeros(rows.num_rows, np.int64)
        width = len(self._key_types)
        batch = pa.RecordBatch.from_arrays(
            rows.columns[2 : 2 + width], names=rows.schema.names[2 : 2 + width]
        )
        ids = _ids(keys, batch, insert=False)
        if len(ids) and ids.min() < 0:
            raise ValueError(f"{self._label}: a group without state")
        return ids

    def _window(self, start: int) -> tuple[Keys | None, list[State]]:
        # Combined, each window stands alone, and overlaps others.
        end = start + 1 if self._combine else start + self._size
        panes = [self._panes[s] for s in sorted(self._panes) if start <= s < end]
        if len(panes) == 1:
            return panes[0].keys, panes[0].states
        keys = Keys(self._key_types) if self._key_types else None
        states = [kept.init(0) for kept in self._kept.values()]
        for pane in panes:
            if keys is None or pane.keys is None:
                ids, count = np.zeros(pane.count, np.int64), 1
            else:
                ids = _ids(keys, pa.record_batch(pane.keys.keys()), insert=True)
                count = len(keys)
            for number, kept in enumerate(self._kept.values()):
                other = {name: array.copy() for name, array in pane.states[number].items()}
                states[number] = kept.merge(kept.grown(states[number], count), other, ids)
        return keys, states

    def forget(self, start_us: int) -> None:
        """Panes that end at or before this are needed no more."""
        for start in [s for s, pane in self._panes.items() if pane.end <= start_us]:
            del self._panes[start]

    def nbytes(self) -> int:
        return sum(a.nbytes for pane in self._panes.values() for state in pane.states for a in state.values())

    # State

    def fields(self) -> Schema:
        """The state columns, named as ``partial`` names them."""
        return tuple(
            f.__class__(f"{kept.call.name}.{f.name}", f.type)
            for kept in self._kept.values()
            for f in kept.declared.state
        )

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(f.name, to_arrow(f.type), nullable=False) for f in self.fields()])

    def save(self) -> pa.Table:
        """The states, as the native window's groups stand: panes ascending, groups as they appeared."""
        schema = self.schema()
        batches = []
        for start in sorted(self._panes):
            pane = self._panes[start]
            arrays = [pa.array(array) for state in pane.states for array in state.values()]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema)

    def load(self, groups: pa.RecordBatch, states: pa.Table) -> None:
        """Take back what ``save`` gave, beside the groups of the native window.

        Args:
            groups: pane_start, pane_end, first, rows, the keys ...: checked by the native window.

        Raises:
            ValueError: another number of rows, or a null.
        """
        if len(states) != groups.num_rows:
            raise ValueError(f"{len(states)} states of users' aggregates for {groups.num_rows} groups")
        starts, ends = as_int64(groups.column(0)), as_int64(groups.column(1))
        width = len(self._key_types)
        keys = pa.RecordBatch.from_arrays(
            groups.columns[4 : 4 + width], names=groups.schema.names[4 : 4 + width]
        )
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start)
            pane, ids = self._enter(int(start), int(ends[rows[0]]), keys, pa.array(rows))
            if len(ids) != pane.count:
                raise ValueError("a group stands twice in one pane")
            part = states.slice(int(rows[0]), len(rows)).combine_chunks()
            pane.states = [
                self._read(kept, lambda name, part=part: part.column(name).combine_chunks())
                for kept in self._kept.values()
            ]


def _ids(keys: Keys, rows: pa.RecordBatch, *, insert: bool) -> Index:
    return np.asarray(pa.array(keys.map(rows, insert=insert))).astype(np.int64)
