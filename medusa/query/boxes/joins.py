"""Joins of two streams."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.expressions.expression import Expression, Named

__all__ = ["ASOF_HOWS", "JOIN_HOWS", "AsofJoin", "Join", "WindowJoin"]

JOIN_HOWS = ("inner", "left", "right", "full", "semi", "anti")
ASOF_HOWS = ("left", "inner")


class Join(BoxData, frozen=True, tag_field="kind", tag="join", kw_only=True):
    """Equi-join of rows at most ``within_us`` apart in time (either way, inclusive).

    ``left_keys[i]`` is matched with ``right_keys[i]``; the output has the key columns once, under
    the left names, then the other left columns, then the other right columns, with
    ``suffixes`` added to names that both sides have. ``semi`` and ``anti`` give the left columns
    as they are.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...]
    right_keys: tuple[Named, ...]
    within_us: int
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")


class WindowJoin(BoxData, frozen=True, tag_field="kind", tag="window_join", kw_only=True):
    """Join of rows of equal ``window_start`` and ``window_end`` (and equal keys).

    Output: window_start, window_end, the keys, the other left columns, the other right columns;
    ``semi`` and ``anti``: the left columns as they are.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"

    id: str
    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...] = ()
    right_keys: tuple[Named, ...] = ()
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")


class AsofJoin(BoxData, frozen=True, tag_field="kind", tag="asof_join", kw_only=True):
    """Every left row with the latest right row of its key that is not after it.

    Columns as of a ``Join``. ``within_us``: how old that right row may be; None: any age.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...]
    right_keys: tuple[Named, ...]
    within_us: int | None = None
    where: Expression | None = None
    how: str = "left"
    suffixes: tuple[str, str] = ("", "_right")
