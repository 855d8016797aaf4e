"""A stream as it is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from medusa.errors import QueryError
from medusa.query.checker import infer
from medusa.query.expressions.expression import Expression, Named
from medusa.query.structs import Field, Schema
from medusa.query.types import check_column_name
from medusa.units import duration_text

__all__ = [
    "WINDOW_COLUMNS",
    "StreamShape",
    "WindowKind",
    "column_type",
    "expression_type",
    "refuse_twice",
    "types_of",
]

WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class WindowKind:
    """Which windows the rows of a stream are results of."""

    size_us: int
    advance_us: int

    def __str__(self) -> str:
        size = duration_text(self.size_us)
        if self.advance_us == self.size_us:
            return f"tumbling windows of {size}"
        return f"windows of {size} every {duration_text(self.advance_us)}"


@dataclass(frozen=True, slots=True)
class StreamShape:
    """A stream as it is known before anything runs.

    Attributes:
        box: label of the box it comes from, for messages.
        schema: its columns.
        timed: rows have a time, and boundaries come.
        window: the windows that its rows are results of, still with their two columns; else None.
        no_window: where ``window`` is None although a window is above: what lost it.
    """

    box: str
    schema: Schema
    timed: bool
    window: WindowKind | None = None
    no_window: str = ""
    _types: list[Mapping[str, str]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def types(self) -> Mapping[str, str]:
        """Column name -> type, in order; made once, since columns are looked at one by one."""
        if not self._types:
            self._types.append(types_of(self.schema))
        return self._types[0]


def types_of(schema: Schema) -> dict[str, str]:
    """Column name -> type, in order."""
    return {field.name: field.type for field in schema}


def expression_type(expression: Expression, row: StreamShape, *, box: str) -> str:
    """The type of an expression over the rows of a stream."""
    return infer(expression, row.types, box=box, timed=row.timed)


def column_type(named: Named, row: StreamShape, *, label: str, what: str = "column") -> str:
    """The type of an output column; its name is checked too."""
    check_column_name(named.name, what=label)
    return expression_type(named.expression, row, box=f"{label}: {what} {named.name!r}")


def refuse_twice(columns: Iterable[Field | Named | str], *, label: str, hint: str = "") -> None:
    """Raises QueryError where two output columns have one name."""
    seen: set[str] = set()
    for column in columns:
        name = column if isinstance(column, str) else column.name
        if name in seen:
            raise QueryError(
                f"{label}: column {name!r} stands twice in the output", hint=hint, code="query.name"
            )
        seen.add(name)
