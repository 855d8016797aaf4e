"""Columns as users write them: names, texts, expressions, with a name or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.errors import QueryError
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.expressions.expression import Column, Named

__all__ = ["named_column", "named_columns"]


def named_columns(
    columns: Sequence[Any], named: Mapping[str, Any], schema: Mapping[str, str], *, box: str
) -> tuple[Named, ...]:
    """Positional columns, then those given by name, in order.

    Raises:
        QueryError: one is no column or expression, or can't be read.
    """
    made: list[Named] = []
    for column in columns:
        if isinstance(column, Mapping):
            made += (_given(name, value, box) for name, value in column.items())
        else:
            made.append(named_column(column, schema, box=box))
    made += (_given(name, value, box) for name, value in named.items())
    return tuple(made)


def _given(name: object, value: object, box: str) -> Named:
    if not isinstance(name, str):
        raise QueryError(f"{box}: {name!r} can't be a column name", code="query.name")
    return Named(name, as_tree(value, box=f"{box}: column {name!r}"))


def named_column(column: object, schema: Mapping[str, str], *, box: str) -> Named:
    """A column by its name; an expression without a name is called as it was written.

    Raises:
        QueryError: it is neither, or can't be read.
    """
    if isinstance(column, str) and column in schema:
        return Named(column, Column(column))
    if not isinstance(column, str | Expr):
        raise QueryError(
            f"{box}: expected the name of a column, got {type(column).__name__}",
            hint='"speed", or mph="speed * 0.621"',
            code="query.expression",
        )
    tree = as_tree(column, box=box)
    if isinstance(tree, Column):
        return Named(tree.name, tree)
    if isinstance(column, str):
        return Named(" ".join(column.split()), tree)
    raise QueryError(f"{box}: {column!r} needs a name", hint="write name=expression", code="query.expression")
