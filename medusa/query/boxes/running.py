"""Aggregates that every row sees as they stand."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.boxes.windows import AggregateCall
from medusa.query.expressions.expression import Named

__all__ = ["LAG", "Running"]

LAG = "lag"
"""The function of a call that gives an earlier row's value; its parameter: how many rows earlier."""


class Running(BoxData, frozen=True, tag_field="kind", tag="running", kw_only=True):
    """Each row with the aggregates of its group so far.

    Attributes:
        keys: the grouping columns in order; may be empty. They name groups and aren't added to the row.
        aggregates: at least one; ``lag`` besides those of windows.
        expire_us: a row more than this after its group's last row begins anew; None: never.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]
    expire_us: int | None = None

    @property
    def time_dependent(self) -> bool:  # type: ignore[override]
        """Only with ``expire_us``: else late rows pass like all others."""
        return self.expire_us is not None
