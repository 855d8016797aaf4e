"""The network-monitoring answers by another road: DuckDB or plain Python, never Medusa.

Both read the raw trace, in file order and unsplit, so they share nothing with the query but the
question. The demo compares its results with one of them, row by row.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "Comparison", "Row", "by_duckdb", "by_python", "compare", "expected", "rows_of"]

Row: TypeAlias = tuple[Any, ...]
"""window_start in microseconds, the key, the aggregates."""

COLUMNS = {
    "groups": ("window_start", "src", "n", "p"),
    "heavy": ("window_start", "src", "n", "p"),
    "wide": ("window_start", "src", "n", "p"),
    "both": ("window_start", "src", "n", "p"),
    "clusters": ("window_start", "prefix", "n"),
}
"""What is compared of each result."""

_DUCKDB = r"""
WITH per_src AS (
    SELECT ts_us - ts_us % 60000000 AS window_start, src, count(*) AS n, count(DISTINCT dport) AS p
    FROM trace GROUP BY ALL
), per_prefix AS (
    SELECT window_start,
        CASE WHEN regexp_full_match(src, '[0-9]{1,3}(\.[0-9]{1,3}){3}')
            THEN array_to_string(string_split(src, '.')[1:3], '.') ELSE src END AS prefix,
        sum(n)::BIGINT AS n
    FROM per_src WHERE NOT n > 100 GROUP BY ALL
)
"""

_SELECTS = {
    "groups": "SELECT window_start, src, n, p FROM per_src",
    "heavy": "SELECT window_start, src, n, p FROM per_src WHERE n > 100",
    "wide": "SELECT window_start, src, n, p FROM per_src WHERE p > 10",
    "both": "SELECT window_start, src, n, p FROM per_src WHERE n > 100 AND p > 10",
    "clusters": "SELECT window_start, prefix, n FROM per_prefix WHERE n > 100",
}


def by_duckdb(trace: pa.Table) -> dict[str, list[Row]]:
    """The five results as sorted rows, computed by DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("trace", trace)
        return {
            name: sorted(connection.sql(_DUCKDB + select).fetchall()) for name, select in _SELECTS.items()
        }


def by_python(trace: pa.Table) -> dict[str, list[Row]]:
    """The five results as sorted rows, computed with dictionaries."""
    counts: Counter[tuple[int, str]] = Counter()
    ports: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    columns = (trace[name].to_pylist() for name in ("ts_us", "src", "dport"))
    for ts_us, src, dport in zip(*columns, strict=True):
        group = (ts_us // 60_000_000 * 60_000_000, src)
        counts[group] += 1
        if dport is not None:
            ports[group].add(dport)
    per_prefix: Counter[tuple[int, str]] = Counter()
    for (window, src), n in counts.items():
        if n <= 100:
            per_prefix[window, _prefix(src)] += n
    groups: list[Row] = sorted((*group, n, len(ports[group])) for group, n in counts.items())
    return {
        "groups": groups,
        "heavy": [row for row in groups if row[2] > 100],
        "wide": [row for row in groups if row[3] > 10],
        "both": [row for row in groups if row[2] > 100 and row[3] > 10],
        "clusters": sorted((*group, n) for group, n in per_prefix.items() if n > 100),
    }


def _prefix(address: str) -> str:
    if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", address):
        return address.rpartition(".")[0]
    return address


def expected(trace: pa.Table) -> tuple[str, dict[str, list[Row]]]:
    """How the answers were found (for the reader), and the answers."""
    if importlib.util.find_spec("duckdb") is not None:
        return "DuckDB", by_duckdb(trace)
    return "plain Python", by_python(trace)


def rows_of(name: str, table: pa.Table) -> list[Row]:
    """A result of Medusa as sorted rows."""
    import pyarrow as pa

    columns = [
        table[column].cast(pa.int64()).to_pylist() if column == "window_start" else table[column].to_pylist()
        for column in COLUMNS[name]
    ]
    return sorted(zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result beside its independent computation.

    Attributes:
        missing: rows that Medusa should have given and did not.
        extra: rows that it gave and should not have.
        example: one of them, for the reader; None where equal.
    """

    name: str
    rows: int
    expected: int
    missing: int
    extra: int
    example: Row | None

    @property
    def equal(self) -> bool:
        return not self.missing and not self.extra


def compare(results: Mapping[str, list[Row]], wanted: Mapping[str, list[Row]]) -> list[Comparison]:
    """Compare as multisets: a row given twice is an extra row."""
    comparisons = []
    for name, rows in wanted.items():
        got = results.get(name, [])
        missing = Counter(rows) - Counter(got)
        extra = Counter(got) - Counter(rows)
        example = min([*missing, *extra], default=None)
        comparisons.append(Comparison(name, len(got), len(rows), missing.total(), extra.total(), example))
    return comparisons
