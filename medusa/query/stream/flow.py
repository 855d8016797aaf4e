"""Methods of streams for boxes that send each row one way or another, and for what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import BoxData, Distinct, Input, RandomDrop, Route, SemanticDrop, WindowDrop
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.expressions.expression import Column, Named
from medusa.query.graph import taps_of
from medusa.query.named_columns import named_columns
from medusa.query.stream.base import StreamBase
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["FlowMethods", "keys_of"]

By = str | Expr | Mapping[str, Any] | Sequence[str | Expr | Mapping[str, Any]] | None
"""Keys: a column or several, expressions among them; none."""


def keys_of(by: By, schema: Mapping[str, str], *, box: str) -> tuple[Named, ...]:
    """The keys that ``by=`` names."""
    if by is None:
        return ()
    several = by if isinstance(by, list | tuple) else (by,)
    return named_columns(several, {}, schema, box=box)


class FlowMethods(StreamBase):
    """Route, drop, distinct; and the streams ``.dropped`` and ``.dead``."""

    __slots__ = ()

    def route(
        self, *predicates: str | Expr, otherwise: bool = False, name: str | None = None
    ) -> tuple[Stream, ...]:
        """Many ways: a row goes to the stream of the first predicate that is true for it.

        A row for which none is true (false and null are not) goes to ``otherwise``, or is left out.
        Every stream keeps the order of the rows and gets every boundary.

        Args:
            predicates: as of ``filter``, at least one.
            otherwise: add a last stream of the rows that satisfy none.

        Returns:
            One stream per predicate, in order; then that of the others, if asked for.
        """
        label = self._labelled("route", name)
        made = tuple(as_tree(each, box=f"{label}: predicate {i}") for i, each in enumerate(predicates, 1))
        box = Route(id="", inputs=(self._arc,), predicates=made, otherwise=bool(otherwise))
        first = self._add(box, name)
        id = first.arc.box
        return (first, *(self._query._stream(Input(id, port)) for port in box.ports[1:]))

    def drop(
        self,
        rate: float | None = None,
        where: str | Expr | None = None,
        window: Duration | None = None,
        by: By = None,
        seed: int = 0,
        *,
        name: str | None = None,
    ) -> Stream:
        """Leaves rows out, in one of three ways; ``.dropped`` of the result has them.

        ``drop(rate=0.1)``: each row by chance. ``drop(where="...")``: those for which it is true.
        ``drop(rate=0.1, window="10s")``: whole windows by chance (with ``by``: of each key by
        itself), so that aggregates over tumbling windows of that size below are a subset of the
        exact ones.

        Args:
            rate: the share left out, from 0 to 1.
            window: the size of the windows, aligned to the epoch.
            by: a column or several; with ``window`` only.
            seed: another one leaves out other rows. The same rows with the same seed give the same
                answer always.
        """
        label = self._labelled("drop", name)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise QueryError(f"{label}: seed is a whole number, got {seed!r:.80}", code="query.drop")
        if where is not None:
            if rate is not None or window is not None or by is not None:
                raise QueryError(f"{label}: where= stands alone", code="query.drop")
            predicate = as_tree(where, box=f"{label}: where")
            return self._add(SemanticDrop(id="", inputs=(self._arc,), predicate=predicate), name)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise QueryError(
                f"{label}: expected rate= or where=, got rate={rate!r:.80}",
                hint='drop(rate=0.1), drop(where="speed = 0"), drop(rate=0.1, window="10s")',
                code="query.drop",
            )
        if window is None:
            if by is not None:
                raise QueryError(f"{label}: by= goes with window=", code="query.drop")
            return self._add(RandomDrop(id="", inputs=(self._arc,), rate=float(rate), seed=seed), name)
        box = WindowDrop(
            id="",
            inputs=(self._arc,),
            rate=float(rate),
            seed=seed,
            window_us=duration_us(window, what=f"{label}: window", minimum_us=1),
            keys=keys_of(by, self.schema, box=label),
        )
        return self._add(box, name)

    def distinct(
        self, *columns: str | Expr | Mapping[str, Any], within: Duration, name: str | None = None
    ) -> Stream:
        """The first row of each key; and again the first one ``within`` or more after that.

        Rows are taken in order of time, once the boundary has passed them. A repeat that is left
        out doesn't make the period longer.

        Args:
            columns: the key; none: all columns.
            within: how long a key is remembered.
        """
        label = self._labelled("distinct", name)
        keys = (
            named_columns(columns, {}, self.schema, box=label)
            if columns
            else tuple(Named(column, Column(column)) for column in self.schema)
        )
        within_us = duration_us(within, what=f"{label}: within", minimum_us=1)
        return self._add(Distinct(id="", inputs=(self._arc,), keys=keys, within_us=within_us), name)

    @property
    def dropped(self) -> Stream:
        """The rows that a drop, or a sort with a timeout, left out; with their time.

        Raises:
            QueryError: this isn't the output of such a box.
        """
        box = self._box_of_port("dropped")
        if "dropped" not in box.ports:
            raise QueryError(
                f"{self.label}: only drop and wsort have .dropped",
                hint="filters have route(..., otherwise=True)",
                code="query.port",
            )
        return self._query._stream(Input(self._arc.box, "dropped"))

    @property
    def dead(self) -> Stream:
        """The rows on which an expression of this box failed: ``box``, ``error``, ``row`` (as JSON);
        without time.

        All of them, not only the first 100 that ``run.dead()`` keeps.

        Raises:
            QueryError: the box computes no expressions.
        """
        box = self._box_of_port("dead")
        if "dead" not in taps_of(box):
            raise QueryError(
                f"{self.label}: has no .dead: it computes no expressions, so nothing can fail",
                hint="ask a filter, select, with_columns, route, window or join",
                code="query.port",
            )
        return self._query._stream(Input(self._arc.box, "dead"))

    def _box_of_port(self, port: str) -> BoxData:
        if self._arc.port in ("late", "ahead", "dropped", "dead"):
            raise QueryError(
                f"{self.label}: has no .{port}", hint="ask the stream of the box itself", code="query.port"
            )
        return self._query._boxes[self._arc.box]
