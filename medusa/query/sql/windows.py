"""TUMBLE, HOP, SESSION and time_bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from medusa.query.expressions.expression import Call, Column, Literal
from medusa.query.sql.expressions import WINDOW_FUNCTIONS, SqlReader, function_name
from medusa.query.sql.scope import Scope
from medusa.query.sql.text import SqlText
from medusa.query.suggest import did_you_mean
from medusa.query.types import DURATION
from medusa.units import duration_us

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["WindowSpec", "read_table_function", "read_window"]

_FORMS = {
    "tumble": "TUMBLE(ts, INTERVAL '1' MINUTE)",
    "hop": "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): how often one starts, then how long it is",
    "session": "SESSION(ts, INTERVAL '30' SECOND)",
    "time_bucket": "time_bucket(INTERVAL '1' MINUTE, ts)",
}
_ELSEWHERE = {
    "cumulate": "HOP",
    "hopping": "HOP",
    "sliding": "HOP",
    "tumbling": "TUMBLE",
    "hop_window": "HOP",
}
BUCKET_ORIGIN_US = 10_959 * 86_400_000_000
"""2000-01-03, where DuckDB's and Timescale's time_bucket begins to count."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as the text asks for it; lengths in microseconds, ``advance`` None for sessions."""

    kind: str
    size_us: int
    advance_us: int | None

    def of(self, stream: Stream) -> Any:
        """The stream cut into these windows."""
        if self.kind == "session":
            return stream.session(self.size_us)
        if self.advance_us == self.size_us:
            return stream.window(self.size_us)
        return stream.window(self.size_us, advance=self.advance_us)


def read_window(node: Any, scope: Scope, text: SqlText) -> WindowSpec:
    """The window that a group function asks for.

    Raises:
        QueryError: wrong arguments, or a column that isn't the time of the rows.
    """
    name, args = function_name(node), list(node.expressions)
    if name == "time_bucket" and len(args) == 2:
        args.reverse()
    _check_time(args[0] if args else None, node, scope, text)
    return _spec(name, args, node, scope, text)


def _spec(name: str, args: list[Any], node: Any, scope: Scope, text: SqlText) -> WindowSpec:
    if len(args) != (3 if name == "hop" else 2):
        raise text.error(node, f"{node.this} takes other arguments", hint=_FORMS[name], code="query.window")
    lengths = [_length(arg, node, scope, text) for arg in args[1:]]
    if name == "hop":
        advance_us, size_us = lengths
        if advance_us > size_us:
            raise text.error(
                node,
                "HOP: windows would start less often than they are long, so some rows would be in none",
                hint=_FORMS["hop"],
                code="query.window",
            )
        return WindowSpec("window", size_us, advance_us)
    if name == "session":
        return WindowSpec("session", lengths[0], None)
    if name == "time_bucket" and BUCKET_ORIGIN_US % lengths[0]:
        raise text.error(
            node,
            "time_bucket counts from Monday, 2000-01-03, and windows from the epoch: this width differs",
            hint="TUMBLE(ts, ...) counts from 1970-01-01",
            code="query.window",
        )
    return WindowSpec("window", lengths[0], lengths[0])


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
        hint=_FORMS[function_name(node)],
        code="query.window",
    )


def _check_time(arg: Any, node: Any, scope: Scope, text: SqlText) -> None:
    """Windows go by the time of the rows, and by no other column."""
    name = function_name(node)
    if not isinstance(arg, exp.Column):
        raise text.error(
            node, f"{node.this}: expected the time column", hint=_FORMS[name], code="query.window"
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
    if name not in WINDOW_FUNCTIONS[:3]:
        hint = _ELSEWHERE.get(name)
        near = f"use {hint}" if hint else did_you_mean(name, [n.upper() for n in WINDOW_FUNCTIONS[:3]])
        raise text.error(
            node,
            f"there is no table function {str(getattr(call, 'this', name))[:60]!r}",
            hint=near,
            code="query.table",
        )
    lengths = "INTERVAL ..., INTERVAL ..." if name == "hop" else "INTERVAL ..."
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
