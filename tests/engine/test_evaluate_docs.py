"""docs/expressions.md says what every function does; here its examples run, in Medusa and in DuckDB."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from medusa.engine.expressions.evaluate import compile_expression
from medusa.query.expressions.expression import Call
from medusa.query.expressions.functions import FUNCTIONS
from medusa.query.expressions.parse import parse
from medusa.query.expressions.tree import walk
from medusa.units import duration_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "expressions.md"


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, without their header lines."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.split("\n") if line.startswith("|")]
    return [[cell.strip().replace(r"\|", "|") for cell in row] for row in rows[2:]]


EXAMPLES = [(row[0].strip("`"), row[1].strip("`"), row[2]) for row in rows_of("Examples")]
GROUPS = ("Logic and comparison", "Arithmetic", "Text", "Time")
DOCUMENTED = [row[0] for group in GROUPS for row in rows_of(group)]
ONE_ROW = pa.record_batch({"x": pa.array([1])})


def show(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + value + "'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None)}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    if isinstance(value, timedelta):
        return f"INTERVAL '{duration_text(value // timedelta(microseconds=1))}'"
    return str(value)


def medusa(text: str) -> object:
    """The value, or ``fails``."""
    made = compile_expression(parse(text), {"x": "int64"})(ONE_ROW)
    if made.failed is not None and made.failed[0].as_py():
        assert made.error(0)
        return "fails"
    return show(made.values[0].as_py())


def in_duckdb(text: str) -> object:
    try:
        (row,) = duckdb.connect().execute(f"SELECT {text}").fetchall()
    except duckdb.Error:
        return "fails"
    return row[0]


def same(ours: str, theirs: object) -> bool:
    """Equal as values: DuckDB has decimals and integers where we have floats and wider integers."""
    if isinstance(theirs, float | Decimal) and not isinstance(theirs, bool) and ours not in ("fails", "NULL"):
        if not re.fullmatch(r"-?([0-9.]+(e[+-]?[0-9]+)?|inf|nan)", ours):
            return False
        number = float(ours)
        return number == float(theirs) or (math.isnan(number) and math.isnan(float(theirs)))
    if isinstance(theirs, int) and not isinstance(theirs, bool) and re.fullmatch(r"-?[0-9.]+", ours):
        return float(ours) == theirs
    return ours == ("fails" if theirs == "fails" else show(theirs))


def alike(note: str) -> bool:
    """Whether the page says that this DuckDB gives the same."""
    before = re.fullmatch(r"same before DuckDB (\d+), there .+", note)
    return note == "same" or (before is not None and int(duckdb.__version__.split(".")[0]) < int(before[1]))


@pytest.mark.parametrize(("text", "result", "note"), EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_an_example_is_true(text: str, result: str, note: str) -> None:
    assert medusa(text) == result
    assert same(result, in_duckdb(text)) == alike(note)


def test_every_function_is_documented_once() -> None:
    assert sorted(DOCUMENTED) == sorted(FUNCTIONS)


def test_every_function_has_an_example() -> None:
    used = {node.function for text, _, _ in EXAMPLES for node in walk(parse(text)) if isinstance(node, Call)}
    assert set(FUNCTIONS) - used == {"tuple_time"}
