"""The grammar in which expressions are written: DuckDB's, cut down to what we read.

The only file besides ``parse`` that knows sqlglot. Functions are left as they were written, so that
sqlglot's own rewriting of them (which differs between its versions) plays no part.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType

from medusa.errors import QueryError

__all__ = ["MedusaExpressions", "checked_tokens", "clip", "error_start", "place", "syntax_tree"]

TEXT_BYTES_MAX = 64 * 1024
TOKENS_MAX = 10_000
NESTED_MAX = 32

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}


class MedusaExpressions(DuckDB):  # type: ignore[misc]  # sqlglot is untyped here
    """DuckDB's operators and literals; of its functions only the form ``name(arguments)``."""

    class Tokenizer(DuckDB.Tokenizer):  # type: ignore[misc]
        # As in Arrow: int8 has 8 bits, where DuckDB means 8 bytes.
        KEYWORDS: ClassVar[dict[str, Any]] = {**DuckDB.Tokenizer.KEYWORDS, "INT8": TokenType.TINYINT}

    class Parser(DuckDB.Parser):  # type: ignore[misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": lambda self: self._parse_case()}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: DuckDB.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
        }


def syntax_tree(text: str, *, box: str) -> exp.Expression:
    """Parse one expression.

    Raises:
        QueryError: too long, too deeply nested, or no expression; says where.
    """
    dialect = MedusaExpressions()
    tokens = checked_tokens(dialect, text, box=box, what="an expression")
    semicolon = next((token for token in tokens if token.token_type == TokenType.SEMICOLON), None)
    if semicolon is not None:
        raise QueryError(f"{box}: unexpected ';' {place(text, semicolon.start)}", code="query.syntax")
    try:
        trees = dialect.parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _refused(text, box, error) from None
    except RecursionError:
        raise QueryError(f"{box}: {clip(text)} is nested too deeply", code="query.limit") from None
    except Exception as error:
        # A parser of a foreign library, fed with anything: whatever it trips over is bad text.
        why = f"{type(error).__name__} in the parser"
        raise QueryError(f"{box}: can't read {clip(text)}: {why}", code="query.syntax") from None
    if len(trees) != 1 or trees[0] is None:
        raise QueryError(f"{box}: {clip(text)} is not one expression", code="query.syntax")
    return trees[0]


def checked_tokens(dialect: Any, text: str, *, box: str, what: str) -> list[Token]:
    """The words of a text, once their number and nesting is known to be harmless.

    Raises:
        QueryError: too long, too deeply nested, empty, or no words.
    """
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise QueryError(f"{box}: {what} has at most 64 KiB of text", code="query.limit")
    try:
        tokens: list[Token] = dialect.tokenize(text)
    except (SqlglotError, ValueError, OverflowError, RecursionError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise QueryError(f"{box}: can't read {clip(text)}: {why}", code="query.syntax") from None
    _check_tokens(tokens, text, box, what)
    return tokens


def clip(text: str) -> str:
    """The text in quotes, cut to 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def place(text: str, start: int) -> str:
    """Where character ``start`` (from 0) is, for a message: ``at character 8 of '...'``."""
    return f"at character {start + 1} of {clip(text)}"


def _check_tokens(tokens: list[Token], text: str, box: str, what: str) -> None:
    if not tokens:
        raise QueryError(f"{box}: the {what.split()[-1]} is empty", code="query.syntax")
    if len(tokens) > TOKENS_MAX:
        raise QueryError(f"{box}: {what} has at most {TOKENS_MAX:,} words", code="query.limit")
    nested = prefixes = 0
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            nested += 1
        elif kind in _CLOSING:
            nested -= 1
        prefixes = prefixes + 1 if kind in _PREFIX else 0
        if nested > NESTED_MAX or prefixes > NESTED_MAX:
            what = "operators in a row" if prefixes > NESTED_MAX else "brackets and CASEs inside each other"
            raise QueryError(
                f"{box}: more than {NESTED_MAX} {what} {place(text, token.start)}", code="query.limit"
            )


def _refused(text: str, box: str, error: ParseError) -> QueryError:
    """sqlglot's first complaint, with the word that it is about."""
    why, word, start = error_start(text, error)
    near = f" near {word!r}" if word else ""
    return QueryError(
        f"{box}: can't read the expression: {why}{near} {place(text, start)}", code="query.syntax"
    )


def error_start(text: str, error: ParseError) -> tuple[str, str, int]:
    """sqlglot's first complaint: what is wrong, the word that it is about, and where that begins."""
    first = error.errors[0] if error.errors else {}
    why = str(first.get("description") or "no expression")
    if "Required keyword" in why:
        why = "something is missing"
    why = why.removeprefix("Invalid expression / ")
    word = str(first.get("highlight") or "")
    lines = text.splitlines(keepends=True)
    line, column = int(first.get("line") or 1), int(first.get("col") or 0)
    # sqlglot gives the column of the last character of the word.
    start = max(0, sum(map(len, lines[: line - 1])) + column - max(1, len(word)))
    return why, word, start
