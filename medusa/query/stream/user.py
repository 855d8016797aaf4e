"""Methods of streams for functions and classes of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from medusa.query.stream.base import StreamBase
from medusa.query.user import apply_box, process_box, remember

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["UserMethods"]


class UserMethods(StreamBase):
    """Apply and process."""

    __slots__ = ()

    def apply(
        self,
        function: Callable[[Any], Any],
        schema: Any,
        *,
        in_flight: int | None = None,
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
        """
        label = self._labelled("apply", name)
        box = apply_box(self._arc, function, schema, in_flight, label=label)
        return remember(self._add(box, name), function)

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
        label = self._labelled("process", name)
        box = process_box((self,), None, operator, schema, by, state, label=label)
        return remember(self._add(box, name), operator)
