"""Windows that close group by group, and the largest rows of a window."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.boxes.windows import AggregateCall
from medusa.query.expressions.expression import Expression, Named

__all__ = ["RowWindow", "Session", "Top", "ValueWindow"]


class Session(BoxData, frozen=True, tag_field="kind", tag="session", kw_only=True):
    """Rows of a group less than ``gap_us`` apart belong together.

    Attributes:
        keys: the grouping columns in order; may be empty.
        aggregates: at least one.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    gap_us: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]


class RowWindow(BoxData, frozen=True, tag_field="kind", tag="window_rows", kw_only=True):
    """Windows of ``size`` rows of a group, one every ``advance`` rows; 0 < advance <= size."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    size: int
    advance: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]


class ValueWindow(BoxData, frozen=True, tag_field="kind", tag="window_values", kw_only=True):
    """Windows over a number that doesn't decrease within a group, aligned to 0.

    Attributes:
        value: an integer, float, date or time.
        size, advance: in units of the value (floats: floats; dates: days; times: microseconds);
            0 < advance <= size.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    value: Expression
    size: int | float
    advance: int | float
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]


class Top(BoxData, frozen=True, tag_field="kind", tag="top", kw_only=True):
    """The ``n`` rows with the largest ``by`` per window and group.

    Attributes:
        size_us, advance_us: as of ``Aggregate``.
        descending: largest first; False: smallest first.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    size_us: int
    advance_us: int
    keys: tuple[Named, ...]
    by: Expression
    n: int
    descending: bool = True
