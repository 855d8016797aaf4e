"""Methods of streams for joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medusa.query.column import Expr
from medusa.query.joins import join_box
from medusa.query.stream_base import StreamBase
from medusa.units import Duration

if TYPE_CHECKING:
    from medusa.query.stream import Stream

__all__ = ["JoinMethods"]


class JoinMethods(StreamBase):
    """Joins."""

    __slots__ = ()

    def join(
        self,
        other: Stream,
        on: Any,
        within: Duration | None = None,
        where: str | Expr | None = None,
        how: str = "inner",
        suffixes: tuple[str, str] = ("", "_right"),
        *,
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows of equal keys.

        Args:
            other: the right side.
            on: a column, several, or ``{"left": "right"}``; with ``within`` rows at most that far
                apart in time. ``"window"`` or ``["window", "k"]``: results of equal windows.
            within: required, but not with ``"window"``.
            where: a condition on pairs, which names columns ``left.x`` and ``right.x``.
            suffixes: added to names that both sides have, besides the keys.
        """
        label = f"join {name!r}" if name is not None else f"join after {self.name!r}"
        arcs = (self._arc, self._query._owned(other, label))
        box = join_box(arcs, (self.schema, other.schema), on, within, where, how, suffixes, label=label)
        return self._add(box, name, other)
