"""Windows and what is computed in them."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Data, Input
from medusa.query.expressions.expression import Expression, Named

__all__ = ["AGGREGATE_FUNCTIONS", "Aggregate", "AggregateCall"]

AGGREGATE_FUNCTIONS = (
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "variance",
    "stddev",
    "first",
    "last",
    "count_distinct",
    "approx_count_distinct",
    "quantile",
    "approx_quantile",
    "user",
)


class AggregateCall(Data, frozen=True):
    """One aggregate of a window: its output name, function and argument (none: ``count`` of rows).

    Attributes:
        parameter: what the function asks for besides its argument: the fraction of a quantile, the name
            under which a ``user`` aggregate is registered.
        version: of a ``user`` aggregate.
        more: further arguments of a ``user`` aggregate.
    """

    name: str
    function: str
    arg: Expression | None = None
    parameter: int | float | str | None = None
    version: int | None = None
    more: tuple[Expression, ...] | None = None


class Aggregate(BoxData, frozen=True, tag_field="kind", tag="aggregate", kw_only=True):
    """Groups and aggregates per tumbling or sliding window, aligned to the epoch.

    Attributes:
        size_us, advance_us: the window; tumbling where equal; 0 < advance <= size.
        keys: the grouping columns in order; may be empty (one group a window).
        aggregates: at least one.
        stage: ``whole``; or, where a deployment splits the box, ``partial`` (sends accumulators of
            each closed window) and ``combine`` (merges those of all its inputs; rows leave by key,
            null first). A ``combine`` box keeps keys and aggregates of the box it came from; its
            inputs have the schema that ``partial`` gives.
        early_us: at multiples of this the box sends tentative rows of the groups that changed; None: never.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    size_us: int
    advance_us: int
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]
    stage: str = "whole"
    early_us: int | None = None
