"""The steps between ``window`` and ``aggregate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Aggregate, Top
from medusa.query.boxes.checks import check_sizes, need_time
from medusa.query.expressions.aggregates import AggregateSpec
from medusa.query.expressions.column import as_tree
from medusa.query.expressions.expression import Named
from medusa.query.expressions.grouping import aggregate_calls, group_keys
from medusa.query.shape import WindowKind
from medusa.query.stream.window_steps import whole_number
from medusa.query.suggest_methods import Suggests
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.stream.output import Output
    from medusa.query.stream.stream import Stream

__all__ = ["GroupedStream", "WindowedStream", "windows"]


class GroupedStream(Suggests):
    """A stream cut into windows and groups; ``aggregate`` makes it a stream again."""

    def __init__(self, output: Output, size_us: int, advance_us: int, keys: tuple[Named, ...] = ()) -> None:
        self._output = output
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
        label = f"aggregate {name!r}" if name is not None else f"aggregate after {self._output.name!r}"
        calls = aggregate_calls(aggregates, named, label=label)
        box = Aggregate(
            id="",
            inputs=(self._output.arc,),
            size_us=self._size_us,
            advance_us=self._advance_us,
            keys=self._keys,
            aggregates=calls,
            early_us=None if early is None else duration_us(early, what=f"{label}: early", minimum_us=1),
        )
        return self._output.add(box, name)

    def top(self, n: int, by: str | Expr, descending: bool = True, *, name: str | None = None) -> Stream:
        """The ``n`` rows with the largest ``by`` of each window and group.

        Columns: window_start, window_end, the keys, the other columns of the row, and ``rank`` from 1.
        Of equal rows the earlier one comes first; NaN is the greatest, null comes last either way.

        Args:
            n: at least 1.
            by: a column, or an expression that can be compared.
            descending: False: the smallest.
        """
        label = f"top {name!r}" if name is not None else f"top after {self._output.name!r}"
        if not isinstance(descending, bool):
            raise QueryError(f"{label}: descending is True or False", code="query.window")
        box = Top(
            id="",
            inputs=(self._output.arc,),
            size_us=self._size_us,
            advance_us=self._advance_us,
            keys=self._keys,
            by=as_tree(by, box=label),
            n=whole_number(n, f"{label}: n"),
            descending=descending,
        )
        return self._output.add(box, name)

    def __repr__(self) -> str:
        keys = ", ".join(key.name for key in self._keys)
        by = f" by {keys}" if keys else ""
        kind = WindowKind(self._size_us, self._advance_us)
        return f"<{kind} over {self._output.name!r}{by}: .aggregate(...) is missing>"


class WindowedStream(GroupedStream):
    """A stream cut into windows: group it, or aggregate each window as a whole."""

    def group_by(self, *keys: str | Expr | Mapping[str, Any], **named: str | Expr) -> GroupedStream:
        """Group the rows of each window.

        Args:
            keys: names of columns, expressions (called as they are written), or mappings.
            named: ``prefix="split_part(src, '.', 1)"``.
        """
        made = group_keys(self._output, keys, named)
        return GroupedStream(self._output, self._size_us, self._advance_us, made)


def windows(output: Output, size: Duration, advance: Duration | None) -> WindowedStream:
    """As ``Stream.window``."""
    size_us = duration_us(size, what="window: size", minimum_us=1)
    advance_us = size_us if advance is None else duration_us(advance, what="window: advance", minimum_us=1)
    label = output.labelled("window", None)
    need_time(output.shape, label, "a window")
    check_sizes(size_us, advance_us, label=label)
    return WindowedStream(output, size_us, advance_us)
