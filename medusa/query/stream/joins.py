"""Joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medusa.query.expressions.column import Expr
from medusa.query.expressions.join_keys import asof_join_box, join_box
from medusa.query.stream.output import Output
from medusa.units import Duration

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["asof_join", "join"]


def join(
    output: Output,
    other: Stream,
    on: Any,
    within: Duration | None,
    where: str | Expr | None,
    how: str,
    suffixes: tuple[str, str],
    *,
    name: str | None,
) -> Stream:
    """As ``Stream.join``."""
    label = output.labelled("join", name)
    arcs = (output.arc, output.owned(other, label))
    box = join_box(arcs, (output.schema, other.schema), on, within, where, how, suffixes, label=label)
    return output.add(box, name)


def asof_join(
    output: Output,
    other: Stream,
    on: Any,
    within: Duration | None,
    where: str | Expr | None,
    how: str,
    suffixes: tuple[str, str],
    *,
    name: str | None,
) -> Stream:
    """As ``Stream.asof_join``."""
    label = output.labelled("asof_join", name)
    arcs = (output.arc, output.owned(other, label))
    schemas = (output.schema, other.schema)
    box = asof_join_box(arcs, schemas, on, within, where, how, suffixes, label=label)
    return output.add(box, name)
