"""Joins: rows of equal key, at most so far apart in time; or each row with the latest one before it.

The native ``Join`` says which rows belong together, by their numbers, in the order in which results
leave; the columns stand here, and those of the results are gathered. A row is forgotten when no
partner can come any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from medusa._native import Join
from medusa.elements import END_US, START_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator, expect_table
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.kept_rows import MERGED_ROWS_MAX, KeptRows
from medusa.engine.core.native_types import native_arrow, native_type, widen
from medusa.engine.core.rows import TIME, as_int64
from medusa.engine.core.site import Site
from medusa.engine.expressions.box_expressions import Columns
from medusa.engine.operators.joins.join_parts import JoinParts
from medusa.engine.operators.joins.join_where import PairCondition, SideCondition
from medusa.engine.state import background_copy
from medusa.engine.state.background_copy import capture_of, items_later
from medusa.engine.state.row_changes import NumberedRows, TableChange
from medusa.ports import Workers
from medusa.query import boxes as query
from medusa.query.boxes import Schema
from medusa.query.boxes.joins import sides_of
from medusa.query.expressions.expression import Column, Named
from medusa.query.shape import WINDOW_COLUMNS, expression_type
from medusa.query.types import common_type, schema_to_arrow, to_arrow

__all__ = ["JoinBox", "join_options", "make_join"]

PAIRS_MAX = 1 << 16
"""Pairs made in one step, or twice as many: their columns stay in the cache."""

KEYS_SPARE = 1 << 16
"""Keys remembered beyond twice the rows held, before the index is built anew."""

ROWS_SPARE = 1 << 16
"""Rows kept beyond twice those still wanted, before these are copied."""

SPAN_MAX = 4
"""Numbers of rows per row held, beyond ``ROWS_SPARE``, before rows get new ones."""

_LEFT, _RIGHT = 0, 1
_FOREVER_US = (1 << 63) - 1
_COALESCE = pc.get_function("coalesce")


class _Side:
    """One input: its keys, and the rows that results may name.

    Attributes:
        known: which rows were held at earlier captures, where several copies of the join hold them.
    """

    def __init__(
        self,
        columns: Columns,
        schema: pa.Schema,
        keys: Sequence[Named],
        types: Sequence[str],
        condition: SideCondition | None,
    ) -> None:
        self._condition = condition
        self.columns = columns
        self.types = types
        plain = {name: index for index, name in enumerate(schema.names)}
        self.key_columns: list[int] = []
        """Of each key: where it stands among the kept columns."""
        self._added: list[int] = []
        fields = list(schema)
        for number, (key, type) in enumerate(zip(keys, types, strict=True)):
            expression = key.expression
            if isinstance(expression, Column) and schema.field(expression.name).type == to_arrow(type):
                self.key_columns.append(plain[expression.name])
            else:
                self.key_columns.append(len(fields))
                self._added.append(number)
                fields.append(pa.field(f"@key{number}", to_arrow(type)))
        self.match_columns = list(self.key_columns)
        """Of each key: where that stands by which rows are matched: null where ``condition`` fails."""
        if condition is not None:
            self.match_columns[0] = len(fields)
            fields.append(pa.field("@match0", to_arrow(types[0])))
        self.kept = KeptRows(pa.schema(fields))
        self.known = NumberedRows()
        self._keyed = pa.schema(
            [
                pa.field("time", TIME),
                *(pa.field(str(i), native_arrow(type)) for i, type in enumerate(types)),
            ]
        )
        self._loaded = self._keyed.append(pa.field("matched", pa.bool_()))

    def typed(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """The keys in the types that both sides have in common."""
        wanted = [to_arrow(type) for type in self.types]
        return [key if key.type == type else key.cast(type) for key, type in zip(keys, wanted, strict=True)]

    def stored(self, train: Train, keys: list[pa.Array]) -> pa.RecordBatch:
        """Rows as they are kept: with the keys that are no columns of theirs. ``keys`` become those by
        which the rows are matched."""
        columns = [*train.batch.columns, *(keys[number] for number in self._added)]
        if self._condition is not None:
            keys[0] = self._condition.nulled(train, keys[0])
            columns.append(keys[0])
        return pa.RecordBatch.from_arrays(columns, schema=self.kept.schema)

    def keyed(
        self, times: pa.Array, keys: Sequence[pa.Array], matched: pa.Array | None = None
    ) -> pa.RecordBatch:
        """What native code takes of the rows."""
        wide = [widen(key, type) for key, type in zip(keys, self.types, strict=True)]
        if matched is None:
            return pa.RecordBatch.from_arrays([times, *wide], schema=self._keyed)
        return pa.RecordBatch.from_arrays([times, *wide, matched], schema=self._loaded)

    def forget_captures(self) -> None:
        """The rows have other numbers now."""
        self.known = NumberedRows()

    def state_schema(self) -> pa.Schema:
        return pa.schema([*self.kept.schema, ("@time", TIME), ("@matched", pa.bool_())])


class JoinBox(Operator):
    """A join. A window join is one with ``within_us`` 0 on window_start, window_end and the keys.

    Args:
        keys: (left, right, type common to both sides) of each key column of the output, in order.
        within_us: None, of an as-of join only: however old the right row is.
        sides: schemas of the inputs.
        schema: columns of the output.
        workers: run copies over disjoint keys, unless a condition looks at pairs.
        keys_spare: other than ``KEYS_SPARE``.
    """

    state_format = 2

    def __init__(
        self,
        spec: query.Join | query.WindowJoin | query.AsofJoin,
        *,
        keys: Sequence[tuple[Named, Named, str]],
        within_us: int | None,
        sides: tuple[Schema, Schema],
        schema: Schema,
        letters: DeadLetters,
        workers: Workers | None = None,
        keys_spare: int | None = None,
    ) -> None:
        super().__init__(spec.id, inputs=2)
        self._asof = isinstance(spec, query.AsofJoin)
        self.kind = "asof_join" if self._asof else "join" if isinstance(spec, query.Join) else "window_join"
        self._how = spec.how
        self._within_us = within_us
        self._schema = schema_to_arrow(schema)
        types = [type for _, _, type in keys]
        sides_keys = ([ours for ours, _, _ in keys], [theirs for _, theirs, _ in keys])
        alone: int | None = None
        if self._asof and spec.where is not None and len(sides_of(spec.where)) < 2:
            alone = _LEFT if sides_of(spec.where) == {"left"} else _RIGHT
        self._sides = tuple(
            _Side(
                Columns(self, letters, sides_keys[side], sides[side]),
                schema_to_arrow(sides[side]),
                sides_keys[side],
                types,
                # What doesn't satisfy it has no partner, like a null key.
                SideCondition(self, letters, spec.where, side, sides[side])
                if side == alone and spec.where is not None
                else None,
            )
            for side in (_LEFT, _RIGHT)
        )
        self._others = tuple(_other_columns(sides[side], sides_keys[side]) for side in (_LEFT, _RIGHT))
        # The delay of what is known only when no partner can come any more.
        self._delay_us = 0 if self._asof or spec.how == "inner" else within_us or 0
        self._pair_condition: PairCondition | None = None
        if spec.where is not None and alone is None:
            self._pair_condition = PairCondition(self, letters, spec.where, sides)
        how = spec.how if not self._asof else "asof_left" if spec.how == "left" else "asof"
        make: Any = Join
        if workers is not None and workers.count > 2 and self._pair_condition is None:
            make = partial(JoinParts, workers)
        self._join: Join | JoinParts = make(
            keys=[native_type(type) for type in types],
            how=how,
            within_us=-1 if within_us is None else within_us,
            judged=self._pair_condition is not None,
            keys_spare=KEYS_SPARE if keys_spare is None else keys_spare,
        )

    # Rows in

    def on_train(self, input: int, train: Train) -> None:
        side = self._sides[input]
        on_time = self.on_time(train)
        whole, keys = side.columns.compute(on_time)
        if not len(whole):
            return
        keys = side.typed(keys)
        stored = side.stored(whole, keys)
        first = side.kept.add(stored, int(as_int64(whole.times).max()))
        self._join.add(input, side.keyed(whole.times, keys), first)

    # Results out

    def on_boundary(self, time_us: int) -> None:
        self.leave(self._results(time_us))

    def _results(self, time_us: int) -> Iterator[None]:
        """Everything below a boundary, piece by piece, and then the boundary."""
        ended = time_us >= END_US
        join, to_us = self._join, _FOREVER_US if ended else time_us
        if isinstance(join, JoinParts):
            for number, found in enumerate(join.run(to_us, PAIRS_MAX)):
                if number:
                    yield
                yield from self._send_shared(join, found)
        else:
            join.advance(to_us)
            more = True
            while more:
                more = join.step(PAIRS_MAX)
                if self._pair_condition is not None:
                    self._judge(join, self._pair_condition, pa.record_batch(join.pairs()))
                results = join.results()
                if results is not None:
                    rows = pa.record_batch(results)
                    if rows.num_rows <= output_pieces.ROWS_MAX // 4 and not self._wide(rows.num_rows):
                        self.emit_train(self._train(rows))  # as _send, without a generator: most are small
                    else:
                        yield from self._send(rows)
                if more:  # though few pairs satisfied a condition, there may be any number of such steps
                    yield
        if ended:
            for side in self._sides:
                side.kept.clear()
        else:
            self._forget(time_us)
        self.advance(time_us if ended else time_us - self._delay_us)

    def _send(self, rows: pa.RecordBatch) -> Iterator[None]:
        """Results of a step, at most a piece at once."""
        if rows.num_rows <= output_pieces.ROWS_MAX and not self._wide(rows.num_rows):
            self.emit_train(self._train(rows))
            if rows.num_rows > output_pieces.ROWS_MAX // 4:
                yield
            return
        for first, end in self._cuts(rows.num_rows, rows.column(2), rows.column(3)):
            self.emit_train(self._train(rows.slice(first, end - first)))
            yield

    def _send_shared(self, join: JoinParts, found: Sequence[pa.RecordBatch]) -> Iterator[None]:
        """Results of steps of all copies, at most a piece at once; their threads gather the columns."""
        pieces_of = [
            rows.slice(first, end - first)
            for rows in found
            for first, end in self._cuts(rows.num_rows, rows.column(2), rows.column(3))
        ]
        many = len(pieces_of) > len(found)
        for train in join.made(pieces_of, self._train):
            self.emit_train(train)
            if many or len(train) > output_pieces.ROWS_MAX // 4:
                yield

    def _wide(self, rows: int) -> bool:
        """Whether so many rows may have more text than a piece."""
        left, right = self._sides
        return rows * (left.kept.widest + right.kept.widest) > output_pieces.BYTES_MAX

    def _cuts(self, count: int, left: pa.Array, right: pa.Array) -> Iterator[tuple[int, int]]:
        """(first, end) of pieces of rows that name rows of both sides."""
        if not self._wide(count):
            return output_pieces.row_cuts(count)
        texts = [side.kept.text_bytes(rows) for side, rows in zip(self._sides, (left, right), strict=True)]
        return output_pieces.cuts(texts[_LEFT] + texts[_RIGHT])

    def _judge(self, join: Join, condition: PairCondition, pairs: pa.RecordBatch) -> None:
        if not pairs.num_rows:
            join.judge(pa.nulls(0, pa.bool_()))
            return
        masks = []
        for first, end in self._cuts(pairs.num_rows, *pairs.columns):
            piece = pairs.slice(first, end - first)
            columns = [
                self._sides[side].kept.take(piece.column(side), indexes)
                for side, indexes in enumerate(condition.columns)
            ]
            masks.append(condition.keep([*columns[_LEFT], *columns[_RIGHT]], piece.num_rows))
        join.judge(masks[0] if len(masks) == 1 else pa.concat_arrays(masks))

    def _train(self, rows: pa.RecordBatch) -> Train:
        """The columns of results."""
        _, times, left, right = rows.columns
        sides = self._sides
        if self._how in ("semi", "anti"):
            columns = sides[_LEFT].kept.take(left, range(len(self._schema)))
        else:
            width = len(sides[_LEFT].types)
            ours = sides[_LEFT].kept.take(left, [*sides[_LEFT].key_columns, *self._others[_LEFT]])
            head = ours[:width]
            if self._how in ("right", "full"):
                theirs = sides[_RIGHT].kept.take(right, [*sides[_RIGHT].key_columns, *self._others[_RIGHT]])
                # A pair has both keys; a row alone has that of its side.
                head = [_COALESCE.call(list(both)) for both in zip(head, theirs[:width], strict=True)]
                theirs = theirs[width:]
            else:
                theirs = sides[_RIGHT].kept.take(right, self._others[_RIGHT])
            columns = [*head, *ours[width:], *theirs]
        return Train(batch=pa.RecordBatch.from_arrays(columns, schema=self._schema), times=times)

    def _forget(self, time_us: int) -> None:
        for number, side in enumerate(self._sides):
            if self._asof and number == _LEFT:
                side.kept.forget(time_us)
            elif self._within_us is not None:
                side.kept.forget(time_us - self._within_us)
        if self._asof and len(self._sides[_RIGHT].kept) > 2 * self._join.held(_RIGHT) + ROWS_SPARE:
            self._copy_wanted(_RIGHT)  # most were superseded
        for number in (_LEFT, _RIGHT):
            if self._join.span(number) > SPAN_MAX * self._join.held(number) + ROWS_SPARE:
                self._copy_wanted(number)  # one row is far ahead of the others

    def _copy_wanted(self, number: int) -> None:
        """Copy the rows of a side that are still wanted, and number them from 0."""
        side = self._sides[number]
        rows = pa.record_batch(self._join.rows(number))
        parts = []
        for start in range(0, rows.num_rows, MERGED_ROWS_MAX):  # so that one far ahead holds few others
            some = rows.slice(start, MERGED_ROWS_MAX)
            columns = side.kept.take(some.column(0), range(len(side.kept.schema)))
            batch = pa.RecordBatch.from_arrays(columns, schema=side.kept.schema)
            parts.append((batch, int(as_int64(some.column(1)).max())))
        self._join.renumber(number)
        side.kept.replace(parts)
        side.forget_captures()

    # What is asked about it

    def state_bytes(self) -> int:
        if not self._held():
            return 0
        return self._join.nbytes() + sum(side.kept.nbytes() for side in self._sides) - self.queue_bytes()

    def queue_bytes(self) -> int:
        total = 0
        for number, side in enumerate(self._sides):
            rows = len(side.kept)
            total += side.kept.nbytes() * self._join.waiting(number) // rows if rows else 0
        return total

    def queue_rows(self) -> int:
        return sum(self._join.waiting(number) for number in range(len(self._sides)))

    def _held(self) -> int:
        return self._join.held(_LEFT) + self._join.held(_RIGHT)

    def waits_open(self, names: Sequence[str]) -> str:
        waiting = [self._join.waiting(side) for side in (_LEFT, _RIGHT)]
        held = self._held() - sum(waiting)
        text = self.held(names, waits=True)
        text += f"; {waiting[0]} left and {waiting[1]} right rows wait for it"
        return text + (f", {held} more may still find partners" if held else "")

    # State

    def save_more(self, state: BoxState) -> None:
        for number, (name, side) in enumerate(zip(("left", "right"), self._sides, strict=True)):
            if isinstance(self._join, JoinParts):
                self._save_compared(state, name, side, self._join, number)
            else:
                pick = side.kept.picking()
                state.put(
                    name,
                    items_later(
                        partial(self._join.copy, number),
                        self._join.held(number),
                        partial(_columns, pick),
                        partial(pa.Table.from_arrays, schema=side.state_schema()),
                        patient=state.patient,
                        capture=state.capture,
                    ),
                )

    def _save_compared(self, state: BoxState, name: str, side: _Side, join: JoinParts, number: int) -> None:
        """Rows that several copies of the join hold: who writes them compares their numbers and marks to find
        what changed."""
        held = join.held(number)
        capture = capture_of(state.capture, held) if held else None
        pick, known, schema = side.kept.picking(), side.known, side.state_schema()

        def make(rows: pa.RecordBatch) -> tuple[pa.Table, TableChange | None]:
            change: TableChange | None = None
            if capture is not None:
                found = known.since(capture, as_int64(rows.column(0)), as_int64(rows.column(2)) != 0)
                if found is not None:
                    change, rows = found[0], rows.take(pa.array(found[1]))
            return pa.Table.from_arrays(_columns(pick, rows), schema=schema), change

        later = join.later(number, make, captured=capture is not None)
        if not state.patient or held <= background_copy.AT_ONCE:
            later.copy(held + 1)
        state.put(name, later)

    def upgrade(self, state: BoxState, format: int) -> None:
        """Format 1 had the keys apart, the rows in no order (some gone already), and inner joins only."""
        oldest_us = min(state.meta["inputs_us"]) - (self._within_us or 0)
        for name, side in zip(("left", "right"), self._sides, strict=True):
            table = state.tables[name].sort_by("@position")
            times = as_int64(table.column("@time").combine_chunks().cast(TIME))
            table = table.filter(pa.array(times >= oldest_us))
            marks = pa.array([False] * table.num_rows, pa.bool_())
            columns = [table.column(field.name).cast(field.type) for field in side.kept.schema]
            made = [*columns, table.column("@time"), marks]
            state.tables[name] = pa.Table.from_arrays(made, schema=side.state_schema())

    def load_more(self, state: BoxState) -> None:
        for number, (name, side) in enumerate(zip(("left", "right"), self._sides, strict=True)):
            table = expect_table(state.tables, name, side.state_schema()).combine_chunks()
            self._join.track(number)  # what was captured is captured again, and shan't look at all rows then
            for batch in table.to_batches():
                *columns, times, matched = batch.columns
                if times.null_count or matched.null_count:
                    raise ValueError("nulls among the times or marks of a join")
                rows = pa.RecordBatch.from_arrays(columns, schema=side.kept.schema)
                keys = [columns[index] for index in side.match_columns]
                first = side.kept.add(rows, int(as_int64(times).max()))
                self._join.add(number, side.keyed(times, keys, matched), first)
        boundary = int(min(state.meta["inputs_us"]))
        if boundary > START_US:
            self._join.resume(_FOREVER_US if boundary >= END_US else boundary)


def make_join(box: query.Join | query.WindowJoin | query.AsofJoin, site: Site) -> JoinBox:
    """The running box of any join."""
    return JoinBox(box, **join_options(box, site), workers=site.workers)


def join_options(box: query.Join | query.WindowJoin | query.AsofJoin, site: Site) -> dict[str, Any]:
    """What ``JoinBox`` is told of a join and the streams around it."""
    pairs = list(zip(box.left_keys, box.right_keys, strict=True))
    if isinstance(box, query.WindowJoin):
        bounds = [Named(name, Column(name)) for name in WINDOW_COLUMNS]
        pairs = [*zip(bounds, bounds, strict=True), *pairs]
    left, right = site.inputs
    keys = []
    for ours, theirs in pairs:
        types = [
            expression_type(key.expression, side, box=box.id) for key, side in ((ours, left), (theirs, right))
        ]
        type = common_type(*types)
        assert type is not None  # the shape of the box has been checked
        keys.append((ours, theirs, type))
    return {
        "keys": keys,
        # Rows of equal windows have equal times.
        "within_us": 0 if isinstance(box, query.WindowJoin) else box.within_us,
        "sides": (left.schema, right.schema),
        "schema": site.output.schema,
        "letters": site.letters,
    }


def _columns(pick: Callable[[pa.Array], list[pa.Array]], rows: pa.RecordBatch) -> list[pa.Array]:
    """Those of a saved state, of rows as the native join tells them."""
    numbers, times, matched = rows.columns
    return [*pick(numbers), times.cast(TIME), matched.cast(pa.bool_())]


def _other_columns(schema: Schema, keys: Sequence[Named]) -> list[int]:
    """The columns besides those that are keys as they stand."""
    gone = {key.expression.name for key in keys if isinstance(key.expression, Column)}
    return [index for index, field in enumerate(schema) if field.name not in gone]
