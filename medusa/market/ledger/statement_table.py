"""Statements as Arrow tables, for Parquet and for whoever goes on with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from medusa.market.ledger.statement import LoadStatement

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["statement_table"]


def statement_table(statements: Iterable[LoadStatement]) -> pa.Table:
    """A row for each line of each statement: contract, provider, consumer and currency, then the columns of
    ``StatementLine``. ``day`` is a date; amounts are whole micro-units."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("contract", pa.string()),
            ("provider", pa.string()),
            ("consumer", pa.string()),
            ("currency", pa.string()),
            ("day", pa.date32()),
            ("number", pa.int64()),
            ("version", pa.int64()),
            ("interval", pa.int64()),
            ("task", pa.string()),
            ("negotiation", pa.int64()),
            ("begin_row", pa.int64()),
            ("end_row", pa.int64()),
            ("nano_units", pa.decimal128(38, 0)),
            ("price_micro", pa.int64()),
            ("amount_micro", pa.int64()),
        ]
    )
    whose, of_line = schema.names[:4], schema.names[4:]
    columns: dict[str, list[object]] = {name: [] for name in schema.names}
    for statement in statements:
        for line in statement.lines:
            for name in whose:
                columns[name].append(getattr(statement, name))
            for name in of_line:
                columns[name].append(getattr(line, name))
    arrays = {name: pa.array(columns[name], _plain(schema.field(name).type)) for name in schema.names}
    return pa.table({name: array.cast(schema.field(name).type) for name, array in arrays.items()}, schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """What Python's integers become first."""
    import pyarrow as pa

    return pa.int32() if kind == pa.date32() else kind
