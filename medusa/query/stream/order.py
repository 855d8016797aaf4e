"""Methods of streams for boxes that put rows in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.errors import QueryError
from medusa.query.boxes import BSort, Resample, SUnion, WSort
from medusa.query.stream.base import StreamBase, label_after
from medusa.query.stream.flow import By, keys_of
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["OrderMethods", "sunion"]


def sunion(*streams: Stream, bucket: Duration, name: str | None = None) -> Stream:
    """The rows of several streams of one schema, merged by time: the same order in every run.

    Rows wait until all inputs have passed the end of their bucket; then they leave by (time, number
    of the input, position). Borealis' SUnion (Balazinska et al., SIGMOD 2005, section 4).

    Args:
        streams: at least two, of one query.
        bucket: its length, aligned to the epoch: how much is sorted at once, and how long rows wait
            beyond the boundaries.
    """
    if not streams:
        raise QueryError("sunion: needs at least two streams", code="query.arity")
    first = streams[0]
    if not isinstance(first, StreamBase):
        raise QueryError(f"sunion: expected streams, got {type(first).__name__}", code="query.stream")
    return first.sunion(*streams[1:], bucket=bucket, name=name)


class OrderMethods(StreamBase):
    """Sunion, the sorts, resample."""

    __slots__ = ()

    def sunion(self, *others: Stream, bucket: Duration, name: str | None = None) -> Stream:
        """As ``md.sunion(this, *others, bucket=...)``."""
        label = self._labelled("sunion", name)
        arcs = (self._arc, *(self._query._owned(other, label) for other in others))
        bucket_us = duration_us(bucket, what=f"{label_after('sunion', name, (self,))}: bucket", minimum_us=1)
        return self._add(SUnion(id="", inputs=arcs, bucket_us=bucket_us), name, *others)

    def bsort(self, column: str, slack: int = 64, by: By = None, *, name: str | None = None) -> Stream:
        """Sorts by a column in one bounded pass: of ``slack + 1`` rows held the smallest leaves.

        A row that is at most ``slack`` rows out of place comes into place; one further away leaves
        at once, out of order. Aurora's BSort (Abadi et al., VLDB Journal 2003, section 3).

        Args:
            column: a number or a time; ascending, null first, NaN last, ties in order of arrival.
            slack: rows held per group.
            by: a column or several: each group is sorted by itself.
        """
        label = self._labelled("bsort", name)
        if not isinstance(slack, int) or isinstance(slack, bool):
            raise QueryError(
                f"{label}: slack is a number of rows, got {slack!r:.80}",
                hint='a sort by length of time is wsort(..., timeout="5s")',
                code="query.sort",
            )
        keys = keys_of(by, self.schema, box=label)
        box = BSort(id="", inputs=(self._arc,), column=_column(column, label), slack=slack, keys=keys)
        return self._add(box, name)

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
        label = self._labelled("wsort", name)
        box = WSort(
            id="",
            inputs=(self._arc,),
            column=_column(column, label),
            timeout_us=duration_us(timeout, what=f"{label}: timeout", minimum_us=1),
            keys=keys_of(by, self.schema, box=label),
        )
        return self._add(box, name)

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
        label = self._labelled("resample", name)
        if not isinstance(how, str) or not isinstance(time, str):
            raise QueryError(f"{label}: how and time are texts", code="query.resample")
        box = Resample(
            id="",
            inputs=(self._arc,),
            every_us=duration_us(every, what=f"{label}: every", minimum_us=1),
            gap_us=duration_us(gap, what=f"{label}: gap"),
            how=how,
            time=time,
            keys=keys_of(by, self.schema, box=label),
        )
        return self._add(box, name)


def _column(column: object, label: str) -> str:
    if isinstance(column, str):
        return column
    raise QueryError(
        f"{label}: expected the name of a column to sort by, got {type(column).__name__}",
        hint="compute it before, in a with_columns",
        code="query.expression",
    )
