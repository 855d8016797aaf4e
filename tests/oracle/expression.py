"""Expressions row by row in plain Python: the rules of docs/expressions.md, slow and obvious.

Knows nothing of Arrow, of type inference or of batches. A value is a Python value with its kind:
``bool``, ``int`` (signed 64 bits), ``uint`` (unsigned 64 bits), ``float``, ``text``, ``time`` and
``duration`` (both integers of microseconds). ``NONE`` is a bare NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal

KINDS = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "int",
    "uint8": "int",
    "uint32": "int",
    "uint64": "uint",
    "float32": "float",
    "float64": "float",
    "utf8": "text",
    "timestamp[us, UTC]": "time",
    "duration[us]": "duration",
    "null": "none",
}
RANGES = {
    "int": (-(2**63), 2**63 - 1),
    "uint": (0, 2**64 - 1),
    "time": (-(2**63), 2**63 - 1),
    "duration": (-(2**63), 2**63 - 1),
}
WIDTHS = {"int8": (-128, 127), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}

Value = tuple[str, Any]


class Failed(Exception):
    """This row fails."""


def evaluate(tree: Expression, row: Mapping[str, Any], schema: Mapping[str, str]) -> Value:
    """(kind, value) of a tree on one row; raises ``Failed``."""
    match tree:
        case Column(name):
            return KINDS[schema[name]], row[name]
        case Literal(type, value):
            kind = KINDS[type]
            return kind, float(value) if kind == "float" and value is not None else value
        case Cast(arg, type):
            return cast(evaluate(arg, row, schema), type)
        case Case(branches, otherwise):
            return case(branches, otherwise, row, schema)
        case Call(function, args):
            if function in LAZY:
                return LAZY[function](args, row, schema)
            values = [evaluate(arg, row, schema) for arg in args]
            return STRICT[function](*values)
    raise AssertionError(tree)


# -- choosing -------------------------------------------------------------------------------------


def kind_of(tree: Expression, schema: Mapping[str, str]) -> str:
    """The kind of a tree whose value isn't looked at; every tree of a kind has it for any row."""
    try:
        return evaluate(tree, dict.fromkeys(schema), schema)[0]
    except Failed:
        # Constants that fail are integers divided by zero.
        return "int"


def meet(kinds: list[str]) -> str:
    kinds = [kind for kind in kinds if kind != "none"]
    if "float" in kinds:
        return "float"
    if "uint" in kinds:
        return "uint"
    return kinds[0] if kinds else "none"


def as_kind(value: Value, kind: str) -> Value:
    if value[1] is None:
        return kind, None
    return kind, float(value[1]) if kind == "float" else value[1]


def case(branches: Any, otherwise: Any, row: Mapping[str, Any], schema: Mapping[str, str]) -> Value:
    values = [value for _, value in branches] + ([otherwise] if otherwise is not None else [])
    kind = meet([kind_of(value, schema) for value in values])
    for condition, value in branches:
        if evaluate(condition, row, schema)[1] is True:
            return as_kind(evaluate(value, row, schema), kind)
    return as_kind(evaluate(otherwise, row, schema), kind) if otherwise is not None else (kind, None)


def both(args: Any, row: Any, schema: Any) -> Value:
    return until(False, args, row, schema)


def either(args: Any, row: Any, schema: Any) -> Value:
    return until(True, args, row, schema)


def until(decisive: bool, args: Any, row: Any, schema: Any) -> Value:
    unknown = False
    for arg in args:
        value = evaluate(arg, row, schema)[1]
        if value is decisive:
            return "bool", decisive
        unknown = unknown or value is None
    return "bool", None if unknown else not decisive


def coalesce(args: Any, row: Any, schema: Any) -> Value:
    kind = meet([kind_of(arg, schema) for arg in args])
    for arg in args:
        value = evaluate(arg, row, schema)
        if value[1] is not None:
            return as_kind(value, kind)
    return kind, None


LAZY: dict[str, Callable[..., Value]] = {"and": both, "or": either, "coalesce": coalesce}


# -- comparing ------------------------------------------------------------------------------------


def order(left: Value, right: Value) -> int | None:
    """-1, 0 or 1; None where one is null. NaN is greatest; text by bytes."""
    if left[1] is None or right[1] is None:
        return None
    kind = meet([left[0], right[0]])
    a, b = (key(as_kind(each, kind)) for each in (left, right))
    return (a > b) - (a < b)


def key(value: Value) -> Any:
    if value[0] == "float":
        return (math.isnan(value[1]), 0.0 if math.isnan(value[1]) else value[1])
    return value[1].encode() if value[0] == "text" else value[1]


def comparison(holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def compare(left: Value, right: Value) -> Value:
        found = order(left, right)
        return "bool", None if found is None else holds(found)

    return compare


def distinct(left: Value, right: Value) -> Value:
    if left[1] is None or right[1] is None:
        return "bool", (left[1] is None) != (right[1] is None)
    return "bool", order(left, right) != 0


def within(needle: Value, *listed: Value) -> Value:
    if needle[1] is None:
        return "bool", None
    found = [order(needle, each) for each in listed]
    return "bool", True if 0 in found else None if None in found else False


def extreme(sign: int) -> Callable[..., Value]:
    def pick(*values: Value) -> Value:
        kind = meet([value[0] for value in values])
        best: Value = (kind, None)
        for value in values:
            found = order(value, best)
            if best[1] is None or (found is not None and found * sign > 0):
                best = as_kind(value, kind) if value[1] is not None else best
        return best

    return pick


# -- computing ------------------------------------------------------------------------------------


def fitting(kind: str, value: Any) -> Value:
    low, high = RANGES[kind]
    if not low <= value <= high:
        raise Failed
    return kind, value


def arithmetic(exact: Callable[[Any, Any], Any], result: Callable[[str, str], str]) -> Callable[..., Value]:
    def compute(*values: Value) -> Value:
        total = values[0]
        for value in values[1:]:
            kind = result(total[0], value[0])
            if total[1] is None or value[1] is None:
                total = kind, None
            elif kind == "float":
                total = kind, exact(float(total[1]), float(value[1]))
            else:
                total = fitting(kind, exact(total[1], value[1]))
        return total

    return compute


def added(left: str, right: str) -> str:
    return (
        "time"
        if "time" in (left, right)
        else "duration"
        if "duration" in (left, right)
        else meet([left, right])
    )


def subtracted(left: str, right: str) -> str:
    return "duration" if left == right == "time" else added(left, right)


def divide(left: Value, right: Value) -> Value:
    if left[1] is None or right[1] is None:
        return "float", None
    return "float", quotient(float(left[1]), float(right[1]))


def quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def floor_divide(left: Value, right: Value) -> Value:
    kind = meet([left[0], right[0]])
    if left[1] is None or right[1] is None:
        return kind, None
    if kind == "float":
        made = quotient(float(left[1]), float(right[1]))
        return kind, made if not math.isfinite(made) else math.copysign(float(math.trunc(made)), made)
    if right[1] == 0:
        raise Failed
    whole = abs(left[1]) // abs(right[1])
    return fitting(kind, whole if (left[1] < 0) == (right[1] < 0) else -whole)


def modulo(left: Value, right: Value) -> Value:
    kind = meet([left[0], right[0]])
    if left[1] is None or right[1] is None:
        return kind, None
    if kind == "float":
        a, b = float(left[1]), float(right[1])
        if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
            return kind, math.nan
        return kind, math.fmod(a, b)
    if right[1] == 0:
        raise Failed
    rest = abs(left[1]) % abs(right[1])
    return kind, rest if left[1] >= 0 else -rest


def unary(exact: Callable[[Any], Any]) -> Callable[[Value], Value]:
    def compute(value: Value) -> Value:
        if value[1] is None:
            return value
        made = exact(value[1])
        return (value[0], made) if value[0] == "float" else fitting(value[0], made)

    return compute


def sign(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    return type(value)((value > 0) - (value < 0))


def half_away(value: float) -> int:
    return (
        int(Decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP)) if abs(value) < 1e18 else int(value)
    )


def rounded(value: Value, digits: Value = ("int", 0)) -> Value:
    if value[1] is None or value[0] != "float" or not math.isfinite(value[1]):
        return value
    scale = 10.0 ** abs(digits[1])
    moved = value[1] * scale if digits[1] >= 0 else value[1] / scale
    if not math.isfinite(moved) or moved == math.trunc(moved):
        return value
    whole = math.copysign(float(half_away(moved)), moved)
    return "float", whole / scale if digits[1] >= 0 else whole * scale


def whole_float(exact: Callable[[float], int]) -> Callable[[Value], Value]:
    def compute(value: Value) -> Value:
        if value[1] is None or value[0] != "float" or not math.isfinite(value[1]):
            return value
        return "float", math.copysign(float(exact(value[1])), value[1])

    return compute


# -- text and time --------------------------------------------------------------------------------


def on_text(exact: Callable[..., Any], kind: str = "text") -> Callable[..., Value]:
    def compute(*values: Value) -> Value:
        if any(value[1] is None for value in values):
            return kind, None
        return kind, exact(*(value[1] for value in values))

    return compute


def substr(text: str, start: int, length: int | None = None) -> str:
    first = start - 1 if start > 0 else len(text) + start
    last = len(text) if length is None else first + length
    return "".join(char for index, char in enumerate(text) if first <= index < last)


def split_part(text: str, separator: str, number: int) -> str:
    parts = text.split(separator)
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if 0 <= index < len(parts) else ""


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


EPOCH = datetime(1970, 1, 1)


def calendar(exact: Callable[[datetime], int], kind: str = "int") -> Callable[[Value], Value]:
    def compute(value: Value) -> Value:
        if value[1] is None:
            return kind, None
        try:
            return kind, exact(EPOCH + timedelta(microseconds=value[1]))
        except OverflowError:
            raise Failed from None

    return compute


def truncated(unit: Value, time: Value) -> Value:
    def cut(point: datetime) -> int:
        day = point.replace(hour=0, minute=0, second=0, microsecond=0)
        starts = {
            "second": point.replace(microsecond=0),
            "minute": point.replace(second=0, microsecond=0),
            "hour": point.replace(minute=0, second=0, microsecond=0),
            "day": day,
            "month": day.replace(day=1),
            "quarter": day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1),
            "year": day.replace(day=1, month=1),
        }
        return (starts[unit[1]] - EPOCH) // timedelta(microseconds=1)

    return calendar(cut, "time")(time)


def cast(value: Value, type: str) -> Value:
    kind = KINDS[type]
    if value[1] is None or (value[0], kind) in (("text", "text"), ("time", "time")):
        return kind, value[1]
    if kind in ("int", "uint"):
        low, high = WIDTHS.get(type, RANGES[kind])
        number = value[1]
        if value[0] == "float":
            if not math.isfinite(number):
                raise Failed
            number = half_away(number)
        if not low <= number <= high:
            raise Failed
        return kind, int(number)
    if kind == "float":
        return kind, float(value[1])
    if kind == "bool":
        return kind, bool(value[1])
    if kind == "text" and value[0] in ("int", "uint"):
        return kind, str(value[1])
    raise AssertionError((value, type))


STRICT: dict[str, Callable[..., Value]] = {
    "eq": comparison(lambda found: found == 0),
    "ne": comparison(lambda found: found != 0),
    "lt": comparison(lambda found: found < 0),
    "le": comparison(lambda found: found <= 0),
    "gt": comparison(lambda found: found > 0),
    "ge": comparison(lambda found: found >= 0),
    "is_distinct_from": distinct,
    "not": lambda value: ("bool", None if value[1] is None else not value[1]),
    "is_null": lambda value: ("bool", value[1] is None),
    "is_not_null": lambda value: ("bool", value[1] is not None),
    "is_nan": lambda value: ("bool", None if value[1] is None else math.isnan(value[1])),
    "in": within,
    "least": extreme(-1),
    "greatest": extreme(1),
    "nullif": lambda a, b: (meet([a[0], b[0]]), None) if order(a, b) == 0 else as_kind(a, meet([a[0], b[0]])),
    "add": arithmetic(lambda a, b: a + b, added),
    "sub": arithmetic(lambda a, b: a - b, subtracted),
    "mul": arithmetic(lambda a, b: a * b, added),
    "div": divide,
    "floordiv": floor_divide,
    "mod": modulo,
    "neg": unary(lambda a: -a),
    "abs": unary(abs),
    "sign": unary(sign),
    "floor": whole_float(math.floor),
    "ceil": whole_float(math.ceil),
    "round": rounded,
    "concat": on_text(lambda *parts: "".join(parts)),
    "lower": on_text(str.lower),
    "upper": on_text(str.upper),  # the tests write no letters that become two
    "length": on_text(len, "int"),
    "substr": on_text(substr),
    "split_part": on_text(split_part),
    "like": on_text(like, "bool"),
    "replace": on_text(lambda text, old, new: text.replace(old, new) if old else text),
    "starts_with": on_text(str.startswith, "bool"),
    "ends_with": on_text(str.endswith, "bool"),
    "contains": on_text(lambda text, part: part in text, "bool"),
    "trim": on_text(lambda text: text.strip(" ")),
    "ltrim": on_text(lambda text: text.lstrip(" ")),
    "rtrim": on_text(lambda text: text.rstrip(" ")),
    "year": calendar(lambda point: point.year),
    "month": calendar(lambda point: point.month),
    "day": calendar(lambda point: point.day),
    "hour": calendar(lambda point: point.hour),
    "minute": calendar(lambda point: point.minute),
    "second": calendar(lambda point: point.second),
    "epoch_us": lambda value: ("int", value[1]),
    "date_trunc": truncated,
}
