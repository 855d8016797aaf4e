"""Boxes of users' functions as they are written: ``apply``, ``process``, ``md.process``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Apply, Input, Process
from medusa.query.expressions.expression import Named
from medusa.query.named_columns import named_column
from medusa.query.types import schema_from
from medusa.query.user_registry import reference

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["apply_box", "is_async", "process_box", "remember"]

IN_FLIGHT = 64


def is_async(function: object) -> bool:
    """Whether calling it gives an awaitable."""
    from inspect import iscoroutinefunction

    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def apply_box(
    arc: Input,
    columns: Mapping[str, str],
    function: object,
    schema: Any,
    in_flight: int | None,
    by: Any,
    *,
    label: str,
) -> Apply:
    """The box of ``stream.apply(...)``, without an id.

    Args:
        columns: of the input, name -> type.

    Raises:
        QueryError: no function, no schema, or ``in_flight`` for an ordinary function.
    """
    if not callable(function):
        raise QueryError(
            f"{label}: expected a function, got {type(function).__name__}", code="query.function"
        )
    calls: int | None = None
    if is_async(function):
        calls = IN_FLIGHT if in_flight is None else in_flight
        if isinstance(calls, bool) or not isinstance(calls, int):
            raise QueryError(f"{label}: in_flight is a number of calls, got {calls!r}", code="query.limit")
    elif in_flight is not None:
        raise QueryError(
            f"{label}: in_flight is for async functions",
            hint="write it with async def",
            code="query.function",
        )
    return Apply(
        id="",
        inputs=(arc,),
        function=reference(function),
        schema=schema_from(schema, what=label),
        in_flight=calls,
        keys=() if by is None else _keys(by, columns, label),
    )


def process_box(
    arcs: tuple[Input, ...],
    columns: Mapping[str, str],
    names: tuple[str, ...] | None,
    operator: object,
    schema: Any,
    by: Any,
    state: Any,
    *,
    label: str,
) -> Process:
    """The box of ``stream.process(...)``, without an id.

    Args:
        columns: of the first input, name -> type.

    Raises:
        QueryError: no class with ``rows``, no schema, or no key.
    """
    if not isinstance(operator, type) or not callable(getattr(operator, "rows", None)):
        raise QueryError(
            f"{label}: expected a class with a method rows(key, batch, state, now), got {operator!r:.80}",
            hint="the class itself, not an object of it" if not isinstance(operator, type) else "",
            code="query.function",
        )
    return Process(
        id="",
        inputs=arcs,
        function=reference(operator),
        schema=schema_from(schema, what=label),
        keys=_keys(by, columns, label),
        state=schema_from(state, what=f"{label}: state") if state else (),
        names=names,
    )


def _keys(by: Any, columns: Mapping[str, str], label: str) -> tuple[Named, ...]:
    keys = list(by) if isinstance(by, list | tuple) else [by]
    return tuple(named_column(key, columns, box=f"{label}: by") for key in keys)


def remember(stream: Stream, made: object) -> Stream:
    """Keep a function that isn't registered beside the query: nothing else knows what it is."""
    if not reference(made).name:
        stream.query._functions[stream.arc.box] = made
    return stream
