"""Time bounds in the ON of a join: which distances of time a condition allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medusa.query.expressions.expression import Call, Column, Expression, Literal
from medusa.query.sql.scope import TimeColumn
from medusa.query.types import DURATION, is_integer

__all__ = ["JoinBounds", "bounds_of"]


@dataclass(frozen=True, slots=True)
class JoinBounds:
    """``low <= left time - right time <= high`` in microseconds; None: no bound.

    Attributes:
        exact: nothing is lost by asking for the distance alone.
    """

    low: int | None = None
    high: int | None = None
    exact: bool = True

    def both(self, other: JoinBounds) -> JoinBounds:
        """What both allow."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return JoinBounds(max(lows, default=None), min(highs, default=None), self.exact and other.exact)


@dataclass(frozen=True, slots=True)
class _Linear:
    """``left * left time + right * right time + constant`` in steps of one unit.

    Attributes:
        unit_us: as of a TimeColumn; None: a plain number, which takes that of what it is added to.
        is_number: numbers and times don't mix.
        spreads_us: how much later than their columns the times of left and right may be.
    """

    left: int
    right: int
    constant: int
    unit_us: int | None
    is_number: bool | None
    spreads_us: tuple[int, int] = (0, 0)

    def plus(self, other: _Linear, sign: int = 1) -> _Linear | None:
        for ours, theirs in ((self.unit_us, other.unit_us), (self.is_number, other.is_number)):
            if ours is not None and theirs is not None and ours != theirs:
                return None
        is_number = self.is_number if self.is_number is not None else other.is_number
        unit_us = self.unit_us if self.unit_us is not None else other.unit_us
        return _Linear(
            self.left + sign * other.left,
            self.right + sign * other.right,
            self.constant + sign * other.constant,
            unit_us,
            is_number,
            (max(self.spreads_us[0], other.spreads_us[0]), max(self.spreads_us[1], other.spreads_us[1])),
        )


_NOTHING = _Linear(0, 0, 0, None, None)
_Times = Mapping[str, TimeColumn]
_FLIPPED = {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt", "eq": "eq"}


def bounds_of(condition: Expression, left: _Times, right: _Times) -> JoinBounds | None:
    """What a condition on ``left.x`` and ``right.x`` says of the distance in time; None: it is about
    something else.

    Args:
        left, right: the columns of either side that tell the time.
    """
    if not isinstance(condition, Call):
        return None
    if condition.function == "and":
        found = [bounds_of(arg, left, right) for arg in condition.args]
        if any(each is None for each in found):
            return None
        made = JoinBounds()
        for each in found:
            made = made.both(each or JoinBounds())
        return made
    if condition.function not in _FLIPPED or len(condition.args) != 2:
        return None
    function, (a, b) = condition.function, condition.args
    if _is_abs(b):
        function, a, b = _FLIPPED[function], b, a
    if _is_abs(a) and isinstance(a, Call):
        inner, limit = _linear(a.args[0], left, right), _linear(b, left, right)
        if (
            inner is None
            or limit is None
            or (limit.left, limit.right) != (0, 0)
            or function not in ("le", "lt")
        ):
            return None
        upper = inner.plus(limit, -1)
        lower = inner.plus(limit)
        opposite = _FLIPPED[function]
        if upper is None or lower is None:
            return None
        one, two = _bounds(upper, function), _bounds(lower, opposite)
        return None if one is None or two is None else one.both(two)
    ours, theirs = _linear(a, left, right), _linear(b, left, right)
    if ours is None or theirs is None:
        return None
    difference = ours.plus(theirs, -1)
    return None if difference is None else _bounds(difference, function)


def _is_abs(node: Expression) -> bool:
    return isinstance(node, Call) and node.function == "abs" and len(node.args) == 1


def _bounds(line: _Linear, function: str) -> JoinBounds | None:
    """``line function 0`` as bounds on left time - right time."""
    if (line.left, line.right) == (-1, 1):
        line, function = (
            _Linear(1, -1, -line.constant, line.unit_us, line.is_number, line.spreads_us),
            _FLIPPED[function],
        )
    if (line.left, line.right) != (1, -1):
        return None
    edge = -line.constant
    low = high = None
    if function in ("le", "eq", "lt"):
        high = edge - (function == "lt")
    if function in ("ge", "eq", "gt"):
        low = edge + (function == "gt")
    unit_us = line.unit_us if line.unit_us is not None else 1
    if unit_us:
        low, high = (None if edge is None else edge * unit_us for edge in (low, high))
    else:
        # Nanoseconds: the time is rounded down, so that a distance may be 1 us more or less.
        low = None if low is None else low // 1000 - 1
        high = None if high is None else -(-high // 1000) + 1
    later_left, later_right = line.spreads_us
    return JoinBounds(
        None if low is None else low - later_right,
        None if high is None else high + later_left,
        bool(unit_us) and not later_left and not later_right,
    )


def _linear(node: Expression, left: _Times, right: _Times) -> _Linear | None:
    match node:
        case Column():
            return _column(node.name, left, right)
        case Literal() if node.type == DURATION and isinstance(node.value, int):
            return _Linear(0, 0, node.value, 1, False)
        case Literal() if is_integer(node.type) and isinstance(node.value, int):
            return _Linear(0, 0, node.value, None, True)
        case Call(function="neg"):
            inner = _linear(node.args[0], left, right)
            return None if inner is None else _NOTHING.plus(inner, -1)
        case Call(function="sub"):
            return _sum(node.args, left, right, lambda place: -1 if place else 1)
        case Call(function="add"):
            return _sum(node.args, left, right, lambda place: 1)
    return None


def _sum(
    args: tuple[Expression, ...], left: _Times, right: _Times, sign: Callable[[int], int]
) -> _Linear | None:
    total: _Linear | None = _NOTHING
    for place, arg in enumerate(args):
        part = _linear(arg, left, right)
        if part is None or total is None:
            return None
        total = total.plus(part, sign(place))
    return total


def _column(name: str, left: _Times, right: _Times) -> _Linear | None:
    side, _, column = name.partition(".")
    found = (left if side == "left" else right).get(column)
    if found is None:
        return None
    ours = side == "left"
    # The column is the time plus its shift.
    spreads = (found.spread_us, 0) if ours else (0, found.spread_us)
    return _Linear(int(ours), int(not ours), found.shift_us, found.unit_us, found.is_number, spreads)
