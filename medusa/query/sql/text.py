"""The text of a query, and errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from medusa.errors import QueryError

__all__ = ["SqlError", "SqlText"]

BOX = "md.sql"
SNIPPET = 100


class SqlError(QueryError):
    """A QueryError with its place in the text.

    Attributes:
        line, column: where it begins, both from 1.
    """

    line = 1
    column = 1


class SqlText:
    """The text, and where the words of it stand."""

    def __init__(self, text: str, tokens: list[Any]) -> None:
        self.text = text
        self.tokens = tokens

    def error(self, node: Any, why: str, *, hint: str = "", code: str = "query.sql") -> QueryError:
        """An error about a part of the syntax: message, line and column, the line, a caret below.

        A part of which sqlglot doesn't tell the place gets that of the part around it (``at``).
        """
        span = self.span(node)
        if span is None:
            return QueryError(f"{BOX}: {why}", hint=hint, code=code)
        return self.error_at(*span, why, hint=hint, code=code)

    def error_at(
        self, start: int, end: int, why: str, *, hint: str = "", code: str = "query.sql"
    ) -> SqlError:
        """An error about the characters ``start`` to ``end`` (both included, from 0)."""
        start = max(0, min(start, len(self.text)))
        first = self.text.rfind("\n", 0, start) + 1
        last = self.text.find("\n", start)
        last = len(self.text) if last < 0 else last
        line, column = self.text.count("\n", 0, start) + 1, start - first + 1
        # A long line is shown around the place.
        left = first if last - first <= SNIPPET else max(first, start - SNIPPET // 2)
        shown = "".join(c if c.isprintable() else " " for c in self.text[left : min(last, left + SNIPPET)])
        width = max(1, min(end + 1, last, left + SNIPPET) - start)
        caret = " " * (start - left) + "^" * width
        made = SqlError(
            f"{BOX}: {why} (line {line}, column {column})\n  {shown}\n  {caret}", hint=hint, code=code
        )
        made.line, made.column = line, column
        return made

    @contextmanager
    def at(self, node: Any) -> Iterator[None]:
        """Give errors that come from inside, and have no place yet, the place of ``node``."""
        try:
            yield
        except SqlError:
            raise
        except QueryError as error:
            why = error.message.removeprefix(f"{BOX}: ")
            raise self.error(node, why, hint=error.hint, code=error.code) from None

    def span(self, node: Any) -> tuple[int, int] | None:
        """First and last character of a part, as far as sqlglot tells; None: it doesn't."""
        found = [part.meta for part in node.walk() if "start" in part.meta] if node is not None else []
        if not found:
            return None
        return min(meta["start"] for meta in found), max(meta["end"] for meta in found)

    def keyword(
        self, node: Any, word: str, why: str, *, hint: str = "", code: str = "query.unsupported"
    ) -> QueryError:
        """An error about a keyword: the last one before ``node``, else the first one."""
        span = self.span(node)
        words = [token for token in self.tokens if token.text.upper().startswith(word)]
        before = [token for token in words if span is None or token.start < span[0]]
        chosen = before[-1] if before and span is not None else (words[0] if words else None)
        if chosen is None:
            return self.error(node, why, hint=hint, code=code)
        return self.error_at(chosen.start, chosen.end, why, hint=hint, code=code)
