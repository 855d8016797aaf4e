"""Methods of streams for joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medusa.query.expressions.column import Expr
from medusa.query.expressions.join_keys import asof_join_box, join_box
from medusa.query.stream.base import StreamBase
from medusa.units import Duration

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

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
        """Pairs of rows of equal keys, or rows with or without a partner.

        Results leave by (release, left position, right position, a missing one last), once the
        boundaries of both sides have passed the release: of a pair its later time; of a row without a
        pair its time + ``within``. The output boundary is the minimum of the inputs, less ``within``
        where ``how`` isn't ``inner``.

        Args:
            other: the right side.
            on: a column, several, or ``{"left": "right"}``; with ``within`` rows at most that far
                apart in time. ``"window"`` or ``["window", "k"]``: results of equal windows.
            within: required, but not with ``"window"``.
            where: a condition on pairs, which names columns ``left.x`` and ``right.x``. A row has a
                pair when one satisfies ``on``, ``within`` and ``where``.
            how: ``inner``: pairs. ``left``, ``right``, ``full``: also rows of that side, or of both,
                without a pair, with nulls on the other side. ``semi``, ``anti``: left rows with, or
                without, a pair; left columns only.
            suffixes: added to names that both sides have, besides the keys.
        """
        label = f"join {name!r}" if name is not None else f"join after {self.name!r}"
        arcs = (self._arc, self._query._owned(other, label))
        box = join_box(arcs, (self.schema, other.schema), on, within, where, how, suffixes, label=label)
        return self._add(box, name, other)

    def asof_join(
        self,
        other: Stream,
        on: Any,
        within: Duration | None = None,
        where: str | Expr | None = None,
        how: str = "left",
        suffixes: tuple[str, str] = ("", "_right"),
        *,
        name: str | None = None,
    ) -> Stream:
        """Every row with the latest row of ``other`` that has its key and isn't after it.

        Among rows of equal time the last by position is taken. Results leave by (left time, left
        position), once the boundaries of both sides have passed that time; the time of a result is
        that of the left row. Of each key the latest right row is kept for ever, or for ``within``.

        Args:
            other: the right side.
            on: a column, several, or ``{"left": "right"}``.
            within: how much older the right row may be; None: any age.
            where: a condition on pairs, applied before choosing; it needs ``within`` if it reads both
                sides.
            how: ``left``: a row without a partner comes with nulls; ``inner``: it is left out.
            suffixes: added to names that both sides have, besides the keys.
        """
        label = f"asof_join {name!r}" if name is not None else f"asof_join after {self.name!r}"
        arcs = (self._arc, self._query._owned(other, label))
        schemas = (self.schema, other.schema)
        box = asof_join_box(arcs, schemas, on, within, where, how, suffixes, label=label)
        return self._add(box, name, other)
