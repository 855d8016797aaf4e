"""Clauses that SQL has and streams don't, each with the nearest thing there is."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from medusa.query.sql.text import SqlText

__all__ = ["refuse_clauses"]

_NEAREST = {
    "order": ("ORDER BY", "ORDER", "rows leave in the order of the stream; sort what you have taken"),
    "limit": ("LIMIT", "LIMIT", "a stream has no end: .take(), or medusa tail --limit"),
    "offset": ("OFFSET", "OFFSET", "a stream has no end: filter by time"),
    "distinct": (
        "SELECT DISTINCT",
        "DISTINCT",
        "GROUP BY the columns and TUMBLE(ts, ...): each once per window",
    ),
    "windows": ("WINDOW", "WINDOW", "GROUP BY with TUMBLE, HOP or SESSION"),
    "laterals": ("LATERAL", "LATERAL", "JOIN ... ON keys AND time bounds"),
    "sample": ("TABLESAMPLE", "TABLE", "WHERE, or .drop(...) of the builder"),
    "pivots": ("PIVOT", "PIVOT", "sum(x) FILTER (WHERE kind = 'a') AS a"),
    "into": ("SELECT INTO", "INTO", "INSERT INTO sink SELECT ..."),
    "with_ties": ("WITH TIES", "TIES", ""),
    "connect": ("CONNECT BY", "CONNECT", ""),
    "fetch": ("FETCH", "FETCH", "a stream has no end: .take(), or medusa tail --limit"),
    "prewhere": ("PREWHERE", "PREWHERE", "WHERE"),
    "sort": ("SORT BY", "SORT", "rows leave in the order of the stream"),
    "cluster": ("CLUSTER BY", "CLUSTER", ""),
    "distribute": ("DISTRIBUTE BY", "DISTRIBUTE", ""),
    "match": ("MATCH_RECOGNIZE", "MATCH", ".process(...) of the builder"),
    "locks": ("FOR UPDATE", "FOR", ""),
    "hint": ("a hint", "", ""),
    "joins": ("a join here", "", "put it in a query of its own"),
    "using": ("USING", "USING", ""),
    "db": ("a name with a dot in FROM", "", "sources are given to md.sql by one name"),
}


def refuse_clauses(node: Any, known: tuple[str, ...], text: SqlText, what: str) -> None:
    """Refuse every part of a clause that would otherwise be left out silently.

    Args:
        known: names of the parts that are read.
        what: how the clause is called.
    """
    for name, value in node.args.items():
        if name in known or value is None or value is False or value == [] or value == "":
            continue
        title, keyword, hint = _NEAREST.get(name, (f"{what} with {name.strip('_').upper()}", "", ""))
        about = value[0] if isinstance(value, list) and value else value
        if not isinstance(about, exp.Expression):
            about = None
        if name == "sample":
            about = node
        if keyword:
            raise text.keyword(
                node if name == "sample" else about, keyword, f"{title} is not supported", hint=hint
            )
        raise text.error(
            about if text.span(about) else node,
            f"{title} is not supported",
            hint=hint,
            code="query.unsupported",
        )
