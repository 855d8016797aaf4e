"""The output of a box, and every box that can be added to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from medusa.query.boxes import Input
from medusa.query.expressions.column import Expr
from medusa.query.expressions.grouping import group_keys
from medusa.query.shape import StreamShape
from medusa.query.stream import flow, joins, order, rows, tables, time_windows, user, window_steps
from medusa.query.stream.flow import By
from medusa.query.stream.keyed_table import KeyedTable
from medusa.query.stream.output import Output
from medusa.query.stream.window_steps import GroupWindows
from medusa.units import Duration

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.query.stream.time_windows import WindowedStream
    from medusa.query.stream.window_steps import KeyedStream, SessionStream

__all__ = ["Stream"]


class Stream(GroupWindows):
    """The output of a box; immutable. Its methods add boxes to the query and give their output."""

    __slots__ = ("_output",)

    _keys = ()

    def __init__(self, query: Query, arc: Input) -> None:
        self._output = Output(query, arc)

    @property
    def query(self) -> Query:
        """The query that it belongs to."""
        return self._output.query

    @property
    def arc(self) -> Input:
        """The box and port that it comes from."""
        return self._output.arc

    @property
    def name(self) -> str:
        """Id of its box; ``cars.late`` of a late port."""
        return self._output.name

    @property
    def label(self) -> str:
        """How messages name it."""
        return self._output.label

    @property
    def schema(self) -> dict[str, str]:
        """Column name -> type, in order."""
        return self._output.schema

    @property
    def timed(self) -> bool:
        """Whether its rows have a time, which windows and joins need."""
        return self._output.timed

    @property
    def _shape(self) -> StreamShape:
        return self._output.shape

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {type}" for name, type in self.schema.items())
        return f"<Stream {self.name!r} of query {self.query.name!r}: {columns}>"

    def filter(self, predicate: str | Expr, *, name: str | None = None) -> Stream:
        """The rows for which the predicate is true (not false, not null).

        Args:
            predicate: SQL text such as ``"speed > 0"``, or ``md.col("speed") > 0``.
        """
        return rows.filter(self._output, predicate, name=name)

    def select(
        self, *columns: str | Expr | Mapping[str, Any], name: str | None = None, **named: str | Expr
    ) -> Stream:
        """Rows of exactly these columns.

        Args:
            columns: names of columns, or mappings of new names to expressions (for names that
                aren't Python words).
            named: new columns: ``mph="speed * 0.621"``.
        """
        return rows.select(self._output, columns, named, name=name)

    def with_columns(
        self, *columns: str | Expr | Mapping[str, Any], name: str | None = None, **named: str | Expr
    ) -> Stream:
        """All columns, and these: a new one comes last, one of a known name takes its place."""
        return rows.with_columns(self._output, columns, named, name=name)

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The rows of several streams of one schema, in the order in which they arrive."""
        return rows.union(self._output, others, name=name)

    @property
    def late(self) -> Stream:
        """The rows of a source that came too late for its windows and joins; without time.

        Raises:
            QueryError: this isn't the output of a source with time.
        """
        return rows.late(self._output)

    @property
    def ahead(self) -> Stream:
        """The rows of a source whose times were too far ahead of their arrival; without time.

        Raises:
            QueryError: this isn't the output of a source with ``ahead=``.
        """
        return rows.ahead(self._output)

    def window(self, size: Duration, advance: Duration | None = None) -> WindowedStream:
        """Windows of a length of time, aligned to the epoch, half-open ``[start, end)``.

        Go on with ``.aggregate(...)``, or ``.group_by(...).aggregate(...)``.

        Args:
            size: ``"5 min"``, a timedelta, or microseconds.
            advance: how often a window starts, at most ``size``; None: as often as one ends.
        """
        return time_windows.windows(self._output, size, advance)

    def session(self, gap: Duration) -> SessionStream:
        """Sessions: rows less than ``gap`` apart belong together.

        ``window_start`` is the first time, ``window_end`` the last time + gap. Go on with
        ``.aggregate(...)``, or ``.group_by(...).aggregate(...)``.

        Args:
            gap: ``"30s"``, a timedelta, or microseconds.
        """
        return window_steps.sessions(self._output, gap)

    def group_by(self, *keys: str | Expr | Mapping[str, Any], **named: str | Expr) -> KeyedStream:
        """Groups, for ``.window_rows``, ``.window_values`` and ``.running``.

        Args:
            keys: names of columns, expressions (called as they are written), or mappings.
            named: ``prefix="split_part(src, '.', 1)"``.
        """
        return window_steps.KeyedStream(self._output, group_keys(self._output, keys, named))

    def join(
        self,
        other: Stream,
        on: Any,
        within: Duration | None = None,
        where: str | Expr | None = None,
        how: str = "inner",
        suffixes: tuple[str, str] = ("", "_right"),
        *,
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows of equal keys, or rows with or without a partner.

        Results leave by (release, left position, right position, a missing one last), once the
        boundaries of both sides have passed the release: of a pair its later time; of a row without a
        pair its time + ``within``. The output boundary is the minimum of the inputs, less ``within``
        where ``how`` isn't ``inner``.

        Args:
            other: the right side.
            on: a column, several, or ``{"left": "right"}``; with ``within`` rows at most that far
                apart in time. ``"window"`` or ``["window", "k"]``: results of equal windows.
            within: required, but not with ``"window"``.
            where: a condition on pairs, which names columns ``left.x`` and ``right.x``. A row has a
                pair when one satisfies ``on``, ``within`` and ``where``.
            how: ``inner``: pairs. ``left``, ``right``, ``full``: also rows of that side, or of both,
                without a pair, with nulls on the other side. ``semi``, ``anti``: left rows with, or
                without, a pair; left columns only.
            suffixes: added to names that both sides have, besides the keys.
        """
        return joins.join(self._output, other, on, within, where, how, suffixes, name=name)

    def asof_join(
        self,
        other: Stream,
        on: Any,
        within: Duration | None = None,
        where: str | Expr | None = None,
        how: str = "left",
        suffixes: tuple[str, str] = ("", "_right"),
        *,
        name: str | None = None,
    ) -> Stream:
        """Every row with the latest row of ``other`` that has its key and isn't after it.

        Among rows of equal time the last by position is taken. Results leave by (left time, left
        position), once the boundaries of both sides have passed that time; the time of a result is
        that of the left row. Of each key the latest right row is kept for ever, or for ``within``.

        Args:
            other: the right side.
            on: a column, several, or ``{"left": "right"}``.
            within: how much older the right row may be; None: any age.
            where: a condition on pairs, applied before choosing; it needs ``within`` if it reads both
                sides.
            how: ``left``: a row without a partner comes with nulls; ``inner``: it is left out.
            suffixes: added to names that both sides have, besides the keys.
        """
        return joins.asof_join(self._output, other, on, within, where, how, suffixes, name=name)

    def route(
        self, *predicates: str | Expr, otherwise: bool = False, name: str | None = None
    ) -> tuple[Stream, ...]:
        """Many ways: a row goes to the stream of the first predicate that is true for it.

        A row for which none is true (false and null are not) goes to ``otherwise``, or is left out.
        Every stream keeps the order of the rows and gets every boundary.

        Args:
            predicates: as of ``filter``, at least one.
            otherwise: add a last stream of the rows that satisfy none.

        Returns:
            One stream per predicate, in order; then that of the others, if asked for.
        """
        return flow.route(self._output, predicates, otherwise=otherwise, name=name)

    def drop(
        self,
        rate: float | None = None,
        where: str | Expr | None = None,
        window: Duration | None = None,
        by: By = None,
        seed: int = 0,
        *,
        name: str | None = None,
    ) -> Stream:
        """Leaves rows out, in one of three ways; ``.dropped`` of the result has them.

        ``drop(rate=0.1)``: each row by chance. ``drop(where="...")``: those for which it is true.
        ``drop(rate=0.1, window="10s")``: whole windows by chance (with ``by``: of each key by
        itself), so that aggregates over tumbling windows of that size below are a subset of the
        exact ones.

        Args:
            rate: the share left out, from 0 to 1.
            window: the size of the windows, aligned to the epoch.
            by: a column or several; with ``window`` only.
            seed: another one leaves out other rows. The same rows with the same seed give the same
                answer always.
        """
        return flow.drop(self._output, rate, where, window, by, seed, name=name)

    def distinct(
        self, *columns: str | Expr | Mapping[str, Any], within: Duration, name: str | None = None
    ) -> Stream:
        """The first row of each key; and again the first one ``within`` or more after that.

        Rows are taken in order of time, once the boundary has passed them. A repeat that is left
        out doesn't make the period longer.

        Args:
            columns: the key; none: all columns.
            within: how long a key is remembered.
        """
        return flow.distinct(self._output, columns, within=within, name=name)

    @property
    def dropped(self) -> Stream:
        """The rows that a drop, or a sort with a timeout, left out; with their time.

        Raises:
            QueryError: this isn't the output of such a box.
        """
        return flow.dropped(self._output)

    @property
    def dead(self) -> Stream:
        """The rows on which an expression of this box failed: ``box``, ``error``, ``row`` (as JSON);
        without time.

        All of them, not only the first 100 that ``run.dead()`` keeps.

        Raises:
            QueryError: the box computes no expressions.
        """
        return flow.dead(self._output)

    def sunion(self, *others: Stream, bucket: Duration, name: str | None = None) -> Stream:
        """As ``md.sunion(this, *others, bucket=...)``."""
        return order.sunion(self._output, others, bucket=bucket, name=name)

    def bsort(self, column: str, slack: int = 64, by: By = None, *, name: str | None = None) -> Stream:
        """Sorts by a column in one bounded pass: of ``slack + 1`` rows held the smallest leaves.

        A row that is at most ``slack`` rows out of place comes into place; one further away leaves
        at once, out of order. Aurora's BSort (Abadi et al., VLDB Journal 2003, section 3).

        Args:
            column: a number or a time; ascending, null first, NaN last, ties in order of arrival.
            slack: rows held per group.
            by: a column or several: each group is sorted by itself.
        """
        return order.bsort(self._output, column, slack, by, name=name)

    def wsort(self, column: str, timeout: Duration, by: By = None, *, name: str | None = None) -> Stream:
        """Sorts by a column; a row waits for at most ``timeout`` of stream time.

        What leaves is in order, always: a row that comes after one of a greater value has left is
        left out, counted, and can be had from ``.dropped``. Aurora*'s WSort (Cherniack et al.,
        CIDR 2003, section 5.1).

        Args:
            column: a number or a time; ascending, null first, NaN last, ties by time.
            timeout: of the time of the stream, not of a clock.
            by: a column or several: each group is sorted by itself.
        """
        return order.wsort(self._output, column, timeout, by, name=name)

    def resample(
        self,
        every: Duration,
        by: By = None,
        how: str = "linear",
        *,
        gap: Duration,
        time: str = "ts",
        name: str | None = None,
    ) -> Stream:
        """The values at regular times: a row of each key at each multiple of ``every``.

        Aurora's Resample (Abadi et al., VLDB Journal 2003, section 3), on a grid aligned to the epoch.

        Args:
            by: a column or several: each key is a series of its own.
            how: ``linear``: numbers, times and durations between two rows lie on the line between
                them, other columns keep the value of the row before; ``previous``: all do.
            gap: rows further apart than this are not connected; a row with ``gap`` true and nulls
                then marks where the values end.
            time: name of the output column of the times; it takes the place of an input column.

        Returns:
            ``time``, the keys, the other columns, ``gap``.
        """
        return order.resample(self._output, every, by, how, gap=gap, time=time, name=name)

    def apply(
        self,
        function: Callable[[Any], Any],
        schema: Any,
        *,
        in_flight: int | None = None,
        by: Any = None,
        name: str | None = None,
    ) -> Stream:
        """Rows that a function makes of rows: a ``pyarrow.RecordBatch`` in, one out.

        The function sees batches cut anywhere, so it may not care where: what it makes of a row depends on
        that row only. It returns a record batch, a table or a dict of columns with exactly the columns of
        ``schema``; as many rows as it got, or besides a column ``_row`` of integers, ascending: the row of
        the batch (from 0) from which each output row comes. Output rows have the times of those rows.

        A call that raises, or returns anything else, is repeated on halves of its batch down to single
        rows; rows that fail alone are dead (``on_error``).

        Args:
            function: registered with ``md.register``, or the query runs embedded only. An ``async def``
                is called many times at once; its results keep the order of the input.
            schema: the output columns, as for a source.
            in_flight: calls of an async function that run at a time; 64 if None.
            by: a column or several: where the box is split, rows of a key go to the same part, whose function
                may keep what it has looked up. None: they go in blocks. The answer is the same.
        """
        return user.apply(self._output, function, schema, in_flight=in_flight, by=by, name=name)

    def process(
        self,
        operator: type,
        schema: Any,
        *,
        by: Any,
        state: Any = None,
        name: str | None = None,
    ) -> Stream:
        """Rows that a class makes of the rows of a key, with state kept for each key.

        The class has ``rows(key, batch, state, now)``, and ``boundary(key, time, state)`` if it sets timers
        with ``state.wake_at(time)``. It is made once, without arguments, and keeps nothing itself. Rows are
        given in order of time, once the boundary of the input has passed them. See
        ``docs/operators-user.md``.

        Args:
            operator: the class; registered, or the query runs embedded only.
            schema: the output columns, as for a source.
            by: the key: a column or several.
            state: the fields kept for each key: a schema, or a mapping of names to types.
        """
        return user.process(self._output, operator, schema, by=by, state=state, name=name)

    def update(
        self,
        table: KeyedTable,
        set: Mapping[str, Any],
        insert: bool | Mapping[str, Any] | None = None,
        *,
        by: Any = None,
    ) -> Stream:
        """Change a table by each row, and give what is stored after it.

        All updates of a table are merged by time; at equal times those of an earlier ``update`` come first,
        then by position. A row whose key isn't in the table, with ``insert=False``, changes nothing and
        gives nothing.

        Args:
            set: columns (not the key) and their new values: expressions over the row, in which
                ``table.x`` is the value stored so far.
            insert: what a key that isn't in the table gets: True: the same with ``table.x`` null; a
                mapping of expressions over the row (columns left out are null); False: nothing. May be
                left out where ``set`` doesn't read ``table.``: True.
            by: the key of the row, where its columns are called otherwise than those of the table.
        """
        return tables.update(self._output, table, set, insert, by=by)

    def delete(self, table: KeyedTable, *, by: Any = None) -> Stream:
        """Take the row of a key out of a table, and give what was stored; nothing where nothing was.

        Args:
            by: the key of the row, where its columns are called otherwise than those of the table.
        """
        return tables.delete(self._output, table, by=by)

    def lookup(
        self,
        table: KeyedTable,
        how: str = "left",
        *,
        by: Any = None,
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Each row with the row of a table as it was at its time, updates of that time included.

        Args:
            how: ``left``: a row that finds nothing has nulls; ``inner``: it is left out.
            by: the key of the row, where its columns are called otherwise than those of the table.
            suffix: added to names of the table's columns that the stream has too.
        """
        return tables.lookup(self._output, table, how, by=by, suffix=suffix, name=name)
