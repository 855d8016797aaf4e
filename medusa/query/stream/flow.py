"""Boxes that send each row one way or another, and the streams of what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import BoxData, Distinct, Input, RandomDrop, Route, SemanticDrop, WindowDrop
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.expressions.expression import Column, Named
from medusa.query.graph import taps_of
from medusa.query.named_columns import named_columns
from medusa.query.stream.output import Output
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["dead", "distinct", "drop", "dropped", "keys_of", "route"]

By = str | Expr | Mapping[str, Any] | Sequence[str | Expr | Mapping[str, Any]] | None
"""Keys: a column or several, expressions among them; none."""


def keys_of(by: By, schema: Mapping[str, str], *, box: str) -> tuple[Named, ...]:
    """The keys that ``by=`` names."""
    if by is None:
        return ()
    several = by if isinstance(by, list | tuple) else (by,)
    return named_columns(several, {}, schema, box=box)


def route(
    output: Output, predicates: Sequence[str | Expr], *, otherwise: bool, name: str | None
) -> tuple[Stream, ...]:
    """As ``Stream.route``."""
    label = output.labelled("route", name)
    made = tuple(as_tree(each, box=f"{label}: predicate {i}") for i, each in enumerate(predicates, 1))
    box = Route(id="", inputs=(output.arc,), predicates=made, otherwise=bool(otherwise))
    first = output.add(box, name)
    return (first, *(output.stream(Input(first.arc.box, port)) for port in box.ports[1:]))


def drop(
    output: Output,
    rate: float | None,
    where: str | Expr | None,
    window: Duration | None,
    by: By,
    seed: int,
    *,
    name: str | None,
) -> Stream:
    """As ``Stream.drop``."""
    label = output.labelled("drop", name)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise QueryError(f"{label}: seed is a whole number, got {seed!r:.80}", code="query.drop")
    if where is not None:
        if rate is not None or window is not None or by is not None:
            raise QueryError(f"{label}: where= stands alone", code="query.drop")
        predicate = as_tree(where, box=f"{label}: where")
        return output.add(SemanticDrop(id="", inputs=(output.arc,), predicate=predicate), name)
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise QueryError(
            f"{label}: expected rate= or where=, got rate={rate!r:.80}",
            hint='drop(rate=0.1), drop(where="speed = 0"), drop(rate=0.1, window="10s")',
            code="query.drop",
        )
    if window is None:
        if by is not None:
            raise QueryError(f"{label}: by= goes with window=", code="query.drop")
        return output.add(RandomDrop(id="", inputs=(output.arc,), rate=float(rate), seed=seed), name)
    box = WindowDrop(
        id="",
        inputs=(output.arc,),
        rate=float(rate),
        seed=seed,
        window_us=duration_us(window, what=f"{label}: window", minimum_us=1),
        keys=keys_of(by, output.schema, box=label),
    )
    return output.add(box, name)


def distinct(
    output: Output, columns: Sequence[str | Expr | Mapping[str, Any]], *, within: Duration, name: str | None
) -> Stream:
    """As ``Stream.distinct``."""
    label = output.labelled("distinct", name)
    keys = (
        named_columns(columns, {}, output.schema, box=label)
        if columns
        else tuple(Named(column, Column(column)) for column in output.schema)
    )
    within_us = duration_us(within, what=f"{label}: within", minimum_us=1)
    return output.add(Distinct(id="", inputs=(output.arc,), keys=keys, within_us=within_us), name)


def dropped(output: Output) -> Stream:
    """As ``Stream.dropped``."""
    box = _box_of_port(output, "dropped")
    if "dropped" not in box.ports:
        raise QueryError(
            f"{output.label}: only drop and wsort have .dropped",
            hint="filters have route(..., otherwise=True)",
            code="query.port",
        )
    return output.port("dropped")


def dead(output: Output) -> Stream:
    """As ``Stream.dead``."""
    box = _box_of_port(output, "dead")
    if "dead" not in taps_of(box):
        raise QueryError(
            f"{output.label}: has no .dead: it computes no expressions, so nothing can fail",
            hint="ask a filter, select, with_columns, route, window or join",
            code="query.port",
        )
    return output.port("dead")


def _box_of_port(output: Output, port: str) -> BoxData:
    if output.arc.port in ("late", "ahead", "dropped", "dead"):
        raise QueryError(
            f"{output.label}: has no .{port}", hint="ask the stream of the box itself", code="query.port"
        )
    return output.box
