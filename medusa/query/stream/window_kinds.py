"""Methods of streams for sessions, groups, and windows of rows and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.query.boxes.checks import need_time
from medusa.query.expressions.aggregates import AggregateSpec
from medusa.query.expressions.grouping import group_keys
from medusa.query.stream.base import StreamBase
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.stream.stream import Stream
    from medusa.query.stream.window_steps import KeyedStream, KindStream, LagSpec, SessionStream, Size

__all__ = ["WindowKindMethods"]


class WindowKindMethods(StreamBase):
    """Sessions, group_by, window_rows, window_values, running."""

    __slots__ = ()

    def session(self, gap: Duration) -> SessionStream:
        """Sessions: rows less than ``gap`` apart belong together.

        ``window_start`` is the first time, ``window_end`` the last time + gap. Go on with
        ``.aggregate(...)``, or ``.group_by(...).aggregate(...)``.

        Args:
            gap: ``"30s"``, a timedelta, or microseconds.
        """
        from medusa.query.stream.window_steps import SessionStream

        gap_us = duration_us(gap, what="session: gap", minimum_us=1)
        need_time(self._shape, self._labelled("session", None), "a session")
        return SessionStream(self, gap_us)

    def group_by(self, *keys: str | Expr | Mapping[str, Any], **named: str | Expr) -> KeyedStream:
        """Groups, for ``.window_rows``, ``.window_values`` and ``.running``.

        Args:
            keys: names of columns, expressions (called as they are written), or mappings.
            named: ``prefix="split_part(src, '.', 1)"``.
        """
        from medusa.query.stream.window_steps import KeyedStream

        return KeyedStream(self, group_keys(self, keys, named))

    def window_rows(self, size: int, advance: int | None = None) -> KindStream:
        """Windows of a number of rows: see ``group_by(...).window_rows``; here all rows are one group."""
        from medusa.query.stream.window_steps import KeyedStream

        return KeyedStream(self, ()).window_rows(size, advance)

    def window_values(self, value: str | Expr, size: Size, advance: Size | None = None) -> KindStream:
        """Windows over a number: see ``group_by(...).window_values``; here all rows are one group."""
        from medusa.query.stream.window_steps import KeyedStream

        return KeyedStream(self, ()).window_values(value, size, advance)

    def running(
        self,
        *aggregates: Mapping[str, Any],
        name: str | None = None,
        expire: Duration | None = None,
        **named: AggregateSpec | LagSpec | str,
    ) -> Stream:
        """Running aggregates: see ``group_by(...).running``; here all rows are one group."""
        from medusa.query.stream.window_steps import KeyedStream

        return KeyedStream(self, ()).running(*aggregates, name=name, expire=expire, **named)
