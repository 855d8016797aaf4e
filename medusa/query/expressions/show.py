"""An expression as short SQL-like text, for messages and plans. Never parsed back."""

from __future__ import annotations

from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal

__all__ = ["show"]

INFIX = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "is_distinct_from": "IS DISTINCT FROM",
    "and": "AND",
    "or": "OR",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "concat": "||",
    "like": "LIKE",
}
SUFFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL"}
DEPTH_MAX = 64
OPERANDS_MAX = 20


def show(expression: Expression, *, longest: int = 120) -> str:
    """The expression as text, cut to ``longest`` characters with ``...`` at its end."""
    text = _show(expression, 0)
    if text.startswith("(") and _closes_at_end(text):
        text = text[1:-1]
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _closes_at_end(text: str) -> bool:
    """Whether the first bracket is closed by the last character (quotes hold no bracket's partner)."""
    depth, quoted = 0, ""
    for index, char in enumerate(text):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return index == len(text) - 1
    return False


def _show(expression: Expression, depth: int) -> str:
    if depth > DEPTH_MAX:
        return "..."
    deeper = depth + 1
    match expression:
        case Column(name):
            return name if name.replace(".", "_").isidentifier() else '"' + name.replace('"', '""') + '"'
        case Literal():
            return _literal(expression)
        case Cast(arg, type):
            return f"CAST({_show(arg, deeper)} AS {type})"
        case Case(branches, otherwise):
            parts = [
                f"WHEN {_show(condition, deeper)} THEN {_show(value, deeper)}"
                for condition, value in branches
            ]
            if otherwise is not None:
                parts.append(f"ELSE {_show(otherwise, deeper)}")
            return f"CASE {' '.join(parts)} END"
        case Call(function, args):
            return _call(function, [_show(arg, deeper) for arg in args[:OPERANDS_MAX]], len(args))
    raise TypeError(f"{type(expression).__name__} is no expression")


def _call(function: str, args: list[str], count: int) -> str:
    if count > len(args):
        args = [*args, "..."]
    if function in INFIX and len(args) >= 2:
        return f"({f' {INFIX[function]} '.join(args)})"
    if function in SUFFIX and len(args) == 1:
        return f"({args[0]} {SUFFIX[function]})"
    if function == "not" and len(args) == 1:
        return f"(NOT {args[0]})"
    if function == "neg" and len(args) == 1:
        return f"(-{args[0]})"
    if function == "in" and len(args) >= 2:
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    return f"{function}({', '.join(args)})"


def _literal(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if literal.type == "utf8":
        return "'" + str(value).replace("'", "''") + "'"
    if literal.type in ("date32", "timestamp[us, UTC]", "duration[us]", "binary"):
        from medusa.query.expressions.text_casts import literal_text

        return literal_text(literal)
    return str(value)
