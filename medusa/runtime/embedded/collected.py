"""What comes out of a query that has come to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from medusa.errors import DataError
from medusa.query.suggest import did_you_mean

__all__ = ["Collected"]


class Collected(Mapping[str, pa.Table]):
    """What came out of a query over bounded input: sink -> ``pyarrow.Table``."""

    def __init__(self, query: str, tables: dict[str, pa.Table], stats: pa.Table) -> None:
        self._query = query
        self._tables = tables
        self.stats = stats
        """Rows, late and dead rows of every box, as ``Run.stats()`` gives them."""

    @property
    def only(self) -> pa.Table:
        """The table of a query with one sink.

        Raises:
            DataError: it has several.
        """
        if len(self._tables) != 1:
            raise DataError(
                f"query {self._query!r} has {len(self._tables)} sinks: {', '.join(self._tables)}",
                hint="name the one you want: collect(...)[name]",
                code="data.sink",
            )
        return next(iter(self._tables.values()))

    def __getitem__(self, sink: str) -> pa.Table:
        if sink not in self._tables:
            raise KeyError(f"no sink {sink!r} ({did_you_mean(str(sink), self._tables)})")
        return self._tables[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        sinks = ", ".join(f"{name}: {table.num_rows} rows" for name, table in self._tables.items())
        return f"<Collected {self._query!r}: {sinks}>"
