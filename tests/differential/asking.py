"""DuckDB on the rows of a case."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from medusa.query import boxes as b
from medusa.query.boxes import Graph
from tests.differential.data import Event, Schema, plain
from tests.differential.sql import Translation
from tests.differential.sql_expression import Unsupported
from tests.oracle.query import Promise, judged

Rows = list[tuple[Any, ...]]


def connected() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET threads = 1; SET TimeZone = 'UTC'")
    return con


def table(box: b.Source, schema: Schema, events: list[Event]) -> pa.Table:
    """The rows of a source in plain columns, with their times, places and promised boundaries."""
    rows: list[dict[str, Any]] = []
    promised: int | None = None
    for event in events:
        if event.source != box.id:
            continue
        if isinstance(event, Promise):
            promised = event.time
            continue
        rows += [{**row, "_promised": promised} for row in event.rows]
    columns: dict[str, pa.Array] = {}
    for name, type in schema.types.items():
        columns[name] = pa.array([row[name] for row in rows], wide(type))
    columns["_t"] = columns["ts"]
    columns["_pos"] = pa.array(range(len(rows)), pa.int64())
    columns["_promised"] = pa.array([row["_promised"] for row in rows], pa.int64())
    return pa.table(columns)


def wide(type: str) -> pa.DataType:
    if type == "uint64":
        return pa.uint64()
    if type.startswith(("int", "uint", "timestamp", "duration", "date")):
        return pa.int64()
    if type.startswith("float"):
        return pa.float64()
    if type.startswith("decimal"):
        return pa.decimal128(9, 2)
    return {"utf8": pa.string(), "binary": pa.binary(), "bool": pa.bool_()}[type]


def ask(
    con: duckdb.DuckDBPyConnection, graph: Graph, schemas: dict[str, Schema], events: list[Event]
) -> dict[str, Rows]:
    """Rows of every sink that DuckDB can compute."""
    for box in graph.boxes:
        if isinstance(box, b.Source):
            con.register(box.id, table(box, schemas[box.id], events))
    made = {}
    for box in graph.boxes:
        if isinstance(box, b.Sink):
            try:
                text = Translation(graph).sink(box)
            except Unsupported:
                continue
            made[box.id] = con.execute(text).fetchall()
    return made


def ask_text(
    con: duckdb.DuckDBPyConnection, text: str, graph: Graph, schemas: dict[str, Schema], events: list[Event]
) -> Rows:
    """Rows of a text that reads the tables by name, or with ``_ok`` the rows that came in time."""
    for box in graph.boxes:
        if isinstance(box, b.Source):
            schema = schemas[box.id].arrow()
            naive = [pa.timestamp("us") if pa.types.is_timestamp(type) else type for type in schema.types]
            named = [*zip(schema.names, naive, strict=True), ("pos", pa.int64())]
            fields = pa.schema(named)
            rows = [(place, row) for place, row in enumerate(judged(box, events)[0])]
            for name, kept in ((box.id, rows), (f"{box.id}_ok", [each for each in rows if not each[1].late])):
                values = [{**row.values, "pos": place} for place, row in kept]
                con.register(name, pa.Table.from_pylist(values, schema=fields))
    return [tuple(row.values()) for row in plain(con.sql(text).to_arrow_table())]
