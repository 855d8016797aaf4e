"""SQL text to sqlglot's syntax trees, with everything that could harm refused before."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokens import Token, TokenType

from medusa.errors import QueryError
from medusa.query.expressions.dialect import MedusaExpressions, checked_tokens, error_start
from medusa.query.sql.text import BOX, SqlText

__all__ = ["statements"]

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_WORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "INSERT", "CREATE", "WITH", "JOIN", "UNION")


class MedusaStatements(MedusaExpressions):
    """The grammar of expressions, in which SESSION is an ordinary name."""

    class Tokenizer(MedusaExpressions.Tokenizer):
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: kind for word, kind in MedusaExpressions.Tokenizer.KEYWORDS.items() if word != "SESSION"
        }

    class Parser(MedusaExpressions.Parser):
        def _parse_as_command(self, start: Token) -> Any:
            # sqlglot would warn, and give up reading.
            self.raise_error(f"{start.text.upper()} is no statement of ours", start)


def statements(text: object) -> tuple[SqlText, list[Any]]:
    """The statements of a text, and the text with its words.

    Raises:
        QueryError: no text, too long, too deep, no statement, or not SQL; says where.
    """
    if not isinstance(text, str):
        raise QueryError(f"{BOX}: expected the text of a query, got {type(text).__name__}", code="query.sql")
    dialect = MedusaStatements()
    tokens = checked_tokens(dialect, text, box=BOX, what="a query")
    known = SqlText(text, tokens)
    try:
        trees = dialect.parser().parse(_rewritten(tokens), text)
    except ParseError as error:
        raise _refused(known, error) from None
    except RecursionError:
        raise QueryError(f"{BOX}: the query is nested too deeply", code="query.limit") from None
    except Exception as error:
        # A parser of a foreign library, fed with anything: whatever it trips over is bad text.
        why = f"{type(error).__name__} in the parser"
        raise QueryError(f"{BOX}: can't read the query: {why}", code="query.syntax") from None
    found = [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]
    if not found:
        raise QueryError(f"{BOX}: the query is empty", code="query.syntax")
    return known, found


def _rewritten(tokens: list[Token]) -> list[Token]:
    """``TABLE(f(TABLE cars, ...))``, which sqlglot doesn't read, as ``TABLE(f(cars, ...))``."""
    made: list[Token] = []
    for here, after in zip(tokens, [*tokens[1:], None], strict=True):
        if here.token_type == TokenType.TABLE and after is not None:
            if after.token_type == TokenType.L_PAREN:
                made.append(_renamed(here))
                continue
            if after.token_type in _NAMES and made and made[-1].token_type == TokenType.L_PAREN:
                continue
        made.append(here)
    return made


def _renamed(token: Token) -> Token:
    return Token(TokenType.VAR, token.text, line=token.line, col=token.col, start=token.start, end=token.end)


_STREAMING = {
    "EMIT": "rows of a window leave when it closes; early results are asked for in the builder: early=",
    "MATCH_RECOGNIZE": "use .process(...) of the builder",
    "PARTITIONED": "tables belong to the builder: q.table(...)",
}


def _slip(text: SqlText, start: int) -> tuple[Token, str] | None:
    """The mistyped keyword shortly before a complaint, and what it should be.

    sqlglot takes such a word for a column or an alias, and complains a word or two later. It is one
    where the text can be read further with the keyword in its place.
    """
    from difflib import get_close_matches

    before = [token for token in text.tokens if token.start <= start]
    for token in reversed(before[-3:]):
        if token.token_type == TokenType.VAR and len(token.text) >= 4:
            close = get_close_matches(token.text.upper(), _WORDS, n=1, cutoff=0.75)
            if close:
                mended = text.text[: token.start] + close[0] + text.text[token.end + 1 :]
                if _readable(mended) > start + len(mended) - len(text.text):
                    return token, close[0]
    return None


def _readable(text: str) -> int:
    """The first character that can't be read, or the length of the text."""
    dialect = MedusaStatements()
    try:
        tokens = checked_tokens(dialect, text, box=BOX, what="a query")
        dialect.parser().parse(_rewritten(tokens), text)
    except ParseError as error:
        return error_start(text, error)[2]
    except Exception:
        # As above: whatever a foreign parser trips over; then there is no better hint.
        return 0
    return len(text)


def _refused(text: SqlText, error: ParseError) -> QueryError:
    why, word, start = error_start(text.text, error)
    why = why.partition(" but got <")[0]
    slip = _slip(text, start)
    if slip is not None:
        word, start = slip[0].text, slip[0].start
        why = "Unexpected token"
    near = f" near {word!r}" if word else ""
    hint = next((told for name, told in _STREAMING.items() if word.upper() == name), "")
    if slip is not None:
        hint = f"did you mean {slip[1]!r}?"
    return text.error_at(
        start,
        start + max(0, len(word) - 1),
        f"can't read the query: {why}{near}",
        hint=hint,
        code="query.syntax",
    )
