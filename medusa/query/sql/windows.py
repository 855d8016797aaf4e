"""Windows as the text of a statement asks for them; what it may say stands with the kinds of boxes
(``window_functions``)."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from medusa.query.boxes.window_function import WindowSpec
from medusa.query.expressions.expression import Call, Column, Literal
from medusa.query.sql.expressions import SqlReader, function_name
from medusa.query.sql.scope import Scope
from medusa.query.sql.text import SqlText
from medusa.query.sql.window_functions import TABLE_FUNCTIONS, WINDOW_FUNCTIONS
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION
from medusa.units import duration_us

__all__ = ["read_table_function", "read_window"]

_ELSEWHERE = {
    "cumulate": "HOP",
    "hopping": "HOP",
    "sliding": "HOP",
    "tumbling": "TUMBLE",
    "hop_window": "HOP",
}


def read_window(node: Any, scope: Scope, text: SqlText) -> WindowSpec:
    """The window that a group function asks for.

    Raises:
        QueryError: wrong arguments, or a column that isn't the time of the rows.
    """
    name, args = function_name(node), list(node.expressions)
    if WINDOW_FUNCTIONS[name].time_last:
        args = args[-1:] + args[:-1]
    _check_time(args[0] if args else None, node, scope, text)
    return _spec(name, args, node, scope, text)


def _spec(name: str, args: list[Any], node: Any, scope: Scope, text: SqlText) -> WindowSpec:
    function = WINDOW_FUNCTIONS[name]
    if len(args) != 1 + function.lengths:
        raise text.error(node, f"{node.this} takes other arguments", hint=function.form, code="query.window")
    lengths = [_length(arg, node, scope, text) for arg in args[1:]]
    with text.at(node):
        return function.spec(lengths)


def _length(arg: Any, node: Any, scope: Scope, text: SqlText) -> int:
    with text.at(arg):
        if isinstance(arg, exp.Literal) and arg.is_string:
            return duration_us(arg.this, what=str(node.this), minimum_us=1)
        if isinstance(arg, exp.Interval):
            made = SqlReader(text, scope).read(arg)
            if isinstance(made, Literal) and made.type == DURATION and int(str(made.value)) > 0:
                return int(str(made.value))
    raise text.error(
        arg if text.span(arg) else node,
        f"{node.this}: expected an INTERVAL longer than 0",
        hint=WINDOW_FUNCTIONS[function_name(node)].form,
        code="query.window",
    )


def _check_time(arg: Any, node: Any, scope: Scope, text: SqlText) -> None:
    """Windows go by the time of the rows, and by no other column."""
    name = function_name(node)
    if not isinstance(arg, exp.Column):
        raise text.error(
            node,
            f"{node.this}: expected the time column",
            hint=WINDOW_FUNCTIONS[name].form,
            code="query.window",
        )
    made = scope.resolve(arg, text)
    if isinstance(made, Call):
        if scope.stream.timed:
            return
    elif isinstance(made, Column):
        found = scope.times.get(made.name)
        if found is not None and found.is_time:
            return
    if not scope.stream.timed:
        raise text.error(
            arg, "the rows have no time here", hint='md.source(schema, time="ts")', code="query.untimed"
        )
    known = [column for column, time in scope.times.items() if time.is_time]
    raise text.error(
        arg,
        f"{arg.name!r} is not the time of the rows here",
        hint=f"that is {' and '.join([*known, 'tuple_time'])}",
        code="query.window",
    )


def read_table_function(node: Any, scope_of: Any, text: SqlText) -> Scope:
    """``TUMBLE(cars, ts, ...)`` in FROM, also as ``TABLE(TUMBLE(TABLE cars, DESCRIPTOR(ts), ...))``.

    Args:
        scope_of: gives the scope of a table by its node and name.

    Raises:
        QueryError: another function, or arguments that it doesn't take.
    """
    call = node
    if function_name(call) == "table" and len(call.expressions) == 1:
        call = call.expressions[0]
    name, args = function_name(call), list(getattr(call, "expressions", ()))
    if name not in TABLE_FUNCTIONS:
        hint = _ELSEWHERE.get(name)
        near = f"use {hint}" if hint else did_you_mean(name, [n.upper() for n in TABLE_FUNCTIONS])
        raise text.error(
            node,
            f"there is no table function {str(getattr(call, 'this', name))[:60]!r}",
            hint=near,
            code="query.table",
        )
    lengths = ", ".join(["INTERVAL ..."] * WINDOW_FUNCTIONS[name].lengths)
    form = f"FROM TABLE({call.this}(TABLE cars, DESCRIPTOR(ts), {lengths}))"
    if len(args) < 2 or not isinstance(args[0], exp.Column):
        raise text.error(node, f"{call.this} takes other arguments", hint=form, code="query.window")
    scope: Scope = scope_of(args[0])
    column = args[1]
    if function_name(column) == "descriptor" and len(column.expressions) == 1:
        column = column.expressions[0]
    _check_time(column, call, scope, text)
    return Scope(
        scope.stream, scope.relations, scope.times, _spec(name, [column, *args[2:]], call, scope, text)
    )
