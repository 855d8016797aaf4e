"""A query, and where its boxes shall be, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from medusa.errors import QueryError

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["query_of", "read_placement", "read_query", "read_text"]


def read_query(path: Path) -> Query:
    """What ``q.to_json()`` wrote.

    Raises:
        QueryError: it can't be read, or is no query; names the file.
    """
    return query_of(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Raises: QueryError: the file of a query can't be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{path} can't be read: {error}", code="query.file") from error


def query_of(text: str, file: str) -> Query:
    """A query from the JSON in a file. Raises: QueryError: it is no query; names the file."""
    from medusa.query.builder import Query

    try:
        return Query.from_json(text)
    except QueryError as error:
        raise QueryError(f"{file}: {error.message}", hint=error.hint, code=error.code) from error


def read_placement(path: Path) -> dict[str, list[str]]:
    """What ``deploy`` takes as ``at``.

    Raises:
        QueryError: it can't be read, or is no placement; names the file.
    """
    rule = 'expected a JSON object: {"node": ["box or source", ...]}'
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise QueryError(f"{path}: {error}", hint=rule, code="query.at") from error
    lists = found.values() if isinstance(found, dict) else [None]
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        raise QueryError(f"{path} is no placement", hint=rule, code="query.at")
    return dict(found)
