"""Boxes that look at one row at a time, and the streams ``.late`` and ``.ahead`` of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Filter, Select, Union, WithColumns
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.graph import ports_of
from medusa.query.named_columns import named_columns
from medusa.query.stream.output import Output

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["ahead", "filter", "late", "select", "union", "with_columns"]


def filter(output: Output, predicate: str | Expr, *, name: str | None) -> Stream:
    """As ``Stream.filter``."""
    label = output.labelled("filter", name)
    box = Filter(id="", inputs=(output.arc,), predicate=as_tree(predicate, box=label))
    return output.add(box, name)


def select(
    output: Output,
    columns: Sequence[str | Expr | Mapping[str, Any]],
    named: Mapping[str, str | Expr],
    *,
    name: str | None,
) -> Stream:
    """As ``Stream.select``."""
    label = output.labelled("select", name)
    made = named_columns(columns, named, output.schema, box=label)
    return output.add(Select(id="", inputs=(output.arc,), columns=made), name)


def with_columns(
    output: Output,
    columns: Sequence[str | Expr | Mapping[str, Any]],
    named: Mapping[str, str | Expr],
    *,
    name: str | None,
) -> Stream:
    """As ``Stream.with_columns``."""
    label = output.labelled("with_columns", name)
    made = named_columns(columns, named, output.schema, box=label)
    return output.add(WithColumns(id="", inputs=(output.arc,), columns=made), name)


def union(output: Output, others: Sequence[Stream], *, name: str | None) -> Stream:
    """As ``Stream.union``."""
    label = output.labelled("union", name)
    inputs = (output.arc, *(output.owned(other, label) for other in others))
    return output.add(Union(id="", inputs=inputs), name)


def late(output: Output) -> Stream:
    """As ``Stream.late``."""
    return _port(output, "late", "time=", "lateness is judged where rows enter")


def ahead(output: Output) -> Stream:
    """As ``Stream.ahead``."""
    return _port(output, "ahead", "ahead=", 'how far may a clock run ahead: source(..., ahead="1h")')


def _port(output: Output, port: str, needs: str, hint: str) -> Stream:
    box = output.box
    if output.arc.port or port not in ports_of(box):
        raise QueryError(
            f"{output.label}: only a source with {needs} has .{port}", hint=hint, code="query.port"
        )
    return output.port(port)
