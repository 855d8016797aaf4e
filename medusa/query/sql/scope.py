"""What the names of a query mean: tables with their aliases, and columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from medusa.query.boxes import Source
from medusa.query.boxes.window_function import WindowSpec
from medusa.query.expressions.expression import Call, Column, Expression
from medusa.query.shape import WINDOW_COLUMNS
from medusa.query.sql.text import SqlText
from medusa.query.stream.stream import Stream
from medusa.query.suggest import did_you_mean
from medusa.units import TIME_UNITS_US

__all__ = ["Relation", "Scope", "TimeColumn", "times_of_source"]


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column that tells the row's time: ``time = (column - shift) * unit``, up to ``spread`` later.

    Attributes:
        unit_us: microseconds that one step of the column is; 0: nanoseconds.
        shift_us: what to take off to get the time (``window_end`` is the time plus 1 us).
        is_number: an integer column, whose distances are plain numbers.
        spread_us: how much later the time may be: of a pair it is the later of its two.
    """

    unit_us: int = 1
    shift_us: int = 0
    is_number: bool = False
    spread_us: int = 0

    @property
    def is_time(self) -> bool:
        """Whether it is the time itself."""
        return self.shift_us == 0 and self.spread_us == 0


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of FROM: its alias, and under which names its columns stand in the stream."""

    alias: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scope:
    """A stream and the tables that went into it.

    Attributes:
        times: names in the stream of columns that tell the time of the row.
        window: the window that a table function such as TUMBLE(...) asked for.
        star: the columns that * means; None: all of the stream.
    """

    stream: Stream
    relations: tuple[Relation, ...]
    times: Mapping[str, TimeColumn] = field(default_factory=dict)
    window: WindowSpec | None = None
    star: tuple[str, ...] | None = None

    def named(self, alias: str) -> Scope:
        """As one table of that name."""
        columns = {name: name for name in self.stream.schema}
        return replace(self, relations=(Relation(alias, columns),))

    def resolve(self, node: Any, text: SqlText) -> Expression:
        """The column, or the time, that a name means.

        Raises:
            QueryError: there is none, or more than one.
        """
        if not isinstance(node.this, exp.Identifier) or node.args.get("db"):
            raise text.error(node, "a column is named x or table.x", code="query.column")
        name, table = node.this.this, node.args.get("table")
        relations = self.relations if table is None else (self.relation(table, text),)
        found = {relation.columns[name] for relation in relations if name in relation.columns}
        if len(found) == 1:
            return Column(found.pop())
        if found:
            owners = [relation.alias for relation in relations if name in relation.columns]
            raise text.error(
                node,
                f"column {name!r} is in {' and '.join(owners)}",
                hint=f"say which: {owners[0]}.{name}",
                code="query.column",
            )
        if name == "tuple_time" and not node.this.args.get("quoted"):
            return Call("tuple_time")
        known = [column for relation in relations for column in relation.columns]
        hint = did_you_mean(name, known)
        if name in WINDOW_COLUMNS and not hint.startswith("did"):
            hint = "window_start and window_end are columns of GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
        where = f" in {relations[0].alias}" if len(relations) == 1 else ""
        raise text.error(node, f"there is no column {name[:100]!r}{where}", hint=hint, code="query.column")

    def relation(self, table: Any, text: SqlText) -> Relation:
        """The table of an alias."""
        for relation in self.relations:
            if relation.alias == table.this:
                return relation
        raise text.error(
            table,
            f"there is no table {table.this[:100]!r} in this FROM",
            hint=did_you_mean(table.this, [relation.alias for relation in self.relations]),
            code="query.table",
        )


def times_of_source(box: Source) -> dict[str, TimeColumn]:
    """The time column of a source."""
    if box.time is None:
        return {}
    if box.unit is None:
        return {box.time: TimeColumn()}
    return {box.time: TimeColumn(TIME_UNITS_US.get(box.unit, 0), 0, True)}
