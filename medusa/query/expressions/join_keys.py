"""Joins as users write them: what ``on=`` means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.errors import QueryError
from medusa.query.boxes import AsofJoin, Input, Join, WindowJoin
from medusa.query.expressions.column import Expr, as_tree
from medusa.query.expressions.expression import Named
from medusa.query.named_columns import named_column
from medusa.units import Duration, duration_us

__all__ = ["asof_join_box", "join_box"]

WINDOW = "window"


def join_box(
    arcs: tuple[Input, Input],
    schemas: tuple[Mapping[str, str], Mapping[str, str]],
    on: Any,
    within: Duration | None,
    where: str | Expr | None,
    how: str,
    suffixes: Sequence[str],
    *,
    label: str,
) -> Join | WindowJoin:
    """The box of ``left.join(right, on=..., within=...)``, without an id.

    Raises:
        QueryError: ``on``, ``within``, ``where`` or ``suffixes`` is none.
    """
    windows, left_keys, right_keys = _on(on, schemas, label)
    condition = None if where is None else as_tree(where, box=f"{label}: where")
    two = _suffixes(suffixes, label)
    _check_text(how, label)
    if windows:
        if within is not None:
            raise QueryError(
                f'{label}: on="window" takes no within', hint="equal windows are meant", code="query.join"
            )
        return WindowJoin(
            id="",
            inputs=arcs,
            left_keys=left_keys,
            right_keys=right_keys,
            where=condition,
            how=how,
            suffixes=two,
        )
    if within is None:
        raise QueryError(
            f"{label}: within is missing: how far apart in time the rows of a pair may be",
            hint='within="30s"; or on="window" for results of equal windows',
            code="query.join",
        )
    return Join(
        id="",
        inputs=arcs,
        left_keys=left_keys,
        right_keys=right_keys,
        within_us=duration_us(within, what=f"{label}: within"),
        where=condition,
        how=how,
        suffixes=two,
    )


def asof_join_box(
    arcs: tuple[Input, Input],
    schemas: tuple[Mapping[str, str], Mapping[str, str]],
    on: Any,
    within: Duration | None,
    where: str | Expr | None,
    how: str,
    suffixes: Sequence[str],
    *,
    label: str,
) -> AsofJoin:
    """The box of ``left.asof_join(right, on=...)``, without an id.

    Raises:
        QueryError: ``on``, ``within``, ``where`` or ``suffixes`` is none.
    """
    windows, left_keys, right_keys = _on(on, schemas, label)
    if windows:
        raise QueryError(
            f'{label}: on="window" is for join: an as-of join looks back in time',
            hint='on="seg"',
            code="query.join",
        )
    _check_text(how, label)
    return AsofJoin(
        id="",
        inputs=arcs,
        left_keys=left_keys,
        right_keys=right_keys,
        within_us=None if within is None else duration_us(within, what=f"{label}: within"),
        where=None if where is None else as_tree(where, box=f"{label}: where"),
        how=how,
        suffixes=_suffixes(suffixes, label),
    )


def _check_text(how: object, label: str) -> None:
    if not isinstance(how, str):
        raise QueryError(f"{label}: how is a text, got {type(how).__name__}", code="query.join")


def _on(
    on: Any, schemas: tuple[Mapping[str, str], Mapping[str, str]], label: str
) -> tuple[bool, tuple[Named, ...], tuple[Named, ...]]:
    """(equal windows?, left keys, right keys). In a mapping ``window`` is an ordinary column."""
    parts = list(on) if isinstance(on, list | tuple) else [on]
    windows = False
    pairs: list[tuple[Any, Any]] = []
    for part in parts:
        if isinstance(part, Mapping):
            pairs += part.items()
        elif isinstance(part, str) and part == WINDOW:
            windows = True
        elif isinstance(part, str | Expr):
            pairs.append((part, part))
        else:
            raise QueryError(
                f"{label}: on: expected names of columns, got {type(part).__name__}",
                hint='on="vid", on=["a", "b"], on={"left": "right"} or on="window"',
                code="query.join",
            )
    if not pairs and not windows:
        raise QueryError(f"{label}: on: needs at least one column", code="query.join")
    left = tuple(named_column(ours, schemas[0], box=f"{label}: left") for ours, _ in pairs)
    right = tuple(named_column(theirs, schemas[1], box=f"{label}: right") for _, theirs in pairs)
    return windows, left, right


def _suffixes(suffixes: Any, label: str) -> tuple[str, str]:
    if (
        isinstance(suffixes, list | tuple)
        and len(suffixes) == 2
        and all(isinstance(suffix, str) for suffix in suffixes)
    ):
        return suffixes[0], suffixes[1]
    raise QueryError(f"{label}: suffixes are two texts, for the left and the right side", code="query.join")
