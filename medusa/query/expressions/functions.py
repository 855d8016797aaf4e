"""The closed list of functions of expressions: names, how many arguments, and type rules.

``docs/expressions.md`` says what each computes. The list has a version: a reader of a tree refuses
a function it doesn't know by name, and ``since`` tells which version brought it.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.query.expressions import rules, rules_text
from medusa.query.expressions.operands import Rule
from medusa.query.types import DURATION, NULL, TIMESTAMP, is_decimal, is_float, is_integer, is_numeric

__all__ = ["FUNCTIONS", "TABLE_VERSION", "BuiltinFunction", "castable"]

TABLE_VERSION = 1
"""Of the list below; raised when a function is added."""


@dataclass(frozen=True, slots=True)
class BuiltinFunction:
    """A function of the list.

    Attributes:
        least, most: how many arguments; ``most`` None: any number.
        rule: result and operand types; raises ``Mismatch``. Of ``add`` and ``mul``, which take any
            number, it is asked for two arguments at a time, from the left.
        since: the ``TABLE_VERSION`` that brought it.
    """

    name: str
    least: int
    most: int | None
    rule: Rule
    since: int = 1


_LIST = (
    *(
        BuiltinFunction(name, 2, 2, rules.compare)
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "is_distinct_from")
    ),
    BuiltinFunction("and", 2, None, rules.logic),
    BuiltinFunction("or", 2, None, rules.logic),
    BuiltinFunction("not", 1, 1, rules.logic),
    BuiltinFunction("is_null", 1, 1, rules.any_to_bool),
    BuiltinFunction("is_not_null", 1, 1, rules.any_to_bool),
    BuiltinFunction("is_nan", 1, 1, rules.is_nan),
    BuiltinFunction("add", 2, None, rules.add),
    BuiltinFunction("sub", 2, 2, rules.sub),
    BuiltinFunction("mul", 2, None, rules.mul),
    BuiltinFunction("div", 2, 2, rules.div),
    BuiltinFunction("floordiv", 2, 2, rules.plain("two numbers")),
    BuiltinFunction("mod", 2, 2, rules.plain("two numbers")),
    BuiltinFunction("neg", 1, 1, rules.neg),
    BuiltinFunction("abs", 1, 1, rules.signed),
    BuiltinFunction("sign", 1, 1, rules.plain("a number")),
    *(BuiltinFunction(name, 1, 1, rules.to_float) for name in ("sqrt", "exp", "ln", "log10")),
    BuiltinFunction("power", 2, 2, rules.to_float),
    BuiltinFunction("floor", 1, 1, rules.plain("a number")),
    BuiltinFunction("ceil", 1, 1, rules.plain("a number")),
    BuiltinFunction("round", 1, 2, rules.rounding),
    BuiltinFunction("least", 1, None, rules.mixed("values of one ordered type", ordered=True)),
    BuiltinFunction("greatest", 1, None, rules.mixed("values of one ordered type", ordered=True)),
    BuiltinFunction("coalesce", 1, None, rules.mixed("values of one type")),
    BuiltinFunction("nullif", 2, 2, rules.mixed("two values of comparable types")),
    BuiltinFunction("in", 2, None, rules.member),
    BuiltinFunction("like", 2, 2, rules_text.text("the pattern", result="bool")),
    BuiltinFunction("concat", 2, None, rules_text.texts),
    BuiltinFunction("lower", 1, 1, rules_text.texts),
    BuiltinFunction("upper", 1, 1, rules_text.texts),
    BuiltinFunction("length", 1, 1, rules_text.text(result="int64")),
    BuiltinFunction("substr", 2, 3, rules_text.substr),
    *(BuiltinFunction(name, 1, 2, rules_text.text("the characters")) for name in ("trim", "ltrim", "rtrim")),
    BuiltinFunction("replace", 3, 3, rules_text.text("what to replace", "the replacement")),
    *(
        BuiltinFunction(name, 2, 2, rules_text.text("what to look for", result="bool"))
        for name in ("starts_with", "ends_with", "contains")
    ),
    BuiltinFunction("split_part", 3, 3, rules_text.split_part),
    BuiltinFunction("regexp_matches", 2, 2, rules_text.text("the pattern", result="bool")),
    BuiltinFunction("regexp_replace", 3, 4, rules_text.regexp_replace),
    BuiltinFunction("regexp_extract", 2, 3, rules_text.regexp_extract),
    *(
        BuiltinFunction(name, 1, 1, rules_text.part)
        for name in ("year", "month", "day", "hour", "minute", "second")
    ),
    BuiltinFunction("epoch_us", 1, 1, rules_text.epoch_us),
    BuiltinFunction("date_trunc", 2, 2, rules_text.date_trunc),
    BuiltinFunction("tuple_time", 0, 0, rules_text.tuple_time),
)

FUNCTIONS: dict[str, BuiltinFunction] = {function.name: function for function in _LIST}
"""By name. Closed: nothing is added at run time."""


# -- casts ----------------------------------------------------------------------------------------


def castable(source: str, target: str) -> bool:
    """Whether CAST from ``source`` to ``target`` exists; single values may still fail."""
    if source in (target, NULL):
        return True
    if source == "utf8":
        return target not in (DURATION,)
    if target == "utf8":
        return source != DURATION
    if {source, target} == {"date32", TIMESTAMP}:
        return True
    if target == "bool":
        return is_integer(source)
    if source == "bool":
        return is_integer(target)
    if is_numeric(source) and is_numeric(target):
        return not (is_float(source) and is_decimal(target))
    return False
