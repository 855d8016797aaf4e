"""Aggregates that every row sees as they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import NO_KEY, ROW_BYTES, BoxData, Sharing, SplitPlan
from medusa.query.boxes.calls import LAG, result_fields
from medusa.query.boxes.checks import key_type, need_time
from medusa.query.boxes.text import by_text, calls_text
from medusa.query.expressions.expression import Named
from medusa.query.shape import StreamShape, refuse_twice
from medusa.query.structs import AggregateCall, Input
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["Running"]


class Running(BoxData, frozen=True, tag_field="kind", tag="running", kw_only=True):
    """Each row with the aggregates of its group so far.

    Attributes:
        keys: the grouping columns in order; may be empty. They name groups and aren't added to the row.
        aggregates: at least one; ``lag`` besides those of windows.
        expire_us: a row more than this after its group's last row begins anew; None: never.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    sharing: ClassVar[Sharing] = "keys"

    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]
    expire_us: int | None = None

    @property
    def time_dependent(self) -> bool:  # type: ignore[override]
        """Only with ``expire_us``: else late rows pass like all others."""
        return self.expire_us is not None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if self.expire_us is not None:
            need_time(row, label, "expire")
            if not 0 < self.expire_us <= DURATION_MAX_US:
                raise QueryError(f"{label}: expire is out of range", code="query.duration")
        for key in self.keys:
            key_type(key, row, label)
        columns = [*row.schema, *result_fields(self.aggregates, row, label, lags=True)]
        refuse_twice(columns, label=label, hint="choose another name for the running aggregate")
        return StreamShape(label, tuple(columns), timed=row.timed, window=row.window, no_window=row.no_window)

    def describe(self) -> str:
        expire = "" if self.expire_us is None else f", expires after {duration_text(self.expire_us)}"
        return f"{calls_text(self.aggregates)}{by_text(self.keys)}{expire}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if not self.keys:
            return NO_KEY
        return SplitPlan(keys=[self.keys], part=self, positions=(name(""),), arrival=True)

    @property
    def kept_bytes(self) -> int:
        lags = [each.parameter for each in self.aggregates if each.function == LAG]
        return sum(lag for lag in lags if isinstance(lag, int)) * ROW_BYTES
