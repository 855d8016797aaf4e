"""The steps between ``window`` and ``aggregate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.aggregates import AggregateSpec, aggregate_call
from medusa.query.boxes import Aggregate
from medusa.query.expression import Named
from medusa.query.named import named_columns
from medusa.query.shape import WindowKind
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.column import Expr
    from medusa.query.stream import Stream
    from medusa.query.stream_base import StreamBase

__all__ = ["GroupedStream", "WindowedStream"]


class GroupedStream:
    """A stream cut into windows and groups; ``aggregate`` makes it a stream again."""

    def __init__(
        self, stream: StreamBase, size_us: int, advance_us: int, keys: tuple[Named, ...] = ()
    ) -> None:
        self._stream = stream
        self._size_us = size_us
        self._advance_us = advance_us
        self._keys = keys

    def aggregate(
        self,
        *aggregates: Mapping[str, Any],
        name: str | None = None,
        early: Duration | None = None,
        **named: AggregateSpec | str,
    ) -> Stream:
        """One row per window and group: window_start, window_end, the keys, these aggregates.

        Args:
            aggregates: mappings of names to aggregates (for names that aren't Python words).
            early: whenever the boundary passes a multiple of this, send tentative rows of the groups
                that changed and whose windows are still open. They reach sinks only, through boxes
                without state, and are void when their window closes: ``run.take(sink, changes=True)``.
            named: ``n=md.count()``, ``v=md.avg("speed")`` or ``v="avg(speed)"``.

        Raises:
            QueryError: names the box, the aggregate, what was expected and what came.
        """
        label = f"aggregate {name!r}" if name is not None else f"aggregate after {self._stream.name!r}"
        given: dict[str, Any] = {}
        for mapping in (*aggregates, named):
            if not isinstance(mapping, Mapping):
                raise QueryError(
                    f"{label}: an aggregate needs a name",
                    hint='n=md.count(), v=md.avg("speed")',
                    code="query.aggregate",
                )
            for key, value in mapping.items():
                if not isinstance(key, str) or key in given:
                    raise QueryError(f"{label}: {key!r} can't name an aggregate here", code="query.name")
                given[key] = value
        box = Aggregate(
            id="",
            inputs=(self._stream.arc,),
            size_us=self._size_us,
            advance_us=self._advance_us,
            keys=self._keys,
            aggregates=tuple(aggregate_call(key, value, box=label) for key, value in given.items()),
            early_us=None if early is None else duration_us(early, what=f"{label}: early", minimum_us=1),
        )
        return self._stream._add(box, name)

    def __repr__(self) -> str:
        keys = ", ".join(key.name for key in self._keys)
        by = f" by {keys}" if keys else ""
        kind = WindowKind(self._size_us, self._advance_us)
        return f"<{kind} over {self._stream.name!r}{by}: .aggregate(...) is missing>"


class WindowedStream(GroupedStream):
    """A stream cut into windows: group it, or aggregate each window as a whole."""

    def group_by(self, *keys: str | Expr | Mapping[str, Any], **named: str | Expr) -> GroupedStream:
        """Group the rows of each window.

        Args:
            keys: names of columns, expressions (called as they are written), or mappings.
            named: ``prefix="split_part(src, '.', 1)"``.
        """
        label = f"group_by after {self._stream.name!r}"
        made = named_columns(keys, named, self._stream.schema, box=label)
        if not made:
            raise QueryError(
                f"{label}: needs at least one key",
                hint="leave group_by out for one group a window",
                code="query.window",
            )
        return GroupedStream(self._stream, self._size_us, self._advance_us, made)
