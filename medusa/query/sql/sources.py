"""The sources of a statement: schemas, with or without what is to be known of their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from medusa.errors import QueryError
from medusa.query.shape import types_of
from medusa.query.sql.expressions import function_name
from medusa.query.sql.text import BOX, SqlText
from medusa.query.sql.window_functions import WINDOW_FUNCTIONS
from medusa.query.suggest import did_you_mean
from medusa.query.types import TIMESTAMP, is_integer, schema_from

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.query.stream.stream import Stream

__all__ = ["SourceSpec", "add_source", "source", "time_columns"]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What ``md.source`` gives: the arguments of ``Query.source``, waiting for a name.

    Without ``time`` among its options the text has to tell it, as of a schema alone.
    """

    schema: Any
    options: Mapping[str, Any] = field(default_factory=dict)


def source(schema: Any, time: str | None = "ts", **options: Any) -> SourceSpec:
    """A source of ``md.sql``: ``md.sql(text, cars=md.source(schema, time="ts", slack="2s"))``.

    Args:
        schema: a ``pyarrow.Schema``, a table that has one, or a mapping of names to types.
        time: the column that holds the time; None: rows without time.
        options: the others of ``Query.source``: ``unit=``, ``slack=`` ...

    Raises:
        QueryError: ``Query.source`` has no such option.
    """
    import inspect

    from medusa.query.builder import Query

    known = [name for name in inspect.signature(Query.source).parameters if name not in ("self", "name")]
    for name in options:
        if name not in known:
            raise QueryError(
                f"md.source: there is no option {name!r}", hint=did_you_mean(name, known), code="query.source"
            )
    return SourceSpec(schema, {"time": time, **options})


def time_columns(statements: list[Any]) -> list[str]:
    """Names of the columns that windows and bounds of joins take for the time, in order."""
    found: dict[str, None] = {}
    for statement in statements:
        for node in statement.walk():
            if function_name(node) in WINDOW_FUNCTIONS:
                columns = [part for part in node.expressions if isinstance(part, exp.Column)]
                columns += [
                    part.expressions[0]
                    for part in node.expressions
                    if function_name(part) == "descriptor" and len(part.expressions) == 1
                ]
            elif isinstance(node, exp.Join) and node.args.get("on") is not None:
                compared = node.args["on"].find_all(exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
                columns = [column for each in compared for column in each.find_all(exp.Column)]
            else:
                continue
            found |= dict.fromkeys(column.name for column in columns)
    return list(found)


def add_source(query: Query, name: str, given: Any, named: list[str], text: SqlText) -> Stream:
    """Define a source as ``md.sql`` was given it.

    Args:
        given: an ``md.source(...)``, or a schema alone.
        named: columns that the text takes for a time.

    Raises:
        QueryError: no schema, or a schema alone whose time can't be told.
    """
    spec = given if isinstance(given, SourceSpec) else SourceSpec(given)
    if "time" in spec.options:
        return query.source(name, spec.schema, **spec.options)
    fields = schema_from(spec.schema, what=f"source {name!r}")
    types = types_of(fields)
    wanted = is_integer if spec.options.get("unit") is not None else TIMESTAMP.__eq__
    candidates = [column for column in named if column in types and wanted(types[column])]
    if not candidates and "ts" in types and wanted(types["ts"]):
        candidates = ["ts"]
    if len(candidates) > 1:
        raise QueryError(
            f"{BOX}: source {name!r}: {' and '.join(candidates)} both stand where the time of the rows does",
            hint=f"{name}=md.source(schema, time={candidates[0]!r})",
            code="query.source",
        )
    return query.source(name, spec.schema, time=candidates[0] if candidates else None, **spec.options)
