"""A query from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from medusa.errors import QueryError

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["read_query"]


def read_query(path: Path) -> Query:
    """What ``q.to_json()`` wrote.

    Raises:
        QueryError: it can't be read, or is no query; names the file.
    """
    from medusa.query.builder import Query

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{path} can't be read: {error}", code="query.file") from error
    try:
        return Query.from_json(text)
    except QueryError as error:
        raise QueryError(f"{path}: {error.message}", hint=error.hint, code=error.code) from error
