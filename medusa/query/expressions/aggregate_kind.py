"""What is asked of an aggregate: what it takes, what it gives, what its state is, its names elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

__all__ = ["AggregateKind", "Parts"]

Parts: TypeAlias = tuple[tuple[str, str], ...]
"""Columns of a state: the end of the name, and the type."""


@dataclass(frozen=True, slots=True)
class AggregateKind:
    """An aggregate, but for how native code computes it (``native/aggregates/kinds.h``).

    Attributes:
        takes: its arguments: ``any`` column, ``summable`` (numbers and bools) or ``numbers``.
        result: the type of its result, given that of its argument.
        state: the columns of its state, given the type of its argument.
        synonyms: other names of it in texts and in SQL.
        sql: names of it in SQL alone.
        elsewhere: what other libraries call it besides, for hints.
        spark: the function of Spark's that gives the same answer.
        distinct: the aggregate that it is of ``DISTINCT`` values.
        fraction: its second argument is a fraction.
        keeps_argument: its state tells the type of its argument, in the column ``value``.
        as_float: it is computed of float64, whatever it takes.
        scaled: native code divides its decimals by what one is.
        ordered: it asks for the times of its rows.
        holds_values: its state grows with the values of its group.
    """

    takes: str
    result: Callable[[str], str]
    state: Callable[[str], Parts]
    _: KW_ONLY
    synonyms: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    spark: str = ""
    distinct: str = ""
    fraction: bool = False
    keeps_argument: bool = False
    as_float: bool = False
    scaled: bool = False
    ordered: bool = False
    holds_values: bool = False
